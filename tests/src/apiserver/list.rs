//! Lists, whole or in pages of one snapshot.

use std::sync::Arc;

use axum::{
    Json,
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::{
    resource::Resource,
    routes::Query,
    selection::Selection,
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
pub(super) fn list(store: &Store, resource: Resource, selection: &Selection, query: &Query) -> Response {
    let (version, after) = match position(store, query) {
        Ok(position) => position,
        Err(refusal) => return failure(refusal),
    };
    let objects = store.at(resource, version);
    let mut rest = objects
        .filter_map(|(path, object)| Some((selection.within(path)?, object)))
        .filter(|(path, _)| after.as_deref().is_none_or(|after| *path > after));
    let page: Vec<_> = rest.by_ref().take(query.limit.unwrap_or(usize::MAX)).collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let remaining = rest.count();
    if let Some((last, _)) = page.last().filter(|_| remaining > 0) {
        let snapshot = i64::try_from(version).expect("a small version");
        metadata["continue"] = json!(token(snapshot, &format!("/{last}\0")));
        metadata["remainingItemCount"] = json!(remaining);
    }
    let items = page.into_iter().map(|(_, object)| Item(object)).collect();
    let kind = format!("{}List", resource.kind());
    Json(List { kind, api_version: resource.api_version(), metadata, items }).into_response()
}

/// A list that stops half way: the connection stays, and says nothing more.
pub(super) fn stalled() -> Response {
    let part = Bytes::from_static(br#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":[{"metad"#);
    let body = stream::iter([Ok::<_, std::io::Error>(part)]).chain(stream::pending());
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: &'static str,
    metadata: Value,
    items: Vec<Item<'a>>,
}

/// The items of a typed list do not say what they are. Written out without a copy: tests list whole clusters.
struct Item<'a>(&'a Arc<Value>);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !["kind", "apiVersion"].contains(&name.as_str())))
    }
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
