//! What a packet says about its connection, or its association, which is SCTP's word for one.

/// In TCP's words.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    /// There is no more from this side.
    pub fin: bool,
    /// This begins it.
    pub syn: bool,
    /// It has ended.
    pub rst: bool,
    /// The other side was heard.
    pub ack: bool,
}

impl Says {
    /// What the first chunk of an SCTP packet says by its type (RFC 9260, section 3.2), or a packet without one.
    pub(super) fn of_chunk(kind: Option<u8>) -> Self {
        let nothing = Self { fin: false, syn: false, rst: false, ack: false };
        match kind {
            // INIT.
            Some(1) => Self { syn: true, ..nothing },
            // INIT ACK.
            Some(2) => Self { syn: true, ack: true, ..nothing },
            // ABORT, SHUTDOWN COMPLETE.
            Some(6 | 14) => Self { rst: true, ..nothing },
            // SHUTDOWN, SHUTDOWN ACK.
            Some(7 | 8) => Self { fin: true, ack: true, ..nothing },
            _ => Self { ack: true, ..nothing },
        }
    }

    /// Whether it opens a connection.
    pub fn opens(self) -> bool {
        self.syn && !self.ack && !self.rst
    }
}
