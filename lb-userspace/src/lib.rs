//! The readylb agent, in the order in which a change flows through it.
//!
//! ```text
//!   source ──events──► model::store ──► endpoints ──► desired ──► plan ──ops──► maps ──► BPF maps
//!   kube watch,        the objects      who is        frontends   a pure        one narrow trait
//!   manifest files     as they are      usable,       and their   diff
//!                                       and why       backends
//! ```

pub mod source;

pub mod model;

pub mod endpoints;

pub mod probe;

pub mod desired;

pub mod render;

pub mod state;

pub mod ids;

pub mod plan;

pub mod maps;

pub mod reconcile;

pub mod object;

pub mod datapath;

pub mod node_maps;

pub mod health_check;

pub mod flow_gc;

pub mod sock_gc;

pub mod admin;

pub mod check;

pub mod agent;

pub mod cli;

mod causes;
pub mod clock;
mod netlink;
pub mod node;
pub mod sys;
pub mod table;

#[cfg(test)]
mod testing;
