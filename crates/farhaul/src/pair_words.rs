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

/// An interface that is one of these.
pub(crate) fn interface_among(text: &str, known: &[String]) -> Result<String, String> {
    let name = interface(text)?;
    if known.contains(&name) {
        return Ok(name);
    }
    let others: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|known| *known != "lo")
        .collect();
    let there_are = match others.is_empty() {
        true => "there is none but lo".to_owned(),
        false => format!("there are: {}", others.join(", ")),
    };
    Err(format!(
        "this machine has no interface `{name}`; {there_are} (--elsewhere takes any name, for a file that is not for \
         this machine)"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_answered_with_those_that_are() {
        let known = ["lo", "lan0", "wan0"].map(str::to_owned);
        assert_eq!(interface_among("lan0", &known), Ok("lan0".to_owned()));
        let told = interface_among("nosuch0", &known).unwrap_err();
        assert!(
            told.contains("no interface `nosuch0`; there are: lan0, wan0 ("),
            "{told}"
        );
        let told = interface_among("nosuch0", &known[..1]).unwrap_err();
        assert!(told.contains("there is none but lo"), "{told}");
        assert!(interface_among("lo", &known).is_err());
    }
}
