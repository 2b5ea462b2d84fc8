//! The cluster as a source: Services and EndpointSlices, listed and then watched.
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
mod failure;
mod follow;

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::Api;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

pub use self::config::{Cluster, ClusterError, ClusterOptions};
use self::follow::Speaker;
use super::{Feed, SourceEvent, convert::api};

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
    /// Without a failure for so long, the pauses start over.
    pub backoff_reset: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            watch_seconds: 290,
            shortest_watch: Duration::from_secs(1),
            list_timeout: Duration::from_secs(65),
            // 1 s, 2.5 s, 6.25 s, 15.6 s, 30 s, 30 s …, each up to twice as long by jitter: of a server that fails, both
            // resources together ask no more than ten times in the first 30 s.
            backoff: ExponentialBuilder::new()
                .with_min_delay(Duration::from_secs(1))
                .with_factor(2.5)
                .with_max_delay(Duration::from_secs(30))
                .with_jitter()
                .without_max_times(),
            backoff_reset: Duration::from_secs(120),
        }
    }
}

/// The feeds of the cluster's resources.
#[derive(Clone, Copy, Debug)]
pub struct Feeds {
    /// Services.
    pub services: Feed,
    /// EndpointSlices.
    pub endpoint_slices: Feed,
}

/// Says what is in the cluster, and every change to it, until `stop` or until nobody listens. No answer of the server
/// ends it.
///
/// # Errors
/// [`ClusterError`] where the cluster's credentials cannot be used to make a client.
pub async fn follow(
    cluster: &Cluster,
    feeds: Feeds,
    events: Sender<SourceEvent>,
    timing: Timing,
    stop: CancellationToken,
) -> Result<(), ClusterError> {
    let (services, services_answers) = client::client(cluster, &timing)?;
    let (slices, slices_answers) = client::client(cluster, &timing)?;
    let services = Api::<api::Service>::all(services);
    let slices = Api::<api::EndpointSlice>::all(slices);
    let address = cluster.address();
    tokio::select! {
        () = stop.cancelled() => {}
        () = events.closed() => {}
        // Each ends only where nobody listens, which is not an error.
        _ = follow::follow(services, services_answers, &timing, &address, Speaker::new(feeds.services, &events)) => {}
        _ = follow::follow(slices, slices_answers, &timing, &address, Speaker::new(feeds.endpoint_slices, &events)) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder;

    use super::*;

    #[test]
    fn b66_a_failing_server_is_asked_ten_times_at_most_in_the_first_half_minute_and_then_for_ever() {
        for seed in 0..1000 {
            let mut time = Duration::ZERO;
            let mut requests = 1;
            let pauses: Vec<_> = Timing::default().backoff.with_jitter_seed(seed).build().take(100).collect();
            for pause in &pauses {
                time += *pause;
                requests += usize::from(time < Duration::from_secs(30));
            }
            // Services and EndpointSlices.
            assert!(2 * requests <= 10, "seed {seed}: {pauses:?}");
            assert_eq!(pauses.len(), 100);
            assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(60)), "seed {seed}: {pauses:?}");
        }
    }
}
