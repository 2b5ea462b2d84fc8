//! A great many packets through the programs and through the model, which have to agree on every one: what comes out byte
//! for byte, what the kernel is told to do, what is counted, and after each episode what is remembered of flows, clients and
//! first fragments.
//!
//! * `universe`: few addresses and ports, so that conversations meet.
//! * `packets`: conversations over them, whole packets first; `dress`: their encapsulation; `damage`: what is done to them then.
//! * `changes`: what the agent, the kernel and time do in between; `apply`: how.
//! * `sweep`: every cut and every byte, instead of packets at random.
//! * `world`: programs and model side by side; `memory`: what both remember, in one form.
//! * `report`: a difference.
//!
//! An episode begins with empty maps and is a few thousand steps long. The same seed gives the same steps, except that the
//! programs choose backends at random: replies then come from the backends that were chosen.

mod apply;
mod changes;
mod damage;
mod dress;
mod memory;
mod packets;
mod report;
mod sweep;
mod universe;
mod world;

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use anyhow::Result;
use lb_common::{Verdict, maps};

pub use report::Difference;
pub use sweep::{SWEPT, sweep};

use crate::{
    netns::Namespace,
    prog::{Datapath, Outcome},
};
use packets::Generator;
use universe::NEIGHBOURS;
use world::World;

/// What no packet is: where two programs have to meet, where the kernel refuses, or what is not there: clients outside,
/// external frontends, sockets, ways past the stack.
pub const NOT_FUZZED: [Verdict; 12] = [
    Verdict::BackendSetUnsettled,
    Verdict::FlowTableFull,
    Verdict::SourceNat,
    Verdict::SnatExhausted,
    Verdict::NoSourceAddress,
    Verdict::SourceNotAllowed,
    Verdict::OutsideClusterIP,
    Verdict::SocketBound,
    Verdict::SocketContinued,
    Verdict::SocketRefused,
    Verdict::SocketTimedOut,
    Verdict::ReplyRouted,
];

/// Packets of an episode.
pub const EPISODE: u64 = 2000;

/// What became of the packets on which programs and model agree.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub packets: u64,
    /// How many were counted, by verdict.
    pub verdicts: BTreeMap<Verdict, u64>,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.packets += 1;
        outcome.counted.iter().for_each(|(verdict, n)| *self.verdicts.entry(*verdict).or_default() += n);
    }

    fn of_both(tallies: [Result<Self, Difference>; 2]) -> Result<Self> {
        let [sum, other] = tallies;
        let (mut sum, other) = (sum?, other?);
        sum.packets += other.packets;
        other.verdicts.into_iter().for_each(|(verdict, n)| *sum.verdicts.entry(verdict).or_default() += n);
        Ok(sum)
    }
}

/// Runs episodes with seeds from `seed` on until there were this many packets, on two threads.
///
/// # Errors
/// The first difference that one of them has found, or that the rights are missing.
pub fn run(seed: u64, packets: u64) -> Result<Tally> {
    let host = host()?;
    let episodes = packets.div_ceil(EPISODE);
    let is_over = AtomicBool::new(false);
    let of_parity = |parity: usize| -> Result<Tally, Difference> {
        // Every other episode has little room for flows that have settled.
        let room = if parity == 0 { 4096 } else { 12 };
        // Where the kernel evicts is hard to foresee, so there is always room for what it may evict.
        let sizes = [(maps::FLOWS, room), (maps::FLOWS_NEW, 65_536), (maps::AFFINITY, 65_536)];
        let mut datapath = Datapath::load_with(&sizes);
        let mut tally = Tally::default();
        let seeds =
            (0..episodes).map(|episode| seed.wrapping_add(episode)).filter(|seed| seed % 2 == parity as u64);
        for seed in seeds {
            if is_over.load(Relaxed) {
                break;
            }
            let done = episode(seed, &mut datapath, room, &mut tally);
            is_over.fetch_or(done.is_err(), Relaxed);
            done?;
        }
        Ok(tally)
    };
    Tally::of_both(host.run(|| on_two_threads(of_parity)))
}

/// Does the same for 0 and for 1, at the same time.
fn on_two_threads<T: Send>(work: impl Fn(usize) -> T + Sync) -> [T; 2] {
    thread::scope(|scope| {
        let work = &work;
        let threads = [0, 1].map(|which| scope.spawn(move || work(which)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// A host whose routes lead back to the neighbours by loopback, on which the kernel runs the packets of tests.
fn host() -> Result<Namespace> {
    let host = Namespace::new("fuzz")?;
    host.sysctl("net.ipv4.conf.all.forwarding", "1")?;
    host.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    for neighbour in NEIGHBOURS {
        host.ip(&format!("route add {} dev lo", neighbour.ip()))?;
    }
    Ok(host)
}

fn episode(seed: u64, datapath: &mut Datapath, room: u32, tally: &mut Tally) -> Result<(), Difference> {
    datapath.forget_everything();
    let again = format!("run it again with READYLB_FUZZ_SEED={seed} READYLB_FUZZ_PACKETS={EPISODE}");
    let mut world = World::new(again, datapath, room);
    let mut generator = Generator::new(seed);
    for change in generator.beginning() {
        world.change(change);
    }
    for _ in 0..EPISODE {
        while let Some(change) = generator.change(world.model()) {
            world.change(change);
        }
        let arrival = generator.packet(world.model());
        tally.add(&world.packet(arrival)?);
    }
    world.compare_memory()
}
