//! What to say of this machine: pure.

use crate::{
    model::{Host, Object},
    source::Event,
};

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Said {
    host: Option<Host>,
    failing: Option<String>,
}

impl Said {
    /// The events that bring the listener from what was said to what a reading has shown, or to why there was none.
    pub(super) fn update(&mut self, reading: Result<Host, String>) -> Vec<Event> {
        let mut events = Vec::new();
        match reading {
            Ok(host) => {
                let is_news = self.host.as_ref() != Some(&host);
                let is_first = self.host.is_none();
                events.extend(is_first.then_some(Event::ListStarted));
                if is_news {
                    self.host = Some(host.clone());
                    events.push(Event::Apply(Object::Host(host)));
                }
                events.extend(is_first.then_some(Event::ListComplete));
                events.extend(self.failing.take().map(|_| Event::Recovered));
            }
            Err(sentence) => {
                if self.failing.as_ref() != Some(&sentence) {
                    self.failing = Some(sentence.clone());
                    events.push(Event::Failing(sentence));
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> Host {
        Host { addresses: vec![address.parse().unwrap()], ..Host::default() }
    }

    #[test]
    fn a_list_comes_first_then_changes_and_nothing_is_said_twice() {
        let apply = |address| Event::Apply(Object::Host(host(address)));
        let failing = |why: &str| Event::Failing(why.to_owned());
        let rows = [
            (Err("closed".to_owned()), vec![failing("closed")]),
            (Err("closed".to_owned()), vec![]),
            (Err("denied".to_owned()), vec![failing("denied")]),
            (
                Ok(host("192.168.50.11")),
                vec![Event::ListStarted, apply("192.168.50.11"), Event::ListComplete, Event::Recovered],
            ),
            (Ok(host("192.168.50.11")), vec![]),
            (Ok(host("192.168.60.5")), vec![apply("192.168.60.5")]),
            (Err("closed".to_owned()), vec![failing("closed")]),
            (Ok(host("192.168.60.5")), vec![Event::Recovered]),
            (Err("closed".to_owned()), vec![failing("closed")]),
            (Ok(host("192.168.50.11")), vec![apply("192.168.50.11"), Event::Recovered]),
        ];
        let mut said = Said::default();
        for (number, (reading, want)) in rows.into_iter().enumerate() {
            assert_eq!(said.update(reading), want, "row {number}");
        }
    }

    #[test]
    fn a_machine_without_addresses_has_a_list_too() {
        let want = [Event::ListStarted, Event::Apply(Object::Host(Host::default())), Event::ListComplete];
        assert_eq!(Said::default().update(Ok(Host::default())), want);
    }
}
