//! `init` and `join` beside a file that is there already. Nothing of it is changed but the peers that are added, so
//! whatever else is given has to say what the file says: it would be passed over without a word.

use farhaul_gateway::config::Config;
use farhaul_gateway::config::meaning::{self, InterceptMode, Listen, Network};
use farhaul_gateway::config::starter::NewPeer;
use farhaul_gateway::keys::PrivateKey;
use farhaul_gateway::pairing::Offer;

use super::{
    Init, Join, Joined, Mode, SiteFlags, differ, load_existing, named_apart, not_our_own, several,
};
use crate::failure::Failure;

/// A flag that the file contradicts: the flag with its value, the key of the file and its value there.
type Contradiction = (String, &'static str, String);

impl SiteFlags {
    /// Refuses what only a new file would take.
    pub(super) fn agree_with(&self, config: &Config) -> Result<(), Failure> {
        let found = [
            self.site_differs(config),
            self.mode_differs(config),
            self.interface_differs(config),
            self.socks_differs(config),
            self.networks_differ(config),
        ];
        let Some((flag, key, written)) = found.into_iter().flatten().next() else {
            return Ok(());
        };
        Err(Failure::usage(format!(
            "{flag}: {} is there already, and its {key} is {written}; leave the flag out, or edit {key} there and run \
             this again",
            self.file()
        )))
    }

    fn site_differs(&self, config: &Config) -> Option<Contradiction> {
        let given = self
            .site
            .as_ref()
            .filter(|given| **given != config.site.name)?;
        Some((
            format!("--site {given}"),
            "site.name",
            config.site.name.clone(),
        ))
    }

    fn mode_differs(&self, config: &Config) -> Option<Contradiction> {
        let word = |is_transparent| match is_transparent {
            true => "transparent",
            false => "explicit",
        };
        let given = self.mode? == Mode::Transparent;
        let written = config.intercept.mode == InterceptMode::Transparent;
        (given != written).then(|| {
            let flag = format!("--mode {}", word(given));
            (flag, "intercept.mode", word(written).to_owned())
        })
    }

    fn interface_differs(&self, config: &Config) -> Option<Contradiction> {
        let written = &config.intercept.interfaces;
        let given = self
            .interface
            .as_ref()
            .filter(|given| !written.contains(given))?;
        let flag = format!("--interface {given}");
        Some((flag, "intercept.interfaces", or_empty(written.join(", "))))
    }

    fn socks_differs(&self, config: &Config) -> Option<Contradiction> {
        let proxies: Vec<_> = config
            .listens
            .iter()
            .filter_map(|listen| match listen {
                Listen::Socks(address) => Some(*address),
                Listen::Connect(_) | Listen::Forward { .. } => None,
            })
            .collect();
        let given = self.socks.filter(|given| !proxies.contains(given))?;
        let written: Vec<String> = proxies.iter().map(ToString::to_string).collect();
        let flag = format!("--socks {given}");
        Some((flag, "listen.socks", or_empty(written.join(", "))))
    }

    /// A peer may be told of a part of what the file accepts, but not of more.
    fn networks_differ(&self, config: &Config) -> Option<Contradiction> {
        let accepted = &config.accept.destinations;
        let is_accepted =
            |given: &Network| accepted.iter().any(|whole| whole.contains_network(given));
        let given = self
            .networks
            .as_ref()
            .filter(|given| !given.0.iter().all(is_accepted))?;
        let flag = format!("--networks {}", several(&given.0));
        Some((flag, "accept.destinations", or_empty(several(accepted))))
    }
}

fn or_empty(text: String) -> String {
    match text.is_empty() {
        true => "empty".to_owned(),
        false => text,
    }
}

impl Init {
    /// Refuses what `--accept` takes from the answer, the offer and the file.
    pub(super) fn check_accept(&self, config: &Config) -> Result<(), Failure> {
        self.site.agree_with(config)?;
        let unused = [
            ("--address", self.address.is_some()),
            ("--networks", self.site.networks.is_some()),
            ("--peer-networks", self.peer_networks.is_some()),
        ];
        match unused.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "{flag} belongs to the token, which was made already: leave it out, or make another token with it \
                 (farhaul init --another)"
            ))),
            None => Ok(()),
        }
    }
}

impl Join {
    /// Adds the peer to the file, or finds that it is there as the token says.
    pub(super) fn join_existing(&self, offer: &Offer, peer: &NewPeer) -> Result<Joined, Failure> {
        let config = load_existing(&self.site.config)?;
        let key = PrivateKey::load(&config.site.key).map_err(Failure::failed)?;
        not_our_own(&key, offer)?;
        self.site.agree_with(&config)?;
        let networks = match &self.site.networks {
            Some(networks) => networks.0.clone(),
            None => config.accept.destinations.clone(),
        };
        differ(&networks, &offer.networks)?;
        // Joining twice gives the answer again, for whoever lost it.
        let known = config.peers.iter().find(|known| known.key == offer.key);
        let name = match known {
            Some(known) => {
                self.agree_on(known, offer)?;
                known.name.clone()
            }
            None => {
                named_apart(&config.site.name, &peer.name)?;
                self.site.add(peer)?;
                peer.name.clone()
            }
        };
        Ok(Joined {
            key,
            site: config.site.name,
            networks,
            peer: name,
            is_new: known.is_none(),
        })
    }

    /// A known peer is left as it is, so the token must not say otherwise.
    fn agree_on(&self, known: &meaning::Peer, offer: &Offer) -> Result<(), Failure> {
        let (file, name) = (self.site.file(), &known.name);
        if let Some(given) = self.site.peer_name.as_ref().filter(|given| *given != name) {
            return Err(Failure::usage(format!(
                "--peer-name {given}: {file} knows the gateway of this token already, as {name}; leave the flag out, or \
                 edit peer.name there and run this again"
            )));
        }
        let differences = differences(known, offer);
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{file} knows {name} ({}) already, and not as this token says: {}. The file is unchanged and there is no \
             answer; edit the [[peer]] block of {name} to what is right, or have a token made there that says what the \
             file does, and join again",
            known.key,
            differences.join("; ")
        )))
    }
}

/// What a token and the file say differently of a peer.
fn differences(known: &meaning::Peer, offer: &Offer) -> Vec<String> {
    let mut found = Vec::new();
    if known.address != offer.address {
        let shown = |address: &Option<meaning::HostPort>| match address {
            Some(address) => address.to_string(),
            None => "none (it dials)".to_owned(),
        };
        found.push(format!(
            "peer.address is {} here, {} in the token",
            shown(&known.address),
            shown(&offer.address)
        ));
    }
    // The order says nothing.
    let is_in = |one: &[Network], other: &[Network]| one.iter().all(|each| other.contains(each));
    if !is_in(&known.networks, &offer.networks) || !is_in(&offer.networks, &known.networks) {
        found.push(format!(
            "peer.networks is {} here, {} in the token",
            or_empty(several(&known.networks)),
            or_empty(several(&offer.networks))
        ));
    }
    found
}
