//! What NODE and LINKS are to hold: pure, from what is known of the node.

use std::{collections::BTreeMap, net::IpAddr};

use lb_common::{
    Address, LinkValue, NodeValue, addr,
    node::{flags, link_flags},
};

use super::Options;
use crate::{datapath::InterfaceState, model::Interface, reconcile::NodeStatus};

/// NODE. In each family its address is one on which NodePorts are served, its own one of them if that is possible; where
/// there is none, its own. While nothing is known of the node, the addresses are as they were.
pub(super) fn node(options: &Options, node: &NodeStatus, held: &NodeValue) -> NodeValue {
    let ports = &node.nodeport_addresses;
    let preferred = node.own.iter().filter(|address| ports.contains(address));
    let addresses = first_of_each(preferred.chain(ports).chain(&node.own).copied());
    let is_known = node.interfaces.is_some() || !node.own.is_empty();
    let has_cluster = if options.cluster.is_empty() { 0 } else { flags::HAS_CLUSTER };
    let external = if options.external_cluster_ips { flags::EXTERNAL_CLUSTER_IPS } else { 0 };
    NodeValue {
        addresses: if is_known { addresses } else { held.addresses },
        cluster: options.cluster.prefixes(),
        flags: has_cluster | external,
    }
}

/// LINKS, for the interfaces that the programs are on. One leads out where it is an uplink by its kind, where the way to
/// other machines leads over it, or where it has one of the node's own addresses: so does the veth of a node that is itself
/// a container.
pub(super) fn links(
    attached: &[InterfaceState],
    interfaces: &[Interface],
    own: &[IpAddr],
) -> BTreeMap<u32, LinkValue> {
    let by_index: BTreeMap<u32, &Interface> = interfaces.iter().map(|it| (it.index, it)).collect();
    let link = |state: &InterfaceState| {
        let known = by_index.get(&state.ifindex);
        let addresses = known.map(|it| it.addresses.as_slice()).unwrap_or_default();
        let has_own = addresses.iter().any(|address| own.contains(address));
        let outside = state.uplink || has_own || known.is_some_and(|it| it.leads_out);
        let flags = if outside { link_flags::OUTSIDE } else { 0 };
        (state.ifindex, LinkValue { addresses: first_of_each(addresses.iter().copied()), flags })
    };
    // One without an entry is the same as one that is all zero.
    attached.iter().map(link).filter(|(_, value)| *value != LinkValue::default()).collect()
}

/// The first address of each family, as the maps have them.
fn first_of_each(addresses: impl Iterator<Item = IpAddr> + Clone) -> [Address; 2] {
    [true, false].map(|is_v4| {
        addresses.clone().find(|address| address.is_ipv4() == is_v4).map_or([0; 16], addr::from_ip)
    })
}

/// The addresses that there are.
pub(super) fn known(addresses: &[Address; 2]) -> Vec<IpAddr> {
    addresses.iter().filter(|address| **address != [0; 16]).map(addr::to_ip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{Mode, Role};

    const OWN: &str = "192.168.50.11";
    const OWN_V6: &str = "2001:db8::11";

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn status(own: &[&str], ports: &[&str]) -> NodeStatus {
        NodeStatus { own: ips(own), nodeport_addresses: ips(ports), interfaces: Some(Vec::new()) }
    }

    #[test]
    fn the_node_is_known_by_an_address_that_node_ports_use() {
        let rows: [(&[&str], &[&str], &[&str]); 6] = [
            (&[OWN, OWN_V6], &[OWN, OWN_V6], &[OWN, OWN_V6]),
            (&[OWN], &["10.0.0.1", OWN], &[OWN]),
            (&[OWN], &["10.0.0.1", "10.0.0.2"], &["10.0.0.1"]),
            (&[OWN, OWN_V6], &["10.0.0.1"], &["10.0.0.1", OWN_V6]),
            (&[OWN], &[], &[OWN]),
            (&[], &[], &[]),
        ];
        for (own, ports, want) in rows {
            let value = node(&Options::default(), &status(own, ports), &NodeValue::default());
            assert_eq!(known(&value.addresses), ips(want), "{own:?}, {ports:?}");
        }
    }

    #[test]
    fn while_nothing_is_known_of_the_node_it_is_what_it_was_and_the_flags_are_what_they_are() {
        let before = node(&Options::default(), &status(&[OWN], &[]), &NodeValue::default());
        let options = Options { cluster: "10.244.0.0/16".parse().unwrap(), external_cluster_ips: true };
        let value = node(&options, &NodeStatus::default(), &before);
        assert_eq!(known(&value.addresses), ips(&[OWN]));
        assert_eq!(value.flags, flags::HAS_CLUSTER | flags::EXTERNAL_CLUSTER_IPS);
        assert!(value.is_of_cluster(addr::from_v4([10, 244, 7, 9])));
        assert_eq!(
            node(&options, &status(&[], &[]), &before).addresses,
            [[0; 16]; 2],
            "it has none any more"
        );
    }

    #[test]
    fn an_interface_leads_out_by_its_kind_or_its_address_or_the_way_out() {
        let interface =
            |index, addresses: &[&str], leads_out| Interface { index, addresses: ips(addresses), leads_out };
        let interfaces = [
            interface(3, &[OWN, "192.168.50.12", OWN_V6], false),
            interface(4, &[], true),
            interface(5, &["10.244.1.1"], false),
            interface(6, &["192.168.60.5"], false),
            interface(8, &[OWN], true),
        ];
        let attached = |ifindex, uplink| InterfaceState {
            name: format!("if{ifindex}"),
            ifindex,
            role: Role::Veth,
            uplink,
            hooks: Vec::new(),
            mode: Mode::Tcx,
            error: None,
        };
        let attached = [3, 4, 5, 6, 7, 9].map(|index| attached(index, [6, 9].contains(&index)));
        let links = links(&attached, &interfaces, &ips(&[OWN]));
        let got: Vec<_> =
            links.iter().map(|(index, value)| (*index, value.flags != 0, known(&value.addresses))).collect();
        let want = [
            (3, true, ips(&[OWN, OWN_V6])),
            (4, true, vec![]),
            (5, false, ips(&["10.244.1.1"])),
            (6, true, ips(&["192.168.60.5"])),
            (9, true, vec![]),
        ];
        assert_eq!(got, want, "7 is a pod's, and the programs are not on 8");
    }
}
