//! From a configuration file to a serving gateway, and back to nothing.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::admin::{self, AdminSocket};
use crate::config::meaning::{ClientAddress, Config, InterceptMode, Listen, Network};
use crate::config::units::show_size;
use crate::config::{LoadError, Loaded, load};
use crate::descriptors::{self, Room};
use crate::event::Event;
use crate::events::Events;
use crate::explicit;
use crate::gateway::{Gateway, GatewayParts};
use crate::intercept::{
    BEAT_INTERVAL, GuardProgram, Health, InterceptError, Interceptor, Lease, Taken,
};
use crate::keys::{KeyError, PrivateKey};
use crate::metrics::Metrics;
use crate::operate::ReloadRequest;
use crate::quic::{Endpoint, EndpointError};
use crate::{reload, service};

/// SYNs and connections waiting for their decision at most; beyond it the
/// interceptor sends them direct.
const TAKEN_MAX: usize = 4096;
/// Requests of explicit listeners waiting at most; their clients wait longer.
const REQUESTS_MAX: usize = 256;
/// What log lines may take to be written at the end.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// How a gateway is started.
pub struct Options {
    /// Its configuration file; read again at every reload.
    pub config: PathBuf,
    /// The process that tidies up when this one is killed.
    pub guard: GuardProgram,
}

/// What the world tells a running gateway.
pub struct Signals {
    /// Counts requests to stop: the first drains, the second stops at once.
    pub stop: watch::Receiver<u32>,
    /// Changes when the configuration shall be read again.
    pub reload: watch::Receiver<u32>,
}

/// Why a gateway did not start. Nothing is left behind.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is not usable.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// The key file is not usable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The UDP endpoint is not to be had.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Interception is not possible.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    /// The system does not give so much memory.
    #[error(
        "store.memory: the system refuses this process {size}; write less, or raise the limit \
         (`ulimit -v`, LimitAS, vm.overcommit_memory)"
    )]
    Memory {
        /// As the configuration says.
        size: String,
    },
    /// A listener is not to be had.
    #[error("{0}")]
    Listen(String),
}

/// Runs a gateway until it is told to stop. `ready` is called once it serves.
pub async fn run(
    options: Options,
    signals: Signals,
    ready: impl FnOnce(),
) -> Result<(), StartError> {
    let loaded = load(&options.config)?;
    let socket = AdminSocket::bind(&loaded.config.admin.socket).map_err(listen_error)?;
    let (gateway, reload_requests, metrics) = assemble(&loaded)?;
    let (closing, closed) = watch::channel(false);
    serve_metrics(&gateway, &metrics, &closed).await?;
    let config = gateway.config();
    let (listeners, requests) = listen(&config.listens, &gateway).await?;
    let (taken, interceptor) = intercept(&config, options.guard).await?;
    for warning in interceptor.iter().flat_map(Interceptor::warnings) {
        trouble(&gateway.events, "intercept", warning);
    }
    let admin = tokio::spawn(admin::serve(socket, gateway.clone(), metrics, closed));
    gateway.start();
    gateway.events.emit(Event::Started {
        site: config.site.name.clone(),
    });
    ready();
    let mut serving = Serving {
        gateway: gateway.clone(),
        health: interceptor.as_ref().map(Interceptor::health),
        interceptor,
        taken,
        listeners,
        requests,
        reload_requests,
        signals,
        path: options.config,
    };
    serving.serve().await;
    service::notify("STOPPING=1");
    serving.drain().await;
    serving.close().await;
    let _ = closing.send(true);
    let _ = admin.await;
    gateway.events.emit(Event::Stopped);
    gateway.events.flush(FLUSH_MAX);
    Ok(())
}

fn listen_error(error: std::io::Error) -> StartError {
    StartError::Listen(error.to_string())
}

fn trouble(events: &Events, part: &str, what: &str) {
    events.emit(Event::Trouble {
        part: part.to_owned(),
        what: what.to_owned(),
    });
}

type Assembled = (Arc<Gateway>, mpsc::Receiver<ReloadRequest>, Arc<Metrics>);

/// Puts the parts together that need no privileges and leave nothing behind.
fn assemble(loaded: &Loaded) -> Result<Assembled, StartError> {
    let config = loaded.config.clone();
    if !can_have(config.store.memory_bytes) {
        let size = show_size(config.store.memory_bytes);
        return Err(StartError::Memory { size });
    }
    let key = PrivateKey::load(&config.site.key)?;
    let own_key = key.public();
    let metrics = Arc::new(Metrics::new());
    let events = Events::to_stderr(config.log, metrics.clone()).map_err(listen_error)?;
    for line in loaded.warnings.lines() {
        trouble(&events, "config", &line);
    }
    let Room {
        flows: fitting,
        handshakes,
    } = descriptors::room(config.listens.len());
    if fitting < config.tunnel.flows_max {
        let wanted = config.tunnel.flows_max;
        let what = format!(
            "file descriptors suffice for {fitting} flows and tunnel.flows_max is {wanted}: \
             further connections go direct; raise the limit (LimitNOFILE, `ulimit -n`)"
        );
        trouble(&events, "limits", &what);
    }
    let endpoint = Endpoint::bind(&config.tunnel, key)?;
    let (reloads, reload_requests) = mpsc::channel(4);
    let gateway = Gateway::new(GatewayParts {
        config,
        endpoint,
        own_key,
        events,
        reloads,
        fitting,
        handshakes,
    });
    Ok((gateway, reload_requests, metrics))
}

/// Whether the system gives so much memory: it is taken when a peer is up, and a process that then gets none is aborted.
fn can_have(bytes: u64) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    // Untouched, it takes addresses only.
    let reserved =
        usize::try_from(bytes).map(|bytes| black_box(&mut probe).try_reserve_exact(bytes));
    matches!(reserved, Ok(Ok(())))
}

async fn serve_metrics(
    gateway: &Arc<Gateway>,
    metrics: &Arc<Metrics>,
    closed: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    if let Some(address) = gateway.config().admin.metrics {
        let listener = admin::bind_metrics(address).await.map_err(listen_error)?;
        let (operator, metrics) = (gateway.clone(), metrics.clone());
        tokio::spawn(admin::serve_metrics(
            listener,
            operator,
            metrics,
            closed.clone(),
        ));
    }
    Ok(())
}

async fn listen(
    listens: &[Listen],
    gateway: &Gateway,
) -> Result<(Vec<explicit::Listener>, mpsc::Receiver<explicit::Request>), StartError> {
    let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
    let mut listeners = Vec::new();
    for listen in listens {
        let (requests, events) = (requests.clone(), gateway.events.clone());
        let listener = explicit::listen(listen, requests, events, gateway.handshakes).await;
        listeners.push(listener.map_err(listen_error)?);
    }
    Ok((listeners, receiver))
}

/// A gateway with explicit listeners only, whose servers see its own address,
/// needs no rules and no privileges.
async fn intercept(
    config: &Config,
    guard: GuardProgram,
) -> Result<(mpsc::Receiver<Taken>, Option<Interceptor>), StartError> {
    let (taken, receiver) = mpsc::channel(TAKEN_MAX);
    let wanted = config.intercept.mode == InterceptMode::Transparent
        || config.intercept.client_address == ClientAddress::Keep;
    if !wanted {
        return Ok((receiver, None));
    }
    let interceptor =
        Interceptor::start(&config.intercept, &networks(config), guard, taken).await?;
    Ok((receiver, Some(interceptor)))
}

fn networks(config: &Config) -> Vec<Network> {
    config
        .peers
        .iter()
        .flat_map(|peer| peer.networks.iter().copied())
        .collect()
}

/// Waits for another state of interception; `None` where there is none.
async fn changed(health: &mut Option<watch::Receiver<Health>>) -> Option<Health> {
    let health = health.as_mut()?;
    health.changed().await.ok()?;
    Some(health.borrow_and_update().clone())
}

struct Serving {
    gateway: Arc<Gateway>,
    health: Option<watch::Receiver<Health>>,
    interceptor: Option<Interceptor>,
    taken: mpsc::Receiver<Taken>,
    listeners: Vec<explicit::Listener>,
    requests: mpsc::Receiver<explicit::Request>,
    reload_requests: mpsc::Receiver<ReloadRequest>,
    signals: Signals,
    path: PathBuf,
}

impl Serving {
    /// The main loop. The lease is renewed from here and from nowhere else:
    /// when this loop hangs, interception ends within a second.
    async fn serve(&mut self) {
        let mut beat = tokio::time::interval(BEAT_INTERVAL);
        loop {
            tokio::select! {
                _ = beat.tick() => self.beat(),
                // Ends at once where nothing is intercepted.
                Some(taken) = self.taken.recv() => self.take(taken),
                Some(request) = self.requests.recv() => {
                    tokio::spawn(self.gateway.clone().requested(request));
                }
                Some(ReloadRequest(answer)) = self.reload_requests.recv() => {
                    let result = self.reload().await;
                    let _ = answer.send(result);
                }
                Some(health) = changed(&mut self.health) => self.gateway.note_health(health),
                Ok(()) = self.signals.reload.changed() => {
                    let _ = self.reload().await;
                }
                _ = self.signals.stop.changed() => return,
            }
        }
    }

    fn beat(&self) {
        if let Some(interceptor) = &self.interceptor {
            interceptor.beat();
        }
    }

    fn take(&self, taken: Taken) {
        let gateway = self.gateway.clone();
        match taken {
            Taken::Attempt {
                attempt,
                mut verdict,
            } => tokio::spawn(async move {
                // The interceptor stops waiting when it lets the SYN go by
                // itself; what was being opened for it is then reset, or the
                // far side would keep the addresses of a direct connection.
                tokio::select! {
                    answer = gateway.decide(attempt) => {
                        if verdict.send(answer).is_err() {
                            gateway.forget(attempt);
                        }
                    }
                    () = verdict.closed() => {}
                }
            }),
            Taken::Connection { attempt, stream } => tokio::spawn(async move {
                gateway.intercepted(attempt, stream).await;
            }),
        };
    }

    async fn reload(&mut self) -> Result<(), String> {
        let lease = self.interceptor.as_ref().map(Interceptor::lease);
        let path = self.path.clone();
        let events = self.gateway.events.clone();
        let mut beat = tokio::time::interval(BEAT_INTERVAL);
        let mut applying = std::pin::pin!(self.apply(&path));
        // Files and rules may take their time; interception must not lapse.
        let result = loop {
            tokio::select! {
                result = &mut applying => break result,
                _ = beat.tick() => lease.iter().for_each(Lease::beat),
            }
        };
        events.emit(match &result {
            Ok(()) => Event::Reloaded,
            Err(error) => Event::ReloadRefused {
                error: error.clone(),
            },
        });
        result
    }

    async fn apply(&mut self, path: &Path) -> Result<(), String> {
        let loaded = load(path).map_err(|error| error.to_string())?;
        reload::check(&self.gateway.config(), &loaded.config)?;
        if let Some(interceptor) = &mut self.interceptor {
            let networks = networks(&loaded.config);
            interceptor
                .set_networks(&networks)
                .await
                .map_err(|error| error.to_string())?;
        }
        self.gateway.configure(loaded.config);
        Ok(())
    }

    /// New connections go direct; those in the tunnel may finish.
    async fn drain(&mut self) {
        let flows = self.gateway.drain();
        self.listeners.clear();
        self.gateway.events.emit(Event::Draining {
            flows: flows as u64,
        });
        if let Some(interceptor) = &mut self.interceptor {
            // Without networks no further SYN is taken; established flows
            // still find their sockets.
            let _ = interceptor.set_networks(&[]).await;
        }
        let until = Instant::now() + self.gateway.config().tunnel.drain;
        let mut beat = tokio::time::interval(BEAT_INTERVAL);
        while !self.gateway.is_quiet() && Instant::now() < until {
            tokio::select! {
                _ = beat.tick() => self.beat(),
                Some(taken) = self.taken.recv() => self.take(taken),
                changed = self.signals.stop.changed() => match changed {
                    // Told twice: at once.
                    Ok(()) => return,
                    Err(_) => drop(beat.tick().await),
                },
            }
        }
    }

    /// What has not finished is reset, peers are told, rules are removed.
    async fn close(&mut self) {
        self.gateway.close().await;
        if let Some(interceptor) = self.interceptor.take() {
            interceptor.stop().await;
        }
    }
}
