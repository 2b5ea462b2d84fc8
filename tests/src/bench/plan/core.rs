//! The core of an agent: real, but for maps that only count.

use lb_common::Settings;
use lb_userspace::{
    desired::Identity,
    maps::{LbMaps, MapError, Op, Part, Snapshot, Which},
    model::Object,
    reconcile::{Config, Engine},
    render::Document,
    source::{Event, Feed, SourceEvent},
    sys::Cursor,
};
use tokio::time::{Duration, Instant};

use super::super::cluster::{Cluster, read};

/// The node that it is on: one of those that endpoints are on.
pub(super) const NODE: &str = "node-0.example.test";

/// As with the Kubernetes API: Services, and EndpointSlices.
const FEEDS: usize = 2;

/// Objects on a page of the API's lists. The reconciler has done a page before the next one is there.
pub(super) const PAGE: usize = 500;

/// Maps that take every operation and keep nothing: neither their time nor their memory is the agent's.
struct Void;

impl LbMaps for Void {
    fn apply(&mut self, _: &Op) -> Result<(), MapError> {
        Ok(())
    }

    fn read(&self, _: Which, _: Option<Cursor>) -> Result<Part, MapError> {
        Ok(Part::last(std::iter::empty()))
    }

    fn snapshot(&self) -> Result<Snapshot, MapError> {
        Ok(Snapshot { settings: Settings::default(), ..Snapshot::default() })
    }
}

/// The reconciler with its clock.
pub(super) struct Core {
    engine: Engine,
    now: Instant,
}

impl Core {
    pub(super) fn start() -> Self {
        Self::over(Box::new(Void))
    }

    /// Over maps of the caller, which are empty and never fail.
    pub(super) fn over(maps: Box<dyn LbMaps>) -> Self {
        let config = Config {
            identity: Identity::of(NODE),
            feeds: FEEDS,
            optional: Vec::new(),
            remembered: Vec::new(),
        };
        let engine = Engine::start(maps, config).expect("the maps can be read");
        Self { engine, now: Instant::now() }
    }

    /// Takes in events, a page at a time, and does what is due at once.
    pub(super) fn hear(&mut self, events: impl IntoIterator<Item = SourceEvent>) {
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            events.by_ref().take(PAGE).for_each(|event| self.engine.handle(event));
            self.engine.step(self.now);
        }
    }

    /// Does all that is to be done, grace periods included.
    pub(super) fn settle(&mut self) {
        while let Some(next) = self.engine.next_step(self.now) {
            self.now = next.max(self.now);
            self.engine.step(self.now);
        }
        // What comes next is no neighbour of this in time.
        self.now += Duration::from_secs(1);
    }

    pub(super) fn operations(&self) -> u64 {
        self.engine.status().operations
    }

    pub(super) fn programmed(&self) -> usize {
        self.engine.status().programmed
    }

    pub(super) fn render(&self) -> Document {
        self.engine.state().render()
    }
}

/// The objects of a cluster, one at a time: the text of one is gone before the next one is made.
pub(super) fn stream(cluster: Cluster) -> impl Iterator<Item = Object> {
    cluster.objects().map(|object| read(&object).expect("the objects of a cluster can be read"))
}

/// An object, said.
pub(super) fn said(object: Object) -> SourceEvent {
    let feed = Feed(usize::from(!matches!(object, Object::Service(_))));
    SourceEvent { feed, event: Event::Apply(object) }
}

/// Complete lists of these objects.
pub(super) fn lists(objects: impl IntoIterator<Item = Object>) -> impl Iterator<Item = SourceEvent> {
    let every =
        |event: Event| (0..FEEDS).map(move |feed| SourceEvent { feed: Feed(feed), event: event.clone() });
    every(Event::ListStarted).chain(objects.into_iter().map(said)).chain(every(Event::ListComplete))
}
