//! Which way packets of flows take through the node.

use serde::{Deserialize, Serialize};

/// Which way packets of flows take through the node (`--host-routing`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HostRouting {
    /// Through the host's stack: network policies and netfilter rules hold.
    #[default]
    Stack,
    /// Past it, straight to the interface that the routes name (Linux 5.12): no netfilter rule, no connection tracking, no
    /// reverse path filter and no later program at ingress sees them.
    Bpf,
}

impl HostRouting {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Bpf => "bpf",
        }
    }
}
