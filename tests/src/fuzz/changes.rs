//! What happens between packets: what the agent writes, what the kernel evicts, and how time passes.

use std::net::{IpAddr, SocketAddr};

use lb_common::flow::SECOND;

use super::{
    packets::Generator,
    universe::{FAMILIES, Family, may_be_cluster_ip},
};
use crate::{
    model::{
        Model,
        flows::{Ends, Side},
        fragments::Parent,
        services::Standing,
    },
    prog::Hook,
    seed::Frontend,
};

/// One of them.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A frontend gets these backends: on this node, elsewhere, and only draining.
    Serve {
        frontend: Frontend,
        is_cluster_ip: bool,
        here: Vec<SocketAddr>,
        there: Vec<SocketAddr>,
        draining: Vec<SocketAddr>,
    },
    /// It gets this affinity in seconds (0 for none) with its next backends.
    Affinity(Frontend, u32),
    /// Without backends it drops.
    DropWhenEmpty(Frontend),
    /// A frontend gets the backends and the Service of another.
    HandOver { from: Frontend, to: Frontend },
    /// A frontend is removed.
    StopServing(Frontend),
    /// A backend drains, has gone, or is listed again.
    Stand(Frontend, SocketAddr, Option<Standing>),
    /// It has gone, and would be another one if it came back.
    Retire(Frontend, SocketAddr),
    /// An address becomes a ClusterIP, with a usable endpoint or without.
    Own(IpAddr, bool),
    /// It is none any more.
    Disown(IpAddr),
    /// TCP without a flow may belong to another proxy, or not; a frontend that was removed may have left flows, or not.
    Settings { is_migrating: bool, has_orphans: bool },
    /// The entries were last used so many nanoseconds earlier.
    Age(Vec<(Side, Ends)>, u64),
    /// The same for what is known of a client of a service port.
    AgeClient((IpAddr, u32), u64),
    /// A first fragment was seen so many nanoseconds earlier.
    AgeFragment((Hook, Parent), u64),
    /// The kernel evicts an entry.
    Evict(Side, Ends),
    /// There were too many ICMP errors lately, or not.
    Errors { are_exhausted: bool },
}

/// How long nothing was seen, in seconds: either side of every limit.
const SILENCES: [u64; 8] = [1, 2, 9, 29, 31, 119, 121, 3601];

impl Generator {
    /// What is there when an episode begins.
    pub(super) fn beginning(&mut self) -> Vec<Change> {
        let mut changes =
            vec![Change::Settings { is_migrating: self.one_in(3), has_orphans: self.one_in(3) }];
        for family in &FAMILIES {
            for frontend in family.frontends {
                if may_be_cluster_ip(frontend) && !self.one_in(4) {
                    changes.push(Change::Own(frontend.0.ip(), !self.one_in(3)));
                }
                if self.one_in(4) {
                    changes.push(Change::Affinity(*frontend, 10));
                }
                if !self.one_in(6) {
                    changes.push(self.serve(family, *frontend));
                }
            }
        }
        changes
    }

    /// What happens before the next packet, if anything does.
    pub(super) fn change(&mut self, model: &Model) -> Option<Change> {
        if !self.one_in(25) {
            return None;
        }
        let family = self.any(&FAMILIES);
        let frontend = *self.any(family.frontends);
        let served = model.services.frontends.get(&frontend);
        match self.below(21) {
            0..3 => Some(self.serve(family, frontend)),
            3 => Some(Change::Affinity(frontend, if self.one_in(2) { 0 } else { 10 })),
            4 => served.map(|_| Change::DropWhenEmpty(frontend)),
            5 => {
                let to = *self.any(family.frontends);
                served.map(|_| Change::HandOver { from: frontend, to })
            }
            6 => served.map(|_| Change::StopServing(frontend)),
            7..9 => {
                let backend = *self.any(family.backends);
                let standing = match self.below(4) {
                    0 => Some(Standing::Active),
                    1 | 2 => Some(Standing::Draining),
                    _ => None,
                };
                Some(Change::Stand(frontend, backend, standing))
            }
            9 => Some(Change::Retire(frontend, *self.any(family.backends))),
            10 => {
                let address = frontend.0.ip();
                let is_usable = self.one_in(2);
                match model.services.cluster_ips.contains_key(&address) && self.one_in(2) {
                    true => Some(Change::Disown(address)),
                    false => may_be_cluster_ip(&frontend).then_some(Change::Own(address, is_usable)),
                }
            }
            11 => Some(Change::Settings { is_migrating: self.one_in(3), has_orphans: self.one_in(2) }),
            12 => Some(Change::Errors { are_exhausted: self.one_in(3) }),
            13..17 => self.age(model),
            17 => {
                let mut clients: Vec<_> = model.affinity.clients.keys().copied().collect();
                clients.sort_unstable();
                let by = *self.any(&[5, 9, 11]) * SECOND;
                self.maybe_any(&clients).map(|client| Change::AgeClient(client, by))
            }
            18 => {
                let mut first: Vec<_> = model.fragments.first.keys().copied().collect();
                first.sort_unstable();
                let by = *self.any(&[14, 29, 31]) * SECOND;
                self.maybe_any(&first).map(|key| Change::AgeFragment(key, by))
            }
            _ => self.entry(model).map(|(side, ends)| Change::Evict(side, ends)),
        }
    }

    /// A set of any size. Most have no more backends than are tried for a flow.
    fn serve(&mut self, family: &Family, frontend: Frontend) -> Change {
        let most = if self.big_sets { 6 } else { 4 };
        let count = if self.one_in(6) { 0 } else { 1 + self.below(most) };
        let mut backends = family.backends.to_vec();
        self.shuffle(&mut backends);
        let (chosen, others) = backends.split_at(count);
        let (here, there) = chosen.split_at(self.below(count + 1));
        let draining = others.iter().copied().filter(|_| self.one_in(5)).collect();
        let is_cluster_ip = may_be_cluster_ip(&frontend) && self.one_in(2);
        Change::Serve { frontend, is_cluster_ip, here: here.to_vec(), there: there.to_vec(), draining }
    }

    /// One entry of a flow, or both, was last used earlier.
    fn age(&mut self, model: &Model) -> Option<Change> {
        let (side, ends) = self.entry(model)?;
        let by = *self.any(&SILENCES) * SECOND + if self.one_in(2) { 0 } else { SECOND / 2 };
        let mut entries = vec![(side, ends)];
        if let Some(entry) = model.flows.entries.get(&(side, ends)).filter(|_| !self.one_in(3)) {
            let other = if side == Side::Forward { Side::Reply } else { Side::Forward };
            entries.push((other, entry.becomes.reversed()));
        }
        entries.retain(|entry| model.flows.entries.contains_key(entry));
        Some(Change::Age(entries, by))
    }

    fn entry(&mut self, model: &Model) -> Option<(Side, Ends)> {
        let mut entries: Vec<_> = model.flows.entries.keys().copied().collect();
        entries.sort_unstable();
        self.maybe_any(&entries)
    }
}
