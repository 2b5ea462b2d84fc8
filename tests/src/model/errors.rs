//! ICMP errors: whoever gets one acts on the packet that it quotes, so that has to be one that it has sent.

use std::net::SocketAddr;

use lb_common::Verdict;

use super::{
    Arrival, End, Model,
    flows::Ends,
    parse::{Carried, IcmpError, TCP, UDP, ipv4, ipv6, take},
    rewrite::{address, keep_sum, put},
    sums,
};
use crate::prog::Hook;

/// The packet that an error quotes.
struct Quoted {
    ends: Ends,
    ip: usize,
    transport: usize,
}

impl Model {
    /// What becomes of an ICMP error. It is not of the conversation: it makes no flow and keeps none alive.
    pub(super) fn tell(&self, arrival: &Arrival, frame: &[u8], error: &IcmpError) -> End {
        self.told(arrival, frame, error).unwrap_or(End::Untouched)
    }

    fn told(&self, arrival: &Arrival, frame: &[u8], error: &IcmpError) -> Option<End> {
        let quoted = quoted(frame, error)?;
        let Ends { from, to, .. } = quoted.ends;
        if from.ip() != error.to {
            return None;
        }
        let is_ingress = arrival.hook == Hook::Ingress;
        let (verdict, old, new, outer) = if is_ingress {
            // A reply, as the client has it.
            let flow = self.flows.forward(&quoted.ends.reversed())?;
            (Verdict::ErrorForwarded, from, flow.becomes.to, true)
        } else {
            // A request, as the backend has it.
            let flow = self.flows.reply(&quoted.ends.reversed())?;
            let is_of_direct = flow.is_direct && (quoted.ends.proto != TCP || flow.shown.rst);
            // Where the node stands for the client, only the node itself has seen the packet with the client's address.
            if is_of_direct || (flow.is_hidden && arrival.is_forwarded) {
                return None;
            }
            // A router in between speaks for itself.
            (Verdict::ErrorRestored, to, flow.becomes.from, error.from == to.ip())
        };

        let mut out = address(frame, quoted.ip, new.ip(), !is_ingress);
        let port = quoted.transport + if is_ingress { 0 } else { 2 };
        put(&mut out, port, &new.port().to_be_bytes());
        keep_quoted_sum(frame, &mut out, error, &quoted, (old, new));
        if outer {
            out = address(&out, error.ip, new.ip(), is_ingress);
        }
        let end = error.end.min(frame.len());
        let pseudo_header = |from, to| match error.from.is_ipv4() {
            true => 0,
            false => sums::pseudo_header(from, to, 58, end - error.message),
        };
        let ends = match (outer, is_ingress) {
            (false, _) => (error.from, error.to),
            (true, true) => (error.from, new.ip()),
            (true, false) => (new.ip(), error.to),
        };
        let sums = (pseudo_header(error.from, error.to), pseudo_header(ends.0, ends.1));
        keep_sum(frame, &mut out, error.message + 2, error.message, end, sums);
        Some(End::Translated(verdict, out))
    }
}

/// Reads it, as far as the eight bytes behind the IP header that are always there.
fn quoted(frame: &[u8], error: &IcmpError) -> Option<Quoted> {
    let ip = error.message + 8;
    let carried = if error.from.is_ipv4() { ipv4(frame, ip) } else { ipv6(frame, ip) };
    let Carried { from, to, proto, at, is_later_fragment, .. } = carried.ok()?;
    let [a, b, c, d, ..] = take::<8>(frame, at).ok()?;
    if is_later_fragment || at + 8 > error.end {
        return None;
    }
    let from = SocketAddr::new(from, u16::from_be_bytes([a, b]));
    let to = SocketAddr::new(to, u16::from_be_bytes([c, d]));
    Some(Quoted { ends: Ends { from, to, proto }, ip, transport: at })
}

/// Corrects the checksum of the quoted TCP or UDP header, if it is quoted.
fn keep_quoted_sum(
    frame: &[u8],
    out: &mut [u8],
    error: &IcmpError,
    quoted: &Quoted,
    (old, new): (SocketAddr, SocketAddr),
) {
    let field = match quoted.ends.proto {
        TCP => quoted.transport + 16,
        UDP => quoted.transport + 6,
        _ => return,
    };
    let Some(before) = frame.get(field..field + 2).filter(|_| field + 2 <= error.end) else { return };
    if quoted.ends.proto == UDP && before == [0, 0] {
        // There is none.
        return;
    }
    // Of what it covers, only this has changed.
    let sum = sums::kept(u16::from_be_bytes([before[0], before[1]]), sums::end(old), sums::end(new));
    let is_datagram_of_zero = quoted.ends.proto == UDP && sum == 0;
    put(out, field, &if is_datagram_of_zero { [0xff, 0xff] } else { sum.to_be_bytes() });
}
