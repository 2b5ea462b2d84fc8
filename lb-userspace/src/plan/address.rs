//! ClusterIPs as a whole: their entries in SERVICES, and where they may be.
//!
//! An address is a ClusterIP as a whole while one of its frontends in the maps is of that kind. The entry comes after the
//! first of them and goes before the last, so it never stands alone.

use std::collections::BTreeMap;

use lb_common::{
    Address, Prefix, ServiceKey, ServiceValue, Settings,
    service::flags::{CLUSTER_IP, USABLE},
};

use crate::maps::{Op, Record};

/// What follows for addresses from changes to their frontends.
#[derive(Default)]
pub(super) struct Addresses {
    /// Before the frontends change.
    pub(super) before: Vec<Op>,
    /// After that.
    pub(super) after: Vec<Op>,
    /// An entry has to wait.
    pub(super) held_back: bool,
}

impl Addresses {
    /// `changes` are frontends and what they will be, `None` for gone. Entries are only made where they `may_begin`, not
    /// before every first list is complete: until then a port without a frontend may be one whose endpoints have not come
    /// yet.
    pub(super) fn of(
        changes: impl Iterator<Item = (ServiceKey, Option<ServiceValue>)>,
        record: &Record,
        may_begin: bool,
    ) -> Self {
        let mut by_address = BTreeMap::<Address, BTreeMap<_, _>>::new();
        for (key, value) in changes {
            by_address.entry(key.address).or_default().insert(key, value);
        }
        let mut addresses = Self::default();
        for (address, changed) in by_address {
            let kept = record.cluster_ip(address).filter(|(key, _)| !changed.contains_key(*key));
            let coming = changed.values().flatten().filter(|value| value.flags & CLUSTER_IP != 0);
            let frontends: Vec<_> = kept.map(|(_, value)| value).chain(coming).collect();
            let key = ServiceKey::whole(address);
            let held = record.address(&address);
            if frontends.is_empty() {
                addresses.before.extend(held.map(|_| Op::DeleteService(key)));
                continue;
            }
            let is_usable = frontends.iter().any(|value| value.set.count > 0);
            let flags = if is_usable { CLUSTER_IP | USABLE } else { CLUSTER_IP };
            let value = ServiceValue { flags, ..ServiceValue::default() };
            if held == Some(&value) {
                continue;
            }
            if may_begin || held.is_some() {
                addresses.after.push(Op::PutService(key, value));
            } else {
                addresses.held_back = true;
            }
        }
        addresses
    }

    /// The settings that have to be written before that, given the ones that are to be written anyway, if any are. Programs
    /// look for a ClusterIP only where the settings say that one may be.
    pub(super) fn settings(&self, reserved: Option<Settings>, record: &Record) -> Option<Settings> {
        let new = || {
            self.after.iter().filter_map(|op| match op {
                Op::PutService(key, _) => Some(key.address),
                _ => None,
            })
        };
        let settings = reserved.unwrap_or(record.settings());
        if reserved.is_none() && new().all(|address| settings.may_be_cluster_ip(address)) {
            return None;
        }
        let nowhere = Settings { cluster_ips: [Prefix::NOTHING; 2], ..settings };
        Some(record.addresses().chain(new()).fold(nowhere, Settings::with_cluster_ip))
    }
}
