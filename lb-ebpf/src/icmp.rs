//! ICMP errors about packets of a flow, with the packet that they quote.
//!
//! ```text
//!   egress    client ◄── backend or router: "client → backend"   quoted destination := VIP; source too, if the backend's
//!   ingress   VIP ◄── client or router: "VIP → client"           quoted source := backend, and destination
//! ```
//!
//! Where an address of this node stands for the client, each crosses both hooks, as the packets of the flow do:
//!
//! ```text
//!   ingress   node ◄── backend or router: "node → backend"       quoted source := client, and destination; then as above
//!   egress    backend ◄── client or router: "backend → client"   quoted destination := node; source too, if the client's
//! ```
//!
//! Who gets one acts on the packet that is quoted: it has to be one that it has sent. Path MTU discovery lives by that.
//! Errors are not part of the conversation: they make no flow and keep none alive.

use aya_ebpf::{bindings::BPF_F_PSEUDO_HDR, programs::TcContext};
use lb_common::{Direction, FlowKey, Tuple, Verdict, addr::difference, icmp};

use crate::{
    count::End,
    flow,
    headers::load,
    mark::{self, Mark},
    nat::{self, DESTINATION, Endpoint, Offsets, SOURCE},
    packet::Packet,
};

const CHECKSUM: u32 = 2;

/// What an error becomes.
struct Change {
    /// Which end of the quoted packet, and what that end becomes.
    quoted: &'static Offsets,
    old: Endpoint,
    new: Endpoint,
    /// Which end of the error itself becomes the same address.
    outer: Option<&'static Offsets>,
}

/// How the ICMP error that was parsed last ends: as `verdict`, translated, if the packet that it quotes is of a flow; else
/// it is nobody's.
#[inline(never)]
pub(crate) fn translate(ctx: &TcContext, verdict: Verdict) -> End {
    let error = Packet::last().ok()?;
    let quoted = Packet::quoted(ctx, error)?;
    let (quoted_tuple, outer) = (&quoted.key.tuple, &error.key.tuple);
    if difference(outer.destination, quoted_tuple.source) != 0 {
        return None;
    }
    let is_ingress = matches!(verdict, Verdict::ErrorForwarded);
    // The key of the packets that the quoted one answers, or that answer it.
    let answered = quoted_tuple.reversed();
    let (end, mark) = if is_ingress {
        arriving(&answered, quoted.key.proto)?
    } else {
        (leaving(ctx, &answered, quoted.key.proto)?, Mark::Done)
    };
    let change = if is_ingress {
        let old = Endpoint { address: quoted_tuple.source, port: quoted_tuple.source_port };
        Change { quoted: &SOURCE, old, new: end, outer: Some(&DESTINATION) }
    } else {
        let old = Endpoint { address: quoted_tuple.destination, port: quoted_tuple.destination_port };
        // A router between the two speaks for itself.
        let outer = (difference(outer.source, old.address) == 0).then_some(&SOURCE);
        Change { quoted: &DESTINATION, old, new: end, outer }
    };
    if apply(ctx, error, quoted, &change).is_err() {
        return Some(Verdict::RewriteFailed);
    }
    mark::set(ctx, mark);
    Some(verdict)
}

/// What the source of a packet becomes that is quoted to its sender, where it comes in, and what is left to do where it
/// leaves.
#[inline(always)]
fn arriving(answered: &Tuple, proto: u8) -> Option<(Endpoint, Mark)> {
    if let Some(backend) = flow::other_end(&FlowKey::new(*answered, proto, Direction::Forward)) {
        return Some((backend.end, mark::onward(backend.has_source_nat)));
    }
    let client = flow::other_end(&FlowKey::new(*answered, proto, Direction::Return))?;
    Some((client.end, Mark::CalledBack))
}

/// What the destination of a packet becomes that is quoted to its sender, where it leaves.
#[inline(always)]
fn leaving(ctx: &TcContext, answered: &Tuple, proto: u8) -> Option<Endpoint> {
    let mark = mark::get(ctx);
    if mark == Some(Mark::SourceDue) {
        return Some(flow::other_end(&FlowKey::new(*answered, proto, Direction::Outward))?.end);
    }
    let vip = flow::other_end(&FlowKey::new(*answered, proto, Direction::Reply))?;
    // With source NAT, the packets of the flow have another source between this node and the backend. So without a mark an error
    // that quotes the client there is about a direct conversation, unless it is this node's own.
    // SAFETY: the context is the one that the program got.
    let is_own = unsafe { (*ctx.skb.skb).ingress_ifindex } == 0;
    (!vip.has_source_nat || mark.is_some() || is_own).then_some(vip.end)
}

#[inline(always)]
fn apply(ctx: &TcContext, error: &Packet, quoted: &Packet, change: &Change) -> Result<(), i64> {
    let checksum = (error.transport + CHECKSUM) as usize;
    let (old, new) = (&change.old, &change.new);
    let addresses = nat::difference(&old.address, &new.address)?;
    let quoted_checksum = quoted_checksum(ctx, quoted);

    let addresses_of = (&old.address, &new.address);
    nat::set_address(ctx, quoted, change.quoted, addresses_of, (0, 0))?;
    if !error.is_v4() {
        // In IPv4 the header's own checksum, which is quoted too, makes up for the address.
        ctx.l4_csum_replace(checksum, 0, addresses.into(), 0)?;
    }

    let port = |port: u16| u16::from_ne_bytes(port.to_be_bytes());
    let (from, to) = (port(old.port), port(new.port));
    ctx.store((quoted.transport + change.quoted.port) as usize, &to, 0)?;
    ctx.l4_csum_replace(checksum, from.into(), to.into(), 2)?;

    if let Some((at, field, optional)) = quoted_checksum {
        let ports = u32::from(!from) + u32::from(to);
        let moved = icmp::quoted_checksum(field, addresses, ports, optional);
        ctx.store(at as usize, &moved, 0)?;
        ctx.l4_csum_replace(checksum, field.into(), moved.into(), 2)?;
    }

    if let Some(outer) = change.outer {
        nat::set_address(ctx, error, outer, addresses_of, (0, 0))?;
        if !error.is_v4() {
            // The checksum covers the addresses outside as well.
            ctx.l4_csum_replace(checksum, 0, addresses.into(), BPF_F_PSEUDO_HDR.into())?;
            nat::recount(ctx, addresses);
        }
    }
    Ok(())
}

/// Where the checksum of the quoted TCP or UDP header is, what it is, and whether 0 says that there is none. `None`: it is
/// not quoted.
#[inline(always)]
fn quoted_checksum(ctx: &TcContext, quoted: &Packet) -> Option<(u32, u16, bool)> {
    let (at, optional) = icmp::checksum_at(quoted.key.proto)?;
    let at = quoted.transport + at;
    if at + 2 > quoted.end {
        return None;
    }
    Some((at, load(ctx, at)?, optional))
}
