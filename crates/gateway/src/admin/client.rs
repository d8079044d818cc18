//! The asking side of the admin API, for the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::status::{Flows, MeasuredStatus, Status, WarmingStatus};
use super::{MeasureRequest, WarmRequest};

/// Longest wait for an answer; a reload may read a large configuration.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer taken: some hundred thousand flows.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a gateway could not be asked, or what it answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket.
    #[error(
        "no gateway answers at {}\n  start one with `farhaul gateway --config FILE`, or say where \
         its admin socket is: `--socket PATH` or `--config FILE`", .0.display()
    )]
    NotRunning(PathBuf),
    /// The socket may not be opened.
    #[error("no permission to open {}\n  run this as root, or as a member of the socket's group", .0.display())]
    Denied(PathBuf),
    /// The gateway refused, and says why.
    #[error("{error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The gateway's words.
        error: String,
    },
    /// A name that the gateway cannot be told.
    #[error("{}: only names in UTF-8 can be told to a gateway; rename it, or give it another name with `ln -s`", .0.display())]
    NotUtf8(PathBuf),
    /// It took too long.
    #[error("the gateway at {} did not answer within {} s; it may hang", .0.display(), ANSWER_TIMEOUT.as_secs())]
    Silent(PathBuf),
    /// Anything else that went wrong on the way.
    #[error("asking the gateway at {}: {what}", .path.display())]
    Broken {
        /// Socket asked.
        path: PathBuf,
        /// What happened.
        what: String,
    },
}

/// Asks the gateway behind one admin socket; a connection per request.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// For the gateway at `path`; does not connect yet.
    pub fn new(path: impl Into<PathBuf>) -> Client {
        Client { path: path.into() }
    }

    /// The socket asked.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The gateway at a glance.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.json(Method::GET, "/v1/status", None).await
    }

    /// Flows and recent direct connections.
    pub async fn flows(&self) -> Result<Flows, ClientError> {
        self.json(Method::GET, "/v1/flows", None).await
    }

    /// Switches bypass.
    pub async fn set_bypass(&self, on: bool) -> Result<(), ClientError> {
        let _: Value = self
            .json(Method::POST, "/v1/bypass", Some(json!({ "on": on })))
            .await?;
        Ok(())
    }

    /// Resets a flow.
    pub async fn reset_flow(&self, id: u64) -> Result<(), ClientError> {
        let _: Value = self
            .json(Method::POST, &format!("/v1/flows/{id}/reset"), None)
            .await?;
        Ok(())
    }

    /// Reloads the configuration file.
    pub async fn reload(&self) -> Result<(), ClientError> {
        let _: Value = self.json(Method::POST, "/v1/reload", None).await?;
        Ok(())
    }

    /// Forgets what has passed with one peer, or with all.
    pub async fn clear_cache(&self, peer: Option<&str>) -> Result<(), ClientError> {
        let _: Value = self
            .json(
                Method::POST,
                "/v1/cache/clear",
                Some(json!({ "peer": peer })),
            )
            .await?;
        Ok(())
    }

    /// Begins to send a file to a peer, or to the only one, so that both gateways remember it; or to read a copy of what a peer will send.
    pub async fn warm_cache(&self, wanted: &WarmRequest) -> Result<WarmingStatus, ClientError> {
        if wanted.path.to_str().is_none() {
            return Err(ClientError::NotUtf8(wanted.path.clone()));
        }
        self.json(Method::POST, "/v1/cache/warm", Some(json!(wanted)))
            .await
    }

    /// Files that are sent so, and the last ones that were.
    pub async fn warmings(&self) -> Result<Vec<WarmingStatus>, ClientError> {
        self.json(Method::GET, "/v1/cache/warmings", None).await
    }

    /// Begins to measure what the path to a peer carries.
    pub async fn measure_peer(
        &self,
        wanted: &MeasureRequest,
    ) -> Result<MeasuredStatus, ClientError> {
        self.json(Method::POST, "/v1/measure", Some(json!(wanted)))
            .await
    }

    /// The running configuration as TOML.
    pub async fn config_toml(&self) -> Result<String, ClientError> {
        self.text("/v1/config").await
    }

    /// Prometheus text.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.text("/metrics").await
    }

    async fn text(&self, path: &str) -> Result<String, ClientError> {
        let body = self.ask(Method::GET, path, None).await?;
        String::from_utf8(body.into()).map_err(|error| self.broken(error))
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, ClientError> {
        let body = self.ask(method, path, body).await?;
        serde_json::from_slice(&body).map_err(|error| self.broken(error))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, ClientError> {
        timeout(ANSWER_TIMEOUT, self.exchange(method, path, body))
            .await
            .map_err(|_| ClientError::Silent(self.path.clone()))?
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, ClientError> {
        let stream = UnixStream::connect(&self.path)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NotRunning(self.path.clone())
                }
                io::ErrorKind::PermissionDenied => ClientError::Denied(self.path.clone()),
                _ => self.broken(error),
            })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(error))?;
        let driver = tokio::spawn(connection);
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "farhaul")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.broken(error))?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| self.broken(error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        driver.abort();
        let body = body.map_err(|error| self.broken(error))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(ClientError::Refused {
            status: status.as_u16(),
            error: words(&body),
        })
    }

    fn broken(&self, what: impl ToString) -> ClientError {
        ClientError::Broken {
            path: self.path.clone(),
            what: what.to_string(),
        }
    }
}

/// The `error` of an answer, or its text if it is not ours.
fn words(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    match value.get("error").and_then(Value::as_str) {
        Some(error) => error.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    }
}
