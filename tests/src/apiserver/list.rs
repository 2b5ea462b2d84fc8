//! Lists, whole or in pages of one snapshot.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    resource::Resource,
    routes::Query,
    status::{expired, failure, status, too_large},
    store::Store,
};

/// Where a list goes on, in the encoding of a real server.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    v: String,
    /// The snapshot; −1 where it is lost and the rest is taken from the current state.
    rv: i64,
    /// The smallest path that is left: the last one that was listed, and a zero byte. Relative to the namespace that is
    /// listed; behind a slash, except where the snapshot is lost.
    start: String,
}

const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
    of the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Answers a list.
pub(super) fn list(store: &Store, resource: Resource, namespace: Option<&str>, query: &Query) -> Response {
    let (version, after) = match position(store, query) {
        Ok(position) => position,
        Err(refusal) => return failure(refusal),
    };
    let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let objects = store.at(resource, version);
    let mut rest = objects
        .filter_map(|(path, object)| Some((path.strip_prefix(&prefix)?, object)))
        .filter(|(path, _)| after.as_deref().is_none_or(|after| *path > after));
    let page: Vec<_> = rest.by_ref().take(query.limit.unwrap_or(usize::MAX)).collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let remaining = rest.count();
    if let Some((last, _)) = page.last().filter(|_| remaining > 0) {
        let snapshot = i64::try_from(version).expect("a small version");
        metadata["continue"] = json!(token(snapshot, &format!("/{last}\0")));
        metadata["remainingItemCount"] = json!(remaining);
    }
    let items: Vec<_> = page.into_iter().map(|(_, object)| without_type(object)).collect();
    Json(json!({
        "kind": format!("{}List", resource.kind()), "apiVersion": resource.api_version(), "metadata": metadata,
        "items": items,
    }))
    .into_response()
}

/// The version to list, and the path after which to begin.
fn position(store: &Store, query: &Query) -> Result<(u64, Option<String>), Value> {
    if let Some(token) = query.continue_token.as_deref().filter(|token| !token.is_empty()) {
        let bad = |cause| {
            status(400, "BadRequest", &format!("invalid continue token: continue key is not valid: {cause}"))
        };
        let text = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| bad("illegal base64 data".to_owned()))?;
        let token: Continue = serde_json::from_slice(&text).map_err(|_| {
            let first = char::from(text.first().copied().unwrap_or_default());
            bad(format!("invalid character {first:?} looking for beginning of value"))
        })?;
        let after = token.start.trim_start_matches('/').trim_end_matches('\0').to_owned();
        return match u64::try_from(token.rv) {
            Ok(version) if store.too_old(version).is_some() => {
                let mut body = expired(EXPIRED_TOKEN);
                body["metadata"]["continue"] = json!(self::token(-1, &format!("{after}\0")));
                Err(body)
            }
            Ok(version) => Ok((version, Some(after))),
            Err(_) => Ok((store.version, Some(after))),
        };
    }
    let version = query.version()?;
    if version > store.version {
        return Err(too_large(version, store.version));
    }
    if query.resource_version_match.as_deref() != Some("Exact") {
        return Ok((store.version, None));
    }
    store.too_old(version).map_or(Ok((version, None)), |message| Err(expired(&message)))
}

fn token(rv: i64, start: &str) -> String {
    let token = Continue { v: "meta.k8s.io/v1".into(), rv, start: start.into() };
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("a token is JSON"))
}

/// The items of a typed list do not say what they are.
fn without_type(object: &Arc<Value>) -> Value {
    let mut object = Value::clone(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}
