//! What a running agent says about itself.

use std::time::Instant;

use lb_common::SCHEMA_VERSION;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    datapath::{Attachments, Features},
    flow_gc::Pass,
    reconcile::{Request, Status},
};

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Version of the agent.
    pub version: String,
    /// Version of the layout of the maps.
    pub schema: u32,
    /// Name of the node.
    pub node: String,
    /// Process id.
    pub pid: u32,
    /// Time since the start, in seconds.
    pub uptime_seconds: u64,
    /// Names of the sources, in the order of [`Status::feeds`].
    pub sources: Vec<String>,
    /// How far the maps are from what the sources say.
    pub reconciler: Status,
    /// Where the programs are.
    pub attachments: Attachments,
    /// What depends on the kernel.
    pub features: Features,
    /// The last pass over the flows.
    pub flows: Pass,
}

/// Names of the sources, by number of the feed.
#[derive(Clone, Debug)]
pub struct Sources(pub Vec<String>);

/// Where an agent's answers come from.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// When it started.
    pub started: Instant,
    /// Name of the node.
    pub node: String,
    /// Names of the sources.
    pub sources: Sources,
    /// What depends on the kernel.
    pub features: Features,
    /// What the reconciler says.
    pub reconciler: watch::Receiver<Status>,
    /// Where the programs are.
    pub attachments: watch::Receiver<Attachments>,
    /// The last pass over the flows.
    pub passes: watch::Receiver<Pass>,
    /// Questions to the reconciler.
    pub requests: mpsc::Sender<Request>,
}

impl AgentView {
    /// The status now.
    pub fn status(&self) -> AgentStatus {
        AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA_VERSION,
            node: self.node.clone(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            sources: self.sources.0.clone(),
            reconciler: self.reconciler.borrow().clone(),
            attachments: self.attachments.borrow().clone(),
            features: self.features.clone(),
            flows: *self.passes.borrow(),
        }
    }

    /// What the reconciler answers; `None` while the agent is stopping.
    pub async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.ok()?;
        answered.await.ok()
    }
}
