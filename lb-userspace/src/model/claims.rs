//! Objects of one kind, with the feeds that say they exist.

use std::{collections::HashMap, hash::Hash};

use crate::source::Feed;

/// Objects by identity. Several feeds may have the same object: that of the last feed holds, whenever it was said, so that
/// the same objects have the same outcome.
#[derive(Debug)]
pub(super) struct Claims<K, T> {
    by_key: HashMap<K, Vec<Claim<T>>>,
}

/// What one feed says about an object.
#[derive(Debug)]
struct Claim<T> {
    feed: Feed,
    /// Number of the feed's list in which, or after which, it was last said.
    list: u64,
    object: T,
}

impl<K: Clone + Eq + Hash, T: PartialEq> Claims<K, T> {
    pub(super) fn new() -> Self {
        Self { by_key: HashMap::new() }
    }

    /// The object that holds.
    pub(super) fn get(&self, key: &K) -> Option<&T> {
        self.holding(key).map(|(object, ..)| object)
    }

    /// The same with the feed that has it, and the list of that feed in which, or after which, it was last said.
    pub(super) fn holding(&self, key: &K) -> Option<(&T, Feed, u64)> {
        self.by_key.get(key)?.last().map(|claim| (&claim.object, claim.feed, claim.list))
    }

    /// The objects that several feeds have, in no order.
    pub(super) fn contested(&self) -> impl Iterator<Item = &K> {
        self.by_key.iter().filter(|(_, claims)| claims.len() > 1).map(|(key, _)| key)
    }

    /// Every object that holds, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_key.values().filter_map(|claims| claims.last()).map(|claim| &claim.object)
    }

    /// Takes a feed's word, and tells whether the object that holds is now another.
    pub(super) fn apply(&mut self, key: K, feed: Feed, list: u64, object: T) -> bool {
        let claims = self.by_key.entry(key).or_insert_with(|| Vec::with_capacity(1));
        let at = claims.partition_point(|claim| claim.feed < feed);
        let is_last = at + 1 >= claims.len();
        match claims.get_mut(at).filter(|claim| claim.feed == feed) {
            Some(own) => {
                let changed = own.object != object;
                *own = Claim { feed, list, object };
                changed && is_last
            }
            None => {
                let changed = at == claims.len() && claims.last().is_none_or(|holds| holds.object != object);
                claims.insert(at, Claim { feed, list, object });
                changed
            }
        }
    }

    /// Takes a feed's word back, and tells whether the object that holds is now another, or gone.
    pub(super) fn withdraw(&mut self, key: &K, feed: Feed) -> bool {
        let Some(claims) = self.by_key.get_mut(key) else { return false };
        let Some(at) = claims.iter().position(|claim| claim.feed == feed) else { return false };
        let was_last = at + 1 == claims.len();
        let withdrawn = claims.remove(at);
        let changed = was_last && claims.last().is_none_or(|holds| holds.object != withdrawn.object);
        if claims.is_empty() {
            self.by_key.remove(key);
        }
        changed
    }

    /// The objects that a feed has said before this list of its own, and not since.
    pub(super) fn unsaid(&self, feed: Feed, list: u64) -> Vec<K> {
        self.by_key
            .iter()
            .filter(|(_, claims)| claims.iter().any(|claim| claim.feed == feed && claim.list != list))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
