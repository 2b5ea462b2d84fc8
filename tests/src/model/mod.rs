//! What the programs are to do with a packet, said a second time and plainly: the oracle of the fuzzer.
//!
//! It is written from ARCHITECTURE.md and knows nothing of lb-ebpf: a parser over a slice, `HashMap`s for maps, checksums
//! of whole packets, flows of `bool`s. Of lb-common it takes the names of verdicts and no decision.
//!
//! * [`parse`]: what a frame is.
//! * [`services`]: what the agent has said: frontends, backends, ClusterIPs, settings.
//! * [`says`]: what a packet says about its connection; [`flows`]: the entries of flows, and when a flow has ended.
//! * `forward`, `reply`: the two ways through tc; `choose`: a new flow; `affinity`: who goes back to whom.
//! * [`fragments`]: what follows a first fragment; `errors`: ICMP errors, with the packet that they quote.
//! * `rewrite`, `answer`: the bytes that come out; `sums`: the checksums in them.
//!
//! Where the programs choose at random, the model accepts any choice that is right, and asks a [`Witness`] which it was.

pub mod affinity;
mod answer;
mod choose;
mod errors;
pub mod flows;
mod forward;
pub mod fragments;
pub mod parse;
mod reply;
mod rewrite;
pub mod says;
pub mod services;
mod sums;

use std::{collections::BTreeMap, net::IpAddr};

use lb_common::Verdict;

pub use answer::Errors;

use crate::prog::{Action, Hook, Outcome};
use affinity::Affinity;
use flows::{Ends, Flows};
use fragments::Fragments;
use parse::{Packet, Reading, SCTP};
use services::Services;

/// A frame at a hook.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Where.
    pub hook: Hook,
    /// The frame.
    pub frame: Vec<u8>,
    /// How often it meets the hook, as what came out of it the time before.
    pub times: u32,
    /// At egress: whether it came in by an interface. Otherwise the node itself has sent it.
    pub is_forwarded: bool,
}

/// Who has seen what the programs chose.
pub trait Witness {
    /// The id of the backend that a packet's flow is bound to.
    fn bound_to(&self, packet: &Ends) -> Option<u32>;
    /// The id of the backend that a client of a service port has.
    fn held_by(&self, client: IpAddr, service: u32) -> Option<u32>;
}

/// Everything that decides what becomes of a packet.
#[derive(Clone, Default)]
pub struct Model {
    /// What the agent has said.
    pub services: Services,
    /// What the programs remember of conversations.
    pub flows: Flows,
    /// What they remember of clients.
    pub affinity: Affinity,
    /// What they remember of first fragments.
    pub fragments: Fragments,
    /// How many ICMP errors there may be.
    pub errors: Errors,
    /// Hosts to whom packets leave by the interface that theirs come in by.
    pub neighbours: Vec<IpAddr>,
}

/// How a packet ends.
enum End {
    /// It goes on as it came, and is nobody's.
    Untouched,
    /// It goes on as it came, counted.
    Passed(Verdict),
    /// It goes on like this.
    Translated(Verdict, Vec<u8>),
    /// It goes no further.
    Dropped(Verdict),
    /// Its sender is to get an answer, if it may have one.
    Answerable(Verdict),
    /// Its sender gets this.
    Answered(Verdict, Vec<u8>),
}

impl End {
    /// Whether the packet is marked as ours, so that no other hook takes it for anything else. A reply is not: no other would.
    fn marks(&self) -> bool {
        let marks = |verdict: &Verdict| {
            matches!(
                verdict,
                Verdict::FlowCreated
                    | Verdict::FlowContinued
                    | Verdict::ErrorForwarded
                    | Verdict::ErrorRestored
            )
        };
        match self {
            Self::Translated(verdict, _) => marks(verdict),
            Self::Answered(..) => true,
            Self::Untouched | Self::Passed(_) | Self::Dropped(_) | Self::Answerable(_) => false,
        }
    }
}

/// What stays with a packet for as long as the kernel holds it.
struct Metadata {
    /// Its Ethernet destination was a group.
    is_to_many: bool,
    /// Its Ethernet destination was another than the interface's own, which is all zeros on loopback.
    is_to_another: bool,
    /// One of our programs has translated or made it.
    is_marked: bool,
}

impl Metadata {
    fn of(frame: &[u8]) -> Self {
        let destination = frame.get(..6).unwrap_or_default();
        let is_to_many = destination.first().is_some_and(|first| first & 1 == 1);
        let is_to_another = !is_to_many && destination.iter().any(|byte| *byte != 0);
        Self { is_to_many, is_to_another, is_marked: false }
    }
}

impl Model {
    /// What becomes of a frame at `now`, nanoseconds of `CLOCK_MONOTONIC`.
    pub fn run(&mut self, arrival: &Arrival, now: u64, witness: &impl Witness) -> Outcome {
        self.flows.touched.clear();
        self.affinity.touched.clear();
        self.fragments.touched.clear();
        let mut metadata = Metadata::of(&arrival.frame);
        let mut outcome = Outcome::untouched(arrival.frame.clone());
        let mut counted = BTreeMap::new();
        for _ in 0..arrival.times {
            let end = self.once(arrival, &outcome.bytes, &mut metadata, now, witness);
            metadata.is_marked |= end.marks();
            let (action, verdict, bytes) = match end {
                End::Untouched => (Action::Next, None, None),
                End::Passed(verdict) => (Action::Next, Some(verdict), None),
                End::Translated(verdict, bytes) => (Action::Next, Some(verdict), Some(bytes)),
                End::Dropped(verdict) => (Action::Drop, Some(verdict), None),
                End::Answered(verdict, bytes) => (Action::Answer, Some(verdict), Some(bytes)),
                End::Answerable(verdict) => unreachable!("{verdict}: answered or not by now"),
            };
            outcome.action = action;
            outcome.bytes = bytes.unwrap_or(outcome.bytes);
            verdict.into_iter().for_each(|verdict| *counted.entry(verdict).or_default() += 1);
        }
        outcome.counted = counted.into_iter().collect();
        outcome
    }

    fn once(
        &mut self,
        arrival: &Arrival,
        frame: &[u8],
        metadata: &mut Metadata,
        now: u64,
        witness: &impl Witness,
    ) -> End {
        if arrival.hook == Hook::Egress && metadata.is_marked {
            return End::Untouched;
        }
        let packet = match parse::read(frame) {
            Reading::Packet(packet) => packet,
            Reading::Foreign => return End::Untouched,
            Reading::Malformed => return End::Passed(Verdict::Unparsable),
            Reading::Authenticated => return End::Passed(Verdict::AuthenticatedPassed),
            Reading::LaterFragment(fragment) => {
                return self.follow_first(arrival.hook, frame, &fragment, metadata, now);
            }
            Reading::IcmpError(error) => return self.tell(arrival, frame, &error),
        };
        let end = match arrival.hook {
            Hook::Ingress => self.forward(frame, &packet, metadata, now, witness),
            Hook::Egress => self.reply(frame, &packet, arrival.is_forwarded, now),
        };
        if let Some(parent) = packet.parent {
            self.lead(arrival.hook, parent, &end, metadata, now);
        }
        match end {
            End::Answerable(verdict) => self.answer(frame, &packet, metadata, verdict),
            end => end,
        }
    }

    /// How a packet ends that no frontend and no flow claims.
    fn unclaimed(&self, packet: &Packet) -> End {
        let Some(is_usable) = self.services.cluster_ip(packet.ends.to.ip()) else { return End::Untouched };
        if packet.is_echo_request() {
            return match is_usable {
                true if packet.parent.is_some() => End::Dropped(Verdict::FragmentUnsupported),
                true => End::Answerable(Verdict::EchoAnswered),
                false => End::Answerable(Verdict::NoBackend),
            };
        }
        if !packet.begins() && self.services.is_migrating {
            return End::Passed(Verdict::MidflowPassed);
        }
        End::Answerable(Verdict::UnknownPort)
    }
}

/// Why a packet of a flow cannot be translated, if so.
fn untranslatable(packet: &Packet) -> Option<Verdict> {
    // A fragment does not say how far it is to the end of its packet, on which the checksum of SCTP depends.
    if packet.parent.is_some() && packet.ends.proto == SCTP {
        return Some(Verdict::FragmentUnsupported);
    }
    packet.is_unchecked().then_some(Verdict::UnknownChecksum)
}
