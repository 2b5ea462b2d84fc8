//! Conversations of the client with the VIP, as the tests of flows have them: the packets, and the usual beginnings.

use std::net::SocketAddr;

use lb_common::{Direction, FlowKey, Verdict, service::proto};

use crate::{
    addrs::{CLIENT, CLIENT_UDP, VIP},
    flows::{Table, flow_key},
    packet::{ACK, Packet, SYN},
    prog::Datapath,
    seed::{tcp, udp},
};

/// A datapath that serves the VIP over TCP and UDP with these backends.
pub fn serving(backends: &[SocketAddr]) -> Datapath {
    let mut datapath = Datapath::load();
    datapath.serve(tcp(VIP), backends);
    datapath.serve(udp(VIP), backends);
    datapath
}

/// TCP from the client to the VIP.
pub fn segment(flags: u8) -> Packet {
    Packet::tcp(CLIENT, VIP, flags)
}

/// TCP from a backend to the client.
pub fn segment_of(backend: SocketAddr, flags: u8) -> Packet {
    Packet::tcp(backend, CLIENT, flags)
}

/// UDP from the client to the VIP.
pub fn datagram() -> Packet {
    Packet::udp(CLIENT_UDP, VIP, b"ask")
}

/// UDP from a backend to the client.
pub fn datagram_of(backend: SocketAddr) -> Packet {
    Packet::udp(backend, CLIENT_UDP, b"answer")
}

/// Opens a connection to the VIP, up to the client's first acknowledgement. Tells which of the backends it has.
pub fn establish(datapath: &mut Datapath, client: SocketAddr, backends: &[SocketAddr]) -> SocketAddr {
    let backend = datapath.to_backend(&Packet::tcp(client, VIP, SYN), Verdict::FlowCreated, backends);
    datapath.from_vip(&Packet::tcp(backend, client, SYN | ACK), VIP);
    datapath.to_backend(&Packet::tcp(client, VIP, ACK), Verdict::FlowContinued, &[backend]);
    backend
}

/// A datagram to the VIP, an answer, and another datagram. Tells which of the backends has answered.
pub fn converse(datapath: &mut Datapath, backends: &[SocketAddr]) -> SocketAddr {
    let backend = datapath.to_backend(&datagram(), Verdict::FlowCreated, backends);
    datapath.from_vip(&datagram_of(backend), VIP);
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[backend]);
    backend
}

/// The forward key of the client's flow.
pub fn forward_key(proto: u8) -> FlowKey {
    flow_key(client(proto), VIP, proto, Direction::Forward)
}

/// The reply key of the client's flow, when this is its backend.
pub fn reply_key(backend: SocketAddr, proto: u8) -> FlowKey {
    flow_key(backend, client(proto), proto, Direction::Reply)
}

fn client(proto: u8) -> SocketAddr {
    if proto == proto::TCP { CLIENT } else { CLIENT_UDP }
}

/// Which map each flow entry is in, FLOWS first.
pub fn tables(datapath: &Datapath) -> Vec<Table> {
    datapath.flows().into_iter().map(|(table, ..)| table).collect()
}
