//! The loop: events in, operations out.
//!
//! ```text
//!   events ──► store ──► dirty Services ──► desired ──► units ──► plan ──► maps
//!                                                         ▲                  │
//!                                     grace, retry timers └──────────────────┘
//! ```
//!
//! In between, the maps are read back part by part, and what somebody else has changed in them is put right.
//!
//! [`Engine`] has every decision and is handed the time; [`run`] waits.

mod audit;
mod engine;
mod queue;
mod status;
#[cfg(test)]
mod tests;
mod writer;

pub use engine::{Config, Engine};
pub use status::{FeedStatus, NodeStatus, Status};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::{
    desired::HealthChecks,
    maps::MapError,
    render::{Document, EndpointView},
    source::SourceEvent,
};

/// Events taken in before something is written. The first change goes out at once; a flood becomes one change a Service.
const EVENTS_A_STEP: usize = 4096;

/// What others ask of the reconciler.
#[derive(Debug)]
pub enum Request {
    /// The desired state of the whole.
    Render(oneshot::Sender<Document>),
    /// Every endpoint, chosen or not.
    Endpoints(oneshot::Sender<Vec<EndpointView>>),
    /// No flow without a frontend was found, by a search that began when [`Status::removals`] was `removals`. Answers
    /// whether the programs have stopped looking for such flows: not if a frontend was removed since.
    ClearOrphanFlows {
        /// [`Status::removals`] before the search.
        removals: u64,
        /// Where the answer goes.
        answer: oneshot::Sender<Result<bool, MapError>>,
    },
}

/// Runs until no source is left to send events. What is in the maps then stays and serves on. Tells its status and what is
/// asked at health-check node ports, as they change.
pub async fn run(
    mut engine: Engine,
    mut events: mpsc::Receiver<SourceEvent>,
    mut requests: mpsc::Receiver<Request>,
    status: watch::Sender<Status>,
    health_checks: watch::Sender<HealthChecks>,
) {
    let mut audit_at = Instant::now();
    loop {
        engine.step(Instant::now());
        status.send_if_modified(|told| {
            let is_news = told != engine.status();
            if is_news {
                told.clone_from(engine.status());
            }
            is_news
        });
        if let Some(checks) = engine.take_health_checks() {
            health_checks.send_if_modified(|told| {
                let is_news = *told != checks;
                *told = checks;
                is_news
            });
        }
        let next = engine.next_step(Instant::now());
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { return };
                engine.handle(event);
                for _ in 1..EVENTS_A_STEP {
                    let Ok(event) = events.try_recv() else { break };
                    engine.handle(event);
                }
            }
            Some(request) = requests.recv() => answer(&mut engine, request),
            () = sleep_until(audit_at) => audit_at = engine.audit(Instant::now()),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

fn answer(engine: &mut Engine, request: Request) {
    // Whoever asked may have gone.
    match request {
        Request::Render(answer) => drop(answer.send(engine.state().render())),
        Request::Endpoints(answer) => drop(answer.send(engine.state().endpoints())),
        Request::ClearOrphanFlows { removals, answer } => {
            drop(answer.send(engine.clear_orphan_flows(removals)));
        }
    }
}
