//! Which interfaces the programs are put on: a pure choice by what the kernel says about a link.
//!
//! By default these are all that packets of pods and of clients cross first or last on this node:
//!
//! * every veth: the node's end of a pod, also where it is a port of a bridge (two pods of one bridge reach each other
//!   through their ports alone), and the uplink of a node that is itself a container;
//! * tunnel devices whose packets have an Ethernet header (VXLAN, Geneve). Those without (WireGuard, IPIP) are left out: the
//!   programs cannot read their packets, and pods behind them are served at the pod's own veth;
//! * uplinks: network cards (Ethernet devices without a software kind) and bonds of them.
//!
//! A packet that crosses several of them is translated at the first and matches nothing at the others.

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

/// What matters about a link. (rtnetlink(7), `RTM_NEWLINK`.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index, unique in its network namespace while the interface lives.
    pub ifindex: u32,
    /// Name.
    pub name: String,
    /// `IFLA_INFO_KIND`: what made the interface; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// `IFLA_INFO_SLAVE_KIND`: the kind of the interface that this one is a port of.
    pub port_of: Option<String>,
    /// Whether its packets have an Ethernet header (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// Whether it is the loopback device.
    pub loopback: bool,
}

/// Why the programs are put on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It matches an `--interface` pattern.
    Named,
    /// One end of a veth pair.
    Veth,
    /// It leads to other nodes through a tunnel.
    Tunnel,
    /// It leads out of the node.
    Uplink,
}

/// The interfaces to put the programs on (`--interface`).
#[derive(Clone, Debug, Default)]
pub enum Selection {
    /// Those that this module's documentation names.
    #[default]
    Standard,
    /// Those whose name matches a pattern, and the loopback device never.
    Named(GlobSet),
}

/// Kinds of tunnel devices that carry Ethernet frames, as `ip -details link` shows them.
const TUNNELS: [&str; 7] = ["vxlan", "geneve", "gretap", "ip6gretap", "erspan", "ip6erspan", "tun"];

/// Kinds that join interfaces into one: the joint one sees the packets of its ports.
const JOINTS: [&str; 2] = ["bond", "team"];

impl Link {
    /// Whether it leads out of the node by its kind: a network card, or a bond of them.
    pub fn is_uplink(&self) -> bool {
        !self.loopback && self.kind.as_deref().is_none_or(|kind| JOINTS.contains(&kind))
    }
}

impl Selection {
    /// From `--interface` patterns (shell globs); without any, the standard ones.
    ///
    /// # Errors
    /// What is wrong with a pattern.
    pub fn from_patterns<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            set.add(Glob::new(pattern)?);
        }
        let set = set.build()?;
        Ok(if set.is_empty() { Self::Standard } else { Self::Named(set) })
    }

    /// Whether the programs go on this interface, and as what; or the reason why they do not.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn role(&self, link: &Link) -> Result<Role, &'static str> {
        if link.loopback {
            return Err("the loopback device carries nothing that comes from or goes to a pod");
        }
        if !link.ethernet {
            return Err(
                "its packets have no Ethernet header, and the programs read only those that have one",
            );
        }
        match self {
            Self::Named(patterns) if patterns.is_match(&link.name) => Ok(Role::Named),
            Self::Named(_) => Err("no --interface pattern matches its name"),
            Self::Standard => standard_role(link),
        }
    }
}

fn standard_role(link: &Link) -> Result<Role, &'static str> {
    if link.port_of.as_deref().is_some_and(|joint| JOINTS.contains(&joint)) {
        return Err("the bond that it is a port of sees its packets");
    }
    match link.kind.as_deref() {
        Some("veth") => Ok(Role::Veth),
        Some(kind) if TUNNELS.contains(&kind) => Ok(Role::Tunnel),
        _ if link.is_uplink() => Ok(Role::Uplink),
        Some("bridge") => Err("the ports of the bridge see its packets"),
        Some("vlan") => Err("the interface below sees its packets, with their tags"),
        Some("ipvlan" | "macvlan" | "ipvtap" | "macvtap") => Err("ipvlan and macvlan pods are not served"),
        _ => Err("it is not a veth, a tunnel or an uplink"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: Option<&str>) -> Link {
        Link { name: name.to_owned(), kind: kind.map(str::to_owned), ethernet: true, ..Link::default() }
    }

    #[test]
    fn the_standard_choice_is_pods_tunnels_and_uplinks() {
        let loopback = Link { loopback: true, ethernet: false, ..link("lo", None) };
        let port = |of: &str, link| Link { port_of: Some(of.to_owned()), ..link };
        let rows = [
            (link("cali1234", Some("veth")), Some(Role::Veth)),
            (port("bridge", link("veth1234", Some("veth"))), Some(Role::Veth)),
            (link("flannel.1", Some("vxlan")), Some(Role::Tunnel)),
            (Link { ethernet: false, ..link("tunl0", Some("ipip")) }, None),
            (Link { ethernet: false, ..link("wg0", Some("wireguard")) }, None),
            (link("tap0", Some("tun")), Some(Role::Tunnel)),
            (link("eth0", None), Some(Role::Uplink)),
            (port("bridge", link("eth0", None)), Some(Role::Uplink)),
            (link("bond0", Some("bond")), Some(Role::Uplink)),
            (port("bond", link("eth1", None)), None),
            (port("team", link("eth1", None)), None),
            (loopback, None),
            (link("cni0", Some("bridge")), None),
            (link("eth0.100", Some("vlan")), None),
            (link("dummy0", Some("dummy")), None),
            (link("ipvl0", Some("ipvlan")), None),
            (link("macvl0", Some("macvlan")), None),
            (link("ifb0", Some("ifb")), None),
            (Link { ethernet: false, ..link("ib0", None) }, None),
        ];
        for (link, want) in rows {
            assert_eq!(Selection::Standard.role(&link).ok(), want, "{}", link.name);
        }
    }

    #[test]
    fn patterns_choose_by_name_alone_and_never_loopback() {
        let selection = Selection::from_patterns(["cali*", "eth[01]"]).unwrap();
        for (link, want) in [
            (link("cali1234", Some("veth")), Some(Role::Named)),
            (link("eth1", Some("dummy")), Some(Role::Named)),
            (link("eth2", None), None),
            (link("mycali", Some("veth")), None),
        ] {
            assert_eq!(selection.role(&link).ok(), want, "{}", link.name);
        }
        let everything = Selection::from_patterns(["*"]).unwrap();
        assert_eq!(everything.role(&Link { loopback: true, ..link("lo", None) }).ok(), None);
        assert!(matches!(Selection::from_patterns([]).unwrap(), Selection::Standard));
        assert!(Selection::from_patterns(["eth["]).is_err());
    }
}
