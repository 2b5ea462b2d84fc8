//! What is answered at a health-check node port: in the words of kube-proxy, which load balancers know.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::IntoResponse,
};
use serde::Serialize;
use tokio::sync::watch;

use crate::{
    desired::{HealthCheckOf, HealthChecks},
    reconcile::Status,
};

/// How much of the traffic the node can take, in endpoints; some load balancers heed it.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// Where answers come from.
#[derive(Clone, Debug)]
pub struct Answers {
    checks: watch::Receiver<HealthChecks>,
    status: watch::Receiver<Status>,
}

#[derive(Serialize)]
struct Answer {
    service: ServiceName,
    #[serde(rename = "localEndpoints")]
    local_endpoints: usize,
    #[serde(rename = "serviceProxyHealthy")]
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct ServiceName {
    namespace: String,
    name: String,
}

impl Answers {
    /// Answers by what is asked at health-check node ports, and by how the reconciler is.
    pub const fn new(checks: watch::Receiver<HealthChecks>, status: watch::Receiver<Status>) -> Self {
        Self { checks, status }
    }

    /// Answers at a port, whatever the path.
    pub(super) fn router(&self, port: u16) -> Router {
        let at = |State((answers, port)): State<(Self, u16)>| async move { answers.at(port) };
        Router::new().fallback(at).with_state((self.clone(), port))
    }

    fn at(&self, port: u16) -> impl IntoResponse + use<> {
        let asked = self.checks.borrow().get(&port).cloned();
        let healthy = is_healthy(&self.status.borrow());
        // Nobody is asked for any more where the listener is about to go.
        let Some(HealthCheckOf { service, local_endpoints }) = asked else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let code =
            if healthy && local_endpoints > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let headers = [
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (WEIGHT, HeaderValue::from(local_endpoints)),
        ];
        let service =
            ServiceName { namespace: service.namespace.to_string(), name: service.name.to_string() };
        let answer = Answer { service, local_endpoints, service_proxy_healthy: healthy };
        (code, headers, Json(answer)).into_response()
    }
}

/// Whether this node's datapath is as the sources have said: each has completed its first list, and the maps can be written.
///
/// That a source fails now does not count: an API server that cannot be reached would make every node send its traffic away.
fn is_healthy(status: &Status) -> bool {
    status.complete && status.write_failures == 0
}
