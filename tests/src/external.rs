//! Conversations of clients outside the cluster: who is outside, what packets leave the node as, and what replies to it are
//! given back as.

use std::net::SocketAddr;

use lb_common::{
    Direction, FlowKey, FlowValue, LinkValue, NodeValue, Prefix, Verdict,
    addr::{from_ip, from_v4, to_ip},
    flow::{flags::SOURCE_NAT, seen},
    maps,
    node::{CLUSTER_PREFIXES, flags as node_flags, link_flags},
    service::{flags, proto},
    source_nat,
};

use crate::{
    addrs::{NODE_PORT, NODE_PORT_V6, STRANGER},
    flows::flow_key,
    packet::Packet,
    prog::{Datapath, Outcome},
    seed::Frontend,
};

/// The index of the interface that leads out.
pub const UPLINK: u32 = 77;

/// The index of the interface by which packets of tests leave: the loopback one, for the kernel wants it to be there.
pub const WAY_OUT: u32 = 1;

/// A datapath that knows its node: the node's addresses, the pods' ranges and the uplink, by which packets come in.
pub fn on_a_node() -> Datapath {
    let mut datapath = Datapath::load_with(&[(maps::FLOWS, 32_768), (maps::FLOWS_NEW, 32_768)]);
    datapath.set_node(node(0));
    datapath.set_link(UPLINK, LinkValue { flags: link_flags::OUTSIDE, ..LinkValue::default() });
    datapath.come_in_by(UPLINK);
    datapath
}

/// What the programs know of the node, with more flags.
pub fn node(flags: u64) -> NodeValue {
    let mut cluster = [Prefix::NOTHING; CLUSTER_PREFIXES];
    let mask = |bits: usize| u128::MAX << (128 - bits);
    cluster[0] = Prefix { address: from_v4([10, 244, 0, 0]), mask: mask(96 + 16).to_be_bytes() };
    let pods = (0x2001_0db8u128 << 96).to_be_bytes();
    cluster[1] = Prefix { address: pods, mask: mask(40).to_be_bytes() };
    NodeValue {
        addresses: [from_ip(NODE_PORT.ip()), from_ip(NODE_PORT_V6.ip())],
        cluster,
        flags: node_flags::HAS_CLUSTER | flags,
    }
}

/// The first packet of a conversation by this protocol, or one that goes on with it (`flags` are TCP's).
pub fn packet(number: u8, source: SocketAddr, destination: SocketAddr, flags: u8) -> Packet {
    if number == proto::TCP {
        Packet::tcp(source, destination, flags)
    } else {
        Packet::udp(source, destination, b"hello")
    }
}

impl Datapath {
    /// Gives an external frontend backends on this node and on others.
    pub fn serve_outside(&mut self, frontend: Frontend, here: &[SocketAddr], there: &[SocketAddr]) {
        self.serve_here_and_there(frontend, here, there, &[]);
        self.add_flags(frontend, flags::EXTERNAL);
    }

    /// The address and port of this node that stand for a client of a backend.
    pub fn stand_in(&self, client: SocketAddr, backend: SocketAddr, proto: u8) -> Option<SocketAddr> {
        let outward = self.flow(&outward_key(client, backend, proto))?.1.translated;
        Some(SocketAddr::new(to_ip(&outward.source), outward.source_port))
    }

    /// Sends a packet from its source to a VIP through the node, which has to leave with an address of the node as its source
    /// and this backend as its destination. Tells the source.
    pub fn hidden(&mut self, packet: &Packet, verdict: Verdict, backend: SocketAddr) -> SocketAddr {
        let outcome = self.forwarded(packet);
        let stand_in = self.stand_in(packet.source(), backend, packet.proto());
        let stand_in = stand_in.unwrap_or_else(|| panic!("{packet:?}: {outcome:?}\n{self:?}"));
        let want = Outcome {
            counted: vec![(verdict, 1), (Verdict::SourceNat, 1)],
            ..Outcome::passed(packet.from(stand_in).to(backend).bytes(), verdict)
        };
        assert_eq!(outcome, want, "{packet:?}\n{self:?}");
        stand_in
    }

    /// Sends a reply to the node through it, which has to leave from the VIP to this client.
    pub fn called_back(&mut self, reply: &Packet, vip: SocketAddr, client: SocketAddr) {
        let outcome = self.forwarded(reply);
        let want = Outcome {
            counted: vec![(Verdict::ReplyRestored, 1), (Verdict::SourceNat, 1)],
            ..Outcome::passed(reply.from(vip).to(client).bytes(), Verdict::ReplyRestored)
        };
        assert_eq!(outcome, want, "{reply:?}\n{self:?}");
    }

    /// Sends a packet through the node, which has to leave with this backend as its destination, otherwise as it was.
    pub fn seen(&mut self, packet: &Packet, verdict: Verdict, backend: SocketAddr) {
        let outcome = self.forwarded(packet);
        assert_eq!(outcome, Outcome::passed(packet.to(backend).bytes(), verdict), "{packet:?}\n{self:?}");
    }
}

impl Datapath {
    /// Puts flows of UDP of other clients behind every port of [`NODE_PORT`]'s address that can stand for a client of a backend.
    /// `shown`: what their clients have ([`lb_common::flow::seen`]). They are as young as the youngest flow.
    pub fn fill_ports(&mut self, backend: SocketAddr, shown: u8) {
        let now = self.flows().into_iter().map(|(.., value)| value.last_seen).max();
        let last_seen = now.expect("there is a flow");
        let mut map = self.hash::<FlowKey, FlowValue>(maps::FLOWS);
        for port in source_nat::FIRST_PORT..=u16::MAX {
            let client = SocketAddr::new(STRANGER.ip(), port);
            let stand_in = SocketAddr::new(NODE_PORT.ip(), port);
            let key = |source, destination, direction| flow_key(source, destination, proto::UDP, direction);
            let value = |source, destination, seen| FlowValue {
                last_seen,
                translated: key(source, destination, Direction::Forward).tuple,
                backend_id: 1,
                service_id: 1,
                seen,
                flags: SOURCE_NAT,
                pad: 0,
            };
            let entries = [
                (key(client, NODE_PORT, Direction::Forward), value(client, backend, shown)),
                (key(backend, client, Direction::Reply), value(NODE_PORT, client, seen::ANY)),
                (key(client, backend, Direction::Outward), value(stand_in, backend, 0)),
                (key(backend, stand_in, Direction::Return), value(backend, client, 0)),
            ];
            for (key, value) in entries {
                map.insert(key, value, 0).expect("room");
            }
        }
    }
}

/// The key of a packet of a client to a backend, where it leaves.
pub fn outward_key(client: SocketAddr, backend: SocketAddr, proto: u8) -> FlowKey {
    flow_key(client, backend, proto, Direction::Outward)
}

/// The key of a packet of a backend to the node.
pub fn return_key(backend: SocketAddr, stand_in: SocketAddr, proto: u8) -> FlowKey {
    flow_key(backend, stand_in, proto, Direction::Return)
}
