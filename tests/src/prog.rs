//! Runs single packets through the compiled programs, in the kernel, with maps of the test's own
//! (`BPF_PROG_TEST_RUN`): bytes in, bytes out, the verdict, and what was counted.

use std::{fmt, net::SocketAddr};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{HashMap, MapData},
    programs::{ProgramType, SchedClassifier, TestRun, TestRunOptions},
    sys::is_helper_supported,
};
use aya_obj::generated::bpf_func_id::BPF_FUNC_ktime_get_coarse_ns;
use lb_common::Verdict;
use lb_userspace::{
    datapath::{HostRouting, SIZABLE},
    object::OBJECT,
};
use nix::time::ClockId;

use crate::{counters::Counters, packet::Packet, seed::Ids};

/// Which program a packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// `tc_ingress`.
    Ingress,
    /// `tc_egress`.
    Egress,
}

/// What the kernel is told to do with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `TC_ACT_UNSPEC`: go on to the next program, or into the stack after the last.
    Next,
    /// `TC_ACT_SHOT`.
    Drop,
    /// `TC_ACT_REDIRECT`: an answer back to where the packet came from, or the packet past the stack.
    Answer,
}

/// What became of a packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What the program returned.
    pub action: Action,
    /// The packet afterwards.
    pub bytes: Vec<u8>,
    /// Every counter that moved, and by how much.
    pub counted: Vec<(Verdict, u64)>,
}

impl Outcome {
    /// The packet went on as it came, and nothing was counted.
    pub fn untouched(bytes: Vec<u8>) -> Self {
        Self { action: Action::Next, bytes, counted: Vec::new() }
    }

    /// The packet went on and was counted once.
    pub fn passed(bytes: Vec<u8>, verdict: Verdict) -> Self {
        Self { action: Action::Next, bytes, counted: vec![(verdict, 1)] }
    }

    /// The packet was sent past the stack and counted once.
    pub fn routed(bytes: Vec<u8>, verdict: Verdict) -> Self {
        Self::answered(bytes, verdict)
    }

    /// The packet was replaced by an answer and counted once.
    pub fn answered(bytes: Vec<u8>, verdict: Verdict) -> Self {
        Self { action: Action::Answer, bytes, counted: vec![(verdict, 1)] }
    }

    /// The packet went no further and was counted once.
    pub fn dropped(bytes: Vec<u8>, verdict: Verdict) -> Self {
        Self { action: Action::Drop, bytes, counted: vec![(verdict, 1)] }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.action, self.counted)?;
        for chunk in self.bytes.chunks(16) {
            write!(f, "\n  {}", chunk.iter().map(|byte| format!("{byte:02x} ")).collect::<String>())?;
        }
        Ok(())
    }
}

/// The programs and maps of one test. What it would get from the agent is written by [`crate::seed`], and what is in its
/// flow tables is read by [`crate::flows`].
pub struct Datapath {
    pub(crate) ebpf: Ebpf,
    pub(crate) ids: Ids,
    counters: Counters,
    clock: ClockId,
    came_in_by: u32,
}

impl Datapath {
    /// Loads the programs with small maps.
    pub fn load() -> Self {
        Self::load_with(&[])
    }

    /// Loads the programs with maps of these sizes, and small ones where none is given.
    pub fn load_with(sizes: &[(&str, u32)]) -> Self {
        Self::load_as(sizes, HostRouting::Stack)
    }

    /// Loads the programs so that packets of flows go past the stack.
    pub fn load_past_the_stack() -> Self {
        Self::load_as(&[], HostRouting::Bpf)
    }

    fn load_as(sizes: &[(&str, u32)], host_routing: HostRouting) -> Self {
        let mut loader = EbpfLoader::new();
        for name in SIZABLE {
            loader.map_max_entries(name, 4096);
        }
        for (name, size) in sizes {
            loader.map_max_entries(name, *size);
        }
        let has_coarse_clock =
            is_helper_supported(ProgramType::SchedClassifier, BPF_FUNC_ktime_get_coarse_ns)
                .expect("the kernel tells");
        let coarse_clock = u32::from(has_coarse_clock);
        let host_routing = u32::from(host_routing == HostRouting::Bpf);
        loader.override_global("COARSE_CLOCK", &coarse_clock, true);
        loader.override_global("HOST_ROUTING", &host_routing, true);
        let mut ebpf = loader.load(OBJECT).expect("the object loads (the tests need root)");
        for name in [Hook::Ingress.program(), Hook::Egress.program()] {
            let program: &mut SchedClassifier = ebpf.program_mut(name).expect(name).try_into().expect(name);
            if let Err(error) = program.load() {
                panic!("the verifier refuses {name}: {error}");
            }
        }
        let counters = Counters::of(&ebpf);
        let clock = if has_coarse_clock { ClockId::CLOCK_MONOTONIC_COARSE } else { ClockId::CLOCK_MONOTONIC };
        Self { ebpf, ids: Ids::default(), counters, clock, came_in_by: 0 }
    }

    /// What the programs take for the time: nanoseconds of `CLOCK_MONOTONIC`.
    pub fn now(&self) -> u64 {
        let now = std::time::Duration::from(self.clock.now().expect("there is such a clock"));
        u64::try_from(now.as_nanos()).expect("centuries fit")
    }

    /// Runs a packet through a program.
    pub fn run(&mut self, hook: Hook, packet: &[u8]) -> Outcome {
        self.run_repeatedly(hook, packet, 1)
    }

    /// Runs a packet through a program, and what comes out through it again, that many times in all. The packet keeps its
    /// metadata in between, as when it meets the same hook on one device after the other.
    pub fn run_repeatedly(&mut self, hook: Hook, packet: &[u8], times: u32) -> Outcome {
        let mut out = vec![0; packet.len() + 600];
        let context = self.context();
        let name = hook.program();
        let program: &mut SchedClassifier = self.ebpf.program_mut(name).expect(name).try_into().expect(name);
        let result = program
            .test_run(TestRunOptions {
                data_in: Some(packet),
                data_out: Some(&mut out),
                ctx_in: Some(&context),
                repeat: times,
                ..TestRunOptions::default()
            })
            .expect("the kernel runs the program");
        out.truncate(usize::try_from(result.data_size_out).expect("a small packet"));
        self.outcome(result.return_value, out)
    }

    pub(crate) fn outcome(&mut self, returned: u32, bytes: Vec<u8>) -> Outcome {
        let action = match returned.cast_signed() {
            -1 => Action::Next,
            2 => Action::Drop,
            7 => Action::Answer,
            other => panic!("the program returned {other}"),
        };
        Outcome { action, bytes, counted: self.counters.moved(&self.ebpf) }
    }

    /// Lets packets come in by an interface with this index from now on, or by none for 0: then the node itself sends them.
    pub fn come_in_by(&mut self, index: u32) {
        self.came_in_by = index;
    }

    /// What the kernel is told of a packet, a `struct __sk_buff`.
    pub(crate) fn context(&self) -> [u8; 192] {
        const INGRESS_IFINDEX: usize = 36;
        let mut context = [0; 192];
        context[INGRESS_IFINDEX..INGRESS_IFINDEX + 4].copy_from_slice(&self.came_in_by.to_ne_bytes());
        context
    }

    /// Sends a packet to a VIP, which has to come out with one of `backends` as its destination, otherwise as it was, and
    /// counted once as `verdict`. Tells which backend it was.
    pub fn to_backend(&mut self, packet: &Packet, verdict: Verdict, backends: &[SocketAddr]) -> SocketAddr {
        let outcome = self.run(Hook::Ingress, &packet.bytes());
        let translated =
            |backend: &&SocketAddr| outcome == Outcome::passed(packet.to(**backend).bytes(), verdict);
        *backends.iter().find(translated).unwrap_or_else(|| {
            panic!("{packet:?} should be {verdict} to one of {backends:?} and is {outcome:?}\n{self:?}")
        })
    }

    /// Sends a reply, which has to come out with the VIP as its source, otherwise as it was.
    pub fn from_vip(&mut self, packet: &Packet, vip: SocketAddr) {
        let outcome = self.run(Hook::Egress, &packet.bytes());
        let want = Outcome::passed(packet.from(vip).bytes(), Verdict::ReplyRestored);
        assert_eq!(outcome, want, "{packet:?} should be a reply of {vip}\n{self:?}");
    }

    /// Sends a packet through both programs, neither of which may change, count or drop it.
    pub fn untouched(&mut self, packet: &Packet) {
        for hook in [Hook::Ingress, Hook::Egress] {
            let outcome = self.run(hook, &packet.bytes());
            assert_eq!(outcome, Outcome::untouched(packet.bytes()), "{hook:?}, {packet:?}\n{self:?}");
        }
    }

    /// Sends a packet to a VIP, which has to be dropped as it was, and counted once as `verdict`.
    pub fn dropped(&mut self, packet: &Packet, verdict: Verdict) {
        let outcome = self.run(Hook::Ingress, &packet.bytes());
        assert_eq!(outcome, Outcome::dropped(packet.bytes(), verdict), "{packet:?}\n{self:?}");
    }

    /// Sends a packet, whose sender has to be told that nobody takes it; counted once as `verdict`. The answer is compared
    /// byte for byte with [`Packet::refusal`].
    pub fn refused(&mut self, packet: &Packet, verdict: Verdict) {
        let outcome = self.run(Hook::Ingress, &packet.bytes());
        assert_eq!(outcome, Outcome::answered(packet.refusal(), verdict), "{packet:?}\n{self:?}");
    }

    /// A hash map of the datapath.
    pub fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut MapData, K, V> {
        HashMap::try_from(self.ebpf.map_mut(name).expect(name)).expect("a hash map of these types")
    }

    /// Takes a hash map out of the datapath, for another thread to write.
    pub fn take_hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<MapData, K, V> {
        HashMap::try_from(self.ebpf.take_map(name).expect(name)).expect("a hash map of these types")
    }

    /// The loaded programs and maps.
    pub fn ebpf(&self) -> &Ebpf {
        &self.ebpf
    }
}

impl Hook {
    /// The program's name in the object.
    pub fn program(self) -> &'static str {
        match self {
            Self::Ingress => "tc_ingress",
            Self::Egress => "tc_egress",
        }
    }
}
