//! The serving side of the admin API. One request per connection, every
//! length and every wait bounded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::operator::Operator;
use super::socket::AdminSocket;
use crate::metrics::Metrics;
use crate::stop::{Stop, stopped};

/// Largest request body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Pause after a failed accept (out of descriptors), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How much one set of clients may take.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Most connections at once. One more ends the one that has said nothing
    /// for longest; where all have asked, it waits in the backlog.
    pub connections_max: usize,
    /// Time for the request line and headers.
    pub header_timeout: Duration,
    /// Time for a whole exchange, reload included, however slow the client is.
    pub exchange_timeout: Duration,
}

pub(super) const BOUNDS: Bounds = Bounds {
    connections_max: 32,
    header_timeout: Duration::from_secs(5),
    exchange_timeout: Duration::from_secs(30),
};

/// What a listener gives access to.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Everything,
    MetricsOnly,
}

struct Api {
    operator: Arc<dyn Operator>,
    metrics: Arc<Metrics>,
    scope: Scope,
}

type Answer = Response<Full<Bytes>>;

/// Serves the admin API until `shutdown` becomes true or its sender is gone,
/// then removes the socket file.
pub async fn serve(
    socket: AdminSocket,
    operator: Arc<dyn Operator>,
    metrics: Arc<Metrics>,
    shutdown: Stop,
) {
    serve_within(BOUNDS, socket, operator, metrics, shutdown).await;
}

pub(super) async fn serve_within(
    bounds: Bounds,
    socket: AdminSocket,
    operator: Arc<dyn Operator>,
    metrics: Arc<Metrics>,
    shutdown: Stop,
) {
    let api = Arc::new(Api {
        operator,
        metrics,
        scope: Scope::Everything,
    });
    accept_loop(bounds, api, socket, shutdown).await;
}

/// Serves `GET /metrics` over TCP until `shutdown` becomes true or its sender
/// is gone.
pub async fn serve_metrics(
    listener: TcpListener,
    operator: Arc<dyn Operator>,
    metrics: Arc<Metrics>,
    shutdown: Stop,
) {
    let api = Arc::new(Api {
        operator,
        metrics,
        scope: Scope::MetricsOnly,
    });
    accept_loop(BOUNDS, api, listener, shutdown).await;
}

/// The two kinds of listeners.
trait Accept: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for AdminSocket {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).await.map(|(stream, _)| stream)
    }
}

async fn accept_loop(bounds: Bounds, api: Arc<Api>, listener: impl Accept, mut shutdown: Stop) {
    let slots = Arc::new(Semaphore::new(bounds.connections_max));
    let mut mute = Mute::default();
    loop {
        let next = async {
            let stream = listener.accept().await?;
            if slots.available_permits() == 0 {
                mute.end_oldest();
            }
            // Never closed; without a permit there would only be no bound.
            Ok::<_, io::Error>((stream, slots.clone().acquire_owned().await.ok()))
        };
        tokio::select! {
            () = stopped(&mut shutdown) => return,
            accepted = next => match accepted {
                Ok((stream, slot)) => {
                    let asked = Arc::new(AtomicBool::new(false));
                    let work = exchange(bounds, api.clone(), stream, asked.clone(), slot);
                    mute.add(asked, tokio::spawn(work).abort_handle());
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Connections that have not asked for anything yet, oldest first. They must
/// not keep those away that do.
#[derive(Default)]
struct Mute(VecDeque<(Arc<AtomicBool>, AbortHandle)>);

impl Mute {
    fn add(&mut self, asked: Arc<AtomicBool>, task: AbortHandle) {
        self.0
            .retain(|(asked, task)| !asked.load(Ordering::Relaxed) && !task.is_finished());
        self.0.push_back((asked, task));
    }

    fn end_oldest(&mut self) {
        while let Some((asked, task)) = self.0.pop_front() {
            if !asked.load(Ordering::Relaxed) && !task.is_finished() {
                return task.abort();
            }
        }
    }
}

/// Serves one connection; `asked` becomes true with the head of its request.
async fn exchange<S>(
    bounds: Bounds,
    api: Arc<Api>,
    stream: S,
    asked: Arc<AtomicBool>,
    slot: Option<OwnedSemaphorePermit>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        let api = api.clone();
        async move { Ok::<_, Infallible>(answer(&api, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(16 << 10)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that misbehaves is its own problem: nothing to report.
    let _ = timeout(bounds.exchange_timeout, connection).await;
    drop(slot);
}

async fn answer(api: &Api, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    if path == "/metrics" {
        return allow(&method, Method::GET).unwrap_or_else(|| metrics(api));
    }
    if api.scope == Scope::MetricsOnly {
        return failed(StatusCode::NOT_FOUND, "only /metrics is served here");
    }
    match path.as_str() {
        "/v1/status" => allow(&method, Method::GET).unwrap_or_else(|| ok(&api.operator.status())),
        "/v1/flows" => allow(&method, Method::GET).unwrap_or_else(|| ok(&api.operator.flows())),
        "/v1/config" => allow(&method, Method::GET)
            .unwrap_or_else(|| text("application/toml", api.operator.config_toml())),
        "/v1/bypass" => match allow(&method, Method::POST) {
            Some(refused) => refused,
            None => bypass(api, request).await,
        },
        "/v1/cache/clear" => match allow(&method, Method::POST) {
            Some(refused) => refused,
            None => clear_cache(api, request).await,
        },
        "/v1/cache/warm" => match allow(&method, Method::POST) {
            Some(refused) => refused,
            None => warm_cache(api, request).await,
        },
        "/v1/cache/warmings" => {
            allow(&method, Method::GET).unwrap_or_else(|| ok(&api.operator.warmings()))
        }
        "/v1/measure" => match allow(&method, Method::POST) {
            Some(refused) => refused,
            None => measure_peer(api, request).await,
        },
        "/v1/reload" => match allow(&method, Method::POST) {
            Some(refused) => refused,
            None => match api.operator.reload().await {
                Ok(()) => ok(&json!({ "reloaded": true })),
                Err(error) => failed(StatusCode::CONFLICT, &error),
            },
        },
        path => match flow_to_reset(path) {
            Some(id) => allow(&method, Method::POST).unwrap_or_else(|| reset(api, id)),
            None => failed(StatusCode::NOT_FOUND, "no such resource"),
        },
    }
}

fn metrics(api: &Api) -> Answer {
    let body = api.metrics.render(&api.operator.status());
    text("text/plain; version=0.0.4; charset=utf-8", body)
}

async fn bypass(api: &Api, request: Request<Incoming>) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        on: bool,
    }
    let body = match read(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    match serde_json::from_slice::<Wanted>(&body) {
        Ok(Wanted { on }) => {
            api.operator.set_bypass(on);
            ok(&json!({ "bypass": on }))
        }
        Err(error) => failed(
            StatusCode::BAD_REQUEST,
            &format!("expected {{\"on\": true|false}}: {error}"),
        ),
    }
}

async fn clear_cache(api: &Api, request: Request<Incoming>) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        peer: Option<String>,
    }
    let body = match read(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let wanted = match serde_json::from_slice::<Wanted>(&body) {
        Ok(wanted) => wanted,
        Err(error) => {
            let expected = format!("expected {{\"peer\": \"NAME\"|null}}: {error}");
            return failed(StatusCode::BAD_REQUEST, &expected);
        }
    };
    match api.operator.clear_cache(wanted.peer).await {
        Ok(()) => ok(&json!({ "cleared": true })),
        Err(error) => failed(StatusCode::CONFLICT, &error),
    }
}

async fn warm_cache(api: &Api, request: Request<Incoming>) -> Answer {
    let body = match read(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => {
            let expected = format!(
                "expected {{\"path\": \"FILE\", \"peer\": \"NAME\"|null, \"copy\": true|false}}: {error}"
            );
            return failed(StatusCode::BAD_REQUEST, &expected);
        }
    };
    match api.operator.warm_cache(wanted).await {
        Ok(warming) => ok(&warming),
        Err(error) => failed(StatusCode::CONFLICT, &error),
    }
}

async fn measure_peer(api: &Api, request: Request<Incoming>) -> Answer {
    let body = match read(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => {
            let expected = format!(
                "expected {{\"peer\": \"NAME\"|null, \"seconds\": N, \"bit_per_s_max\": N|null}}: {error}"
            );
            return failed(StatusCode::BAD_REQUEST, &expected);
        }
    };
    match api.operator.measure_peer(wanted).await {
        Ok(measured) => ok(&measured),
        Err(error) => failed(StatusCode::CONFLICT, &error),
    }
}

fn flow_to_reset(path: &str) -> Option<u64> {
    path.strip_prefix("/v1/flows/")?
        .strip_suffix("/reset")?
        .parse()
        .ok()
}

fn reset(api: &Api, id: u64) -> Answer {
    if api.operator.reset_flow(id) {
        ok(&json!({ "reset": id }))
    } else {
        failed(StatusCode::NOT_FOUND, &format!("there is no flow {id}"))
    }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Answer> {
    let too_large = || failed(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
    if request.body().size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await
    {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(failed(StatusCode::BAD_REQUEST, "the request broke off")),
    }
}

/// The refusal if `method` is not `wanted`.
fn allow(method: &Method, wanted: Method) -> Option<Answer> {
    if *method == wanted {
        return None;
    }
    let mut answer = failed(StatusCode::METHOD_NOT_ALLOWED, &format!("use {wanted}"));
    if let Ok(value) = HeaderValue::from_str(wanted.as_str()) {
        answer.headers_mut().insert(ALLOW, value);
    }
    Some(answer)
}

fn ok<T: Serialize>(value: &T) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => text("application/json", body),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn failed(status: StatusCode, error: &str) -> Answer {
    let mut answer = text("application/json", json!({ "error": error }).to_string());
    *answer.status_mut() = status;
    answer
}

fn text(content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Binds the address of `admin.metrics`; the error names the key.
pub async fn bind_metrics(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("admin.metrics {address}: {error}; is the port taken?"),
        )
    })
}
