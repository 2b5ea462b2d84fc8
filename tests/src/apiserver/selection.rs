//! Which objects of a resource a list or a watch is about.

use serde_json::Value;

use super::status::status;

/// All of them, those of a namespace, or those of a name.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// The namespace with a slash, or nothing.
    prefix: String,
    name: Option<String>,
}

impl Selection {
    /// Of selectors only `metadata.name=…` is served, which every resource has.
    pub(super) fn parse(
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, Value> {
        let name = fields.map(|fields| fields.strip_prefix("metadata.name=").ok_or(fields)).transpose();
        match (name, labels) {
            (Ok(name), None) => Ok(Self {
                prefix: namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default(),
                name: name.map(str::to_owned),
            }),
            (Err(other), _) | (_, Some(other)) => {
                Err(status(400, "BadRequest", &format!("the selector {other:?} is not served here")))
            }
        }
    }

    /// The path of an object, relative to the namespace; `None` for one that is not selected.
    pub(super) fn within<'a>(&self, path: &'a str) -> Option<&'a str> {
        let name = path.rsplit('/').next();
        let is_named = self.name.is_none() || self.name.as_deref() == name;
        path.strip_prefix(&self.prefix).filter(|_| is_named)
    }
}
