//! What the datapath should do: every frontend with its backends, and what is left out, with reasons.

mod addresses;
mod conflicts;
mod frontend;
mod health;
mod node;
mod service;
mod slices;
#[cfg(test)]
mod tests;

pub use conflicts::Desired;
pub use frontend::{
    EndpointSet, Frontend, FrontendKind, HealthCheck, NoBackends, PortKey, Skipped, Withheld,
};
pub use health::{HealthCheckOf, HealthChecks};
pub use node::{Identity, InvalidNodePortAddresses, NodePortAddresses, NodeSources, NodeView};
pub use service::{ServiceDesired, compile, explain};
pub use slices::left_out;
