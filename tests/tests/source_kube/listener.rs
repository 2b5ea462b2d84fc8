//! The cluster source beside a fake API server, and a listener that believes its events.

use std::{collections::BTreeMap, time::Duration};

use lb_tests::apiserver::{ApiServer, Resource, Verb};
use lb_userspace::{
    model::{Object, ObjectRef},
    source::{
        Event, Feed, SourceEvent,
        kube::{Cluster, ClusterOptions, Contacts, EndpointsApi, Feeds, Timing, follow},
    },
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{self, Receiver},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const SERVICES: Feed = Feed(0);
pub(crate) const SLICES: Feed = Feed(1);
pub(crate) const NODE: Feed = Feed(2);
/// The name of this node.
pub(crate) const NODE_NAME: &str = "node-a";

/// What one feed has said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) objects: BTreeMap<ObjectRef, Object>,
    /// What a list that is under way has brought so far: only complete is it a full replacement.
    listing: Option<BTreeMap<ObjectRef, Object>>,
    pub(crate) complete: usize,
    pub(crate) failing: Option<String>,
    /// Every sentence of failure, and `recovered`.
    pub(crate) health: Vec<String>,
    pub(crate) deletes: usize,
}

impl Heard {
    fn believe(&mut self, event: Event) {
        match event {
            Event::ListStarted => self.listing = Some(BTreeMap::new()),
            Event::ListComplete => {
                self.objects = self.listing.take().expect("a list was started");
                self.complete += 1;
            }
            Event::Apply(object) => {
                self.listing.as_mut().unwrap_or(&mut self.objects).insert(object.reference(), object);
            }
            Event::Delete(object) => {
                assert!(self.listing.is_none(), "deleted in a list");
                self.objects.remove(&object);
                self.deletes += 1;
            }
            Event::Together(events) => events.into_iter().for_each(|event| self.believe(event)),
            Event::Warnings(warnings) => {
                panic!("the cluster source has nothing of its own to warn of: {warnings:?}")
            }
            Event::Failing(sentence) => {
                self.health.push(sentence.clone());
                self.failing = Some(sentence);
            }
            Event::Recovered => {
                assert!(self.failing.take().is_some(), "recovered from nothing");
                self.health.push("recovered".into());
            }
        }
    }

    pub(crate) fn was_always_well(&self) {
        assert!(self.health.is_empty(), "{:?}", self.health);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.keys().map(|object| object.key.to_string()).collect()
    }

    /// Where the Service of a slice is, and its first address.
    pub(crate) fn slice(&self, name: &str) -> Option<(Option<String>, String)> {
        self.objects.values().find_map(|object| match object {
            Object::EndpointSlice(slice) if slice.key.to_string() == name => {
                let address = slice.endpoints[0]
                    .address
                    .as_ref()
                    .expect("one")
                    .as_ref()
                    .expect("an address")
                    .to_string();
                Some((slice.service.as_deref().map(str::to_owned), address))
            }
            _ => None,
        })
    }
}

pub(crate) struct Following {
    pub(crate) events: Receiver<SourceEvent>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    pub(crate) contacts: Contacts,
    pub(crate) services: Heard,
    /// Or Endpoints.
    pub(crate) slices: Heard,
    pub(crate) node: Heard,
}

/// Pauses of a test: as the real ones, a hundred times shorter.
pub(crate) fn quick() -> Timing {
    let real = Timing::default();
    let backoff =
        real.backoff.with_min_delay(Duration::from_millis(10)).with_max_delay(Duration::from_millis(300));
    let slices_check = Duration::from_millis(50);
    Timing {
        backoff,
        node_backoff: backoff,
        list_backoff: backoff,
        shortest_watch: Duration::ZERO,
        slices_check,
        ..real
    }
}

pub(crate) async fn cluster(master: &str) -> Cluster {
    let options = ClusterOptions { kubeconfig: None, master: Some(master.to_owned()) };
    Cluster::find(&options).await.expect("an address is enough")
}

impl Following {
    pub(crate) async fn of(server: &ApiServer, timing: Timing) -> Self {
        Self::at(cluster(&server.url()).await, timing)
    }

    pub(crate) fn at(cluster: Cluster, timing: Timing) -> Self {
        Self::reading(EndpointsApi::Slices, cluster, timing)
    }

    pub(crate) fn reading(endpoints_api: EndpointsApi, cluster: Cluster, timing: Timing) -> Self {
        let (sender, events) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let feeds = Feeds {
            services: SERVICES,
            endpoints: SLICES,
            node: NODE,
            node_name: NODE_NAME.into(),
            endpoints_api,
        };
        let contacts = Contacts::new(&cluster, &feeds);
        let of_source = contacts.clone();
        let task = tokio::spawn(async move {
            follow(&cluster, &feeds, &of_source, sender, timing, stopped).await.expect("a client");
        });
        let [services, slices, node] = Default::default();
        Self { events, stop, task, contacts, services, slices, node }
    }

    /// Listens until the condition holds.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waited = timeout(DEADLINE, async {
            while !condition(self) {
                let SourceEvent { feed, event } = self.events.recv().await.expect("the source goes on");
                match feed {
                    SERVICES => self.services.believe(event),
                    SLICES => self.slices.believe(event),
                    _ => self.node.believe(event),
                }
            }
        });
        if waited.await.is_err() {
            panic!("not {what}\n{:#?}\n{:#?}\n{:#?}", self.services, self.slices, self.node);
        }
    }

    /// Listens until both lists were complete once.
    pub(crate) async fn listed(&mut self) {
        self.until("listed", |heard| heard.services.complete == 1 && heard.slices.complete == 1).await;
    }

    /// Until the server has had so many requests. What the source says meanwhile waits.
    pub(crate) async fn requested(&self, server: &ApiServer, resource: Resource, verb: Verb, count: usize) {
        let waited = timeout(DEADLINE, async {
            while server.requests(resource.plural(), verb).len() < count {
                sleep(Duration::from_millis(2)).await;
            }
        });
        let requests = || server.requests(resource.plural(), verb);
        assert!(waited.await.is_ok(), "no {count} requests to {verb:?}: {:?}", requests());
    }

    /// Until both resources are being watched: what changes now is told as a change.
    pub(crate) async fn watching(&self, server: &ApiServer) {
        self.requested(server, Resource::Services, Verb::Watch, 1).await;
        self.requested(server, Resource::EndpointSlices, Verb::Watch, 1).await;
    }
}

pub(crate) fn lists(server: &ApiServer, resource: Resource) -> usize {
    server.requests(resource.plural(), Verb::List).len()
}

pub(crate) fn watches(server: &ApiServer, resource: Resource) -> usize {
    server.requests(resource.plural(), Verb::Watch).len()
}

pub(crate) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": "10.96.0.50", "ports": [{"name": "http", "port": 80}]},
    })
}

/// A slice of one endpoint. `service` null is a slice without the label.
pub(crate) fn slice(name: &str, service: impl Into<Value>, address: &str) -> Value {
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "default", "name": name, "managedFields": [{"manager": "test"}]},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": [{"addresses": [address]}],
    });
    let service = service.into();
    if !service.is_null() {
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": service});
    }
    slice
}
