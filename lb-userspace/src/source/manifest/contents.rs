//! What several files hold together.

use std::collections::BTreeMap;

use super::super::document::{Definition, Parsed};
use crate::model::{Object, ObjectRef, Warning};

/// The objects of one `--manifests` path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Each object once.
    pub objects: BTreeMap<ObjectRef, Object>,
    /// What was skipped or not understood, sorted.
    pub warnings: Vec<Warning>,
}

impl Contents {
    /// Puts files together, in the order in which they are given: where two define the same object, the later one wins.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = &'a Parsed>) -> Self {
        let mut warnings = Vec::new();
        let mut definitions: BTreeMap<&ObjectRef, &Definition> = BTreeMap::new();
        for file in files {
            warnings.extend_from_slice(&file.warnings);
            for later in &file.definitions {
                if let Some(earlier) = definitions.insert(&later.reference, later) {
                    let message =
                        format!("defined in {} and again in {}, which wins", earlier.origin, later.origin);
                    warnings.push(Warning { object: later.reference.to_string(), message });
                }
            }
        }
        warnings.sort();
        let objects = definitions.into_values().flat_map(|definition| definition.objects.iter().cloned());
        Self { objects: objects.map(|object| (object.reference(), object)).collect(), warnings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::document;

    #[test]
    fn the_later_definition_of_an_object_wins_and_both_are_named() {
        let endpoints = |subsets: &str| {
            format!("apiVersion: v1\nkind: Endpoints\nmetadata: {{name: web}}\nsubsets: [{subsets}]\n")
        };
        let subset = "{addresses: [{ip: 10.244.1.21}], ports: [{port: 8080}]}";
        // The earlier object is three slices: nothing of it may be left over.
        let earlier = endpoints(&[subset; 3].join(","));
        let earlier = document::parse(&earlier, "a.yaml").expect("well formed");
        let later = document::parse(&endpoints(subset), "b.yaml").expect("well formed");

        let contents = Contents::of([&earlier, &later]);
        let objects: Vec<_> = contents.objects.keys().map(ToString::to_string).collect();
        assert_eq!(objects, ["Endpoints default/web"]);
        let message = "defined in a.yaml document 1 and again in b.yaml document 1, which wins";
        let want = Warning { object: "Endpoints default/web".into(), message: message.into() };
        assert_eq!(contents.warnings, [want]);
        assert_eq!(Contents::of([&later, &earlier]).objects.len(), 3);
    }
}
