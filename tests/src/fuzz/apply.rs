//! A change, in the maps and in the model.

use std::net::IpAddr;

use lb_common::{
    AffinityKey, AffinityValue, FragmentKey, FragmentValue, Prefix, Settings, addr::from_ip, backend::state,
    flow::SECOND, maps, service::flags, settings,
};

use super::{
    changes::Change,
    memory::{fragment_key, key_of, record},
    world::World,
};
use crate::model::{
    Errors,
    services::{Backend, Frontend, Standing},
};

impl World<'_> {
    /// Makes a change in both, if there is something to change.
    pub(super) fn change(&mut self, change: Change) {
        self.history.change(&change);
        let (datapath, services) = (&mut *self.datapath, &mut self.model.services);
        match change {
            Change::Serve { frontend, is_cluster_ip, here, there, draining } => {
                datapath.serve_here_and_there(frontend, &here, &there, &draining);
                if is_cluster_ip {
                    datapath.add_flags(frontend, flags::CLUSTER_IP);
                }
                let mut backends = Vec::new();
                for run in [here, there] {
                    let mut run: Vec<_> = run
                        .into_iter()
                        .map(|address| Backend { id: datapath.backend_id(frontend, address), address })
                        .collect();
                    run.sort_unstable_by_key(|backend| backend.id);
                    backends.extend(run);
                }
                let draining =
                    draining.into_iter().map(|it| (datapath.backend_id(frontend, it), Standing::Draining));
                services.standing.extend(draining);
                services.standing.extend(backends.iter().map(|backend| (backend.id, Standing::Active)));
                let affinity = self.affinity.get(&frontend).copied().filter(|seconds| *seconds != 0);
                let service = datapath.service_id(frontend);
                let affinity = affinity.map(|seconds| u64::from(seconds) * SECOND);
                let served = Frontend { service, backends, is_cluster_ip, drops_when_empty: false, affinity };
                services.frontends.insert(frontend, served);
            }
            Change::Affinity(frontend, seconds) => {
                datapath.set_affinity(frontend, seconds);
                self.affinity.insert(frontend, seconds);
            }
            Change::DropWhenEmpty(frontend) => {
                datapath.drop_when_empty(frontend);
                services.frontends.entry(frontend).and_modify(|frontend| frontend.drops_when_empty = true);
            }
            Change::HandOver { from, to } => {
                datapath.hand_over(from, to);
                services
                    .frontends
                    .get(&from)
                    .cloned()
                    .map(|frontend| services.frontends.insert(to, frontend));
            }
            Change::StopServing(frontend) => {
                datapath.stop_serving(frontend);
                services.frontends.remove(&frontend);
            }
            Change::Stand(frontend, backend, standing) => {
                let id = datapath.backend_id(frontend, backend);
                let flags = standing.map(|standing| match standing {
                    Standing::Active => state::ACTIVE,
                    Standing::Draining => state::DRAINING,
                });
                let was_there = match standing {
                    Some(standing) => services.standing.insert(id, standing),
                    None => services.standing.remove(&id),
                };
                if flags.is_some() || was_there.is_some() {
                    datapath.set_state(frontend, backend, flags);
                }
            }
            Change::Retire(frontend, backend) => {
                let id = datapath.backend_id(frontend, backend);
                if services.standing.remove(&id).is_some() {
                    datapath.retire(frontend, backend);
                }
            }
            Change::Own(address, is_usable) => {
                datapath.own_address(address, is_usable);
                services.cluster_ips.insert(address, is_usable);
                self.write_settings();
            }
            Change::Disown(address) => {
                if services.cluster_ips.remove(&address).is_some() {
                    datapath.disown_address(address);
                }
                self.write_settings();
            }
            Change::Settings { is_migrating, has_orphans } => {
                (services.is_migrating, services.has_orphans) = (is_migrating, has_orphans);
                self.write_settings();
            }
            Change::Age(entries, by) => {
                for (side, ends) in entries {
                    datapath.edit_flow(&key_of(side, &ends), |value| {
                        value.last_seen = value.last_seen.saturating_sub(by);
                    });
                    let entry = self.model.flows.entries.get_mut(&(side, ends));
                    entry.into_iter().for_each(|entry| entry.last = entry.last.saturating_sub(by));
                }
            }
            Change::AgeClient(client, by) => self.age_client(client, by),
            Change::Evict(side, ends) => {
                datapath.evict_flow(&key_of(side, &ends));
                self.model.flows.entries.remove(&(side, ends));
            }
            Change::AgeFragment(key, by) => {
                let mut map = datapath.hash::<FragmentKey, FragmentValue>(maps::FRAGMENTS);
                let mut value = map.get(&fragment_key(&key), 0).expect("it is there");
                value.first_seen = value.first_seen.saturating_sub(by);
                map.insert(fragment_key(&key), value, 0).expect("it is replaced");
                let first = self.model.fragments.first.get_mut(&key);
                first.into_iter().for_each(|first| first.seen = first.seen.saturating_sub(by));
            }
            Change::Errors { are_exhausted } => {
                datapath.set_errors_due(if are_exhausted { u64::MAX / 2 } else { 0 });
                self.model.errors = if are_exhausted { Errors::Exhausted } else { Errors::BURST };
            }
        }
    }

    fn age_client(&mut self, client: (IpAddr, u32), by: u64) {
        let Some(value) = record(self.datapath, client) else { return };
        let key = AffinityKey { client: from_ip(client.0), service_id: client.1 };
        let value = AffinityValue { last_used: value.last_used.saturating_sub(by), ..value };
        self.datapath.hash(maps::AFFINITY).insert(key, value, 0).expect("it is replaced");
        let held = self.model.affinity.clients.get_mut(&client);
        held.into_iter().for_each(|held| held.last = held.last.saturating_sub(by));
    }

    /// Writes the settings that go with what is there, as the agent does.
    fn write_settings(&mut self) {
        let services = &self.model.services;
        let nothing = Settings { cluster_ips: [Prefix::NOTHING; 2], ..Settings::default() };
        let addresses = services.cluster_ips.keys().map(|address| from_ip(*address));
        self.datapath.set_settings(Settings {
            migration_until: if services.is_migrating { u64::MAX } else { 0 },
            flags: if services.has_orphans { settings::flags::ORPHAN_FLOWS } else { 0 },
            ..addresses.fold(nothing, |settings, address| settings.with_cluster_ip(address))
        });
    }
}
