//! A difference, told so that it can be run again.

use std::{
    collections::{BTreeSet, VecDeque},
    error::Error,
    fmt,
};

use super::{
    changes::Change,
    memory::{Memory, flows_of},
};
use crate::{
    model::{
        Arrival,
        parse::{Reading, read},
    },
    prog::{Datapath, Outcome},
};

/// How many of the last steps are told.
const STEPS: usize = 25;

/// Where programs and model differ.
#[derive(Debug)]
pub struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Difference {}

/// The last steps of an episode. They are put into words only when they are told.
pub(super) struct History {
    again: String,
    packets: u64,
    steps: VecDeque<Step>,
}

enum Step {
    Packet(Box<Arrival>, Outcome),
    Change(Change),
}

impl History {
    pub(super) fn new(again: String) -> Self {
        Self { again, packets: 0, steps: VecDeque::new() }
    }

    pub(super) fn note(&mut self, arrival: &Arrival, outcome: &Outcome) {
        self.packets += 1;
        self.push(Step::Packet(Box::new(arrival.clone()), outcome.clone()));
    }

    pub(super) fn change(&mut self, change: &Change) {
        self.push(Step::Change(change.clone()));
    }

    fn push(&mut self, step: Step) {
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }

    pub(super) fn difference(
        &self,
        arrival: &Arrival,
        wanted: &Outcome,
        outcome: &Outcome,
        datapath: &Datapath,
    ) -> Difference {
        let reading = read(&arrival.frame);
        let flows = match &reading {
            Reading::Packet(packet) => flows_of(datapath, &packet.ends).join("\n"),
            _ => String::new(),
        };
        Difference(format!(
            "packet {} differs\n{}\nat {:?}, {}{} times: {reading:?}\n  {}\nthe model wants {wanted:?}\nthe program did \
             {outcome:?}\nflows afterwards:\n{flows}\nsteps:\n{}",
            self.packets,
            self.again,
            arrival.hook,
            if arrival.is_forwarded { "forwarded, " } else { "" },
            arrival.times,
            hex(&arrival.frame),
            self.told(),
        ))
    }

    pub(super) fn forgotten(&self, model: &Memory, programs: &Memory) -> Difference {
        let mut text = format!("what is remembered differs\n{}\n", self.again);
        let keys = model.flows.keys().chain(programs.flows.keys());
        let differing: BTreeSet<_> =
            keys.filter(|key| model.flows.get(key) != programs.flows.get(key)).collect();
        for key in differing {
            let (model, programs) = (model.flows.get(key), programs.flows.get(key));
            text += &format!("  model    {model:?}\n  programs {programs:?}\n");
        }
        if model.clients != programs.clients {
            text += &format!("clients\n  model    {:?}\n  programs {:?}\n", model.clients, programs.clients);
        }
        if model.fragments != programs.fragments {
            text += &format!(
                "fragments\n  model    {:?}\n  programs {:?}\n",
                model.fragments, programs.fragments
            );
        }
        Difference(text + "steps:\n" + &self.told())
    }

    fn told(&self) -> String {
        let first =
            self.packets - self.steps.iter().filter(|step| matches!(step, Step::Packet(..))).count() as u64;
        let mut lines = String::new();
        let mut packet = first;
        for step in &self.steps {
            match step {
                Step::Change(change) => lines += &format!("     {change:?}\n"),
                Step::Packet(arrival, outcome) => {
                    packet += 1;
                    let what = match read(&arrival.frame) {
                        Reading::Packet(packet) => {
                            format!("{} > {} {:?}", packet.ends.from, packet.ends.to, packet.carries)
                        }
                        other => format!("{other:?}"),
                    };
                    lines += &format!(
                        "{packet:>4} {:?} x{} {what}: {:?} {:?}\n",
                        arrival.hook, arrival.times, outcome.action, outcome.counted
                    );
                }
            }
        }
        lines
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
