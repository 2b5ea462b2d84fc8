//! The cluster as a source: Services, EndpointSlices (or Endpoints) and this Node, listed and then watched.
//!
//! ```text
//!   config ──where──► client ──requests──► kube's watcher ──► follow ──events──►
//!                     notes what the       list, watch,       backoff, relists,
//!                     server answers       bookmarks          what is failing
//! ```
//!
//! Each object becomes a model object as soon as it has been decoded, so of the API's own types no more than one page is
//! in memory.

mod client;
mod config;
mod endpoints;
mod failure;
mod follow;
mod speaker;

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::Api;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

pub use self::{
    config::{Cluster, ClusterError, ClusterOptions},
    endpoints::EndpointsApi,
};
use self::{follow::Manner, speaker::Speaker};
use super::{Contact, Feed, SourceEvent, convert::api};

/// When the API server is asked again.
#[derive(Clone, Debug)]
pub struct Timing {
    /// `timeoutSeconds` of a watch: the server ends it then. A watch from which nothing has come for 5 s longer is taken
    /// for dead.
    pub watch_seconds: u32,
    /// A watch that is over sooner than this counts as a failure: a server that closes every watch would otherwise be
    /// asked without a pause. After a failure, one that lasts so long has recovered.
    pub shortest_watch: Duration,
    /// How long a page of a list may take. The server's own limit is 60 s (`--request-timeout`).
    pub list_timeout: Duration,
    /// The pauses after failures.
    pub backoff: ExponentialBuilder,
    /// The same for the Node, which is dispensable.
    pub node_backoff: ExponentialBuilder,
    /// The pauses before a list because a version is gone. They grow more slowly: nothing is heard until it is complete.
    pub list_backoff: ExponentialBuilder,
    /// Without a failure for so long, the pauses start over.
    pub backoff_reset: Duration,
    /// While Endpoints are read since the server does not have EndpointSlices: how often it is asked whether it has them
    /// by now.
    pub slices_check: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let backoff = ExponentialBuilder::new()
            .with_factor(3.)
            .with_max_delay(Duration::from_secs(30))
            .with_jitter()
            .without_max_times();
        Self {
            watch_seconds: 290,
            shortest_watch: Duration::from_secs(1),
            list_timeout: Duration::from_secs(65),
            // 1 s, 3 s, 9 s, 27 s, 30 s, 30 s …, each up to twice as long by jitter: a server that fails is asked no more
            // than ten times in the first 30 s, by all feeds together.
            backoff: backoff.with_min_delay(Duration::from_secs(1)),
            node_backoff: backoff.with_min_delay(Duration::from_secs(15)),
            list_backoff: backoff.with_min_delay(Duration::from_secs(1)).with_factor(1.5),
            backoff_reset: Duration::from_secs(120),
            slices_check: Duration::from_secs(60),
        }
    }
}

/// What is read of the cluster, and on which feeds.
#[derive(Clone, Debug)]
pub struct Feeds {
    /// Services.
    pub services: Feed,
    /// What is behind them.
    pub endpoints: Feed,
    /// The Node that this is.
    pub node: Feed,
    /// Its name.
    pub node_name: String,
    /// What endpoints are read from.
    pub endpoints_api: EndpointsApi,
}

/// What the feeds of a cluster let others see.
#[derive(Clone, Debug)]
pub struct Contacts {
    /// Of the Services.
    pub services: Contact,
    /// Of what is behind them.
    pub endpoints: Contact,
    /// Of the Node.
    pub node: Contact,
}

impl Contacts {
    /// Before anything is heard. Each has the name of its resource.
    pub fn new(cluster: &Cluster, feeds: &Feeds) -> Self {
        let contact = |resource: &str| Contact::new(format!("{resource} at {}", cluster.address()));
        Self {
            services: contact("services"),
            endpoints: contact(feeds.endpoints_api.resource()),
            node: contact(&format!("node {}", feeds.node_name)),
        }
    }
}

/// Says what is in the cluster, and every change to it, until `stop` or until nobody listens. No answer of the server
/// ends it.
///
/// # Errors
/// [`ClusterError`] where the cluster's credentials cannot be used to make a client.
pub async fn follow(
    cluster: &Cluster,
    feeds: &Feeds,
    contacts: &Contacts,
    events: Sender<SourceEvent>,
    timing: Timing,
    stop: CancellationToken,
) -> Result<(), ClusterError> {
    let client = |contact: &Contact| client::client(cluster, &timing, contact.clone());
    let (services_client, services_answers) = client(&contacts.services)?;
    let (endpoints_client, endpoints_answers) = client(&contacts.endpoints)?;
    let (node_client, node_answers) = client(&contacts.node)?;

    let address = cluster.address();
    let manner = Manner {
        address: &address,
        timing: &timing,
        backoff: timing.backoff,
        fields: None,
        ends_if_not_served: false,
    };
    let of_node = Manner {
        backoff: timing.node_backoff,
        fields: Some(format!("metadata.name={}", feeds.node_name)),
        ..manner.clone()
    };
    let services = Api::<api::Service>::all(services_client);
    let node = Api::<api::Node>::all(node_client);
    let mut services_speaker = Speaker::new(feeds.services, contacts.services.clone(), &events);
    let endpoints_speaker = Speaker::new(feeds.endpoints, contacts.endpoints.clone(), &events);
    let mut node_speaker = Speaker::new(feeds.node, contacts.node.clone(), &events);
    tokio::select! {
        () = stop.cancelled() => {}
        () = events.closed() => {}
        // Each ends only where nobody listens, which is not an error.
        _ = follow::follow(services, services_answers, &manner, &mut services_speaker) => {}
        _ = endpoints::follow_endpoints(
            feeds.endpoints_api, endpoints_client, endpoints_answers, manner.clone(), endpoints_speaker,
        ) => {}
        _ = follow::follow(node, node_answers, &of_node, &mut node_speaker) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder;

    use super::*;

    #[test]
    fn b66_a_failing_server_is_asked_ten_times_at_most_in_the_first_half_minute_and_then_for_ever() {
        let in_half_a_minute = |backoff: ExponentialBuilder, seed| {
            let pauses: Vec<_> = backoff.with_jitter_seed(seed).build().take(100).collect();
            assert_eq!(pauses.len(), 100);
            assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(60)), "seed {seed}: {pauses:?}");
            let mut time = Duration::ZERO;
            let times = pauses.iter().map(|pause| {
                time += *pause;
                time
            });
            1 + times.take_while(|time| *time < Duration::from_secs(30)).count()
        };
        let timing = Timing::default();
        for seed in 0..1000 {
            // Services, endpoints and the Node.
            let requests =
                2 * in_half_a_minute(timing.backoff, seed) + in_half_a_minute(timing.node_backoff, seed);
            assert!(requests <= 10, "seed {seed}: {requests}");
            let lists = in_half_a_minute(timing.list_backoff, seed);
            assert!((4..=7).contains(&lists), "seed {seed}: {lists}");
        }
    }
}
