//! The header of SCTP, by hand, and its checksum over the whole of the packet.

use crc::{CRC_32_ISCSI, Crc};

use super::Packet;

/// CRC-32C.
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Length of the common header.
pub(super) const HEADER_LEN: usize = 12;

impl Packet {
    /// The common header (RFC 9260, section 3.1), with the checksum that was asked for, if any was.
    pub(super) fn sctp_header(&self) -> Vec<u8> {
        let ports = [self.source.port(), self.destination.port()].map(u16::to_be_bytes).concat();
        let tag = [0xca, 0xfe, 0xba, 0xbe];
        let whole = [ports.as_slice(), &tag, &[0; 4], &self.payload].concat();
        let checksum = self.checksum.map_or_else(|| CHECKSUM.checksum(&whole), u32::from);
        [ports.as_slice(), &tag, &checksum.to_le_bytes()].concat()
    }
}
