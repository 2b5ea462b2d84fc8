//! From a backend to a client: the source becomes the VIP again.

use lb_common::Verdict;

use super::{
    End, Model,
    flows::{Entry, Side},
    parse::{Carries, Packet},
    rewrite, untranslatable,
};

impl Model {
    pub(super) fn reply(&mut self, frame: &[u8], packet: &Packet, is_forwarded: bool, now: u64) -> End {
        let Some(entry) = self.entry_of_reply(packet) else {
            return if is_forwarded { End::Untouched } else { self.sent_by_node(packet) };
        };
        if let Some(verdict) = untranslatable(packet) {
            return End::Dropped(verdict);
        }
        self.flows.note(Side::Reply, packet.ends, entry.shown.and(packet.says()), now);
        End::Translated(Verdict::ReplyRestored, rewrite::source(frame, packet, entry.becomes.from))
    }

    /// The entry of the flow that a packet is a reply of. Where the client talks to the backend directly, a datagram and a
    /// packet of SCTP are of that conversation, and a segment is once the backend has taken that connection up, or when
    /// it refuses it. Where the node stands for the client, its replies are not to the client.
    fn entry_of_reply(&mut self, packet: &Packet) -> Option<Entry> {
        let entry = *self.flows.reply(&packet.ends)?;
        if entry.is_hidden {
            return None;
        }
        if !entry.is_direct {
            return Some(entry);
        }
        let Carries::Segment(segment) = packet.carries else { return None };
        if segment.says.syn && segment.says.ack {
            self.flows.change(Side::Reply, packet.ends, |entry| entry.shown.rst = true);
            return None;
        }
        let is_of_direct = entry.shown.rst || (segment.says.rst && entry.shown.fin);
        (!is_of_direct).then_some(entry)
    }

    /// What the node itself sends has crossed no ingress, so what nobody takes is refused here, and so is what still is to a
    /// ClusterIP that somebody would take: nobody has served its socket.
    fn sent_by_node(&self, packet: &Packet) -> End {
        let frontend = self.services.frontends.get(&(packet.ends.to, packet.ends.proto));
        match frontend.filter(|_| !packet.is_echo_request()) {
            None => self.unclaimed(packet),
            Some(frontend) => frontend.empty().unwrap_or(match frontend.is_cluster_ip {
                true => End::Answerable(Verdict::NodeUntranslated),
                false => End::Untouched,
            }),
        }
    }
}
