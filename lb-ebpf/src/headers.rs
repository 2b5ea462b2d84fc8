//! What headers look like, and how they are read.

use core::hint;

use aya_ebpf::programs::TcContext;

/// Ethertypes (IEEE 802 numbers), as they lie in a frame.
pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const IPV6: u16 = 0x86dd;
    /// IEEE 802.1Q customer tag.
    pub(crate) const VLAN: u16 = 0x8100;
    /// IEEE 802.1ad service tag.
    pub(crate) const QINQ: u16 = 0x88a8;
}

/// IPv6 next-header numbers (IANA) of what may stand between the IPv6 header and TCP or UDP.
pub(crate) mod extension {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const AUTHENTICATION: u8 = 51;
    pub(crate) const DESTINATION_OPTIONS: u8 = 60;
}

/// Length of an Ethernet header without tags.
pub(crate) const ETHERNET: u32 = 14;

/// The IPv4 header (RFC 791) without options.
#[repr(C, align(2))]
pub(crate) struct Ipv4 {
    pub(crate) version_and_len: u8,
    pub(crate) traffic_class: u8,
    pub(crate) total_len: [u8; 2],
    pub(crate) identification: [u8; 2],
    pub(crate) flags_and_offset: [u8; 2],
    pub(crate) time_to_live: u8,
    pub(crate) proto: u8,
    pub(crate) checksum: [u8; 2],
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
}

/// The IPv6 header (RFC 8200).
#[repr(C, align(2))]
pub(crate) struct Ipv6 {
    pub(crate) version_and_class: [u8; 4],
    pub(crate) payload_len: [u8; 2],
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
}

/// The TCP header (RFC 9293) without options.
#[repr(C, align(2))]
#[derive(Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    pub(crate) sequence: [u8; 4],
    pub(crate) acknowledgement: [u8; 4],
    pub(crate) data_offset: u8,
    pub(crate) flags: u8,
    pub(crate) window: [u8; 2],
    pub(crate) checksum: [u8; 2],
    pub(crate) urgent: [u8; 2],
}

/// The UDP header (RFC 768).
#[repr(C, align(2))]
pub(crate) struct Udp {
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    pub(crate) len: [u8; 2],
    pub(crate) checksum: [u8; 2],
}

/// The beginning of an ICMP message (RFC 792) or ICMPv6 message (RFC 4443). What the rest is depends on the type.
#[repr(C, align(2))]
#[derive(Clone, Copy)]
pub(crate) struct Icmp {
    pub(crate) type_and_code: [u8; 2],
    pub(crate) checksum: [u8; 2],
    pub(crate) rest: [u8; 4],
}

#[inline(always)]
pub(crate) fn is_tag(ethertype: [u8; 2]) -> bool {
    matches!(u16::from_be_bytes(ethertype), ethertype::VLAN | ethertype::QINQ)
}

#[inline(always)]
pub(crate) fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        extension::HOP_BY_HOP | extension::ROUTING | extension::FRAGMENT | extension::DESTINATION_OPTIONS
    )
}

/// How far into a packet headers are read without the kernel's help: as far as two tags and IPv4 options reach.
const DIRECT: u32 = ETHERNET + 2 * 4 + 60;

/// Length of a header.
#[expect(clippy::cast_possible_truncation, reason = "headers are short")]
pub(crate) const fn len<T>() -> u32 {
    size_of::<T>() as u32
}

/// Copies a header out of the packet: straight from its linear memory, where headers nearly always are, or else, and far
/// into the packet, by `bpf_skb_load_bytes`, which takes several times as long. `None`: the packet is too short.
#[inline(always)]
pub(crate) fn load<T>(ctx: &TcContext, at: u32) -> Option<T> {
    const { assert!(align_of::<T>() <= 2) };
    // One value for the comparison and for the pointer, and the comparison in this direction: verifiers before 6.8 do not see
    // otherwise that a way is never taken, and then forget what they know of the pointer on it.
    let at = hint::black_box(at);
    if at > DIRECT {
        return ctx.load(at as usize).ok();
    }
    let start = ctx.data() + at as usize;
    if start + size_of::<T>() <= ctx.data_end() {
        // SAFETY: inside the packet, as just compared. Every header begins at an even address, because Ethernet
        // headers do (the kernel's NET_IP_ALIGN is even, and the verifier takes it for granted too).
        return Some(unsafe { (start as *const T).read() });
    }
    ctx.load(at as usize).ok()
}
