//! Every version of every object.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::resource::Resource;

/// The objects, and what has happened to them.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The current version.
    pub(super) version: u64,
    /// The oldest version that is known in full.
    oldest: u64,
    /// By resource and by path, `namespace/name`, in the order in which etcd lists them.
    objects: BTreeMap<(Resource, String), Vec<Since>>,
    /// In the order in which they were made.
    pub(super) log: Vec<Change>,
}

/// A state, and the version from which on it holds; none where the object is deleted.
type Since = (u64, Option<Arc<Value>>);

/// One event of a watch.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) resource: Resource,
    pub(super) path: String,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(super) kind: &'static str,
    pub(super) object: Arc<Value>,
    /// Told to the watches that are open, though nothing has changed.
    pub(super) replayed: bool,
}

impl Store {
    pub(super) fn apply(&mut self, mut object: Value) -> u64 {
        let resource =
            Resource::of(&object).unwrap_or_else(|| panic!("not of a kind that is served: {object}"));
        self.version += 1;
        let version = self.version;
        let metadata = &mut object["metadata"];
        let name = metadata["name"].as_str().expect("metadata.name").to_owned();
        metadata["resourceVersion"] = json!(version.to_string());
        if resource.namespaced() && metadata["namespace"].is_null() {
            metadata["namespace"] = json!("default");
        }
        let path = path(metadata["namespace"].as_str().unwrap_or_default(), &name);
        let earlier = self.current(resource, &path);
        for (field, first) in [
            ("uid", json!(format!("00000000-0000-4000-8000-{version:012}"))),
            ("creationTimestamp", json!("2026-11-30T14:23:07Z")),
        ] {
            if metadata[field].is_null() {
                metadata[field] = earlier.as_ref().map_or(first, |object| object["metadata"][field].clone());
            }
        }
        let kind = if earlier.is_some() { "MODIFIED" } else { "ADDED" };
        let object = Arc::new(object);
        self.objects.entry((resource, path.clone())).or_default().push((version, Some(object.clone())));
        self.log.push(Change { version, resource, path, kind, object, replayed: false });
        version
    }

    /// `told` makes what the event says of the last state.
    pub(super) fn delete(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        told: impl FnOnce(Value) -> Value,
    ) -> u64 {
        let path = path(namespace, name);
        let last = self.current(resource, &path).unwrap_or_else(|| panic!("no {} {path}", resource.kind()));
        self.version += 1;
        let version = self.version;
        self.objects.entry((resource, path.clone())).or_default().push((version, None));
        let mut last = Arc::unwrap_or_clone(last);
        last["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut object = told(last);
        object["kind"] = json!(resource.kind());
        object["apiVersion"] = json!(resource.api_version());
        self.log.push(Change {
            version,
            resource,
            path,
            kind: "DELETED",
            object: Arc::new(object),
            replayed: false,
        });
        version
    }

    pub(super) fn replay(&mut self, resource: Resource, kind: &'static str, object: Value) {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let path = path(text("namespace"), text("name"));
        self.log.push(Change {
            version: self.version,
            resource,
            path,
            kind,
            object: Arc::new(object),
            replayed: true,
        });
    }

    pub(super) fn compact(&mut self) {
        self.oldest = self.version;
        self.objects.retain(|_, states| {
            states.drain(..states.len().saturating_sub(1));
            states.iter().any(|(_, state)| state.is_some())
        });
    }

    /// Where in the log the changes after a version begin.
    pub(super) fn after(&self, version: u64) -> usize {
        self.log.partition_point(|change| change.version <= version)
    }

    /// What is left to say of a version that is no longer known.
    pub(super) fn too_old(&self, version: u64) -> Option<String> {
        (version < self.oldest).then(|| format!("too old resource version: {version} ({})", self.oldest))
    }

    /// The objects as they were at a version, by path.
    pub(super) fn at(&self, resource: Resource, version: u64) -> impl Iterator<Item = (&str, &Arc<Value>)> {
        let range = (resource, String::new())..;
        self.objects.range(range).take_while(move |((of, _), _)| *of == resource).filter_map(
            move |((_, path), states)| {
                let (_, state) = states.iter().rev().find(|(since, _)| *since <= version)?;
                Some((path.as_str(), state.as_ref()?))
            },
        )
    }

    /// The object at a path, if there is one.
    pub(super) fn current(&self, resource: Resource, path: &str) -> Option<Arc<Value>> {
        self.objects.get(&(resource, path.to_owned()))?.last()?.1.clone()
    }
}

/// The key of an object. Kinds without namespaces have an empty one.
pub(super) fn path(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}
