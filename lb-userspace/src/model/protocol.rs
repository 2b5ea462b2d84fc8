//! Transport protocols of Services.

use std::{fmt, str::FromStr};

use lb_common::service::proto;
use serde::{Deserialize, Serialize};

/// `protocol` of a Service or EndpointSlice port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP, also where the field is absent.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The IP protocol number (IANA).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => proto::TCP,
            Self::Udp => proto::UDP,
            Self::Sctp => proto::SCTP,
        }
    }

    /// The protocol of an IP protocol number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            proto::TCP => Some(Self::Tcp),
            proto::UDP => Some(Self::Udp),
            proto::SCTP => Some(Self::Sctp),
            _ => None,
        }
    }
}

impl FromStr for Protocol {
    type Err = ();

    /// Exact, as the API requires: `tcp` is refused rather than read as TCP.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}
