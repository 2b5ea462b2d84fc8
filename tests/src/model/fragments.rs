//! Fragments: the first one has the ports, and the later ones of its packet go where it went.

use std::{collections::HashMap, net::IpAddr};

use lb_common::Verdict;

use super::{
    End, Metadata, Model,
    parse::{LaterFragment, Reading, read},
    rewrite,
};
use crate::prog::Hook;

/// What the fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parent {
    /// The sender.
    pub from: IpAddr,
    /// The receiver.
    pub to: IpAddr,
    /// Identification.
    pub id: u32,
    /// IP protocol number; of IPv6 packets it does not count.
    pub proto: Option<u8>,
}

/// What became of a first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// What its destination became at ingress, or its source at egress.
    pub address: IpAddr,
    /// It went no further.
    pub is_dropped: bool,
    /// It was marked as ours.
    pub is_marked: bool,
    /// When that was, nanoseconds of `CLOCK_MONOTONIC`.
    pub seen: u64,
}

/// The first fragments that are remembered.
#[derive(Clone, Debug, Default)]
pub struct Fragments {
    /// By their packets, as they arrive at a hook.
    pub first: HashMap<(Hook, Parent), First>,
    /// Those that the last packet has written.
    pub touched: Vec<(Hook, Parent)>,
}

/// How long the rest of a packet is waited for, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;

impl Model {
    /// Remembers how a first fragment ended, or forgets what an earlier packet has left. What is to be answered ends here,
    /// whether there is an answer or not.
    pub(super) fn lead(&mut self, hook: Hook, parent: Parent, end: &End, metadata: &Metadata, now: u64) {
        let own = if hook == Hook::Ingress { parent.to } else { parent.from };
        let (address, is_dropped) = match end {
            End::Untouched => {
                self.fragments.first.remove(&(hook, parent));
                return;
            }
            End::Passed(_) => (own, false),
            End::Translated(_, bytes) => (address(hook, bytes).unwrap_or(own), false),
            End::Dropped(_) | End::Answerable(_) | End::Answered(..) => (own, true),
        };
        let is_marked = metadata.is_marked || end.marks();
        self.fragments.touched.push((hook, parent));
        self.fragments.first.insert((hook, parent), First { address, is_dropped, is_marked, seen: now });
    }

    /// What becomes of a later fragment.
    pub(super) fn follow_first(
        &self,
        hook: Hook,
        frame: &[u8],
        fragment: &LaterFragment,
        metadata: &mut Metadata,
        now: u64,
    ) -> End {
        let LaterFragment { parent, ip } = fragment;
        let first = self.fragments.first.get(&(hook, *parent));
        let Some(first) = first.filter(|first| now.saturating_sub(first.seen) <= PATIENCE) else {
            return match hook {
                // Another ingress has translated it.
                Hook::Ingress if metadata.is_marked => End::Untouched,
                // Nobody else can translate it, and without its first one nobody knows to where.
                Hook::Ingress if self.services.cluster_ip(parent.to).is_some() => {
                    End::Dropped(Verdict::FragmentOrphaned)
                }
                _ => End::Passed(Verdict::FragmentPassed),
            };
        };
        if first.is_dropped {
            return End::Dropped(Verdict::FragmentOrphaned);
        }
        metadata.is_marked = first.is_marked;
        let old = if hook == Hook::Ingress { parent.to } else { parent.from };
        if first.address == old {
            return End::Passed(Verdict::FragmentPassed);
        }
        let bytes = rewrite::address(frame, *ip, first.address, hook == Hook::Ingress);
        End::Translated(Verdict::FragmentContinued, bytes)
    }
}

/// The address of a packet that a hook translates.
fn address(hook: Hook, frame: &[u8]) -> Option<IpAddr> {
    let Reading::Packet(packet) = read(frame) else { return None };
    let end = if hook == Hook::Ingress { packet.ends.to } else { packet.ends.from };
    Some(end.ip())
}
