//! The maps. What they hold is described at the types, in lb-common; the agent pins them.
//!
//! The control maps allocate an element when it is written (`BPF_F_NO_PREALLOC`): a node pays for the Services that its
//! cluster has, not for the largest cluster (66 MB less at the default sizes), and only the agent writes them, which can
//! report and repeat a failed allocation. The flow maps and AFFINITY are written for packets, where an allocation may fail under
//! memory pressure, so they have their elements from the start. In both kinds the kernel may reuse a removed element
//! while a program still reads it; see `lookup.rs` for what that means to a choice.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray},
    macros::btf_map,
};
use lb_common::{
    AffinityKey, AffinityValue, BackendState, BackendValue, FlowKey, FlowValue, FragmentKey, FragmentValue,
    LinkValue, NodeValue, ServiceKey, ServiceValue, Settings, SlotKey, SocketKey, SocketValue, SourceKey,
    maps::{
        AFFINITY_SIZE, BACKEND_STATE_SIZE, BACKENDS_SIZE, COUNTERS_SIZE, FLOWS_SIZE, FRAGMENTS_SIZE,
        LINKS_SIZE, SERVICES_SIZE, SOCKETS_SIZE, SOURCE_RANGES_SIZE,
    },
};

use crate::{answer::Message, fragment::Note, packet::Packet};

/// `-EEXIST`, as the map helpers return it.
pub(crate) const EXISTS: i32 = -17;

const NO_PREALLOC: usize = BPF_F_NO_PREALLOC as usize;

/// Frontends, and the set of backends of each.
#[btf_map]
pub(crate) static SERVICES: HashMap<ServiceKey, ServiceValue, SERVICES_SIZE, NO_PREALLOC> = HashMap::new();

/// Backends by block and slot.
#[btf_map]
pub(crate) static BACKENDS: HashMap<SlotKey, BackendValue, BACKENDS_SIZE, NO_PREALLOC> = HashMap::new();

/// Whether a backend may be used, by its id.
#[btf_map]
pub(crate) static BACKEND_STATE: HashMap<u32, BackendState, BACKEND_STATE_SIZE, NO_PREALLOC> = HashMap::new();

/// Flows whose client has not yet answered: the kernel evicts the oldest, so a flood of SYNs meets only its like.
#[btf_map]
pub(crate) static FLOWS_NEW: LruHashMap<FlowKey, FlowValue, FLOWS_SIZE> = LruHashMap::new();

/// Flows whose client has: nothing is evicted; the agent removes the dead ones.
#[btf_map]
pub(crate) static FLOWS: HashMap<FlowKey, FlowValue, FLOWS_SIZE> = HashMap::new();

/// Which backend a client had: the kernel evicts who has not come back for the longest.
#[btf_map]
pub(crate) static AFFINITY: LruHashMap<AffinityKey, AffinityValue, AFFINITY_SIZE> = LruHashMap::new();

/// Where first fragments went: the kernel evicts those that were not used for the longest.
#[btf_map]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, FragmentValue, FRAGMENTS_SIZE> = LruHashMap::new();

/// Who may connect to load-balancer addresses.
#[btf_map]
pub(crate) static SOURCE_RANGES: LpmTrie<SourceKey, u32, SOURCE_RANGES_SIZE> = LpmTrie::new();

/// This node: one element.
#[btf_map]
pub(crate) static NODE: Array<NodeValue, 1> = Array::new();

/// Interfaces that lead out or have addresses.
#[btf_map]
pub(crate) static LINKS: HashMap<u32, LinkValue, LINKS_SIZE, NO_PREALLOC> = HashMap::new();

/// What sockets of this node were told: the kernel evicts what was not asked for longest.
#[btf_map]
pub(crate) static SOCKETS: LruHashMap<SocketKey, SocketValue, SOCKETS_SIZE> = LruHashMap::new();

/// What the agent tells the programs: one element.
#[btf_map]
pub(crate) static SETTINGS: Array<Settings, 1> = Array::new();

/// Packets by verdict.
#[btf_map]
pub(crate) static COUNTERS: PerCpuArray<u64, COUNTERS_SIZE> = PerCpuArray::new();

/// The packet that is being worked on, and the one that it quotes.
#[btf_map]
pub(crate) static PACKET: PerCpuArray<Packet, 2> = PerCpuArray::new();

/// What is being noted of a first fragment.
#[btf_map]
pub(crate) static NOTE: PerCpuArray<Note, 1> = PerCpuArray::new();

/// The answer that is being made.
#[btf_map]
pub(crate) static ANSWER: PerCpuArray<Message, 1> = PerCpuArray::new();

/// What keeps ICMP errors in bounds: see `lb_common::refuse::spend`.
#[btf_map]
pub(crate) static ERRORS_DUE: PerCpuArray<u64, 1> = PerCpuArray::new();
