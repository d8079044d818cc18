//! The admin interface: HTTP/1.1 with JSON over a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/flows` | [`Flows`] |
//! | `GET /v1/config` | the running configuration, TOML with every default |
//! | `POST /v1/bypass` with `{"on": true}` | `{"bypass": true}` |
//! | `POST /v1/flows/ID/reset` | `{"reset": ID}`, 404 if there is none |
//! | `POST /v1/reload` | `{"reloaded": true}`, 409 if the new file is refused |
//! | `GET /metrics` | Prometheus text |
//!
//! Errors are `{"error": "..."}`. The same `/metrics`, and nothing else, may
//! be served on a TCP address. The gateway implements [`Operator`]; nothing
//! here knows how it works inside. [`client`] is the other end, used by the
//! command line.

pub mod advice;
pub mod client;
mod operator;
mod server;
mod socket;
pub mod status;
#[cfg(test)]
mod tests;

pub use operator::{MeasureRequest, Operator, WarmRequest};
pub use server::{bind_metrics, serve, serve_metrics};
pub use socket::AdminSocket;
pub use status::{Flows, Status};

/// Where the gateway's socket lies unless the configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/farhaul/gateway.sock";
