//! The questions that a running agent answers, on a Unix socket that only root can open.
//!
//! HTTP/1.1 with JSON bodies: `GET /v1/status` ([`status::AgentStatus`]), `GET /v1/render` (the desired state, as
//! `readylb render -o json` prints it) and `GET /v1/endpoints` (every endpoint, as `readylb get endpoints -o json` does).
//! `GET /readyz` answers in text, 200 or 503 ([`readiness::Readiness`]).

pub mod client;
pub mod readiness;
pub mod server;
pub mod status;

/// Default of `--admin-socket`.
pub const DEFAULT_SOCKET: &str = "/run/readylb/readylb.sock";
