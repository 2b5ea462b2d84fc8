//! The objects as they are now, and which Services the last changes touch.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    EndpointSlice, Host, Kind, Node, Object, ObjectKey, ObjectRef, Service, Warning, claims::Claims,
};
use crate::source::{Event, Feed, SourceEvent};

/// Holds the objects of all feeds and consumes their events.
///
/// A list is a full replace by mark and sweep: what a list does not say is gone when it is complete, and until then the
/// old objects serve. New objects take the place of the old ones one by one, so there are never two full copies.
#[derive(Debug)]
pub struct Store {
    feeds: Vec<FeedState>,
    services: Claims<ObjectKey, Service>,
    slices: Claims<ObjectRef, EndpointSlice>,
    nodes: Claims<ObjectKey, Node>,
    /// One at most.
    hosts: Claims<ObjectKey, Host>,
    slices_by_service: HashMap<ObjectKey, BTreeSet<ObjectRef>>,
    slices_without_service: BTreeSet<ObjectRef>,
    /// Objects that carry warnings, and how many.
    warned: BTreeMap<ObjectRef, usize>,
    /// The sum of them.
    warnings: usize,
    /// Services whose object or slices have changed since they were last taken.
    dirty: BTreeSet<ObjectKey>,
    /// A Node or the addresses of this machine have changed since that was last asked.
    nodes_dirty: bool,
}

/// What is known of a feed.
#[derive(Clone, Debug, Default)]
pub struct FeedState {
    /// Number of lists begun.
    list: u64,
    /// The last of them that is complete; zero for none.
    completed: u64,
    /// Nothing waits for it once it fails, see [`Store::optional`].
    optional: bool,
    /// It has completed a list.
    pub synced: bool,
    /// Why it cannot get at its objects now; one sentence.
    pub failing: Option<String>,
    /// What it has to say about its input as a whole.
    pub warnings: Vec<Warning>,
}

impl Store {
    /// An empty store for this number of feeds.
    pub fn new(feeds: usize) -> Self {
        Self {
            feeds: vec![FeedState::default(); feeds],
            services: Claims::new(),
            slices: Claims::new(),
            nodes: Claims::new(),
            hosts: Claims::new(),
            slices_by_service: HashMap::new(),
            slices_without_service: BTreeSet::new(),
            warned: BTreeMap::new(),
            warnings: 0,
            dirty: BTreeSet::new(),
            nodes_dirty: false,
        }
    }

    /// The same, but what this feed says is dispensable: while it fails, the store can be complete without it.
    ///
    /// # Panics
    /// As [`Store::handle`].
    #[must_use]
    pub fn optional(mut self, feed: Feed) -> Self {
        self.feeds[feed.0].optional = true;
        self
    }

    /// Takes in what a source says.
    ///
    /// # Panics
    /// If the feed's number is not below the number of feeds given to [`Store::new`].
    pub fn handle(&mut self, SourceEvent { feed, event }: SourceEvent) {
        let state = &mut self.feeds[feed.0];
        match event {
            Event::ListStarted => state.list += 1,
            Event::ListComplete => {
                state.synced = true;
                state.completed = state.list;
                let list = state.list;
                self.sweep(feed, list);
            }
            Event::Apply(object) => {
                let list = state.list;
                self.apply(feed, list, object);
            }
            Event::Delete(reference) => self.withdraw(&reference, feed),
            Event::Together(events) => {
                events.into_iter().for_each(|event| self.handle(SourceEvent { feed, event }));
            }
            Event::Warnings(warnings) => state.warnings = warnings,
            Event::Failing(sentence) => state.failing = Some(sentence),
            Event::Recovered => state.failing = None,
        }
    }

    /// The Services that changes have touched since the last call; some of them may not exist.
    pub fn take_dirty(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.dirty)
    }

    /// Whether a Node or the addresses of this machine have changed since the last call.
    pub const fn take_nodes_dirty(&mut self) -> bool {
        std::mem::replace(&mut self.nodes_dirty, false)
    }

    /// Every Service, in no order.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter()
    }

    /// The Node of this name, if it is known.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(&ObjectKey::new("", name))
    }

    /// The addresses of this machine, if they are known.
    pub fn host(&self) -> Option<&Host> {
        self.hosts.get(&Host::reference().key)
    }

    /// The Service, if there is one.
    pub fn service(&self, key: &ObjectKey) -> Option<&Service> {
        self.services.get(key)
    }

    /// The slices of a Service, ordered by kind and name. They may be there without it.
    ///
    /// A list can bring Endpoints in place of EndpointSlices, or these in their place. Until it is complete, what was known
    /// before it holds: a part of what replaces it would say that the rest is gone.
    pub fn slices_of(&self, service: &ObjectKey) -> Vec<&EndpointSlice> {
        let references = self.slices_by_service.get(service).into_iter().flatten();
        let slices: Vec<_> = references.filter_map(|reference| self.slices.holding(reference)).collect();
        // Kinds of which something is not in an unfinished list.
        let is_known = |(_, feed, list): &&(_, Feed, u64)| {
            let feed = &self.feeds[feed.0];
            !feed.synced || *list <= feed.completed
        };
        let known: BTreeSet<_> = slices.iter().filter(is_known).map(|(slice, ..)| slice.kind).collect();
        let slices = slices.into_iter().map(|(slice, ..)| slice);
        slices.filter(|slice| known.is_empty() || known.contains(&slice.kind)).collect()
    }

    /// The slices that belong to no Service, ordered by kind and name.
    pub fn slices_without_service(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.slices_without_service.iter().filter_map(|reference| self.slices.get(reference))
    }

    /// The objects that several feeds have; that of the last feed holds.
    pub fn contested(&self) -> impl Iterator<Item = ObjectRef> {
        let services = self.services.contested();
        let services = services.map(|key| ObjectRef { kind: Kind::Service, key: key.clone() });
        services.chain(self.slices.contested().cloned())
    }

    /// The slices whose Service does not exist, in no order.
    pub fn slices_without_object(&self) -> impl Iterator<Item = &EndpointSlice> {
        let orphans = self.slices_by_service.iter().filter(|(service, _)| self.service(service).is_none());
        orphans.flat_map(|(_, slices)| slices).filter_map(|reference| self.slices.get(reference))
    }

    /// The feeds, by number.
    pub fn feeds(&self) -> &[FeedState] {
        &self.feeds
    }

    /// Whether every feed has completed its first list; of the optional ones, those that do not fail.
    pub fn is_complete(&self) -> bool {
        self.feeds.iter().all(|feed| feed.synced || (feed.optional && feed.failing.is_some()))
    }

    /// Whether every feed has completed its first list, the optional ones too.
    pub fn is_heard(&self) -> bool {
        self.feeds.iter().all(|feed| feed.synced)
    }

    /// What the feeds and the objects warn of, without repetition.
    pub fn warnings(&self) -> BTreeSet<Warning> {
        let of_feeds = self.feeds.iter().flat_map(|feed| feed.warnings.iter().cloned());
        let of_objects = self.warned.keys().flat_map(|reference| {
            self.warnings_of(reference).iter().map(move |message| Warning::new(reference, message))
        });
        of_feeds.chain(of_objects).collect()
    }

    /// Number of [`Store::warnings`], repetitions included.
    pub fn warning_count(&self) -> usize {
        let of_feeds: usize = self.feeds.iter().map(|feed| feed.warnings.len()).sum();
        of_feeds + self.warnings
    }

    fn apply(&mut self, feed: Feed, list: u64, object: Object) {
        let reference = object.reference();
        let before = self.service_of(&reference);
        let changed = match object {
            Object::Service(service) => self.services.apply(service.key.clone(), feed, list, service),
            Object::EndpointSlice(slice) => self.slices.apply(reference.clone(), feed, list, slice),
            Object::Node(node) => self.nodes.apply(node.key.clone(), feed, list, node),
            Object::Host(host) => self.hosts.apply(reference.key.clone(), feed, list, host),
        };
        if changed {
            self.changed(&reference, before);
        }
    }

    fn withdraw(&mut self, reference: &ObjectRef, feed: Feed) {
        let before = self.service_of(reference);
        let changed = match reference.kind {
            Kind::Service => self.services.withdraw(&reference.key, feed),
            Kind::EndpointSlice | Kind::Endpoints => self.slices.withdraw(reference, feed),
            Kind::Node => self.nodes.withdraw(&reference.key, feed),
            Kind::Host => self.hosts.withdraw(&reference.key, feed),
        };
        if changed {
            self.changed(reference, before);
        }
    }

    fn sweep(&mut self, feed: Feed, list: u64) {
        let of_kind = |kind, keys: Vec<_>| keys.into_iter().map(move |key| ObjectRef { kind, key });
        let services = of_kind(Kind::Service, self.services.unsaid(feed, list));
        let nodes = of_kind(Kind::Node, self.nodes.unsaid(feed, list));
        let hosts = of_kind(Kind::Host, self.hosts.unsaid(feed, list));
        let slices = self.slices.unsaid(feed, list);
        for reference in services.chain(nodes).chain(hosts).chain(slices) {
            self.withdraw(&reference, feed);
        }
        // What was not looked at until now, see [`Store::slices_of`].
        let is_mixed = |slices: &BTreeSet<ObjectRef>| {
            slices.first().map(|slice| slice.kind) != slices.last().map(|slice| slice.kind)
        };
        let mixed = self.slices_by_service.iter().filter(|(_, slices)| is_mixed(slices));
        self.dirty.extend(mixed.map(|(service, _)| service.clone()));
    }

    /// Follows a change of an object in the indexes; `before` is the Service that it belonged to.
    fn changed(&mut self, reference: &ObjectRef, before: Option<ObjectKey>) {
        if matches!(reference.kind, Kind::Node | Kind::Host) {
            self.nodes_dirty = true;
            return;
        }
        let now = self.service_of(reference);
        if reference.kind != Kind::Service {
            self.unindex(reference, before.as_ref());
            if self.slices.get(reference).is_some() {
                self.index(reference, now.as_ref());
            }
        }
        let warnings = self.warnings_of(reference).len();
        let warned = match warnings {
            0 => self.warned.remove(reference),
            _ => self.warned.insert(reference.clone(), warnings),
        };
        self.warnings = self.warnings + warnings - warned.unwrap_or_default();
        self.dirty.extend(before);
        self.dirty.extend(now);
    }

    fn index(&mut self, slice: &ObjectRef, service: Option<&ObjectKey>) {
        let slices = match service {
            Some(service) => self.slices_by_service.entry(service.clone()).or_default(),
            None => &mut self.slices_without_service,
        };
        slices.insert(slice.clone());
    }

    fn unindex(&mut self, slice: &ObjectRef, service: Option<&ObjectKey>) {
        let Some(service) = service else {
            self.slices_without_service.remove(slice);
            return;
        };
        if let Some(slices) = self.slices_by_service.get_mut(service) {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices_by_service.remove(service);
            }
        }
    }

    /// The Service that an object is, or belongs to.
    fn service_of(&self, reference: &ObjectRef) -> Option<ObjectKey> {
        match reference.kind {
            Kind::Service => Some(reference.key.clone()),
            Kind::EndpointSlice | Kind::Endpoints => self.slices.get(reference)?.service_key(),
            Kind::Node | Kind::Host => None,
        }
    }

    fn warnings_of(&self, reference: &ObjectRef) -> &[String] {
        match reference.kind {
            Kind::Service => self.services.get(&reference.key).map(|service| &*service.warnings),
            Kind::EndpointSlice | Kind::Endpoints => self.slices.get(reference).map(|slice| &*slice.warnings),
            Kind::Node | Kind::Host => None,
        }
        .unwrap_or_default()
    }
}
