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
/// One element: [`crate::Settings`].
pub const SETTINGS: &str = "SETTINGS";
/// Packets by [`crate::Verdict`], per CPU.
pub const COUNTERS: &str = "COUNTERS";

/// Every map, in the order of the packet's path.
pub const ALL: [&str; 7] = [SERVICES, BACKENDS, BACKEND_STATE, FLOWS_NEW, FLOWS, SETTINGS, COUNTERS];

/// Default size of SERVICES, in entries.
pub const SERVICES_SIZE: usize = 65_536;
/// Default size of BACKENDS, in entries: the slots of every set, twice while a set changes.
pub const BACKENDS_SIZE: usize = 524_288;
/// Default size of BACKEND_STATE, in entries.
pub const BACKEND_STATE_SIZE: usize = 262_144;
/// Default size of FLOWS_NEW and of FLOWS, in entries; a flow has two.
pub const FLOWS_SIZE: usize = 262_144;
/// Size of COUNTERS: room for every [`crate::Verdict`] that a packet can end with.
pub const COUNTERS_SIZE: usize = 64;
