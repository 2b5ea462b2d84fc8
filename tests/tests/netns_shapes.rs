//! The shapes that other tests stand on, without any load balancer: the client reaches every backend.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use lb_tests::{
    netns::shapes::{self, ALL, VIP, VIP_V6},
    traffic::{Connection, NameServer, ask_tcp, ask_udp},
};

const PORT: u16 = 8080;

#[test]
fn the_client_reaches_each_backend_by_its_own_address_on_every_shape() {
    for (name, make) in ALL {
        let shape = make().unwrap();
        let _servers = shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, PORT).unwrap());
        for backend in &shape.backends {
            for like in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
                let server = SocketAddr::new(backend.address(like), PORT);
                let want = BTreeMap::from([(backend.host.role().to_owned(), 2)]);
                for (transport, ask) in [("TCP", ask_tcp as fn(_, _, _) -> _), ("UDP", ask_udp)] {
                    let answers = ask(&shape.client.host, server, 2);
                    assert!(answers.failures.is_empty(), "{name} {transport} {server}: {answers:?}");
                    assert_eq!(answers.by_name, want, "{name} {transport} {server}");
                }
            }
        }
    }
}

#[test]
fn a_server_that_stops_is_noticed() {
    let shape = shapes::routed().unwrap();
    let backend = &shape.backends[0];
    let server = NameServer::start(&backend.host, PORT).unwrap();
    let own = SocketAddr::new(backend.v4.into(), PORT);
    let mut held = Connection::open(&shape.client.host, own).unwrap();
    assert_eq!(held.ask().unwrap(), backend.host.role());
    drop(server);
    assert!(held.ask().is_err());
    assert_eq!(ask_tcp(&shape.client.host, own, 1).failures.len(), 1);
}
