//! Errors, in the words of a real server.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::fault::RetryAfter;

/// A `Status` object.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

/// A `Status` as the answer to a request.
pub(super) fn failure(body: Value) -> Response {
    let code = body["code"].as_u64().and_then(|code| u16::try_from(code).ok()).expect("a code");
    let mut response = (StatusCode::from_u16(code).expect("a code of HTTP"), Json(&body)).into_response();
    if let Some(seconds) = body["details"]["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// 410 for a version that the server no longer has.
pub(super) fn expired(message: &str) -> Value {
    status(410, "Expired", message)
}

/// 404 for an API that is not served.
pub(super) fn not_served() -> Value {
    let mut body = status(404, "NotFound", "the server could not find the requested resource");
    body["details"] = json!({});
    body
}

/// 404 for an object that is not there.
pub(super) fn not_found(group: &str, plural: &str, name: &str) -> Value {
    let mut body = status(404, "NotFound", &format!("{} {name:?} not found", qualified(group, plural)));
    body["details"] = details(group, plural);
    body["details"]["name"] = json!(name);
    body
}

/// 403 for one who may not.
pub(super) fn forbidden(user: &str, verb: &str, group: &str, plural: &str, namespace: Option<&str>) -> Value {
    let place = match namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let message = format!(
        "{} is forbidden: User {user:?} cannot {verb} resource {plural:?} in API group {group:?} {place}",
        qualified(group, plural)
    );
    let mut body = status(403, "Forbidden", &message);
    body["details"] = details(group, plural);
    body
}

/// 500.
pub(super) fn internal_error() -> Value {
    let mut body = status(500, "InternalError", "Internal error occurred: etcdserver: no leader");
    body["details"] = json!({"causes": [{"message": "etcdserver: no leader"}]});
    body
}

/// 504 for a version that has not come.
pub(super) fn too_large(version: u64, current: u64) -> Value {
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    let mut body = status(504, "Timeout", &message);
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    body["details"] = json!({"causes": [cause], "retryAfterSeconds": 1});
    body
}

/// 429 as the request limit of the server gives it: text, and a header.
pub(super) fn too_many_requests(retry_after: RetryAfter) -> Response {
    let header = match retry_after {
        RetryAfter::Seconds(seconds) => seconds.to_string(),
        RetryAfter::At(time) => httpdate::fmt_http_date(time),
    };
    let text = "Too many requests, please try again later.\n";
    (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, header)], text).into_response()
}

fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

fn details(group: &str, plural: &str) -> Value {
    if group.is_empty() { json!({"kind": plural}) } else { json!({"group": group, "kind": plural}) }
}
