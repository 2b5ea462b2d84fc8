//! What the kernel can do, and what follows from it.

use aya::{programs::ProgramType, sys::is_helper_supported};
use aya_obj::generated::bpf_func_id;
use serde::{Deserialize, Serialize};

use crate::sys::{TcxPlace, tcx_query};

/// Something that depends on the kernel: whether it is used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it is used.
    pub used: bool,
    /// The reason, for people.
    pub reason: String,
}

/// What readylb found out about the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// TCX links rather than filters of a clsact qdisc.
    pub tcx: Decision,
    /// The tick's clock rather than the exact one: several times cheaper, and a tick is precise enough for flows.
    pub coarse_clock: Decision,
}

impl Features {
    /// Asks the kernel. Needs the rights to load programs; without them nothing is used, and the reasons say so.
    pub fn probe() -> Self {
        Self { tcx: tcx(), coarse_clock: coarse_clock() }
    }
}

fn tcx() -> Decision {
    /// Every network namespace has the loopback device, with this index.
    const LOOPBACK: u32 = 1;
    match tcx_query(LOOPBACK, TcxPlace::IngressFirst) {
        Ok(_) => Decision { used: true, reason: "the kernel has TCX (Linux 6.6)".to_owned() },
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Decision { used: false, reason: "the kernel has no TCX, which came with Linux 6.6".to_owned() }
        }
        Err(error) => Decision {
            used: false,
            reason: format!("the kernel does not answer whether it has TCX: {error}"),
        },
    }
}

fn coarse_clock() -> Decision {
    match is_helper_supported(ProgramType::SchedClassifier, bpf_func_id::BPF_FUNC_ktime_get_coarse_ns) {
        Ok(true) => {
            Decision { used: true, reason: "the kernel has bpf_ktime_get_coarse_ns (Linux 5.11)".to_owned() }
        }
        Ok(false) => Decision {
            used: false,
            reason: "the kernel has no bpf_ktime_get_coarse_ns, which came with Linux 5.11".to_owned(),
        },
        Err(error) => Decision {
            used: false,
            reason: format!("the kernel does not answer whether it has bpf_ktime_get_coarse_ns: {error}"),
        },
    }
}
