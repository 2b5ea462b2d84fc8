//! From a client to a VIP: the destination becomes a backend.

use lb_common::Verdict;

use super::{
    End, Metadata, Model, Witness,
    flows::{Ends, Entry, Shown, Side, answers},
    parse::{Packet, UDP},
    rewrite,
    says::Says,
    services::Standing,
    untranslatable,
};
use crate::flows::Table;

/// What a packet's flow says.
enum Followed {
    /// It stays with its backend.
    Kept,
    /// It needs another one.
    Afresh,
    /// There is no flow that the packet may go on in.
    Absent,
    /// Its replies would be taken for another flow's.
    InTheWay,
}

impl Model {
    pub(super) fn forward(
        &mut self,
        frame: &[u8],
        packet: &Packet,
        metadata: &Metadata,
        now: u64,
        witness: &impl Witness,
    ) -> End {
        if packet.is_echo_request() {
            return self.unclaimed(packet);
        }
        let ends = packet.ends;
        let frontend = self.services.frontends.get(&(ends.to, ends.proto)).cloned();
        if frontend.is_none() && (packet.begins() || !self.services.has_orphans) {
            let end = self.unclaimed(packet);
            if matches!(end, End::Untouched) && packet.begins() && !metadata.is_marked {
                self.leave_replies_to(&ends);
            }
            return end;
        }
        let service = frontend.as_ref().map(|frontend| frontend.service);
        let replaces = match self.follow(packet, service, now) {
            Followed::Kept => {
                if let Some(verdict) = untranslatable(packet) {
                    return End::Dropped(verdict);
                }
                let Some(flow) = self.flows.forward(&ends) else { return End::Untouched };
                let bytes = rewrite::destination(frame, packet, flow.becomes.to);
                return End::Translated(Verdict::FlowContinued, bytes);
            }
            Followed::InTheWay => return End::Dropped(Verdict::TupleInUse),
            Followed::Afresh => true,
            Followed::Absent => false,
        };
        let Some(frontend) = frontend else { return self.unclaimed(packet) };
        match self.bind(packet, &frontend, replaces, now, witness) {
            Ok(backend) => {
                let bytes = rewrite::destination(frame, packet, backend);
                End::Translated(Verdict::FlowCreated, bytes)
            }
            Err(end) => end,
        }
    }

    /// Notes that a client talks to a backend itself, from a port that it used for a VIP, unless the packet is the reply of
    /// a flow: two pods that use each other's VIPs from their own service ports. Where the node stands for the client there
    /// is nothing to tell apart.
    fn leave_replies_to(&mut self, ends: &Ends) {
        let replies = ends.reversed();
        let is_reply = self.flows.reply(ends).is_some_and(|entry| !entry.is_direct);
        if is_reply || self.flows.reply(&replies).is_none_or(|entry| entry.is_direct || entry.is_hidden) {
            return;
        }
        self.flows.change(Side::Reply, replies, |entry| entry.is_direct = true);
        if let Some(owner) = self.flows.owner_of(&replies) {
            self.flows.change(Side::Forward, owner, |entry| entry.is_direct = true);
        }
    }

    /// Follows a packet in its flow. `service` is the service port that the frontend belongs to, if there is a frontend.
    fn follow(&mut self, packet: &Packet, service: Option<u32>, now: u64) -> Followed {
        let ends = packet.ends;
        let Some(forward) = self.flows.forward(&ends).copied() else { return Followed::Absent };
        let may_stay =
            !packet.begins() || (service == Some(forward.service) && self.is_good(&forward, &ends));

        let opens = packet.says().is_some_and(Says::opens);
        let needs_reply = forward.is_due(now) || !forward.shown.answered || forward.is_direct || opens;
        if !needs_reply {
            if !may_stay {
                return Followed::Afresh;
            }
            self.flows.note(Side::Forward, ends, forward.shown.and(packet.says()), now);
            return Followed::Kept;
        }

        let reply = self.flows.reply_of(&ends).copied();
        if packet.begins() && (!may_stay || self.flows.is_dead(&ends, now)) {
            return Followed::Afresh;
        }
        if reply.is_some_and(|reply| reply.is_direct) && !packet.begins() && self.flows.is_closed(&ends) {
            // The backend holds the direct connection now.
            return Followed::Absent;
        }
        let replies = forward.becomes.reversed();
        if reply.is_none() {
            match self.flows.reply(&replies) {
                Some(_) if packet.begins() => return Followed::Afresh,
                Some(_) => return Followed::InTheWay,
                // Evicted: it comes back.
                None => self.flows.put(
                    Side::Reply,
                    replies,
                    Entry {
                        becomes: ends.reversed(),
                        table: Table::New,
                        shown: Shown::default(),
                        is_direct: false,
                        last: now,
                        ..forward
                    },
                ),
            }
        }
        let mut shown = forward.shown.and(packet.says());
        shown.answered |= answers(packet, reply.map(|reply| reply.shown).unwrap_or_default());
        self.flows.note(Side::Forward, ends, shown, now);
        if reply.is_some() {
            self.flows.change(Side::Forward, ends, |entry| entry.is_direct = false);
            self.flows.change(Side::Reply, replies, |entry| entry.is_direct = false);
            if shown.answered && self.flows.settle(Side::Reply, replies) {
                self.flows.settle(Side::Forward, ends);
            }
        }
        Followed::Kept
    }

    /// Whether the backend of a flow takes what may be its first packet again.
    fn is_good(&self, forward: &Entry, ends: &Ends) -> bool {
        match self.services.standing.get(&forward.backend) {
            Some(Standing::Active) => true,
            Some(Standing::Draining) => ends.proto == UDP,
            None => false,
        }
    }
}
