//! Names, sizes and pin paths of the maps.

/// Frontends: [`crate::ServiceKey`] → [`crate::ServiceValue`].
pub const SERVICES: &str = "SERVICES";
/// Backends by block and slot: [`crate::SlotKey`] → [`crate::BackendValue`].
pub const BACKENDS: &str = "BACKENDS";
/// Backend id → [`crate::BackendState`].
pub const BACKEND_STATE: &str = "BACKEND_STATE";
/// Flows whose client has not yet answered the backend's reply (LRU): [`crate::FlowKey`] → [`crate::FlowValue`].
pub const FLOWS_NEW: &str = "FLOWS_NEW";
/// Flows whose client has: [`crate::FlowKey`] → [`crate::FlowValue`].
pub const FLOWS: &str = "FLOWS";
/// Which backend a client had, where its Service asks for affinity (LRU): [`crate::AffinityKey`] →
/// [`crate::AffinityValue`].
pub const AFFINITY: &str = "AFFINITY";
/// Where the first fragment of an IP packet went (LRU): [`crate::FragmentKey`] → [`crate::FragmentValue`].
pub const FRAGMENTS: &str = "FRAGMENTS";
/// Who may connect to a load-balancer address, a trie: prefixes of [`crate::SourceKey`] → 1.
pub const SOURCE_RANGES: &str = "SOURCE_RANGES";
/// One element: [`crate::NodeValue`].
pub const NODE: &str = "NODE";
/// Interface index → [`crate::LinkValue`].
pub const LINKS: &str = "LINKS";
/// What sockets of this node were told (LRU): [`crate::SocketKey`] → [`crate::SocketValue`].
pub const SOCKETS: &str = "SOCKETS";
/// One element: [`crate::Settings`].
pub const SETTINGS: &str = "SETTINGS";
/// Packets by [`crate::Verdict`], per CPU.
pub const COUNTERS: &str = "COUNTERS";

/// Every map, in the order of the packet's path.
pub const ALL: [&str; 13] = [
    SERVICES,
    BACKENDS,
    BACKEND_STATE,
    FLOWS_NEW,
    FLOWS,
    AFFINITY,
    FRAGMENTS,
    SOURCE_RANGES,
    NODE,
    LINKS,
    SOCKETS,
    SETTINGS,
    COUNTERS,
];

/// Default size of SERVICES, in entries.
pub const SERVICES_SIZE: usize = 65_536;
/// Default size of BACKENDS, in entries: the slots of every set, twice while a set changes.
pub const BACKENDS_SIZE: usize = 524_288;
/// Default size of BACKEND_STATE, in entries.
pub const BACKEND_STATE_SIZE: usize = 262_144;
/// Default size of FLOWS_NEW and of FLOWS, in entries; a flow has two.
pub const FLOWS_SIZE: usize = 262_144;
/// Default size of AFFINITY, in entries: one for each client of each service port with affinity. Beyond it, clients that
/// have not come back for the longest lose theirs.
pub const AFFINITY_SIZE: usize = 65_536;
/// Size of FRAGMENTS, in entries: packets of which more fragments are expected, at one hook. An entry lives for as long as
/// the fragments of one packet are under way, so this is much.
pub const FRAGMENTS_SIZE: usize = 8192;
/// Default size of SOURCE_RANGES, in entries: one for each range of each port of a Service with load-balancer addresses.
pub const SOURCE_RANGES_SIZE: usize = 16_384;
/// Size of LINKS, in entries: interfaces that lead out or have addresses.
pub const LINKS_SIZE: usize = 4096;
/// Default size of SOCKETS, in entries; a UDP socket has two for each VIP that it speaks to, a TCP socket one.
pub const SOCKETS_SIZE: usize = 262_144;
/// Size of COUNTERS: room for every [`crate::Verdict`] that a packet can end with.
pub const COUNTERS_SIZE: usize = 64;
