//! The gateway pair of a lab: real `farhaul gateway` processes with keys and
//! configuration files of their own.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use toml::{Table, Value as Toml};

use crate::deployment::{Lab, parse_json};
use crate::error::{During, LabError};
use crate::netns::run;
use crate::topology::{LAN, Side};

/// UDP port of the waiting gateway's tunnel.
const PORT: u16 = 4433;
/// How long both gateways may take until the tunnel stands: several lost
/// handshake packets at a round trip of 200 ms fit in.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the configurations of a pair shall say beyond the lab's own.
///
/// Tables are merged key by key, lists of tables (`[[peer]]`) block by block;
/// every other value replaces the lab's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayOverrides {
    /// For the client's side.
    pub a: Table,
    /// For the server's side.
    pub b: Table,
}

impl GatewayOverrides {
    /// The same for both sides, from TOML text.
    pub fn both(text: &str) -> Result<Self, LabError> {
        Self::sides(text, text)
    }

    /// One TOML text for each side.
    pub fn sides(a: &str, b: &str) -> Result<Self, LabError> {
        Ok(Self {
            a: parse_toml(a)?,
            b: parse_toml(b)?,
        })
    }

    fn of(&self, side: Side) -> &Table {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

impl Lab {
    /// Writes keys and configurations, starts both gateways and waits until
    /// each says that the other is up.
    pub fn gateways_up(&mut self, overrides: &GatewayOverrides) -> Result<(), LabError> {
        self.write_gateway_files(overrides)?;
        for side in Side::BOTH {
            self.gateway_start(side)?;
        }
        self.wait_peers_up()
    }

    /// Writes keys (once) and configurations without starting anything.
    pub fn write_gateway_files(&self, overrides: &GatewayOverrides) -> Result<(), LabError> {
        let keys = [self.public_key(Side::A)?, self.public_key(Side::B)?];
        let [key_a, key_b] = keys;
        for (side, far_key) in [(Side::A, key_b), (Side::B, key_a)] {
            let mut config = self.gateway_config(side, &far_key);
            merge(&mut config, overrides.of(side));
            let path = self.gateway_config_path(side);
            fs::write(&path, config.to_string())
                .during(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Starts one gateway with the configuration that is there.
    pub fn gateway_start(&mut self, side: Side) -> Result<(), LabError> {
        let namespace = self.gateway(side)?;
        let program = self.program.to_string_lossy().into_owned();
        let config = self
            .gateway_config_path(side)
            .to_string_lossy()
            .into_owned();
        let words = [program.as_str(), "gateway", "--config", &config];
        self.sandbox
            .start(gateway_process(side), &namespace, &words)?;
        Ok(())
    }

    /// Waits until both gateways run, intercept, and have each other as peer.
    pub fn wait_peers_up(&mut self) -> Result<(), LabError> {
        for side in Side::BOTH {
            let what = format!("gateway {}", side.letter());
            let ready = self.wait_ready(gateway_process(side), &what, PATIENCE, |lab| {
                lab.gateway_status(side)
                    .is_ok_and(|status| is_working(&status))
            });
            ready.map_err(|error| self.with_log_of(side.other(), error))?;
        }
        Ok(())
    }

    /// One gateway that has no peer says nothing of why the other does not answer.
    fn with_log_of(&self, side: Side, mut error: LabError) -> LabError {
        if let LabError::NotReady { log_tail, .. } = &mut error {
            log_tail.push('\n');
            log_tail.push_str(&self.gateway_log_tail(side));
        }
        error
    }

    /// What `farhaul status --json` says of one gateway.
    pub fn gateway_status(&self, side: Side) -> Result<Value, LabError> {
        let mut command = self.farhaul(&["status", "--json", "--socket"]);
        command.arg(self.gateway_socket(side));
        parse_json("farhaul status --json", &run(&mut command)?)
    }

    /// Processor time one gateway has taken; `None` where it does not run.
    pub fn gateway_cpu_time(&self, side: Side) -> Option<Duration> {
        self.sandbox.process(gateway_process(side))?.cpu_time()
    }

    /// Sends a signal to one gateway; an error where it does not run.
    pub fn gateway_kill(&mut self, side: Side, signal: Signal) -> Result<(), LabError> {
        let role = gateway_process(side);
        let process = self.sandbox.process(role);
        let is_sent = match process {
            Some(process) => process.signal(signal)?,
            None => false,
        };
        self.sandbox.reap();
        if is_sent {
            return Ok(());
        }
        Err(LabError::Invalid {
            what: format!("{signal:?} for {role}"),
            why: "it does not run".to_owned(),
        })
    }

    /// Processor time one gateway has used, in seconds; none where it does not run.
    pub fn gateway_cpu_s(&self, side: Side) -> Option<f64> {
        self.sandbox.process(gateway_process(side))?.cpu_s()
    }

    /// Ends one gateway (SIGTERM, SIGKILL after `patience`) and waits for its end.
    pub fn gateway_stop(&mut self, side: Side, patience: Duration) -> Result<(), LabError> {
        self.sandbox.stop(gateway_process(side), patience)
    }

    /// Ends one gateway, if it runs, and starts it again.
    pub fn gateway_restart(&mut self, side: Side) -> Result<(), LabError> {
        self.gateway_stop(side, Duration::from_secs(1))?;
        self.gateway_start(side)
    }

    /// Ends both.
    pub fn gateways_down(&mut self) -> Result<(), LabError> {
        for side in Side::BOTH {
            self.gateway_stop(side, Duration::from_secs(3))?;
        }
        Ok(())
    }

    /// Admin socket of one gateway.
    pub fn gateway_socket(&self, side: Side) -> PathBuf {
        self.gateway_file(side, "sock")
    }

    /// Configuration file of one gateway.
    pub fn gateway_config_path(&self, side: Side) -> PathBuf {
        self.gateway_file(side, "toml")
    }

    /// The last lines of one gateway's log.
    pub fn gateway_log_tail(&self, side: Side) -> String {
        self.sandbox.log_tail(gateway_process(side))
    }

    fn gateway_file(&self, side: Side, ending: &str) -> PathBuf {
        let name = format!("{}.{ending}", gateway_process(side));
        self.sandbox.folder().join(name)
    }

    /// The public key of a side, generated when it is first asked for.
    fn public_key(&self, side: Side) -> Result<String, LabError> {
        let private = self.gateway_file(side, "key");
        let public = self.gateway_file(side, "pub");
        if !private.exists() {
            let mut command = self.farhaul(&["keygen"]);
            let shown = run(command.arg(&private))?;
            let key = shown
                .split_whitespace()
                .find(|word| word.starts_with("fh1-"));
            let key = key.ok_or_else(|| LabError::Invalid {
                what: "the output of `farhaul keygen`".to_owned(),
                why: format!("no public key in it: {shown}"),
            })?;
            fs::write(&public, key).during(|| format!("writing {}", public.display()))?;
        }
        fs::read_to_string(&public).during(|| format!("reading {}", public.display()))
    }

    /// The side of the client dials, that of the server waits.
    fn gateway_config(&self, side: Side, far_key: &str) -> Table {
        let far = side.other();
        let mut peer = Table::from_iter([
            ("name".to_owned(), text(far.gateway_role())),
            ("key".to_owned(), text(far_key)),
            ("networks".to_owned(), texts(&far.networks())),
        ]);
        if side == Side::A {
            let address = format!("{}:{PORT}", far.wan_address());
            peer.insert("address".to_owned(), text(&address));
        }
        let path = |ending: &str| text(&self.gateway_file(side, ending).to_string_lossy());
        let section = |pairs: Vec<(&str, Toml)>| {
            let owned = pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value));
            Toml::Table(owned.collect())
        };
        let site = vec![("name", text(side.gateway_role())), ("key", path("key"))];
        let intercept = vec![("mode", text("transparent")), ("interfaces", texts(&[LAN]))];
        let accept = vec![("destinations", texts(&side.networks()))];
        Table::from_iter([
            ("site".to_owned(), section(site)),
            ("peer".to_owned(), Toml::Array(vec![Toml::Table(peer)])),
            ("intercept".to_owned(), section(intercept)),
            ("accept".to_owned(), section(accept)),
            ("admin".to_owned(), section(vec![("socket", path("sock"))])),
        ])
    }
}

/// Role of a side's gateway process and stem of its files.
pub(crate) fn gateway_process(side: Side) -> &'static str {
    match side {
        Side::A => "gateway-a",
        Side::B => "gateway-b",
    }
}

fn is_working(status: &Value) -> bool {
    let peers = status["peers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_up = !peers.is_empty() && peers.iter().all(|peer| peer["state"] == "up");
    let is_intercepting =
        status["intercept"]["mode"] != "transparent" || status["intercept"]["active"] == true;
    is_up && is_intercepting
}

fn text(value: &str) -> Toml {
    Toml::String(value.to_owned())
}

fn texts<T: AsRef<str>>(values: &[T]) -> Toml {
    Toml::Array(values.iter().map(|value| text(value.as_ref())).collect())
}

fn parse_toml(source: &str) -> Result<Table, LabError> {
    source
        .parse()
        .map_err(|error: toml::de::Error| LabError::Invalid {
            what: "gateway configuration overrides".to_owned(),
            why: error.to_string(),
        })
}

fn merge(into: &mut Table, from: &Table) {
    for (key, value) in from {
        match into.get_mut(key) {
            Some(present) => merge_value(present, value),
            None => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

fn merge_value(into: &mut Toml, from: &Toml) {
    match (into, from) {
        (Toml::Table(into), Toml::Table(from)) => merge(into, from),
        (Toml::Array(into), Toml::Array(from))
            if from.iter().all(Toml::is_table) && !from.is_empty() =>
        {
            for (at, block) in from.iter().enumerate() {
                match into.get_mut(at) {
                    Some(present) => merge_value(present, block),
                    None => into.push(block.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_merge_tables_and_blocks_and_replace_values() {
        let mut config = parse_toml(
            "[site]\nname = 'gwa'\nkey = 'k'\n[[peer]]\nname = 'gwb'\nnetworks = ['10.2.0.0/24']",
        )
        .unwrap();
        let overrides = parse_toml(
            "[site]\nname = 'x'\n[tunnel]\ndrain = '1s'\n[[peer]]\nnetworks = []\nowned = true\n[[peer]]\nname = 'third'",
        )
        .unwrap();
        merge(&mut config, &overrides);
        let expected = parse_toml(
            "[site]\nname = 'x'\nkey = 'k'\n[tunnel]\ndrain = '1s'\n\
             [[peer]]\nname = 'gwb'\nnetworks = []\nowned = true\n[[peer]]\nname = 'third'",
        )
        .unwrap();
        assert_eq!(config, expected);
    }

    #[test]
    fn working_means_peer_up_and_intercepting() {
        let status = |state: &str, mode: &str, active: bool| serde_json::json!({"peers": [{"state": state}], "intercept": {"mode": mode, "active": active}});
        assert!(is_working(&status("up", "transparent", true)));
        assert!(is_working(&status("up", "explicit", false)));
        assert!(!is_working(&status("up", "transparent", false)));
        assert!(!is_working(&status("connecting", "transparent", true)));
        assert!(!is_working(&serde_json::json!({"peers": []})));
        assert!(!is_working(&Value::Null));
    }
}
