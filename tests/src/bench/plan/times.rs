//! What changes, lists and questions cost, against the number of Services.

use anyhow::{Result, ensure};
use lb_userspace::model::Object;

use super::{
    super::{
        cluster::{Cluster, ENDPOINTS, read},
        report::Row,
        samples::{Samples, interleaved, microseconds},
    },
    core::{Core, PAGE, lists, said, stream},
    part::{self, Part},
};

/// A core with all objects of a cluster in its maps, and the objects.
struct Loaded {
    cluster: Cluster,
    objects: Vec<Object>,
    core: Core,
}

impl Loaded {
    fn new(services: usize) -> Result<Self> {
        let cluster = Cluster::of(services);
        let objects: Vec<_> = stream(cluster).collect();
        let mut core = Core::start();
        core.hear(lists(objects.iter().cloned()));
        core.settle();
        ensure!(
            core.programmed() == services,
            "{} of {services} Services are in the maps",
            core.programmed()
        );
        Ok(Self { cluster, objects, core })
    }

    /// An endpoint anywhere goes, and comes back: the time from an event to the last operation that comes of it, on
    /// average of the two, which cost different amounts.
    fn flip(&mut self, random: &mut fastrand::Rng) -> f64 {
        let (service, endpoint) = (random.usize(..self.cluster.services()), random.usize(..ENDPOINTS));
        (self.change(service, Some(endpoint)) + self.change(service, None)) / 2.0
    }

    fn change(&mut self, service: usize, not_ready: Option<usize>) -> f64 {
        let event = said(read(&self.cluster.slice(service, not_ready)).expect("it was read before"));
        let before = self.core.operations();
        let time = microseconds(|| {
            self.core.hear([event]);
            self.core.settle();
        });
        assert!(self.core.operations() > before, "the change has changed nothing");
        time
    }
}

/// One endpoint changes, in a small and in a large cluster.
pub(super) fn flip(sizes: [usize; 2], rounds: usize, limit: Option<f64>) -> Result<Vec<Row>> {
    let [mut small, mut large] = [Loaded::new(sizes[0])?, Loaded::new(sizes[1])?];
    let [mut of_small, mut of_large] = [1, 2].map(fastrand::Rng::with_seed);
    let pair = interleaved(rounds, || small.flip(&mut of_small), || large.flip(&mut of_large));
    let row = |services, samples| Row::new("plan/flip", services, "us", samples);
    Ok(vec![row(sizes[0], &pair.small), row(sizes[1], &pair.large).ratio(pair.ratio).limit(limit)])
}

/// An agent starts with empty maps, and writes everything.
pub(super) fn full(sizes: [usize; 2], rounds: usize, limit: Option<f64>) -> Result<Vec<Row>> {
    let build = |services| move || part::measure(Part::Full, services).expect("a child process measures");
    let pair = interleaved(rounds, build(sizes[0]), build(sizes[1]));
    let row = |services, samples| Row::new("plan/full", services, "us", samples);
    #[expect(clippy::cast_precision_loss, reason = "sizes are small numbers")]
    let ratio = pair.ratio * sizes[0] as f64 / sizes[1] as f64;
    Ok(vec![row(sizes[0], &pair.small), row(sizes[1], &pair.large).ratio(ratio).limit(limit)])
}

/// The time of a full build, in microseconds. What a page of a list says is made just before it is heard, as a source
/// makes it, and that does not count.
pub(super) fn build(services: usize) -> Result<f64> {
    let mut core = Core::start();
    let mut events = lists(stream(Cluster::of(services))).peekable();
    let mut time = 0.0;
    while events.peek().is_some() {
        let page: Vec<_> = events.by_ref().take(PAGE).collect();
        time += microseconds(|| core.hear(page));
    }
    time += microseconds(|| core.settle());
    ensure!(core.programmed() == services, "not everything is in the maps");
    Ok(time)
}

/// The same objects are listed again, and nothing may come of it; and the desired state is shown.
pub(super) fn resync_and_render(services: usize, rounds: usize) -> Result<Vec<Row>> {
    let Loaded { objects, mut core, .. } = Loaded::new(services)?;
    let before = core.operations();
    let resync = Samples::of((0..rounds).map(|_| {
        let events: Vec<_> = lists(objects.iter().cloned()).collect();
        microseconds(|| {
            core.hear(events);
            core.settle();
        })
    }));
    let operations = core.operations() - before;
    ensure!(operations == 0, "{operations} operations came of a list of the same objects");

    let mut bytes = 0;
    let mut json = Vec::new();
    let render = Samples::of((0..rounds).map(|_| {
        let mut document = None;
        let time = microseconds(|| document = Some(core.render()));
        json.push(microseconds(|| {
            bytes = serde_json::to_string_pretty(&document).map_or(0, |text| text.len());
        }));
        time
    }));
    #[expect(clippy::cast_precision_loss, reason = "no document has 2^52 bytes")]
    let bytes = bytes as f64;
    Ok(vec![
        Row::new("plan/resync", services, "us", &resync),
        Row::single("plan/resync operations", services, "", 0.0).limit(Some(0.0)),
        Row::new("plan/render", services, "us", &render),
        Row::new("plan/render to JSON", services, "us", &Samples::of(json)),
        Row::single("plan/render JSON", services, "bytes", bytes),
    ])
}
