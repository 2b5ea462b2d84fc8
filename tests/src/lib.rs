//! What the tests are made of.
//!
//! Packets: [`addrs`] has the roles, [`packet`] builds what goes in and what is expected to come out, [`prog`] runs single
//! packets through the compiled programs, [`seed`] writes the maps as the agent would, [`flows`] reads what the programs
//! have written, [`received_sum`] adds a sum that hardware has made, [`conversation`] is what flows are made of.
//!
//! Sockets: [`netns`] makes network namespaces, [`datapath`] keeps the programs on interfaces, [`bpf_root`] gives them a
//! place for their pins, [`foreign`] puts the programs of others beside them, [`traffic`] connects.
//!
//! The agent: [`apiserver`] is a Kubernetes API server.

#![expect(
    clippy::expect_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

pub mod addrs;
pub mod apiserver;
pub mod bpf_root;
pub mod conversation;
pub mod datapath;
pub mod flows;
pub mod foreign;
pub mod netns;
pub mod packet;
pub mod prog;
pub mod received_sum;
pub mod seed;
pub mod traffic;
