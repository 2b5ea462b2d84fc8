//! Runs a packet through several hooks, one after the other, with the metadata that stays with it on its way through a host:
//! what one program notes on it, the next one finds.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Barrier,
    thread,
};

use aya::{
    maps::{Map, MapData, ProgramArray},
    programs::SchedClassifier,
};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_type::BPF_MAP_TYPE_PROG_ARRAY};

use crate::{
    foreign,
    packet::Packet,
    prog::{Datapath, Hook, Outcome},
};

/// Where `struct __sk_buff` has its `cb`, five words that no program of ours uses.
const CB: usize = 48;

/// A program that goes over to the one whose number is in the lowest bit of `cb[0]`, and shifts the next number there.
struct Switch {
    program: OwnedFd,
    /// The kernel empties the array when the last descriptor is closed.
    _targets: ProgramArray<MapData>,
}

impl Switch {
    fn load(targets: [&SchedClassifier; 2]) -> io::Result<Self> {
        let map = aya_obj::Map::new_from_params(BPF_MAP_TYPE_PROG_ARRAY as u32, 4, 4, 2, 0);
        let map = MapData::create(map, "targets", None).map_err(io::Error::other)?;
        let [a, b, c, d] = map.fd().as_fd().as_raw_fd().to_le_bytes();
        let mut array = ProgramArray::try_from(Map::ProgramArray(map)).map_err(io::Error::other)?;
        for (index, program) in (0..).zip(targets) {
            array.set(index, program.fd().map_err(io::Error::other)?, 0).map_err(io::Error::other)?;
        }
        // `struct bpf_insn`: code, destination and source register, offset, immediate value.
        let cb = u8::try_from(CB).expect("it is small");
        let code = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],  // r6 = r1
            [0x61, 0x67, cb, 0, 0, 0, 0, 0], // r7 = cb[0]
            [0xbf, 0x73, 0, 0, 0, 0, 0, 0],  // r3 = r7
            [0x57, 0x03, 0, 0, 1, 0, 0, 0],  // r3 &= 1
            [0x77, 0x07, 0, 0, 1, 0, 0, 0],  // r7 >>= 1
            [0x63, 0x76, cb, 0, 0, 0, 0, 0], // cb[0] = r7
            [0xbf, 0x61, 0, 0, 0, 0, 0, 0],  // r1 = r6
            [0x18, 0x12, 0, 0, a, b, c, d],  // r2 = the array
            [0; 8],
            [0x85, 0, 0, 0, 12, 0, 0, 0],   // bpf_tail_call
            [0xb7, 0, 0, 0, 0x63, 0, 0, 0], // r0 = 99
            [0x95, 0, 0, 0, 0, 0, 0, 0],    // exit
        ];
        Ok(Self { program: foreign::load("switch", &code)?, _targets: array })
    }
}

impl Datapath {
    fn switch(&self) -> Switch {
        let program = |hook: Hook| -> &SchedClassifier {
            self.ebpf().program(hook.program()).expect("it is loaded").try_into().expect("of this type")
        };
        Switch::load([program(Hook::Ingress), program(Hook::Egress)]).expect("the kernel takes it")
    }

    /// What the last program returned, and the packet then.
    fn travel(&self, switch: &Switch, hooks: &[Hook], packet: &[u8]) -> (u32, Vec<u8>) {
        let plan = hooks.iter().rev().fold(0u32, |plan, hook| plan << 1 | u32::from(*hook == Hook::Egress));
        let mut context = self.context();
        context[CB..CB + 4].copy_from_slice(&plan.to_ne_bytes());
        let mut out = vec![0u8; packet.len() + 600];
        // SAFETY: zero is a value of every member.
        let mut attr: bpf_attr = unsafe { mem::zeroed() };
        attr.test.prog_fd = switch.program.as_fd().as_raw_fd().cast_unsigned();
        attr.test.data_in = packet.as_ptr() as u64;
        attr.test.data_size_in = u32::try_from(packet.len()).expect("a small packet");
        attr.test.data_out = out.as_mut_ptr() as u64;
        attr.test.data_size_out = u32::try_from(out.len()).expect("a small packet");
        attr.test.ctx_in = context.as_ptr() as u64;
        attr.test.ctx_size_in = u32::try_from(context.len()).expect("it is small");
        attr.test.repeat = u32::try_from(hooks.len()).expect("few");
        // SAFETY: the attribute is of this command, and every buffer lives longer than the call.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_PROG_TEST_RUN, &raw mut attr, size_of::<bpf_attr>())
        };
        assert_eq!(result, 0, "the kernel runs the programs: {}", io::Error::last_os_error());
        // SAFETY: the kernel has written both.
        let (returned, len) = unsafe { (attr.test.retval, attr.test.data_size_out) };
        out.truncate(usize::try_from(len).expect("a small packet"));
        (returned, out)
    }

    /// Runs a packet through these hooks. The action is that of the last one, and the others have to let the packet go on, or
    /// the last one would not see it.
    pub fn journey(&mut self, hooks: &[Hook], packet: &[u8]) -> Outcome {
        let (returned, bytes) = self.travel(&self.switch(), hooks, packet);
        self.outcome(returned, bytes)
    }

    /// Sends a packet through the node, in and out again; tells what leaves.
    pub fn forwarded(&mut self, packet: &Packet) -> Outcome {
        self.journey(&[Hook::Ingress, Hook::Egress], &packet.bytes())
    }

    /// Sends the same packet from several threads at once; tells what leaves of each. What it counts belongs to the next
    /// outcome.
    pub fn race(&self, packet: &Packet, threads: usize) -> Vec<Vec<u8>> {
        let (switch, start) = (self.switch(), Barrier::new(threads));
        let run = || {
            start.wait();
            self.travel(&switch, &[Hook::Ingress, Hook::Egress], &packet.bytes()).1
        };
        thread::scope(|scope| {
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            runs.into_iter().map(|run| run.join().expect("it has run")).collect()
        })
    }
}
