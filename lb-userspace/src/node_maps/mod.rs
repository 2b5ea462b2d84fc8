//! NODE and LINKS: what the programs know of this node and its interfaces.
//!
//! ```text
//!   reconciler: the node's addresses, its interfaces ─┐
//!   keeper: interfaces that the programs are on ──────┴─► values ──► NODE, LINKS
//! ```
//!
//! What an earlier agent has written holds until it is known better: NODE until the node has an address, LINKS until the
//! machine was heard; and no entry of LINKS goes before every interface was seen to.

mod cluster;
mod local_ports;
mod values;

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use lb_common::{LinkValue, NodeValue, maps, node::link_flags};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep, sleep_until},
};
use tracing::warn;

pub use self::{
    cluster::{ClusterCidrs, InvalidClusterCidrs},
    local_ports::overlap as local_ports_overlap,
};
use crate::{
    datapath::Attachments,
    maps::{MapError, NodeMap, Table},
    reconcile::{NodeStatus, Status},
};

/// How long to wait after a failed write.
const AGAIN: Duration = Duration::from_secs(1);

/// How often the maps are read back.
const AUDIT: Duration = Duration::from_secs(2);

/// What the user says of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where pods are (`--cluster-cidr`).
    pub cluster: ClusterCidrs,
    /// Clients outside the cluster may use ClusterIPs (`--external-clusterip`).
    pub external_cluster_ips: bool,
}

/// What the maps say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The node's addresses in NODE, one of each family at most.
    pub addresses: Vec<IpAddr>,
    /// The entries of LINKS, by index of the interface.
    pub links: BTreeMap<u32, LinkView>,
    /// Entries that somebody else had changed, removed or added, and that were put right, since the start.
    pub drift: u64,
    /// Why something else could not be written, or the maps not be read back.
    pub error: Option<String>,
}

/// An entry of LINKS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// It leads out of the node.
    pub outside: bool,
    /// Its addresses, one of each family at most.
    pub addresses: Vec<IpAddr>,
}

/// The two maps, and what they hold.
pub struct NodeMaps {
    options: Options,
    node: NodeMap,
    held: NodeValue,
    links: Table<u32, LinkValue>,
    held_links: BTreeMap<u32, LinkValue>,
    drift: u64,
}

impl NodeMaps {
    /// Those that are pinned in `folder` ([`crate::datapath::Datapath::folder`]).
    ///
    /// # Errors
    /// [`MapError::Kernel`] where one is not there, or is not of this schema.
    pub fn open(folder: &Path, options: Options) -> Result<Self, MapError> {
        let node = NodeMap::open(folder)?;
        let links = Table::open(folder, maps::LINKS)?;
        let held_links = links.iter().collect::<Result<_, _>>()?;
        Ok(Self { options, held: node.get()?, node, links, held_links, drift: 0 })
    }

    /// The node's addresses as they were written last, also by an earlier agent.
    pub fn addresses(&self) -> Vec<IpAddr> {
        values::known(&self.held.addresses)
    }

    /// Writes what differs.
    ///
    /// # Errors
    /// [`MapError`], of the first write that failed; the others are done.
    pub fn write(&mut self, node: &NodeStatus, attachments: &Attachments) -> Result<(), MapError> {
        let mut outcome = self.write_node(values::node(&self.options, node, &self.held));
        let Some(interfaces) = &node.interfaces else { return outcome };
        let wanted = values::links(&attachments.interfaces, interfaces, &node.own);
        for (index, value) in &wanted {
            outcome = outcome.and(self.write_link(*index, *value));
        }
        if attachments.complete {
            let gone = self.held_links.keys().filter(|index| !wanted.contains_key(index));
            for index in gone.copied().collect::<Vec<_>>() {
                outcome = outcome.and(self.remove_link(index));
            }
        }
        outcome
    }

    /// Reads the maps back. What is not as it was written, the next [`Self::write`] puts right.
    ///
    /// # Errors
    /// [`MapError`] where one cannot be read.
    pub fn audit(&mut self) -> Result<(), MapError> {
        let node = self.node.get()?;
        let links: BTreeMap<_, _> = self.links.iter().collect::<Result<_, _>>()?;
        let changed = self.held_links.iter().filter(|(index, value)| links.get(index) != Some(value)).count();
        let added = links.keys().filter(|index| !self.held_links.contains_key(index)).count();
        let drift = changed + added + usize::from(node != self.held);
        if drift > 0 {
            warn!("maps {} and {}: somebody else has changed {drift} entries", maps::NODE, maps::LINKS);
            self.drift += drift as u64;
            (self.held, self.held_links) = (node, links);
        }
        Ok(())
    }

    fn write_node(&mut self, value: NodeValue) -> Result<(), MapError> {
        if self.held != value {
            self.node.put(&value)?;
            self.held = value;
        }
        Ok(())
    }

    fn write_link(&mut self, index: u32, value: LinkValue) -> Result<(), MapError> {
        if self.held_links.get(&index) != Some(&value) {
            self.links.put(&index, &value)?;
            self.held_links.insert(index, value);
        }
        Ok(())
    }

    fn remove_link(&mut self, index: u32) -> Result<(), MapError> {
        self.links.remove(&index)?;
        self.held_links.remove(&index);
        Ok(())
    }

    /// What they hold.
    pub fn surroundings(&self) -> Surroundings {
        let link = |(index, value): (&u32, &LinkValue)| {
            let outside = value.flags & link_flags::OUTSIDE != 0;
            (*index, LinkView { outside, addresses: values::known(&value.addresses) })
        };
        Surroundings {
            addresses: self.addresses(),
            links: self.held_links.iter().map(link).collect(),
            drift: self.drift,
            error: None,
        }
    }
}

/// Keeps the maps up with what is known, until one of those who say it has ended.
pub async fn run(
    mut maps: NodeMaps,
    mut status: watch::Receiver<Status>,
    mut attachments: watch::Receiver<Attachments>,
    report: watch::Sender<Surroundings>,
) {
    let mut failing = None;
    let mut audit_at = Instant::now() + AUDIT;
    loop {
        let node = status.borrow_and_update().node.clone();
        let attached = attachments.borrow_and_update().clone();
        let mut outcome = Ok(());
        if Instant::now() >= audit_at {
            outcome = maps.audit();
            audit_at = Instant::now() + AUDIT;
        }
        let error = maps.write(&node, &attached).and(outcome).err().map(|error| error.to_string());
        if error != failing {
            error.iter().for_each(|error| warn!("what the programs know of this node: {error}"));
            failing.clone_from(&error);
        }
        let told = Surroundings { error, ..maps.surroundings() };
        report.send_if_modified(|before| {
            let is_news = *before != told;
            *before = told;
            is_news
        });
        loop {
            tokio::select! {
                changed = status.changed() => match changed {
                    // Most changes are about something else.
                    Ok(()) if status.borrow_and_update().node == node => {}
                    Ok(()) => break,
                    Err(_) => return,
                },
                changed = attachments.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = sleep(AGAIN), if failing.is_some() => break,
                () = sleep_until(audit_at) => break,
            }
        }
    }
}
