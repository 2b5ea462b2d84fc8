//! What the eBPF programs and the agent share.
//!
//! ```text
//!   SERVICES        VIP, port, protocol ──► { block, count } ─┐      (and one entry a ClusterIP for all its ports)
//!   BACKENDS        block, slot ◄───────────────────────────┘ ──► backend id, address, port
//!   BACKEND_STATE   backend id ──► active | draining | local
//!   FLOWS_NEW,      5-tuple, direction ──► the tuple after translation, backend id, what was seen
//!   FLOWS
//!   AFFINITY        client, service id ──► the backend that it had, and when
//!   FRAGMENTS       addresses, identification, hook ──► where the first fragment of the packet went
//!   SOURCE_RANGES   service id, prefix ──► these clients may connect
//!   NODE, LINKS     one element: the node's addresses, where pods are; interface ──► its addresses, whether it leads out
//!   SOCKETS         socket, peer, direction ──► backend or VIP
//!   SETTINGS        one element: clocks, id reservations, where ClusterIPs may be
//!   COUNTERS        verdict ──► packets, per CPU
//! ```
//!
//! Everything that *decides* something about a packet is here, free of `std` and of the kernel, so that it is
//! tested on the host; the eBPF side only moves bytes. Every integer in a map is in host byte order (that is
//! what `bpftool map dump` prints); every address is 16 bytes in network order, IPv4 as `::ffff:a.b.c.d`
//! (RFC 4291, section 2.5.5.2).

#![no_std]

#[cfg(any(test, feature = "user"))]
extern crate std;

pub mod addr;
pub mod affinity;
pub mod backend;
pub mod checksum;
pub mod choice;
pub mod flow;
pub mod fragment;
pub mod icmp;
mod layout;
pub mod maps;
pub mod node;
pub mod refuse;
pub mod route;
pub mod sctp;
pub mod service;
pub mod settings;
pub mod sock;
pub mod source_nat;
pub mod source_range;
pub mod verdict;

pub use addr::Address;
pub use affinity::{AffinityKey, AffinityValue};
pub use backend::{BackendState, BackendValue, SlotKey};
pub use flow::{Direction, FlowKey, FlowValue, Tuple};
pub use fragment::{FragmentKey, FragmentValue};
pub use node::{LinkValue, NodeValue};
pub use service::{BackendSet, ServiceKey, ServiceValue};
pub use settings::{Prefix, Settings};
pub use sock::{SocketKey, SocketValue};
pub use source_range::SourceKey;
pub use verdict::Verdict;

/// Version of the layout of every pinned map, and of the meaning of what is in them.
///
/// It is a folder in the pin path (`<bpf-root>/v<schema>/`), so programs of different schemas never open each
/// other's maps. Raise it whenever a size, a field, or the meaning of a field in this crate changes.
pub const SCHEMA_VERSION: u32 = 3;
