//! What the agent tells the programs, and keeps for itself, in the one element of SETTINGS.

/// Value of SETTINGS, element 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Until this time (nanoseconds of `CLOCK_MONOTONIC`) a mid-flow TCP packet to a VIP that has no flow passes to
    /// the stack: it may belong to the proxy that readylb replaces. Set once, at the first attach.
    pub migration_until: u64,
    /// Backend ids below this one may be in use: the agent writes a reservation before it uses an id, so that an
    /// id is never given out twice, whenever the agent dies.
    pub next_backend_id: u32,
    /// The same for service ids.
    pub next_service_id: u32,
    /// The same for blocks.
    pub next_block: u32,
    /// Bits of [`flags`].
    pub flags: u32,
}

/// Bits of [`Settings::flags`].
pub mod flags {
    /// A frontend was removed while it may have had flows: a packet that matches no frontend is then looked up
    /// among the flows as well, until the flow collector has seen that none is left.
    pub const ORPHAN_FLOWS: u32 = 1 << 0;
}
