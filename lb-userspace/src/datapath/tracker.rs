//! From what is heard about links to what has to be done: pure, so that every order of events can be tried.

use std::collections::{BTreeMap, BTreeSet};

use super::interfaces::{Link, Role, Selection};

/// An interface that the programs belong on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) ifindex: u32,
    pub(super) name: String,
    pub(super) role: Role,
    /// It leads out of the node by its kind.
    pub(super) uplink: bool,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Put the programs on; or only its name or role is new.
    Attach(Chosen),
    /// Take them off: the interface has gone, or is no longer chosen.
    Release(u32),
}

/// The interfaces that are chosen now.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    selection: Selection,
    chosen: BTreeMap<u32, Chosen>,
}

impl Tracker {
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, chosen: BTreeMap::new() }
    }

    /// A link is new, or something about it has changed.
    pub(super) fn seen(&mut self, link: Link) -> Option<Change> {
        let Ok(role) = self.selection.role(&link) else {
            return self.gone(link.ifindex);
        };
        let uplink = link.is_uplink();
        let chosen = Chosen { ifindex: link.ifindex, name: link.name, role, uplink };
        if self.chosen.get(&chosen.ifindex) == Some(&chosen) {
            return None;
        }
        self.chosen.insert(chosen.ifindex, chosen.clone());
        Some(Change::Attach(chosen))
    }

    /// A link has gone.
    pub(super) fn gone(&mut self, ifindex: u32) -> Option<Change> {
        self.chosen.remove(&ifindex).map(|_| Change::Release(ifindex))
    }

    /// These are all links that there are. Says again what to attach to where nothing changed since: an interface may
    /// have gone and come back under its old index unheard.
    pub(super) fn listed(&mut self, links: Vec<Link>) -> Vec<Change> {
        let present: BTreeSet<u32> = links.iter().map(|link| link.ifindex).collect();
        let missing: Vec<u32> =
            self.chosen.keys().copied().filter(|known| !present.contains(known)).collect();
        let mut changes: Vec<Change> = missing.into_iter().filter_map(|ifindex| self.gone(ifindex)).collect();
        for link in links {
            let ifindex = link.ifindex;
            let change = self.seen(link);
            changes.extend(change.or_else(|| self.chosen.get(&ifindex).cloned().map(Change::Attach)));
        }
        changes
    }

    pub(super) fn chosen(&self) -> impl Iterator<Item = &Chosen> {
        self.chosen.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn veth(ifindex: u32, name: &str) -> Link {
        Link {
            ifindex,
            name: name.to_owned(),
            kind: Some("veth".to_owned()),
            ethernet: true,
            ..Link::default()
        }
    }

    fn attach(ifindex: u32, name: &str) -> Change {
        Change::Attach(Chosen { ifindex, name: name.to_owned(), role: Role::Named, uplink: false })
    }

    fn tracker() -> Tracker {
        Tracker::new(Selection::from_patterns(["pod*"]).unwrap())
    }

    #[test]
    fn an_interface_is_attached_to_once_and_again_only_under_another_index() {
        let mut tracker = tracker();
        assert_eq!(tracker.seen(veth(5, "pod1")), Some(attach(5, "pod1")));
        assert_eq!(tracker.seen(veth(5, "pod1")), None, "a flag has changed");
        assert_eq!(tracker.gone(5), Some(Change::Release(5)));
        assert_eq!(tracker.gone(5), None);
        assert_eq!(tracker.seen(veth(6, "pod1")), Some(attach(6, "pod1")), "back under its name");
    }

    #[test]
    fn a_rename_moves_an_interface_in_and_out_of_the_choice() {
        let mut tracker = tracker();
        assert_eq!(tracker.seen(veth(5, "tmp1")), None);
        assert_eq!(tracker.seen(veth(5, "pod1")), Some(attach(5, "pod1")));
        assert_eq!(tracker.seen(veth(5, "pod2")), Some(attach(5, "pod2")));
        assert_eq!(tracker.seen(veth(5, "tmp1")), Some(Change::Release(5)));
        assert_eq!(tracker.chosen().count(), 0);
    }

    #[test]
    fn a_list_replaces_everything_heard_before() {
        let mut tracker = tracker();
        tracker.seen(veth(5, "pod1"));
        tracker.seen(veth(6, "pod2"));
        let changes = tracker.listed(vec![veth(6, "pod2"), veth(7, "pod3"), veth(8, "other")]);
        assert_eq!(changes, [Change::Release(5), attach(6, "pod2"), attach(7, "pod3")]);
        let chosen: Vec<u32> = tracker.chosen().map(|chosen| chosen.ifindex).collect();
        assert_eq!(chosen, [6, 7]);
    }
}
