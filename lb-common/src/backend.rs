//! The backends: keys and values of BACKENDS and BACKEND_STATE.

use crate::Address;

/// Place of a backend in a block. Key of BACKENDS.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKey {
    /// The block, as named by a frontend's [`crate::BackendSet`].
    pub block: u32,
    /// Slot in the block. Those from the set's count on hold draining backends: never chosen, but a restarted
    /// agent finds their ids there. The others are in the order of backend ids, those on this node first and on their
    /// own, so that a program [finds](crate::affinity::slot) an id.
    pub slot: u16,
    /// Explicit padding, always zero.
    pub pad: u16,
}

/// A backend. Value of BACKENDS.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendValue {
    /// Address of the endpoint.
    pub address: Address,
    /// Port of the endpoint, host byte order.
    pub port: u16,
    /// Explicit padding, always zero.
    pub pad: u16,
    /// Identity of (service port, address, port): a membership, not the address alone, so the same pod behind
    /// two Services has two ids. Never reused within a schema; zero is no backend.
    pub backend_id: u32,
}

/// Whether a backend may be used. Value of BACKEND_STATE; a backend without an entry has gone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BackendState {
    /// Bits of [`state`].
    pub flags: u32,
}

/// Bits of [`BackendState::flags`].
pub mod state {
    /// New connections may go to it: it is in the set of its service port.
    pub const ACTIVE: u32 = 1 << 0;
    /// Terminating but serving. Without [`ACTIVE`] no new connection goes there, and what is there may stay.
    pub const DRAINING: u32 = 1 << 1;
    /// On this node.
    pub const LOCAL: u32 = 1 << 2;
}
