//! What the reconciler says about itself.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::model::Interface;

/// How far the maps are from what the sources say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The feeds, by number.
    pub feeds: Vec<FeedStatus>,
    /// Every feed has completed its first list; until then nothing is removed from the maps.
    pub complete: bool,
    /// Counts the changes of the desired state.
    pub generation: u64,
    /// The generation up to which everything is in the maps; until `complete`, everything that is not held back. Less
    /// than `generation`: something is pending or fails.
    pub applied: u64,
    /// The generation up to which the maps were read back after it was applied, and held what they should.
    pub verified: u64,
    /// Entries of maps that somebody else had changed, removed or added, and that were put right, since the start.
    pub drift: u64,
    /// Number of Services.
    pub services: usize,
    /// Number of their frontends.
    pub frontends: usize,
    /// How many of these belong into the maps. The others are beyond this build, or their address is taken.
    pub programmable: usize,
    /// Frontends in the maps.
    pub programmed: usize,
    /// What cannot be written, as `Service default/web` or the frontend to remove, with the last error in one sentence.
    pub errors: BTreeMap<String, String>,
    /// How many of these errors come from the maps, and not from what is to be written.
    pub write_failures: usize,
    /// What is known of this node.
    pub node: NodeStatus,
    /// Number of warnings; the desired state lists them.
    pub warnings: usize,
    /// Operations on maps since the start.
    pub operations: u64,
    /// Frontends removed since the start. Whoever looks for flows without a frontend notes it before and names it after,
    /// see [`super::Request::ClearOrphanFlows`].
    pub removals: u64,
}

/// The state of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedStatus {
    /// It has completed a list.
    pub synced: bool,
    /// Why it cannot get at its objects now; one sentence.
    pub failing: Option<String>,
}

/// What is known of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its own address of each family.
    pub own: Vec<IpAddr>,
    /// The addresses on which NodePorts are served. Sorted.
    pub nodeport_addresses: Vec<IpAddr>,
    /// Its interfaces that have addresses or lead out. Null: the machine was not heard yet.
    pub interfaces: Option<Vec<Interface>>,
}
