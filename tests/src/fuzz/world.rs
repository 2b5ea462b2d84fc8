//! Programs and model side by side.

use std::{collections::HashMap, ops::RangeInclusive};

use super::{
    memory::{Memory, first, key_of, record},
    report::{Difference, History},
    universe::NEIGHBOURS,
};
use crate::{
    model::{Arrival, Errors, Model},
    prog::{Datapath, Outcome},
    seed,
};

/// The index of an interface that forwarded packets have come in by.
const SOME_INTERFACE: u32 = 1;

/// Both, in the middle of an episode.
pub(super) struct World<'a> {
    pub(super) datapath: &'a mut Datapath,
    pub(super) model: Model,
    /// Affinity that frontends get with their next backends, in seconds.
    pub(super) affinity: HashMap<seed::Frontend, u32>,
    pub(super) history: History,
}

impl<'a> World<'a> {
    /// `again` says how to come here again.
    pub(super) fn new(again: String, datapath: &'a mut Datapath, room: u32) -> Self {
        let mut model = Model::default();
        model.flows.room = usize::try_from(room).expect("small");
        model.neighbours = NEIGHBOURS.map(|neighbour| neighbour.ip()).to_vec();
        Self { datapath, model, affinity: HashMap::new(), history: History::new(again) }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Runs a packet through both.
    pub(super) fn packet(&mut self, arrival: Arrival) -> Result<Outcome, Difference> {
        if matches!(self.model.errors, Errors::AtLeast(left) if left < arrival.times) {
            self.datapath.set_errors_due(0);
            self.model.errors = Errors::BURST;
        }
        self.datapath.come_in_by(if arrival.is_forwarded { SOME_INTERFACE } else { 0 });
        let before = self.datapath.now();
        let outcome = self.datapath.run_repeatedly(arrival.hook, &arrival.frame, arrival.times);
        let after = self.datapath.now();

        let wanted = match before == after {
            true => self.model.run(&arrival, before, self.datapath),
            false => self.run_at_some_time(&arrival, &outcome, before, after),
        };
        self.history.note(&arrival, &outcome);
        if wanted == outcome {
            return Ok(outcome);
        }
        Err(self.history.difference(&arrival, &wanted, &outcome, self.datapath))
    }

    /// Runs a packet through the model when the clock has ticked meanwhile, which it does once in some hundred packets: the
    /// program has seen the time before it or the time after. What it remembers since then tells.
    fn run_at_some_time(&mut self, arrival: &Arrival, outcome: &Outcome, before: u64, after: u64) -> Outcome {
        let mut runs = [before, after].map(|now| {
            let mut model = self.model.clone();
            let wanted = model.run(arrival, now, self.datapath);
            (model, wanted)
        });
        let renewed = runs.each_ref().map(|(model, _)| model.flows.touched.clone()).concat();
        for (model, _) in &mut runs {
            learn_times(model, self.datapath, before..=after);
        }
        let agrees = |(model, wanted): &(Model, Outcome)| {
            wanted == outcome
                && renewed.iter().all(|(side, ends)| {
                    let recorded = self.datapath.flow(&key_of(*side, ends)).map(|(_, value)| value.last_seen);
                    recorded == model.flows.entries.get(&(*side, *ends)).map(|entry| entry.last)
                })
        };
        let [first, second] = runs;
        let (model, wanted) = if agrees(&first) || second.1 != *outcome { first } else { second };
        self.model = model;
        wanted
    }

    /// Compares what both remember.
    pub(super) fn compare_memory(&self) -> Result<(), Difference> {
        let (programs, model) = (Memory::of_programs(self.datapath), Memory::of_model(&self.model));
        if programs == model { Ok(()) } else { Err(self.history.forgotten(&model, &programs)) }
    }
}

/// Takes over the times of what the last packet has renewed, where they may be any of these.
fn learn_times(model: &mut Model, datapath: &Datapath, times: RangeInclusive<u64>) {
    for (side, ends) in &model.flows.touched {
        let recorded = datapath.flow(&key_of(*side, ends)).map(|(_, value)| value.last_seen);
        let entry = model.flows.entries.get_mut(&(*side, *ends));
        if let (Some(entry), Some(last)) = (entry, recorded.filter(|last| times.contains(last))) {
            entry.last = last;
        }
    }
    for client in &model.affinity.touched {
        let recorded = record(datapath, *client).map(|value| value.last_used);
        let held = model.affinity.clients.get_mut(client);
        if let (Some(held), Some(last)) = (held, recorded.filter(|last| times.contains(last))) {
            held.last = last;
        }
    }
    for key in &model.fragments.touched {
        let recorded = first(datapath, key).map(|first| first.seen);
        let first = model.fragments.first.get_mut(key);
        if let (Some(first), Some(seen)) = (first, recorded.filter(|seen| times.contains(seen))) {
            first.seen = seen;
        }
    }
}
