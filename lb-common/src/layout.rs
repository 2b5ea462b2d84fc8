//! The layout of everything that is in a map, fixed at compile time: a changed size or a hidden padding byte is a
//! change of schema ([`crate::SCHEMA_VERSION`]) and must not happen by accident. Hash keys are compared byte by
//! byte by the kernel, so a padding byte in one would make equal keys differ.

use core::mem::{align_of, offset_of, size_of};

use crate::{
    AffinityKey, AffinityValue, BackendSet, BackendState, BackendValue, FlowKey, FlowValue, FragmentKey,
    FragmentValue, LinkValue, NodeValue, Prefix, ServiceKey, ServiceValue, Settings, SlotKey, SocketKey,
    SocketValue, SourceKey, Tuple, node::CLUSTER_PREFIXES,
};

const fn check(size: usize, want_size: usize, align: usize, want_align: usize) {
    assert!(size == want_size, "the size of a map key or value has changed");
    assert!(align == want_align, "the alignment of a map key or value has changed");
}

const _: () = {
    check(size_of::<ServiceKey>(), 16 + 2 + 1 + 1, align_of::<ServiceKey>(), 4);
    check(size_of::<BackendSet>(), 4 + 2 + 2, align_of::<BackendSet>(), 8);
    check(size_of::<ServiceValue>(), 8 + 4 * 4, align_of::<ServiceValue>(), 8);
    check(size_of::<SlotKey>(), 4 + 2 + 2, align_of::<SlotKey>(), 4);
    check(size_of::<BackendValue>(), 16 + 2 + 2 + 4, align_of::<BackendValue>(), 8);
    check(size_of::<BackendState>(), 4, align_of::<BackendState>(), 4);
    check(size_of::<Tuple>(), 16 + 16 + 2 + 2, align_of::<Tuple>(), 4);
    check(size_of::<FlowKey>(), 36 + 1 + 1 + 2, align_of::<FlowKey>(), 8);
    check(size_of::<FlowValue>(), 8 + 36 + 4 + 4 + 1 + 1 + 2, align_of::<FlowValue>(), 8);
    check(size_of::<Prefix>(), 16 + 16, align_of::<Prefix>(), 8);
    check(size_of::<AffinityKey>(), 16 + 4, align_of::<AffinityKey>(), 4);
    check(size_of::<AffinityValue>(), 8 + 4 + 2 + 2, align_of::<AffinityValue>(), 8);
    check(size_of::<FragmentKey>(), 16 + 16 + 4 + 1 + 1 + 2, align_of::<FragmentKey>(), 8);
    check(size_of::<FragmentValue>(), 8 + 16 + 4 + 4, align_of::<FragmentValue>(), 8);
    check(size_of::<NodeValue>(), 2 * 16 + CLUSTER_PREFIXES * 32 + 8, align_of::<NodeValue>(), 8);
    check(size_of::<LinkValue>(), 2 * 16 + 8, align_of::<LinkValue>(), 8);
    check(size_of::<SourceKey>(), 4 + 16, align_of::<SourceKey>(), 4);
    check(size_of::<SocketKey>(), 8 + 16 + 2 + 1 + 1 + 4, align_of::<SocketKey>(), 8);
    check(size_of::<SocketValue>(), 16 + 2 + 2 + 4 + 4 + 4, align_of::<SocketValue>(), 8);
    check(size_of::<Settings>(), 8 + 4 * 4 + 2 * 32, align_of::<Settings>(), 8);
    // Read and replaced as one word: it has to be the first one.
    assert!(offset_of!(ServiceValue, set) == 0);
};

#[cfg(feature = "user")]
mod pod {
    use super::*;

    // SAFETY: `repr(C)`, integers and arrays of integers only, no padding (sizes above are the sums of the fields), so
    // every bit pattern is a value and every byte is initialized. The same holds for all of them.
    unsafe impl aya::Pod for ServiceKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for ServiceValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SlotKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for BackendValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for BackendState {}
    // SAFETY: as above.
    unsafe impl aya::Pod for FlowKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for FlowValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for FragmentKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for FragmentValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for AffinityKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for AffinityValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for NodeValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for LinkValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SourceKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Settings {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SocketKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SocketValue {}
}
