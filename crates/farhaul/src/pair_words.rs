//! Words of `farhaul init` and `join`: what a site may be called, where it may be.

use farhaul_gateway::config::meaning::{HostPort, Network};
use farhaul_gateway::config::units::{self, Fault};

/// Networks as one word of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Networks(pub(crate) Vec<Network>);

/// Whether a gateway can be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach(pub(crate) Option<HostPort>);

fn plain<T>(result: Result<T, Fault>) -> Result<T, String> {
    result.map_err(|fault| match fault.remedy {
        Some(remedy) => format!("{}; {remedy}", fault.message),
        None => fault.message,
    })
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    plain(units::name(text))
}

pub(crate) fn interface(text: &str) -> Result<String, String> {
    match plain(units::interface(text))?.as_str() {
        "lo" => Err(
            "nobody's connections arrive at the loopback interface; name the LAN side's, \
                     `ip -brief link` lists them"
                .to_owned(),
        ),
        name => Ok(name.to_owned()),
    }
}

pub(crate) fn host_port(text: &str) -> Result<HostPort, String> {
    let address = plain(units::host_port(text))?;
    match units::never_dialled(&address.host) {
        Some(kind) => Err(format!("`{text}` is {kind}: no gateway is reached there")),
        None => Ok(address),
    }
}

pub(crate) fn reach(text: &str) -> Result<Reach, String> {
    match text {
        "none" => Ok(Reach(None)),
        text => host_port(text).map(|address| Reach(Some(address))),
    }
}

fn network(text: &str) -> Result<Network, String> {
    let network = plain(units::network(text))?;
    match units::never_served(network.address) {
        Some(kind) => Err(format!(
            "`{text}` is {kind}: no connection there leaves its own network"
        )),
        None => Ok(network),
    }
}

pub(crate) fn network_list(text: &str) -> Result<Networks, String> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let networks: Result<Vec<Network>, String> = words.map(network).collect();
    match networks? {
        list if list.is_empty() => Err("at least one network, as in 10.1.0.0/16".to_owned()),
        list => Ok(Networks(list)),
    }
}
