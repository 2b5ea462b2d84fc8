//! Answers questions about the running agent.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use tokio::net::UnixListener;

use super::status::{AgentStatus, AgentView};
use crate::render::Document;

/// Opens the socket, for root only. A socket that a killed agent has left is replaced; one that answers is not.
///
/// # Errors
/// Where the folder or the socket cannot be made, or another agent answers there (`AddrInUse`).
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent answers there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until the listener fails.
///
/// # Errors
/// What the kernel says.
pub async fn serve(listener: UnixListener, view: AgentView) -> io::Result<()> {
    let router =
        Router::new().route("/v1/status", get(status)).route("/v1/render", get(render)).with_state(view);
    axum::serve(listener, router).await
}

async fn status(State(view): State<AgentView>) -> Json<AgentStatus> {
    Json(view.status())
}

async fn render(State(view): State<AgentView>) -> Result<Json<Document>, (StatusCode, &'static str)> {
    let document = view.document().await;
    document.map(Json).ok_or((StatusCode::SERVICE_UNAVAILABLE, "the agent is stopping"))
}
