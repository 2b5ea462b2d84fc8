//! COUNTERS, read at once: element by element it would take several times as long as the packet.

use std::{
    io, mem,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::{
    Ebpf,
    maps::{Map, PerCpuArray},
    util::nr_cpus,
};
use aya_obj::generated::{bpf_attr, bpf_cmd};
use lb_common::{Verdict, maps};

/// What the counters were when they were last looked at.
pub(crate) struct Counters {
    cpus: usize,
    before: Vec<u64>,
    /// Whether the kernel reads several elements of a per-CPU array in one call (5.13).
    at_once: bool,
}

impl Counters {
    pub(crate) fn of(ebpf: &Ebpf) -> Self {
        let cpus = nr_cpus().expect("the kernel tells");
        let at_once = read_at_once(ebpf, cpus, &mut [0], &mut vec![0; cpus]).is_ok();
        Self { cpus, before: vec![0; maps::COUNTERS_SIZE], at_once }
    }

    /// Which of them have moved since the last time, and by how much.
    pub(crate) fn moved(&mut self, ebpf: &Ebpf) -> Vec<(Verdict, u64)> {
        let verdicts =
            || Verdict::ALL.iter().copied().filter(|verdict| (*verdict as usize) < maps::COUNTERS_SIZE);
        let slots = verdicts().map(|verdict| verdict as usize + 1).max().unwrap_or_default();
        let now = self.read(ebpf, slots);
        let mut moved = Vec::new();
        for verdict in verdicts() {
            let (now, before) = (now[verdict as usize], &mut self.before[verdict as usize]);
            if now != *before {
                moved.push((verdict, now - mem::replace(before, now)));
            }
        }
        moved
    }

    /// The first `slots` of them.
    fn read(&self, ebpf: &Ebpf, slots: usize) -> Vec<u64> {
        if self.at_once {
            let mut values = vec![0; slots * self.cpus];
            read_at_once(ebpf, self.cpus, &mut vec![0; slots], &mut values).expect("readable");
            return values.chunks(self.cpus).map(|of_cpus| of_cpus.iter().sum()).collect();
        }
        let map = ebpf.map(maps::COUNTERS).expect(maps::COUNTERS);
        let map = PerCpuArray::<_, u64>::try_from(map).expect("a per-CPU array");
        let slots = 0..u32::try_from(slots).expect("few");
        slots.map(|slot| map.get(&slot, 0).expect("readable").iter().sum()).collect()
    }
}

/// Reads as many elements as there is room for keys, each with a value for every CPU.
fn read_at_once(ebpf: &Ebpf, cpus: usize, keys: &mut [u32], values: &mut [u64]) -> io::Result<()> {
    let Some(Map::PerCpuArray(map)) = ebpf.map(maps::COUNTERS) else { panic!("COUNTERS is a per-CPU array") };
    assert!(values.len() >= keys.len() * cpus);
    let mut next = 0u32;
    // SAFETY: zero is a value of every member.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    attr.batch.out_batch = (&raw mut next).addr() as u64;
    attr.batch.keys = keys.as_mut_ptr().addr() as u64;
    attr.batch.values = values.as_mut_ptr().addr() as u64;
    attr.batch.count = u32::try_from(keys.len()).expect("few");
    attr.batch.map_fd = map.fd().as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the kernel writes a key of 4 bytes to `out_batch` and `count` keys and values, for which there is room.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_MAP_LOOKUP_BATCH, &raw mut attr, size_of::<bpf_attr>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
