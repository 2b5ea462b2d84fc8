//! Names that many objects have in common: namespaces, nodes, zones, Services. Each is in memory once.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Names known before the first look for those that nobody has any more.
const FEW: usize = 1024;

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(|| Mutex::new(Names::default()));

/// The name, shared with all who have the same one.
pub(super) fn shared(name: &str) -> Arc<str> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).shared(name)
}

#[derive(Default)]
struct Names {
    known: HashSet<Arc<str>>,
    /// How many there were after the last look.
    in_use: usize,
}

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        // Only when they have doubled, so that a name costs the same however many there are.
        if self.known.len() >= FEW.max(2 * self.in_use) {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.in_use = self.known.len();
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_the_same_one() {
        let mut names = Names::default();
        let one = names.shared("node-a");
        assert!(Arc::ptr_eq(&one, &names.shared("node-a")));
        assert_eq!(&*names.shared("node-b"), "node-b");
    }

    #[test]
    fn names_that_nobody_has_any_more_go() {
        let mut names = Names::default();
        let kept = names.shared("kept");
        for n in 0..10 * FEW {
            names.shared(&format!("gone-{n}"));
            assert!(names.known.len() <= FEW + 1, "after {n}");
        }
        assert!(Arc::ptr_eq(&kept, &names.shared("kept")));

        let many: Vec<_> = (0..10 * FEW).map(|n| names.shared(&format!("node-{n}"))).collect();
        assert!(many.iter().enumerate().all(|(n, name)| **name == *format!("node-{n}")));
    }
}
