//! What a whole packet may be wrapped in, and what else it may be.

use etherparse::EtherType;

use super::packets::Generator;
use crate::packet::{Extension, Packet};

impl Generator {
    /// Tags, options, extension headers, fragments, checksums and the like.
    pub(super) fn dress(&mut self, mut packet: Packet, is_v4: bool) -> Packet {
        for _ in 0..self.tags() {
            let tag = *self.any(&[EtherType::VLAN_TAGGED_FRAME, EtherType::PROVIDER_BRIDGING]);
            packet = packet.tagged(tag);
        }
        if is_v4 && self.one_in(12) {
            packet = packet.with_ip_options(&vec![1; 4 * (1 + self.below(10))]);
        }
        if !is_v4 && self.one_in(8) {
            for _ in 0..1 + self.below(8) {
                let routing = Extension::Routing(u8::from(self.one_in(8)));
                packet = packet.with_extension(*self.any(&[
                    Extension::HopByHop,
                    Extension::DestinationOptions,
                    Extension::DestinationOptions,
                    routing,
                ]));
            }
        }
        if self.one_in(80) {
            packet = packet.with_extension(Extension::Authentication);
        }
        if self.one_in(8) {
            let offset = *self.any(&[0, 0, 0, 1, 185, 0x1fff]);
            packet = packet.fragment(offset, self.one_in(2));
        }
        if self.one_in(16) {
            let wrong = *self.any(&[0, 0, 0xffff, 0x1234]);
            packet = packet.with_checksum(wrong);
        }
        if self.one_in(10) {
            packet = packet.with_time_to_live(self.rng.u8(..));
        }
        match self.below(12) {
            0 => packet.to_ethernet(*self.any(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 9]])),
            1..5 => packet.to_ethernet([0; 6]),
            _ => packet,
        }
    }

    /// How many VLAN tags: none mostly, up to two as far as is looked, or more.
    fn tags(&mut self) -> usize {
        match self.below(40) {
            0 => 3,
            1 => 4,
            2..6 => 1,
            6..8 => 2,
            _ => 0,
        }
    }
}
