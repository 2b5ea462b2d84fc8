//! Answers questions about the running agent.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::Path,
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use tokio::net::UnixListener;

use super::{
    readiness::Readiness,
    status::{AgentStatus, AgentView},
};
use crate::{
    reconcile::Request,
    render::{Document, EndpointView},
};

/// Opens the socket, for root only. A socket that a killed agent has left is replaced; one that answers is not.
///
/// # Errors
/// Where the folder or the socket cannot be made, or another agent answers there (`AddrInUse`).
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    remove_stale(path)?;
    if let Ok(stream) = UnixStream::connect(path) {
        let pid = getsockopt(&stream, PeerCredentials)?.pid();
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("process {pid} answers there")));
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes a socket that a killed agent has left. Tells whether there was one.
///
/// # Errors
/// Where it cannot be removed. One that somebody listens on, or a file that is no socket, is left alone.
pub fn remove_stale(path: &Path) -> io::Result<bool> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_stale = is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_stale {
        fs::remove_file(path)?;
    }
    Ok(is_stale)
}

/// Answers until the listener fails.
///
/// # Errors
/// What the kernel says.
pub async fn serve(listener: UnixListener, view: AgentView) -> io::Result<()> {
    let router = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/render", get(render))
        .route("/v1/endpoints", get(endpoints))
        .route("/readyz", get(readyz))
        .with_state(view);
    axum::serve(listener, router).await
}

async fn status(State(view): State<AgentView>) -> Json<AgentStatus> {
    Json(view.status())
}

type Answer<T> = Result<Json<T>, (StatusCode, &'static str)>;

async fn render(State(view): State<AgentView>) -> Answer<Document> {
    answer(view.ask(Request::Render).await)
}

async fn endpoints(State(view): State<AgentView>) -> Answer<Vec<EndpointView>> {
    answer(view.ask(Request::Endpoints).await)
}

fn answer<T>(answer: Option<T>) -> Answer<T> {
    answer.map(Json).ok_or((StatusCode::SERVICE_UNAVAILABLE, "the agent is stopping"))
}

async fn readyz(State(view): State<AgentView>) -> (StatusCode, String) {
    let readiness = Readiness::of(&view.status());
    let code = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, readiness.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_gives_way_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("made/agent.sock");
        let first = listen(&socket).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listen(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // As SIGKILL leaves it.
        drop(first);
        let second = listen(&socket).unwrap();
        assert!(!remove_stale(&socket).unwrap());
        drop(second);
        assert!(remove_stale(&socket).unwrap());
        assert!(!socket.exists());

        let file = folder.path().join("file");
        fs::write(&file, "not ours").unwrap();
        assert_eq!(listen(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&file).unwrap(), "not ours");
    }
}
