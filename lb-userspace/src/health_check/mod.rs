//! The health-check node ports: load balancers ask there whether this node has endpoints of a Service.
//!
//! ```text
//!   reconciler: who is asked for at which port ─┐
//!   reconciler: the addresses of NodePorts ─────┴─► wanted ──► listeners, which stay while they are wanted
//! ```

mod answer;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Duration, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

pub use self::answer::Answers;
use crate::{
    desired::{HealthCheckOf, HealthChecks},
    reconcile::Status,
};

/// How long to wait before a port that could not be taken is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// A health-check node port on one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheckState {
    /// Where it listens.
    pub address: SocketAddr,
    /// The Service that is asked for, as `namespace/name`.
    pub service: String,
    /// Why it does not listen.
    pub error: Option<String>,
}

/// A listener, or why there is none.
type Listener = Result<DropGuard, String>;

/// Answers until one of those who say what to answer has ended. Where it listens, it tells.
pub async fn run(
    mut checks: watch::Receiver<HealthChecks>,
    mut status: watch::Receiver<Status>,
    report: watch::Sender<Vec<HealthCheckState>>,
) {
    let answers = Answers::new(checks.clone(), status.clone());
    let mut listeners = BTreeMap::<SocketAddr, Listener>::new();
    loop {
        let asked = checks.borrow_and_update().clone();
        let addresses = status.borrow_and_update().node.nodeport_addresses.clone();
        let wanted = wanted(&asked, &addresses);
        // Those that go free their ports before others are taken.
        listeners.retain(|address, _| wanted.contains_key(address));
        for (address, service) in &wanted {
            if let Some(Ok(_)) = listeners.get(address) {
                continue;
            }
            let listener = listen(*address, &answers).await.map_err(|error| error.to_string());
            let before = listeners.get(address).and_then(|before| before.as_ref().err());
            match &listener {
                Ok(_) => info!("health-check node port of Service {service}: listening on {address}"),
                Err(error) if before == Some(error) => {}
                Err(error) => {
                    warn!("health-check node port of Service {service}: cannot listen on {address}: {error}");
                }
            }
            listeners.insert(*address, listener);
        }
        report.send_if_modified(|told| {
            let now: Vec<_> =
                wanted.into_iter().map(|(address, service)| state(address, service, &listeners)).collect();
            let is_news = *told != now;
            *told = now;
            is_news
        });
        let is_failing = listeners.values().any(Result::is_err);
        let again = sleep(AGAIN);
        tokio::pin!(again);
        loop {
            tokio::select! {
                changed = checks.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                changed = status.changed() => match changed {
                    // Most changes are about something else, and what is answered is looked up then.
                    Ok(()) if status.borrow_and_update().node.nodeport_addresses == addresses => {}
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = &mut again, if is_failing => break,
            }
        }
    }
}

/// Where to listen, and for which Service.
fn wanted(checks: &HealthChecks, addresses: &[IpAddr]) -> BTreeMap<SocketAddr, String> {
    let of_port = |(port, check): (&u16, &HealthCheckOf)| {
        let (port, service) = (*port, check.service.to_string());
        addresses
            .iter()
            .map(move |address| (SocketAddr::new(*address, port), service.clone()))
            .collect::<Vec<_>>()
    };
    checks.iter().flat_map(of_port).collect()
}

fn state(
    address: SocketAddr,
    service: String,
    listeners: &BTreeMap<SocketAddr, Listener>,
) -> HealthCheckState {
    let error = listeners.get(&address).and_then(|listener| listener.as_ref().err().cloned());
    HealthCheckState { address, service, error }
}

/// Listens until the guard is dropped; connections end with it.
async fn listen(address: SocketAddr, answers: &Answers) -> io::Result<DropGuard> {
    let listener = TcpListener::bind(address).await?;
    let stop = CancellationToken::new();
    let served = axum::serve(listener, answers.router(address.port()))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::spawn(async move {
        if let Err(error) = served.await {
            warn!("health-check node port on {address}: {error}");
        }
    });
    Ok(stop.drop_guard())
}
