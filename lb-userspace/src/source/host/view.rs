//! Which addresses are this machine's, and which of them are primary: pure, from what the kernel has said.
//!
//! An address counts where the kernel takes packets to it for its own and another machine can send such packets:
//!
//! | address | counts | why |
//! |---|---|---|
//! | scope global, IPv6 ULAs too | yes | |
//! | of another scope, loopback, link-local, multicast | no | no router leads to it |
//! | IPv6, tentative or found to be a duplicate | no | the kernel does not answer at it (yet) |
//! | secondary, temporary, deprecated | yes | all are reached, and clients may still know them; none becomes primary by itself |
//! | on `lo` | yes | operators put addresses there that routing protocols announce |
//! | IPv4 on an interface that is down | yes | the kernel takes packets to it from every other interface |
//! | IPv6 on an interface that is down | no | the kernel does not; it mostly removes them, too |
//! | on `kube-ipvs0` | no | kube-proxy's cluster IPs, which may be left there after it |
//!
//! Apart from the last row this is what kube-proxy serves with `--nodeport-addresses 0.0.0.0/0,::/0`, without the addresses
//! at which nobody outside can ask.

use std::{collections::BTreeMap, net::IpAddr};

use rtnetlink::packet_route::address::{AddressFlags, AddressScope};

use crate::model::{Host, Interface, unfit};

/// The interface on which kube-proxy in IPVS mode keeps every cluster IP.
pub(super) const IPVS_INTERFACE: &str = "kube-ipvs0";

/// `IFA_F_TEMPORARY`, of an IPv6 address. (`linux/if_addr.h`)
const TEMPORARY: AddressFlags = AddressFlags::Secondary;

/// What matters about an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// It is set up (`IFF_UP`), with or without a carrier.
    pub(super) up: bool,
    /// It is the loopback device.
    pub(super) loopback: bool,
    /// It is [`IPVS_INTERFACE`].
    pub(super) ipvs: bool,
}

/// An address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ifindex: u32,
    pub(super) ip: IpAddr,
    pub(super) scope: AddressScope,
    pub(super) flags: AddressFlags,
}

/// The way out to other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WayOut {
    /// The interface.
    pub(super) ifindex: u32,
    /// The source address that the kernel would take.
    pub(super) source: Option<IpAddr>,
}

/// What one reading has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// By index.
    pub(super) links: BTreeMap<u32, Link>,
    /// In the kernel's order: of one interface, the one that it prefers comes first.
    pub(super) addresses: Vec<Address>,
    /// The way out by IPv4, if there is one.
    pub(super) v4: Option<WayOut>,
    /// The way out by IPv6, if there is one.
    pub(super) v6: Option<WayOut>,
}

impl View {
    /// The object that follows from it.
    pub(super) fn host(&self) -> Host {
        let mut counted: Vec<Address> = self.addresses.iter().copied().filter(|it| self.counts(it)).collect();
        // Stable: the order on one interface stays.
        counted.sort_by_key(|address| address.ifindex);
        let interfaces = self.interfaces(&counted);
        let (v4, v6): (Vec<_>, Vec<_>) = counted.iter().copied().partition(|address| address.ip.is_ipv4());
        let primary = [self.primary(self.v4, &v4), self.primary(self.v6, &v6)];
        let mut addresses: Vec<IpAddr> = counted.iter().map(|address| address.ip).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Host { addresses, primary: primary.into_iter().flatten().collect(), interfaces }
    }

    /// The interfaces of addresses that count, and those that lead out.
    fn interfaces(&self, counted: &[Address]) -> Vec<Interface> {
        let mut interfaces = BTreeMap::<u32, Interface>::new();
        let (lasting, others): (Vec<&Address>, Vec<&Address>) =
            counted.iter().partition(|address| is_lasting(address));
        for address in lasting.into_iter().chain(others) {
            interfaces.entry(address.ifindex).or_default().addresses.push(address.ip);
        }
        for way in [self.v4, self.v6].into_iter().flatten() {
            interfaces.entry(way.ifindex).or_default().leads_out = true;
        }
        interfaces.into_iter().map(|(index, interface)| Interface { index, ..interface }).collect()
    }

    /// Whether anything depends on the interface: it has addresses, or leads out.
    pub(super) fn uses(&self, ifindex: u32) -> bool {
        self.addresses.iter().any(|address| address.ifindex == ifindex && may_count(address))
            || [self.v4, self.v6].iter().flatten().any(|way| way.ifindex == ifindex)
    }

    fn counts(&self, address: &Address) -> bool {
        // An address on an interface that is newer than the list of interfaces is read again.
        let Some(link) = self.links.get(&address.ifindex) else { return false };
        let tentative = AddressFlags::Tentative | AddressFlags::Dadfailed;
        may_count(address)
            && !link.ipvs
            && (address.ip.is_ipv4() || (link.up && !address.flags.intersects(tentative)))
    }

    /// The primary one of the addresses of a family that count.
    fn primary(&self, way: Option<WayOut>, counted: &[Address]) -> Option<IpAddr> {
        let first = |of: &dyn Fn(u32) -> bool| {
            counted
                .iter()
                .find(|address| of(address.ifindex) && is_lasting(address))
                .map(|address| address.ip)
        };
        let source = way.and_then(|way| counted.iter().find(|address| Some(address.ip) == way.source));
        // By IPv4 the kernel takes none that is secondary by itself, so the route's owner has chosen it.
        let preferred = source.filter(|address| address.ip.is_ipv4() || is_lasting(address));
        preferred
            .map(|address| address.ip)
            .or_else(|| first(&|ifindex| way.is_some_and(|way| way.ifindex == ifindex)))
            .or_else(|| source.map(|address| address.ip))
            .or_else(|| first(&|ifindex| self.links.get(&ifindex).is_some_and(|it| it.up && !it.loopback)))
    }
}

/// Whether the address can count, whatever its interface.
pub(super) fn may_count(address: &Address) -> bool {
    address.scope == AddressScope::Universe && unfit(address.ip).is_none()
}

/// Whether the address is one to be known by: not temporary, not on its way out, not an addition to another.
fn is_lasting(address: &Address) -> bool {
    !address.flags.intersects(AddressFlags::Secondary | TEMPORARY | AddressFlags::Deprecated)
}

#[cfg(test)]
mod tests;
