//! Kubernetes objects as text: any number of YAML or JSON documents, each one object or a list of them.

mod text;

use std::{fmt, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::text::Chunk;
use super::convert::{FromApi, api};
use crate::model::{Object, ObjectRef, Warning};

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Its objects, in the order of the text.
    pub(super) definitions: Vec<Definition>,
    /// What was skipped or not understood.
    pub(super) warnings: Vec<Warning>,
}

/// One object, and where it stands.
#[derive(Debug)]
pub(super) struct Definition {
    /// What identifies it.
    pub(super) reference: ObjectRef,
    /// What it is in the model: several slices for an Endpoints object, one otherwise.
    pub(super) objects: Vec<Object>,
    /// Where it stands.
    pub(super) origin: Origin,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    file: Arc<str>,
    /// From 1.
    document: usize,
    /// From 1, where the document is a list.
    item: Option<usize>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, " item {item}"))
    }
}

/// A document that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{}: {cause}", object.as_ref().map(|object| format!(", {object}")).unwrap_or_default())]
pub struct DocumentError {
    origin: Origin,
    /// Kind and name, as far as they can be read.
    object: Option<String>,
    cause: String,
}

/// Reads a file's text.
///
/// # Errors
/// One for each document that cannot be used; the others are looked at all the same.
pub(super) fn parse(text: &str, file: &str) -> Result<Parsed, Vec<DocumentError>> {
    let mut reader = Reader::default();
    let file: Arc<str> = file.into();
    let mut document = 0;
    for chunk in Chunk::split(text) {
        for value in chunk.values() {
            document += 1;
            let origin = Origin { file: file.clone(), document, item: None };
            match value {
                Ok(value) => reader.read(value, &origin, None),
                Err(cause) => reader.fail(&origin, chunk.guess_object(), cause),
            }
        }
    }
    if reader.errors.is_empty() { Ok(reader.parsed) } else { Err(reader.errors) }
}

#[derive(Default)]
struct Reader {
    parsed: Parsed,
    errors: Vec<DocumentError>,
}

impl Reader {
    /// Takes one document or list item. `implied` is the apiVersion and kind of the items of a typed list, which the
    /// API leaves out in the items themselves.
    fn read(&mut self, value: Value, origin: &Origin, implied: Option<(&str, &str)>) {
        if value.is_null() {
            return;
        }
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        let given = field("apiVersion").zip(field("kind")).or(implied);
        let Some((version, kind)) = given.map(|(version, kind)| (version.to_owned(), kind.to_owned())) else {
            let cause = "this is no Kubernetes object, which has an apiVersion and a kind";
            return self.fail(origin, None, cause.into());
        };
        match (version.as_str(), kind.as_str()) {
            ("v1", "Service") => self.object::<api::Service>(value, origin),
            ("v1", "Endpoints") => self.object::<api::Endpoints>(value, origin),
            ("discovery.k8s.io/v1", "EndpointSlice") => self.object::<api::EndpointSlice>(value, origin),
            ("v1", "Node") => self.object::<api::Node>(value, origin),
            ("v1", "Pod") => {
                self.skip(&value, &kind, format!("a {kind} is not used by this build yet"), origin);
            }
            (_, list) if list.ends_with("List") && value.get("items").is_some() => {
                self.list(value, origin, (&version, list));
            }
            _ => {
                let known =
                    "readylb reads Service, Endpoints and Node (v1) and EndpointSlice (discovery.k8s.io/v1)";
                self.skip(&value, &kind, format!("{kind} ({version}) is not used; {known}"), origin);
            }
        }
    }

    fn list(&mut self, mut value: Value, origin: &Origin, (version, kind): (&str, &str)) {
        let items = match value["items"].take() {
            Value::Array(items) => items,
            Value::Null => return,
            _ => return self.fail(origin, None, format!("items of the {kind} is no list")),
        };
        let implied = kind.strip_suffix("List").filter(|item| !item.is_empty()).map(|item| (version, item));
        for (index, item) in items.into_iter().enumerate() {
            self.read(item, &Origin { item: Some(index + 1), ..origin.clone() }, implied);
        }
    }

    fn object<T: FromApi + DeserializeOwned>(&mut self, value: Value, origin: &Origin) {
        let name = describe(&value, T::KIND, T::DEFAULT_NAMESPACE);
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let value = serde_path_to_error::Deserializer::new(value, &mut track);
        let read = serde_ignored::deserialize::<_, _, T>(value, |path| unknown.push(field_path(&path)));
        let api = match read {
            Ok(api) => api,
            Err(cause) => return self.fail(origin, name, format!("{}: {cause}", track.path())),
        };
        let reference = api.reference();
        if reference.key.name.is_empty() {
            return self.fail(origin, None, format!("metadata.name of the {} is missing", T::KIND));
        }
        let object = reference.to_string();
        self.parsed.warnings.extend(unknown.into_iter().map(|field| Warning {
            object: object.clone(),
            message: format!("{field} in {origin} is not known and is ignored"),
        }));
        self.parsed.definitions.push(Definition {
            reference,
            objects: api.into_model(),
            origin: origin.clone(),
        });
    }

    fn skip(&mut self, value: &Value, kind: &str, message: String, origin: &Origin) {
        let object = describe(value, kind, None).unwrap_or_else(|| kind.to_owned());
        self.parsed.warnings.push(Warning { object, message: format!("{message} ({origin})") });
    }

    fn fail(&mut self, origin: &Origin, object: Option<String>, cause: String) {
        self.errors.push(DocumentError { origin: origin.clone(), object, cause });
    }
}

/// Kind and name, if there is a name. Kinds without a namespace are written without one.
fn describe(value: &Value, kind: &str, default_namespace: Option<&str>) -> Option<String> {
    let metadata = value.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    match metadata.get("namespace").and_then(Value::as_str).or(default_namespace) {
        Some(namespace) => Some(format!("{kind} {namespace}/{name}")),
        None => Some(format!("{kind} {name}")),
    }
}

/// A path in the notation of `serde_path_to_error`, as in `spec.ports[0].port`.
fn field_path(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", field_path(parent)),
        Path::Map { parent, key } => match field_path(parent) {
            top if top.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            field_path(parent)
        }
    }
}

#[cfg(test)]
mod tests;
