//! Source NAT: when a backend must not see its client, and the ports of this node that stand for clients.

use crate::service::flags;

/// The first of the ports that stand for clients; all above it do too. Linux gives none of them to a socket that does not
/// ask for it (`net.ipv4.ip_local_port_range` is 32768 to 60999 unless changed), and NodePorts are below.
pub const FIRST_PORT: u16 = 61_000;

/// How many ports there are: as many flows of one protocol have room between an address of this node and one backend's
/// address and port.
pub const PORTS: u16 = u16::MAX - FIRST_PORT + 1;

/// How many ports are tried for a flow.
pub const TRIES: u16 = 32;

/// Steps that go round all of [`PORTS`] before they meet a port again: 1, 43, 85 and so on.
const STEP: u32 = 42;

/// Whether a packet to this port may be a reply to a client that an address of this node stands for.
#[inline(always)]
pub const fn is_port(port: u16) -> bool {
    port >= FIRST_PORT
}

/// The port to try. Both where the tries of a flow begin and how far they step is random, so that flows do not queue up
/// behind each other's ports.
#[inline(always)]
pub const fn port(random: u32, attempt: u16) -> u16 {
    let ports = PORTS as u32;
    let start = ((random & 0xffff) * ports) >> 16;
    let step = 1 + STEP * (((random >> 16) * (ports / STEP)) >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "less than PORTS")]
    let offset = ((start + attempt as u32 * step) % ports) as u16;
    FIRST_PORT + offset
}

/// Whether a try takes a port also where the flow that has it is over. Not from the start: the backend may remember a
/// connection for a while (TIME-WAIT), and is better met from a port that it does not know.
#[inline(always)]
pub const fn takes_ended(attempt: u16) -> bool {
    attempt >= TRIES / 2
}

/// Whether the replies of backends on other nodes have to be called back to this one: a client may be anywhere, and
/// would otherwise get them from where it did not ask. `frontend` holds the frontend's [`flags`].
#[inline(always)]
pub const fn calls_back(frontend: u32, is_outside: bool) -> bool {
    frontend & flags::EXTERNAL != 0 || (is_outside && frontend & flags::CLUSTER_IP != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_flow_tries_other_ports_each_time_until_it_has_tried_them_all(random: u32) {
            let tried: BTreeSet<u16> = (0..PORTS).map(|attempt| port(random, attempt)).collect();
            prop_assert_eq!(tried.len(), usize::from(PORTS));
            prop_assert!(tried.into_iter().all(is_port));
        }
    }

    #[test]
    fn the_tries_of_flows_begin_at_every_port_alike() {
        let begins: BTreeSet<u16> = (0..=u32::from(u16::MAX)).map(|random| port(random, 0)).collect();
        assert_eq!(begins.len(), usize::from(PORTS));
        assert!(!is_port(FIRST_PORT - 1));
    }

    #[test]
    fn replies_are_called_back_from_other_nodes_when_the_client_may_be_anywhere() {
        let rows = [
            ("external address", flags::EXTERNAL, true, true),
            ("the same for a pod, which may be of a third node", flags::EXTERNAL, false, true),
            ("cluster IP", flags::CLUSTER_IP, false, false),
            ("cluster IP from outside", flags::CLUSTER_IP, true, true),
        ];
        for (name, frontend, is_outside, want) in rows {
            assert_eq!(calls_back(frontend, is_outside), want, "{name}");
        }
    }
}
