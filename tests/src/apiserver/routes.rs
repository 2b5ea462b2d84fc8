//! From a URL to an answer.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use axum::{
    Json, Router,
    extract::{
        ConnectInfo, State,
        connect_info::{Connected, IntoMakeServiceWithConnectInfo},
    },
    http::Uri,
    response::{IntoResponse, Response},
    routing::get,
    serve::IncomingStream,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    Request, Shared,
    fault::{Fault, Verb},
    list::{list, stalled},
    resource::Resource,
    selection::Selection,
    status::{self, expired, failure, forbidden, internal_error, not_found, not_served, too_many_requests},
    store, watch,
};

/// The parameters that are understood.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Query {
    watch: Option<String>,
    pub(super) limit: Option<usize>,
    #[serde(rename = "continue")]
    pub(super) continue_token: Option<String>,
    resource_version: Option<String>,
    pub(super) resource_version_match: Option<String>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) allow_watch_bookmarks: bool,
    pub(super) send_initial_events: bool,
    label_selector: Option<String>,
    field_selector: Option<String>,
}

impl Query {
    /// `resourceVersion`; zero where it is absent.
    pub(super) fn version(&self) -> Result<u64, Value> {
        let text = self.resource_version.as_deref().unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        text.parse()
            .map_err(|_| status::status(400, "BadRequest", &format!("invalid resource version {text:?}")))
    }
}

/// The socket of a connection, for the fault that resets it.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<OwnedFd>);

impl Connected<IncomingStream<'_, TcpListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        let socket = stream.io().as_fd().try_clone_to_owned().expect("duplicate a socket");
        Self(Arc::new(socket))
    }
}

/// The router as something to serve.
pub(super) fn with_connection(router: Router) -> IntoMakeServiceWithConnectInfo<Router, Connection> {
    router.into_make_service_with_connect_info()
}

/// All that is served.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let core = resources("v1");
    let discovery = resources("discovery.k8s.io/v1");
    Router::new()
        .route(
            "/version",
            get(|| async { Json(json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2"})) }),
        )
        .route("/api", get(|| async { Json(json!({"kind": "APIVersions", "versions": ["v1"]})) }))
        .route(
            "/apis",
            get(|| async { Json(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})) }),
        )
        .route("/api/v1", get(async || Json(core)))
        .route("/apis/discovery.k8s.io", get(|| async { Json(group()) }))
        .route("/apis/discovery.k8s.io/v1", get(async || Json(discovery)))
        .fallback(get(resource))
        .with_state(shared)
}

fn group() -> Value {
    let version = json!({"groupVersion": "discovery.k8s.io/v1", "version": "v1"});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": "discovery.k8s.io", "versions": [version],
        "preferredVersion": version,
    })
}

fn resources(api_version: &str) -> Value {
    let served = Resource::ALL.into_iter().filter(|resource| resource.api_version() == api_version);
    let resources: Vec<_> = served
        .map(|resource| {
            let singular = resource.kind().to_lowercase();
            json!({
                "name": resource.plural(), "singularName": singular, "namespaced": resource.namespaced(),
                "kind": resource.kind(), "verbs": ["get", "list", "watch"],
            })
        })
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources})
}

/// What a URL names.
struct Target<'a> {
    api_version: &'a str,
    namespace: Option<&'a str>,
    plural: &'a str,
    name: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let (api_version, rest) = match path.strip_prefix("/api/v1/") {
            Some(rest) => ("v1", rest),
            None => {
                let path = path.strip_prefix("/apis/")?;
                let (end, _) = path.match_indices('/').nth(1)?;
                (&path[..end], &path[end + 1..])
            }
        };
        let parts: Vec<_> = rest.trim_end_matches('/').split('/').collect();
        let (namespace, plural, name) = match parts[..] {
            ["namespaces", namespace, plural] => (Some(namespace), plural, None),
            ["namespaces", namespace, plural, name] => (Some(namespace), plural, Some(name)),
            [plural] => (None, plural, None),
            [plural, name] => (None, plural, Some(name)),
            _ => return None,
        };
        Some(Self { api_version, namespace, plural, name })
    }

    fn group(&self) -> &'a str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

async fn resource(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(Connection(socket)): ConnectInfo<Connection>,
    uri: Uri,
) -> Response {
    let Some(target) = Target::parse(uri.path()) else { return failure(not_served()) };
    let query = match axum::extract::Query::<Query>::try_from_uri(&uri) {
        Ok(axum::extract::Query(query)) => query,
        Err(error) => return failure(status::status(400, "BadRequest", &error.to_string())),
    };
    let verb = match (target.name, query.watch.as_deref()) {
        (_, Some("1" | "true")) => Verb::Watch,
        (Some(_), _) => Verb::Get,
        (None, _) => Verb::List,
    };
    let fault = {
        let mut state = shared.lock();
        state.requests.push(Request {
            at: Instant::now(),
            resource: target.plural.to_owned(),
            verb,
            query: uri.query().unwrap_or_default().to_owned(),
        });
        state.next_fault(target.plural, verb)
    };
    // Permissions come before anything else, also before the question whether there is such a resource.
    let mut limit = None;
    match fault {
        Some(Fault::Forbidden { user }) => {
            return failure(forbidden(user, verb.name(), target.group(), target.plural, target.namespace));
        }
        Some(Fault::Gone) => return failure(expired("too old resource version: 1 (2)")),
        Some(Fault::GoneEvent) => return watch::gone("too old resource version: 1 (2)"),
        Some(Fault::NotServed) => return failure(not_served()),
        Some(Fault::TooManyRequests { retry_after }) => return too_many_requests(retry_after),
        Some(Fault::InternalError) => return failure(internal_error()),
        Some(Fault::Silent) => return watch::silent(),
        Some(Fault::Stall) => return stalled(),
        Some(Fault::Hold) => shared.healed().await,
        Some(Fault::CloseAfter(time)) => limit = Some(time),
        Some(Fault::None) | None => {}
    }
    let Some(resource) = Resource::named(target.api_version, target.plural) else {
        return failure(not_served());
    };
    let selection = match Selection::parse(
        target.namespace,
        query.label_selector.as_deref(),
        query.field_selector.as_deref(),
    ) {
        Ok(selection) => selection,
        Err(refusal) => return failure(refusal),
    };
    match (verb, target.name) {
        (Verb::Watch, _) => watch::watch(&shared, resource, selection, &query, socket, limit),
        (_, Some(name)) => {
            let path = store::path(target.namespace.unwrap_or_default(), name);
            match shared.lock().store.current(resource, &path) {
                Some(object) => Json(&*object).into_response(),
                None => failure(not_found(target.group(), target.plural, name)),
            }
        }
        (_, None) => list(&shared.lock().store, resource, &selection, &query),
    }
}

impl Shared {
    async fn healed(&self) {
        let mut changed = self.changed.subscribe();
        // Fails only where the server is gone.
        let _ = changed.wait_for(|_| self.lock().rules.is_empty()).await;
    }
}
