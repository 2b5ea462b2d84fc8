//! The one table of reasons: what became of a packet, and why an object or an endpoint is not used. Counters, metric
//! labels, the text of the command line and the tests all read it.

/// What an entry of the table speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A packet, and it went on, translated or not.
    PacketPassed,
    /// A packet, and its sender got an answer in its place.
    PacketAnswered,
    /// A packet, and it went no further.
    PacketDropped,
    /// An endpoint that is not used.
    Endpoint,
    /// A Service, one of its frontends, or an EndpointSlice that is not used.
    Object,
}

macro_rules! reasons {
    ($($name:ident = $number:literal, $about:ident, $sentence:literal;)+) => {
        /// A reason, by its number. Numbers below [`crate::maps::COUNTERS_SIZE`] are slots of COUNTERS.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Verdict {
            $(#[doc = $sentence] $name = $number,)+
        }

        impl Verdict {
            /// Every reason, in the order of the table.
            pub const ALL: &'static [Verdict] = &[$(Verdict::$name),+];

            /// The name that users see: `reason` in JSON, the metric label, the column of a table.
            pub const fn name(self) -> &'static str {
                match self { $(Verdict::$name => stringify!($name),)+ }
            }

            /// One sentence for people.
            pub const fn describe(self) -> &'static str {
                match self { $(Verdict::$name => $sentence,)+ }
            }

            /// What the reason speaks of.
            #[inline(always)]
            pub const fn about(self) -> About {
                match self { $(Verdict::$name => About::$about,)+ }
            }
        }
    };
}

reasons! {
    // Packets. The numbers are part of the schema.
    FlowCreated = 0, PacketPassed, "a new flow was bound to a backend and the packet translated";
    FlowContinued = 1, PacketPassed, "the packet was translated to the backend of its flow";
    ReplyRestored = 2, PacketPassed, "the source of a reply was set back to the VIP";
    MidflowPassed = 3, PacketPassed, "TCP or SCTP to a VIP in the middle of a connection that readylb does not know, inside the migration window";
    Unparsable = 4, PacketPassed, "the headers are malformed, truncated or deeper than supported";
    FragmentPassed = 5, PacketPassed, "a later IP fragment, which carries no ports, and whose first one is not known or was not translated";
    NoBackend = 6, PacketAnswered, "refused: the Service has no usable endpoint";
    MidflowUnknown = 7, PacketAnswered, "refused: TCP or SCTP to a VIP in the middle of a connection that readylb does not know, after the migration window";
    FragmentUnsupported = 8, PacketDropped, "the first fragment of an echo request to a ClusterIP or of SCTP to or from a VIP, which are treated in one piece only";
    FlowTableFull = 9, PacketDropped, "no room for a new flow";
    TupleInUse = 10, PacketDropped, "another flow from the same client address and port has each backend that was tried";
    BackendSetUnsettled = 11, PacketDropped, "the set of backends changed again on every try";
    RewriteFailed = 12, PacketDropped, "the kernel refused to rewrite the packet";
    UnknownChecksum = 13, PacketDropped, "UDP over IPv6 without a checksum, which RFC 8200 forbids and a rewrite cannot make valid";
    UnknownPort = 14, PacketAnswered, "refused: no Service has this port and protocol of a ClusterIP";
    EchoAnswered = 15, PacketAnswered, "an echo request to a ClusterIP with a usable endpoint was answered";
    NoLocalBackend = 16, PacketDropped, "the Service has no endpoint on this node, and the traffic policy is Local";
    RefusalLimited = 17, PacketDropped, "to be refused, but there were too many ICMP errors lately";
    Unanswerable = 18, PacketDropped, "to be refused, but it is of a kind that must not be answered: an RST, or not from or to a single host";
    SourceNat = 19, PacketPassed, "an address of this node stands for the client: it became the source of a packet to a backend, or the client the destination of a reply";
    SnatExhausted = 20, PacketDropped, "each port tried that could stand for the client is another flow's with the same backend";
    NoSourceAddress = 21, PacketDropped, "no address of this node is known that could stand for the client";
    SourceNotAllowed = 22, PacketDropped, "the client is in none of the source ranges of the load-balancer address";
    OutsideClusterIP = 23, PacketDropped, "a ClusterIP is for clients inside the cluster, and this one is outside";
    SocketBound = 28, PacketPassed, "a backend was chosen for a connect() or a first datagram to a VIP from this node";
    SocketContinued = 29, PacketPassed, "a datagram to a VIP from this node went to the backend that its socket has";
    SocketRefused = 30, PacketDropped, "a connect() or a datagram from this node was refused: the Service has no usable endpoint, or no Service has this port of a ClusterIP";
    SocketTimedOut = 31, PacketDropped, "a connect() or a datagram from this node was told that it timed out: the Service has no endpoint on this node, and the traffic policy is Local";
    ErrorForwarded = 32, PacketPassed, "an ICMP error about a reply was translated to the backend, with the packet that it quotes";
    ErrorRestored = 33, PacketPassed, "an ICMP error about a packet to a backend went to the client, the packet that it quotes set back to the VIP";
    FragmentContinued = 34, PacketPassed, "a later IP fragment was translated as the first one of its packet";
    FragmentOrphaned = 35, PacketDropped, "a later IP fragment whose first one was dropped or refused, or to a ClusterIP and ahead of its first one";
    AuthenticatedPassed = 36, PacketPassed, "an authentication header covers the addresses, so nothing in the packet can be translated";
    ReplyRouted = 40, PacketPassed, "a reply was sent past the host's stack (--host-routing bpf); its source is set back where it leaves";
    NodeUntranslated = 46, PacketAnswered, "refused: a packet from this node itself to a ClusterIP, from a client whose sockets are not served (--socket-lb) or that has none, as NFS in the kernel";

    // Endpoints.
    NotReady = 64, Endpoint, "the endpoint is not ready";
    Terminating = 65, Endpoint, "the endpoint is terminating, and others are ready or it has stopped serving";
    InvalidAddress = 66, Endpoint, "the address is not one that an endpoint can have";
    WrongFamily = 67, Endpoint, "the address is not of the slice's address type";
    PortNotInSlice = 68, Endpoint, "the slice has no port with the name and protocol of the Service port";
    PortWithoutNumber = 69, Endpoint, "the slice's port of that name has no number";
    DuplicateEndpoint = 70, Endpoint, "the same address and port is listed already";
    NotLocal = 71, Endpoint, "the endpoint is on another node, and the traffic policy is Local";
    HintedElsewhere = 72, Endpoint, "the endpoint's hints mean it for other nodes or zones, and others are meant for this one";

    // Services, frontends and slices.
    ExternalName = 96, Object, "an ExternalName Service is a DNS alias and has no address to serve";
    Headless = 97, Object, "a headless Service has no cluster IP to serve";
    NoClusterIP = 98, Object, "the Service has no cluster IP yet";
    OtherProxy = 99, Object, "the label service.kubernetes.io/service-proxy-name gives the Service to another proxy";
    UnsupportedProtocol = 100, Object, "the protocol is not one that Kubernetes has";
    AddressTaken = 101, Object, "another Service has this address, port and protocol by precedence: ClusterIP before other kinds, then the older one";
    FqdnSlice = 103, Object, "a slice of FQDNs holds no addresses";
    SliceWithoutService = 104, Object, "the slice has no kubernetes.io/service-name label";
    UnknownAddressType = 105, Object, "the slice's address type is unknown";
    InvalidVip = 106, Object, "the address is not one that a Service can have";
    FamilyNotServed = 107, Object, "the Service has no cluster IP of this address family";
    NoPorts = 108, Object, "the Service has no port that can be served";
    LoadBalancerProxy = 109, Object, "ipMode Proxy: traffic to the address has to reach the load balancer itself";
    NoNodeAddress = 110, Object, "no address of this node is known on which NodePorts are served";
    InvalidSourceRange = 111, Object, "none of loadBalancerSourceRanges is a range of addresses, so nobody may connect";
    SlicesFirst = 112, Object, "the Service has EndpointSlices, which come before its Endpoints";
    NoSuchService = 113, Object, "the Service that the slice names does not exist in its namespace";
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::COUNTERS_SIZE;

    #[test]
    fn packet_reasons_and_only_they_have_a_counter() {
        for verdict in Verdict::ALL {
            let is_packet = !matches!(verdict.about(), About::Endpoint | About::Object);
            assert_eq!((*verdict as usize) < COUNTERS_SIZE, is_packet, "{verdict}");
        }
    }

    #[test]
    fn no_two_reasons_share_a_number_or_a_name() {
        for (i, a) in Verdict::ALL.iter().enumerate() {
            for b in &Verdict::ALL[i + 1..] {
                assert_ne!(*a as u32, *b as u32);
                assert_ne!(a.name(), b.name());
            }
        }
    }
}
