//! A pod that reaches itself through its own Service: what it gets has to come from somebody else.

use std::net::SocketAddr;

use lb_common::{Verdict, service::proto};
use lb_tests::{
    addrs::*,
    external::*,
    packet::{ACK, Packet, SYN},
    seed::Frontend,
};

/// A pod as client and as backend, and a ClusterIP, of each family.
const ENDS: [(SocketAddr, SocketAddr, SocketAddr); 2] = [
    (SocketAddr::new(BACKEND_1.ip(), 40_000), VIP, BACKEND_1),
    (SocketAddr::new(BACKEND_V6.ip(), 40_000), VIP_V6, BACKEND_V6),
];

#[test]
fn a_pod_reaches_itself_through_its_service_twice_from_one_port() {
    for (pod, vip, itself) in ENDS {
        for number in [proto::TCP, proto::UDP] {
            let mut datapath = on_a_node();
            datapath.come_in_by(1);
            datapath.serve_here_and_there((vip, number), &[itself], &[], &[]);
            for first in [Verdict::FlowCreated, Verdict::FlowContinued] {
                let stand_in = datapath.hidden(&packet(number, pod, vip, SYN), first, itself);
                assert_eq!(stand_in.ip(), if vip.is_ipv4() { NODE_PORT.ip() } else { NODE_PORT_V6.ip() });
                datapath.called_back(&packet(number, itself, stand_in, SYN | ACK), vip, pod);
                datapath.hidden(&packet(number, pod, vip, ACK), Verdict::FlowContinued, itself);
                datapath.called_back(&packet(number, itself, stand_in, ACK), vip, pod);
            }
        }
    }
}

#[test]
fn a_second_connection_from_the_port_of_one_that_was_closed_goes_through_too() {
    use lb_tests::packet::FIN;
    let (pod, vip, itself) = ENDS[0];
    let mut datapath = on_a_node();
    datapath.serve_here_and_there((vip, proto::TCP), &[itself], &[], &[]);
    for _ in 0..2 {
        let send = |flags| Packet::tcp(pod, vip, flags);
        let stand_in = datapath.hidden(&send(SYN), Verdict::FlowCreated, itself);
        datapath.called_back(&Packet::tcp(itself, stand_in, SYN | ACK), vip, pod);
        datapath.hidden(&send(FIN | ACK), Verdict::FlowContinued, itself);
        datapath.called_back(&Packet::tcp(itself, stand_in, FIN | ACK), vip, pod);
    }
}

#[test]
fn whatever_the_kind_of_the_frontend_only_itself_sees_the_node() {
    let (pod, _, itself) = ENDS[0];
    for vip in [VIP, NODE_PORT, BALANCED] {
        let frontend: Frontend = (vip, proto::UDP);
        let ask = Packet::udp(pod, vip, b"hello");
        let mut datapath = on_a_node();
        if vip == VIP {
            datapath.serve_here_and_there(frontend, &[itself], &[], &[]);
        } else {
            datapath.serve_outside(frontend, &[itself], &[]);
        }
        datapath.hidden(&ask, Verdict::FlowCreated, itself);

        let mut datapath = on_a_node();
        datapath.serve_here_and_there((vip, proto::UDP), &[BACKEND_2], &[], &[]);
        datapath.seen(&ask, Verdict::FlowCreated, BACKEND_2);
        let answer = Packet::udp(BACKEND_2, pod, b"hello");
        datapath.from_vip(&answer, vip);
    }
}
