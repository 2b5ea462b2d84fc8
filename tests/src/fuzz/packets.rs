//! Packets, made whole first: of conversations with VIPs and with backends, in any order of flags, in any encapsulation.

use std::net::SocketAddr;

use fastrand::Rng;

use super::{
    damage::{damage, make_runnable},
    universe::{FAMILIES, Family},
};
use crate::{
    model::{Arrival, Model, flows::Ends, services},
    packet::{ACK, FIN, IcmpError, Kind, Packet, RST, SYN},
    prog::Hook,
    seed::{Frontend, sctp, udp},
};

/// How many conversations are remembered, to go on with.
const TALKS: usize = 16;

/// Makes the steps of an episode.
pub(super) struct Generator {
    pub(super) rng: Rng,
    /// Whether sets may be larger than the number of backends that are tried for a flow.
    pub(super) big_sets: bool,
    talks: Vec<Talk>,
}

/// A conversation that was begun.
#[derive(Clone, Copy)]
struct Talk {
    family: usize,
    client: SocketAddr,
    frontend: Frontend,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let big_sets = rng.u32(..4) == 0;
        Self { rng, big_sets, talks: Vec::new() }
    }

    /// The next packet.
    pub(super) fn packet(&mut self, model: &Model) -> Arrival {
        let talk = self.talk();
        let (hook, mut frame) = match self.one_in(16) {
            true => self.error(&talk, model),
            false => {
                let (hook, packet) = self.whole(&talk, model);
                (hook, self.dress(packet, talk.client.is_ipv4()).bytes())
            }
        };
        if self.one_in(12) {
            let padding = self.below(20);
            frame.extend((0..padding).map(|_| self.rng.u8(..)));
        }
        if self.one_in(6) {
            damage(&mut self.rng, &mut frame);
        }
        make_runnable(&mut frame);
        let may_repeat = self.one_in(16) && !self.big_sets && !is_some_frontend_its_own_backend(model);
        let times = if may_repeat { 2 } else { 1 };
        Arrival { hook, frame, times, is_forwarded: self.one_in(2) }
    }

    /// A packet, and where it is seen.
    fn whole(&mut self, talk: &Talk, model: &Model) -> (Hook, Packet) {
        let family = &FAMILIES[talk.family];
        match self.below(100) {
            0..42 => (Hook::Ingress, self.of(talk.client, talk.frontend)),
            42..70 => {
                let backend = self.backend_of(talk, model);
                (Hook::Egress, self.answer(backend, talk.client, talk.frontend.1))
            }
            70..78 => {
                let backend = self.backend_of(talk, model);
                (Hook::Ingress, self.of(talk.client, (backend, talk.frontend.1)))
            }
            78..84 => {
                let to = if self.one_in(6) { *self.any(family.strangers) } else { talk.frontend.0 };
                let payload = self.payload();
                (self.hook(), Packet::echo_request(talk.client, to, &payload))
            }
            84..89 => {
                let to = *self.any(family.strangers);
                (Hook::Ingress, self.of(talk.client, (to, talk.frontend.1)))
            }
            _ => (self.hook(), self.between_any(family)),
        }
    }

    /// An ICMP error about a packet of a conversation, from its receiver or from a router.
    fn error(&mut self, talk: &Talk, model: &Model) -> (Hook, Vec<u8>) {
        let family = &FAMILIES[talk.family];
        let backend = self.backend_of(talk, model);
        let (hook, about) = match self.one_in(2) {
            true => (Hook::Egress, self.of(talk.client, (backend, talk.frontend.1))),
            false => (Hook::Ingress, self.answer(talk.frontend.0, talk.client, talk.frontend.1)),
        };
        let hook = if self.one_in(16) { self.hook() } else { hook };
        let receiver = if hook == Hook::Egress { backend } else { talk.client };
        let from = if self.one_in(3) { *self.any(family.strangers) } else { receiver };
        let kind = *self.any(&[
            Kind::HostUnreachable,
            Kind::PortUnreachable,
            Kind::TooBig(1400),
            Kind::TimeExceeded,
            Kind::ParameterProblem(6),
        ]);
        let mut error = IcmpError::about(&self.dress(about, talk.client.is_ipv4()), from.ip(), kind);
        if !self.one_in(3) {
            let len = *self.any(&[7, 8, 17, 18, 20, 28, 60]);
            error = error.quoting(len);
        }
        if self.one_in(20) {
            error = error.to(self.any(family.clients).ip());
        }
        (hook, error.bytes())
    }

    fn talk(&mut self) -> Talk {
        if !self.talks.is_empty() && !self.one_in(5) {
            return self.talks[self.rng.usize(..self.talks.len())];
        }
        let family = self.rng.usize(..FAMILIES.len());
        let Family { clients, oddities, frontends, .. } = &FAMILIES[family];
        let client = if self.one_in(12) { *self.any(oddities) } else { *self.any(clients) };
        let talk = Talk { family, client, frontend: *self.any(frontends) };
        if self.talks.len() < TALKS {
            self.talks.push(talk);
        } else {
            let old = self.rng.usize(..TALKS);
            self.talks[old] = talk;
        }
        talk
    }

    /// The backend of a conversation, or any.
    fn backend_of(&mut self, talk: &Talk, model: &Model) -> SocketAddr {
        let ends = Ends { from: talk.client, to: talk.frontend.0, proto: talk.frontend.1 };
        let any = *self.any(FAMILIES[talk.family].backends);
        let bound = model.flows.forward(&ends).filter(|_| !self.one_in(10));
        bound.map_or(any, |flow| flow.becomes.to)
    }

    /// A packet of a client.
    fn of(&mut self, client: SocketAddr, (to, proto): Frontend) -> Packet {
        let flags = self.flags(&[SYN, SYN, SYN, ACK, ACK, ACK, ACK, FIN | ACK]);
        self.carrying(client, to, proto, flags)
    }

    /// A packet of a backend.
    fn answer(&mut self, backend: SocketAddr, client: SocketAddr, proto: u8) -> Packet {
        let flags = self.flags(&[SYN | ACK, SYN | ACK, ACK, ACK, ACK, FIN | ACK]);
        self.carrying(backend, client, proto, flags)
    }

    fn between_any(&mut self, family: &Family) -> Packet {
        let mut everybody: Vec<_> =
            [family.clients, family.backends, family.strangers, family.oddities].concat();
        everybody.extend(family.frontends.iter().map(|(address, _)| address));
        let (from, to) = (*self.any(&everybody), *self.any(&everybody));
        let flags = self.flags(&[SYN, ACK]);
        let proto = self.any(family.frontends).1;
        self.carrying(from, to, proto, flags)
    }

    /// Mostly some of the usual ones.
    fn flags(&mut self, usual: &[u8]) -> u8 {
        match self.below(8) {
            0 => *self.any(&[RST, RST | ACK, FIN, 0, SYN | FIN, SYN | RST, FIN | RST | ACK]),
            1 => self.rng.u8(..) & (SYN | ACK | FIN | RST),
            _ => *self.any(usual),
        }
    }

    fn carrying(&mut self, from: SocketAddr, to: SocketAddr, proto: u8, flags: u8) -> Packet {
        let payload = self.payload();
        if proto == udp(to).1 {
            return Packet::udp(from, to, &payload);
        }
        if proto == sctp(to).1 {
            return Packet::sctp(from, to, &self.chunks(flags, &payload));
        }
        let segment = Packet::tcp(from, to, flags).with_payload(&payload);
        if self.one_in(4) { segment.numbered(self.rng.u32(..), self.rng.u32(..)) } else { segment }
    }

    /// Chunks of SCTP, the first of which mostly says what these flags say.
    fn chunks(&mut self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let kind = match (flags & RST != 0, flags & SYN != 0, flags & ACK != 0, flags & FIN != 0) {
            (true, ..) => *self.any(&[6, 14]),
            (_, true, false, _) => 1,
            (_, true, true, _) => 2,
            (.., true) => *self.any(&[7, 8]),
            _ => *self.any(&[0, 0, 3, 4, 10, 11]),
        };
        let kind = if self.one_in(12) { self.rng.u8(..) } else { kind };
        let mut chunks = [&[kind, 0, 0, 4], payload].concat();
        if self.one_in(12) {
            // None, or not the whole of it.
            chunks.truncate(self.below(4));
        }
        chunks
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => self.below(1400),
            1..6 => self.below(24),
            _ => *self.any(&[0, 4]),
        };
        (0..len).map(|_| self.rng.u8(..)).collect()
    }

    fn hook(&mut self) -> Hook {
        if self.one_in(2) { Hook::Ingress } else { Hook::Egress }
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.rng.usize(..n)
    }

    pub(super) fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.usize(..of.len())]
    }

    /// Draws also where there is nothing to draw from, so that what follows is the same.
    pub(super) fn maybe_any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let at = self.rng.usize(..of.len().max(1));
        of.get(at).copied()
    }

    pub(super) fn shuffle<T>(&mut self, of: &mut [T]) {
        self.rng.shuffle(of);
    }
}

/// Then a packet that meets a hook twice may be bound twice, and it does not show to which backend at first. (In big sets, a
/// choice decides whether there is one that is free, which does not show either.)
fn is_some_frontend_its_own_backend(model: &Model) -> bool {
    let has = |(frontend, known): (&Frontend, &services::Frontend)| {
        known.backends.iter().any(|backend| backend.address == frontend.0)
    };
    model.services.frontends.iter().any(has)
}
