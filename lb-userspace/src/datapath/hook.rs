//! The two ends of an interface where programs sit.

use std::io;

use serde::{Deserialize, Serialize};

use crate::sys::TcxPlace;

/// A tc hook of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Packets that the interface receives: destinations are rewritten here.
    Ingress,
    /// Packets that it sends: sources are rewritten here.
    Egress,
}

impl Hook {
    /// In the order of attaching. Egress comes first: replies of flows that exist are then restored at once, whereas
    /// requests that are translated without it would get replies from an address that the client does not know.
    pub const ATTACH_ORDER: [Self; 2] = [Self::Egress, Self::Ingress];

    /// In the order of detaching, see [`Self::ATTACH_ORDER`].
    pub const DETACH_ORDER: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Name of the program in the object.
    pub const fn program_name(self) -> &'static str {
        match self {
            Self::Ingress => "tc_ingress",
            Self::Egress => "tc_egress",
        }
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Where its TCX program goes: a destination is rewritten before anybody else looks at it, and a source after
    /// everybody has.
    pub const fn tcx_place(self) -> TcxPlace {
        match self {
            Self::Ingress => TcxPlace::IngressFirst,
            Self::Egress => TcxPlace::EgressLast,
        }
    }
}

/// Why a program is not at a hook.
#[derive(Debug, thiserror::Error)]
pub(super) enum HookError {
    /// The other kind of qdisc is there.
    #[error(
        "the interface has an `ingress` qdisc, which takes the place of the clsact qdisc that readylb needs where there \
         is no TCX; remove it with `tc qdisc del dev NAME ingress`, or have its owner use clsact"
    )]
    IngressQdisc,
    /// Somebody else's filter is where ours goes.
    #[error("another filter already has priority {priority} and handle {handle:#x} there")]
    Taken { priority: u16, handle: u32 },
    /// Anything else.
    #[error("{0}")]
    Kernel(io::Error),
}

impl From<io::Error> for HookError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}
