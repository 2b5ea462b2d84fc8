//! Asks a running agent.

use std::{io, path::Path, time::Duration};

use anyhow::bail;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Bytes, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{net::UnixStream, time::timeout};

/// How long an answer may take. With 10,000 Services it takes less than a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("no agent answers on {socket}: {cause}")]
    NoAgent {
        /// The socket.
        socket: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// It listens and does not answer.
    #[error("the agent on {socket} gave no answer: {cause}")]
    NoAnswer {
        /// The socket.
        socket: String,
        /// What went wrong.
        cause: String,
    },
}

/// What the agent answers to `GET path`.
///
/// # Errors
/// [`ClientError`].
pub async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, ClientError> {
    let name = socket.display().to_string();
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(cause) => return Err(ClientError::NoAgent { socket: name, cause }),
    };
    let answer = timeout(PATIENCE, exchange(stream, path)).await;
    let body = answer
        .unwrap_or_else(|_| bail!("nothing came in {} s", PATIENCE.as_secs()))
        .and_then(|body| Ok(serde_json::from_slice(&body)?));
    body.map_err(|cause| ClientError::NoAnswer { socket: name, cause: format!("{cause:#}") })
}

async fn exchange(stream: UnixStream, path: &str) -> anyhow::Result<Bytes> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender; its error, if any, reaches us through the response.
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "readylb").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
