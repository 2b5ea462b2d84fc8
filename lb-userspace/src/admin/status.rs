//! What a running agent says about itself.

use std::time::Instant;

use lb_common::SCHEMA_VERSION;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    datapath::{Attachments, Features},
    flow_gc::Pass,
    health_check::HealthCheckState,
    node_maps::Surroundings,
    reconcile::{FeedStatus, Request, Status},
    sock_gc::Closed,
    source::{Contact, Feed},
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
    /// The sources, in the order of [`Status::feeds`].
    pub sources: Vec<SourceStatus>,
    /// How far the maps are from what the sources say.
    pub reconciler: Status,
    /// Where the programs are.
    pub attachments: Attachments,
    /// What the programs know of the node and its interfaces.
    pub surroundings: Surroundings,
    /// Where health-check node ports are answered.
    pub health_checks: Vec<HealthCheckState>,
    /// What is wrong with the machine; one sentence each.
    pub warnings: Vec<String>,
    /// What depends on the kernel.
    pub features: Features,
    /// The last pass over the flows.
    pub flows: Pass,
    /// UDP sockets whose backend had gone.
    pub sockets: Closed,
}

/// One source, beside what the reconciler knows of its feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Where its objects come from.
    pub name: String,
    /// The agent is not ready without it.
    pub required: bool,
    /// How long ago something was last heard from it, an object, a bookmark or a page of a list, in seconds. Null: never,
    /// or it is not noted, as of files and of this machine.
    pub heard_seconds_ago: Option<u64>,
}

impl AgentStatus {
    /// The sources, each with what the reconciler knows of its feed.
    pub fn feeds(&self) -> impl Iterator<Item = (&SourceStatus, &FeedStatus)> {
        self.sources.iter().zip(&self.reconciler.feeds)
    }
}

/// A source of a running agent.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it lets others see.
    pub contact: Contact,
    /// The agent is not ready without it.
    pub required: bool,
}

impl Source {
    /// One that the agent needs.
    pub const fn required(contact: Contact) -> Self {
        Self { contact, required: true }
    }

    /// One that the agent can do without.
    pub const fn optional(contact: Contact) -> Self {
        Self { contact, required: false }
    }

    fn status(&self) -> SourceStatus {
        SourceStatus {
            name: self.contact.name(),
            required: self.required,
            heard_seconds_ago: self.contact.silence().map(|silence| silence.as_secs()),
        }
    }
}

/// The sources, by number of the feed.
#[derive(Clone, Debug)]
pub struct Sources(pub Vec<Source>);

impl Sources {
    /// The feeds that the agent can do without.
    pub fn optional(&self) -> Vec<Feed> {
        let numbered = self.0.iter().enumerate();
        numbered.filter(|(_, source)| !source.required).map(|(number, _)| Feed(number)).collect()
    }
}

/// Where an agent's answers come from.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// When it started.
    pub started: Instant,
    /// Name of the node.
    pub node: String,
    /// Where the objects come from.
    pub sources: Sources,
    /// What depends on the kernel.
    pub features: Features,
    /// What the reconciler says.
    pub reconciler: watch::Receiver<Status>,
    /// Where the programs are.
    pub attachments: watch::Receiver<Attachments>,
    /// What the programs know of the node and its interfaces.
    pub surroundings: watch::Receiver<Surroundings>,
    /// Where health-check node ports are answered.
    pub health_checks: watch::Receiver<Vec<HealthCheckState>>,
    /// What is wrong with the machine.
    pub warnings: Vec<String>,
    /// The last pass over the flows.
    pub passes: watch::Receiver<Pass>,
    /// UDP sockets whose backend had gone.
    pub closed: watch::Receiver<Closed>,
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
            sources: self.sources.0.iter().map(Source::status).collect(),
            reconciler: self.reconciler.borrow().clone(),
            attachments: self.attachments.borrow().clone(),
            surroundings: self.surroundings.borrow().clone(),
            health_checks: self.health_checks.borrow().clone(),
            warnings: self.warnings.clone(),
            features: self.features.clone(),
            flows: *self.passes.borrow(),
            sockets: self.closed.borrow().clone(),
        }
    }

    /// What the reconciler answers; `None` while the agent is stopping.
    pub async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.ok()?;
        answered.await.ok()
    }
}
