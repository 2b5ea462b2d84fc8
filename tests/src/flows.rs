//! What the programs have written: the entries of the flow tables.

use std::{fmt, net::SocketAddr};

use aya::maps::HashMap;
use lb_common::{
    Direction, FlowKey, FlowValue, Tuple,
    addr::{from_ip, to_ip},
    maps,
};

use crate::prog::Datapath;

/// Which map holds a flow's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// FLOWS_NEW.
    New,
    /// FLOWS.
    Settled,
}

impl Table {
    fn map(self) -> &'static str {
        match self {
            Self::New => maps::FLOWS_NEW,
            Self::Settled => maps::FLOWS,
        }
    }
}

impl Datapath {
    /// Every entry of the flow tables, FLOWS first.
    pub fn flows(&self) -> Vec<(Table, FlowKey, FlowValue)> {
        let mut flows = Vec::new();
        for table in [Table::Settled, Table::New] {
            let map = self.ebpf.map(table.map()).expect("both are loaded");
            let map = HashMap::<_, FlowKey, FlowValue>::try_from(map).expect("a hash map of these types");
            flows.extend(
                map.iter().map(|entry| entry.expect("readable")).map(|(key, value)| (table, key, value)),
            );
        }
        flows
    }

    /// An entry of the flow tables, and where it is.
    pub fn flow(&self, key: &FlowKey) -> Option<(Table, FlowValue)> {
        [Table::Settled, Table::New].into_iter().find_map(|table| {
            let map = self.ebpf.map(table.map()).expect("both are loaded");
            let map = HashMap::<_, FlowKey, FlowValue>::try_from(map).expect("a hash map of these types");
            map.get(key, 0).ok().map(|value| (table, value))
        })
    }

    /// Changes an entry that is there.
    pub fn edit_flow(&mut self, key: &FlowKey, edit: impl FnOnce(&mut FlowValue)) {
        let (table, mut value) = self.flow(key).expect("there is such an entry");
        edit(&mut value);
        self.hash::<FlowKey, FlowValue>(table.map()).insert(key, value, 0).expect("it is replaced");
    }

    /// Removes an entry that is there, as the kernel does when it evicts it.
    pub fn evict_flow(&mut self, key: &FlowKey) {
        let (table, _) = self.flow(key).expect("there is such an entry");
        self.hash::<FlowKey, FlowValue>(table.map()).remove(key).expect("it is there");
    }
}

/// What is in the flow tables: shown when a test fails.
impl fmt::Debug for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flows().iter().try_for_each(|(table, key, value)| writeln!(f, "{}", line(*table, key, value)))
    }
}

/// An entry in words.
pub(crate) fn line(table: Table, key: &FlowKey, value: &FlowValue) -> String {
    let direction = ["forward", "reply", "return", "outward"][usize::from(key.direction)];
    format!(
        "{table:?} {direction} {} becomes {}: protocol {}, backend {} of {}, seen {:#b}, flags {:#b}, at {}",
        ends(&key.tuple),
        ends(&value.translated),
        key.proto,
        value.backend_id,
        value.service_id,
        value.seen,
        value.flags,
        value.last_seen
    )
}

fn ends(tuple: &Tuple) -> String {
    let source = SocketAddr::new(to_ip(&tuple.source), tuple.source_port);
    let destination = SocketAddr::new(to_ip(&tuple.destination), tuple.destination_port);
    format!("{source} > {destination}")
}

/// The key that packets from `source` to `destination` have in the flow tables.
pub fn flow_key(source: SocketAddr, destination: SocketAddr, proto: u8, direction: Direction) -> FlowKey {
    let tuple = Tuple {
        source: from_ip(source.ip()),
        destination: from_ip(destination.ip()),
        source_port: source.port(),
        destination_port: destination.port(),
    };
    FlowKey::new(tuple, proto, direction)
}
