//! What to say when the contents of files have changed: a pure diff.

use std::collections::BTreeMap;

use super::{Contents, ManifestErrors};
use crate::{
    model::{Object, ObjectRef, Warning},
    source::Event,
};

/// What one look at a path has shown.
#[derive(Debug, Default)]
pub(super) struct View {
    /// What the files hold; none where the path cannot be read.
    pub(super) contents: Option<Contents>,
    /// Every file has been whole once.
    pub(super) complete: bool,
    /// What is wrong now.
    pub(super) errors: Option<ManifestErrors>,
}

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Said {
    objects: BTreeMap<ObjectRef, Object>,
    listed: Listed,
    warnings: Vec<Warning>,
    failing: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    Nothing,
    Started,
    Complete,
}

impl Said {
    /// The events that bring the listener from what was said to what was seen.
    pub(super) fn update(&mut self, view: View) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(Contents { objects, warnings }) = view.contents {
            if self.listed == Listed::Complete {
                let gone = self.objects.keys().filter(|object| !objects.contains_key(object));
                let changed =
                    objects.iter().filter(|(object, state)| self.objects.get(object) != Some(state));
                let changed = changed.map(|(_, state)| Event::Apply(state.clone()));
                // One object here can be several in the model: a part of them is nothing to act on.
                let changes: Vec<_> = gone.cloned().map(Event::Delete).chain(changed).collect();
                events.extend((!changes.is_empty()).then_some(Event::Together(changes)));
            } else if self.listed == Listed::Nothing || view.complete || self.objects != objects {
                // Without a file that was never whole the list is not complete: what that file holds may be in use.
                events.push(Event::ListStarted);
                events.extend(objects.values().cloned().map(Event::Apply));
                events.extend(view.complete.then_some(Event::ListComplete));
                self.listed = if view.complete { Listed::Complete } else { Listed::Started };
            }
            self.objects = objects;
            let warnings = with_errors(warnings, view.errors.as_ref());
            if self.warnings != warnings {
                self.warnings.clone_from(&warnings);
                events.push(Event::Warnings(warnings));
            }
        }
        let failing = view.errors.map(|errors| errors.to_string());
        if self.failing != failing {
            events.push(failing.clone().map_or(Event::Recovered, Event::Failing));
            self.failing = failing;
        }
        events
    }
}

/// [`Event::Failing`] has room for the first error only.
fn with_errors(mut warnings: Vec<Warning>, errors: Option<&ManifestErrors>) -> Vec<Warning> {
    let errors = errors.into_iter().flat_map(|errors| &errors.0);
    warnings.extend(errors.map(|error| Warning { object: "manifest".into(), message: error.to_string() }));
    warnings
}
