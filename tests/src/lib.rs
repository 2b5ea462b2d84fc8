//! What the tests are made of.
//!
//! Packets, one at a time:
//!
//! * [`addrs`]: the roles.
//! * [`packet`]: builds what goes in, and what is expected to come out.
//! * [`prog`]: runs single packets through the compiled programs; [`seed`] writes the maps as the agent would, [`flows`]
//!   reads what the programs have written, [`received_sum`] adds a sum that hardware has made.
//! * [`journey`]: through several hooks, as on its way through a host; [`conversation`] and [`external`]:
//!   what flows are made of; [`verifier`]: what the programs cost the verifier.
//! * [`model`]: what the programs are to do with any packet, in plain Rust; [`fuzz`]: a great many packets, through both.
//!
//! Objects, and what the core makes of them: [`scenario`]; how long it takes: [`mod@bench`].
//!
//! Hosts, and what runs on them:
//!
//! * [`netns`]: hosts, and the shapes in which pods are connected.
//! * [`cgroup`]: a cgroup of a test's own, and threads in it.
//! * [`traffic`]: servers that answer with their name, and clients that count who answered.
//! * [`bulk`]: much at a time. [`balanced`]: a shape with a ClusterIP; [`datapath`]: the datapath without its agent, on a [`bpf_root`] of its own, [`pinned`] with
//!   maps that are filled; [`foreign`]: programs of others;
//!   [`frames`]: what is on an interface.
//! * [`agent`]: agents as processes; [`manifests`]: the objects that they are given; [`apiserver`]: a Kubernetes API
//!   server.
#![expect(
    clippy::expect_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

pub mod addrs;
pub mod agent;
pub mod apiserver;
pub mod balanced;
pub mod bench;
pub mod bpf_root;
pub mod bulk;
pub mod cgroup;
pub mod conversation;
mod counters;
pub mod daemon;
pub mod datapath;
pub mod external;
pub mod flows;
pub mod foreign;
pub mod frames;
pub mod fuzz;
pub mod journey;
pub mod manifests;
pub mod model;
pub mod netns;
pub mod packet;
pub mod pinned;
pub mod prog;
pub mod received_sum;
pub mod scenario;
pub mod seed;
pub mod traffic;
pub mod verifier;
pub mod vm_guest;
