//! What the datapath should do: every frontend with its backends, and what is left out, with reasons.

mod conflicts;
mod feature_level;
mod frontend;
mod node;
mod service;
#[cfg(test)]
mod tests;

pub use conflicts::Desired;
pub use frontend::{EndpointSet, Frontend, FrontendKind, NoBackends, PortKey, Skipped, Withheld};
pub use node::{Identity, InvalidNodePortAddresses, NodePortAddresses, NodeView};
pub use service::{ServiceDesired, compile};
