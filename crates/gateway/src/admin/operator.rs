//! What an operator can ask of a running gateway.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use super::status::{Flows, MeasuredStatus, Status, WarmingStatus};

/// What is asked of a measurement of the path to a peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureRequest {
    /// Peer's name; absent means the only one.
    pub peer: Option<String>,
    /// Seconds of each direction, 1 to 30.
    pub seconds: f64,
    /// Most that may be sent, bit/s.
    pub bit_per_s_max: Option<f64>,
}

/// A file that is to be remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmRequest {
    /// The file, on the gateway's machine.
    pub path: PathBuf,
    /// Peer's name; absent means the only one.
    #[serde(default)]
    pub peer: Option<String>,
    /// It is not sent: this site has a copy of what a peer will send.
    #[serde(default)]
    pub copy: bool,
}

/// The gateway as the admin server sees it. Everything answers at once from
/// what is known, except [`Operator::reload`], which reads files.
pub trait Operator: Send + Sync + 'static {
    /// The gateway at a glance.
    fn status(&self) -> Status;

    /// Every flow, and the connections that lately went direct.
    fn flows(&self) -> Flows;

    /// Sends new connections direct (`true`) or accelerates them again.
    /// Flows already in the tunnel stay there.
    fn set_bypass(&self, on: bool);

    /// Resets a flow towards both applications; `false` if there is none.
    fn reset_flow(&self, id: u64) -> bool;

    /// Reads the configuration file again. An error names file, line and
    /// remedy, and means that the old configuration keeps running.
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// Forgets what has passed, for redundancy elimination: with one peer, or with all. An error names the peer and what is wrong.
    fn clear_cache(
        &self,
        peer: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// Begins to send a file to a peer, or to the only one, so that both gateways remember it; or to read a copy of what a peer will send.
    fn warm_cache(
        &self,
        wanted: WarmRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WarmingStatus, String>> + Send + '_>>;

    /// Files that are sent so, and the last ones that were, oldest first.
    fn warmings(&self) -> Vec<WarmingStatus>;

    /// Begins to measure what the path to a peer carries; how far it is stands in the peer's status.
    fn measure_peer(
        &self,
        wanted: MeasureRequest,
    ) -> Pin<Box<dyn Future<Output = Result<MeasuredStatus, String>> + Send + '_>>;

    /// The running configuration as TOML, with every default; no secrets.
    fn config_toml(&self) -> String;
}
