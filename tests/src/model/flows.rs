//! The entries of flows: what each direction has shown, and when a flow has ended.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    parse::{Packet, SCTP, TCP},
    says::Says,
};
use crate::flows::Table;

/// Where a packet comes from, where it goes, and its IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// IP protocol number.
    pub proto: u8,
}

impl Ends {
    /// The ends of the packets in the other direction.
    pub fn reversed(&self) -> Self {
        Self { from: self.to, to: self.from, proto: self.proto }
    }
}

/// What the packets of a direction have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// There was one.
    pub any: bool,
    /// A FIN.
    pub fin: bool,
    /// An RST that was not followed by anything else.
    pub rst: bool,
    /// The client has answered the backend.
    pub answered: bool,
}

impl Shown {
    /// After one more packet.
    pub fn and(self, says: Option<Says>) -> Self {
        let any = Self { any: true, ..self };
        match says {
            None => any,
            Some(says) if says.rst => Self { rst: true, ..any },
            // A new incarnation of the connection.
            Some(says) if says.syn => Self { any: true, ..Self::default() },
            // Whoever goes on has not believed the RST.
            Some(says) => Self { rst: false, fin: any.fin || says.fin, ..any },
        }
    }
}

/// One of the two entries of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What its packets' ends become.
    pub becomes: Ends,
    /// The id of the backend.
    pub backend: u32,
    /// The service port.
    pub service: u32,
    /// Which map it is in.
    pub table: Table,
    /// What its packets have shown.
    pub shown: Shown,
    /// The client talks to the backend directly now, from the same port.
    pub is_direct: bool,
    /// An address of the node is to stand for the client, where its packets leave: it is a backend that reaches itself.
    pub is_hidden: bool,
    /// When one was seen, nanoseconds of `CLOCK_MONOTONIC`. Renewed once a second at most.
    pub last: u64,
}

/// Which entry: that of packets from the client, or that of the backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// From the client to the VIP.
    Forward,
    /// From the backend to the client.
    Reply,
}

/// The entries of all flows.
#[derive(Clone, Debug)]
pub struct Flows {
    /// By what packets look like when they arrive.
    pub entries: HashMap<(Side, Ends), Entry>,
    /// How many entries FLOWS has room for.
    pub room: usize,
    /// Entries whose time the last packet has renewed.
    pub touched: Vec<(Side, Ends)>,
}

impl Default for Flows {
    fn default() -> Self {
        Self { entries: HashMap::new(), room: usize::MAX, touched: Vec::new() }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Established,
    Closing,
    Closed,
}

const SECOND: u64 = 1_000_000_000;

impl Flows {
    /// The forward entry of a packet's flow.
    pub fn forward(&self, ends: &Ends) -> Option<&Entry> {
        self.entries.get(&(Side::Forward, *ends))
    }

    /// The reply entry with these ends.
    pub fn reply(&self, ends: &Ends) -> Option<&Entry> {
        self.entries.get(&(Side::Reply, *ends))
    }

    /// The reply entry of a flow, unless it was evicted or is another flow's now.
    pub(super) fn reply_of(&self, ends: &Ends) -> Option<&Entry> {
        let forward = self.forward(ends)?;
        self.reply(&forward.becomes.reversed()).filter(|reply| reply.becomes.reversed() == *ends)
    }

    /// The ends of the packets from the client, of the flow with these replies. `None`: there is no such flow any more.
    pub(super) fn owner_of(&self, replies: &Ends) -> Option<Ends> {
        let owner = self.reply(replies)?.becomes.reversed();
        self.forward(&owner).filter(|forward| forward.becomes.reversed() == *replies)?;
        Some(owner)
    }

    pub(super) fn put(&mut self, side: Side, ends: Ends, entry: Entry) {
        self.touched.push((side, ends));
        self.entries.insert((side, ends), entry);
    }

    /// Changes an entry that is there.
    pub(super) fn change(&mut self, side: Side, ends: Ends, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&(side, ends)) {
            change(entry);
        }
    }

    /// Notes a packet of an entry.
    pub(super) fn note(&mut self, side: Side, ends: Ends, shown: Shown, now: u64) {
        let is_due = self.entries.get(&(side, ends)).is_some_and(|entry| entry.is_due(now));
        self.change(side, ends, |entry| {
            entry.shown = shown;
            entry.last = if is_due { now } else { entry.last };
        });
        if is_due {
            self.touched.push((side, ends));
        }
    }

    /// Moves an entry to FLOWS. Tells whether it is there then.
    pub(super) fn settle(&mut self, side: Side, ends: Ends) -> bool {
        let settled = self.entries.values().filter(|entry| entry.table == Table::Settled).count();
        let has_room = settled < self.room;
        let mut is_settled = false;
        self.change(side, ends, |entry| {
            if has_room {
                entry.table = Table::Settled;
            }
            is_settled = entry.table == Table::Settled;
        });
        is_settled
    }

    /// Whether nothing can be lost by ending a flow: it is closed, or nobody has said anything for too long.
    pub(super) fn is_dead(&self, ends: &Ends, now: u64) -> bool {
        let Some(forward) = self.forward(ends) else { return true };
        let last = self.reply_of(ends).map_or(forward.last, |reply| reply.last.max(forward.last));
        let limit = match (ends.proto, self.phase(ends)) {
            (_, Phase::Closed) => return true,
            (SCTP, Phase::Established) => 210,
            (TCP | SCTP, Phase::New) | (SCTP, Phase::Closing) => 120,
            (TCP, Phase::Established) => 24 * 3600,
            (TCP, Phase::Closing) => 3600,
            (_, Phase::New) => 30,
            (_, Phase::Established | Phase::Closing) => 120,
        };
        now.saturating_sub(last) > limit * SECOND
    }

    /// Whether a connection has ended.
    pub(super) fn is_closed(&self, ends: &Ends) -> bool {
        self.phase(ends) == Phase::Closed
    }

    fn phase(&self, ends: &Ends) -> Phase {
        let client = self.forward(ends).map(|entry| entry.shown).unwrap_or_default();
        let backend = self.reply_of(ends).map(|entry| entry.shown).unwrap_or_default();
        if client.rst || backend.rst || (client.fin && backend.fin) {
            Phase::Closed
        } else if client.fin || backend.fin {
            Phase::Closing
        } else if client.answered {
            Phase::Established
        } else {
            Phase::New
        }
    }
}

impl Entry {
    /// Whether its time is to be renewed.
    pub(super) fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.last) >= SECOND
    }
}

/// Whether a packet of a client answers what its backend has shown.
pub(super) fn answers(packet: &Packet, backend: Shown) -> bool {
    backend.any && packet.says().is_none_or(|says| says.ack && !says.syn && !says.rst)
}
