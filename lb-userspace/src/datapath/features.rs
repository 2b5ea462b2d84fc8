//! What the kernel can do, and what follows from it.

use aya::{programs::ProgramType, sys::is_helper_supported};
use aya_obj::generated::bpf_func_id;
use serde::{Deserialize, Serialize};

use super::HostRouting;
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
    /// A connect(2) from the node itself to a Service without endpoints fails with the error that says so, and not with EPERM.
    pub socket_errors: Decision,
    /// The tick's clock rather than the exact one: several times cheaper, and a tick is precise enough for flows.
    pub coarse_clock: Decision,
    /// Ways past the host's stack, where they are asked for: the kernel has to compare a packet's length with a route's.
    pub host_routing: Decision,
}

impl Features {
    /// Asks the kernel. Needs the rights to load programs; without them nothing is used, and the reasons say so.
    pub fn probe(asked: HostRouting) -> Self {
        Self {
            tcx: tcx(),
            socket_errors: socket_errors(),
            coarse_clock: coarse_clock(),
            host_routing: host_routing(asked),
        }
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

fn socket_errors() -> Decision {
    helper(
        ProgramType::CgroupSockAddr,
        bpf_func_id::BPF_FUNC_set_retval,
        "bpf_set_retval for sockets' calls",
        "5.18",
    )
}

fn coarse_clock() -> Decision {
    let helper_id = bpf_func_id::BPF_FUNC_ktime_get_coarse_ns;
    helper(ProgramType::SchedClassifier, helper_id, "bpf_ktime_get_coarse_ns", "5.11")
}

fn host_routing(asked: HostRouting) -> Decision {
    match asked {
        HostRouting::Stack => Decision { used: false, reason: "--host-routing stack".to_owned() },
        // That bpf_fib_lookup takes a packet's length into account at tc came together with this helper.
        HostRouting::Bpf => {
            helper(ProgramType::SchedClassifier, bpf_func_id::BPF_FUNC_check_mtu, "bpf_check_mtu", "5.12")
        }
    }
}

/// Whether programs of a kind may call a helper: its `name`, and the first version of Linux that has it.
fn helper(kind: ProgramType, id: bpf_func_id, name: &str, since: &str) -> Decision {
    let (used, reason) = match is_helper_supported(kind, id) {
        Ok(true) => (true, format!("the kernel has {name} (Linux {since})")),
        Ok(false) => (false, format!("the kernel has no {name}, which came with Linux {since}")),
        Err(error) => (false, format!("the kernel does not answer whether it has {name}: {error}")),
    };
    Decision { used, reason }
}
