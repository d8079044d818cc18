//! `farhaul init` and `farhaul join`: pair two gateways with two copied texts.

mod existing;
mod new_file;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use farhaul_gateway::config::meaning::{HostPort, InterceptMode, Network};
use farhaul_gateway::config::starter::{self, NewPeer, Starter};
use farhaul_gateway::config::units;
use farhaul_gateway::config::{Config, load};
use farhaul_gateway::intercept::interfaces_known;
use farhaul_gateway::keys::PrivateKey;
use farhaul_gateway::pairing::{self, Answer, Offer};
use serde_json::json;

use self::new_file::{Made, file_stem, may_replace, place_for_a_file};
use crate::failure::Failure;
use crate::pair_words::{
    Networks, Reach, host_port, interface, interface_among, name, network_list, reach,
};
use crate::print;
use crate::questions::Questions;

/// Where the SOCKS5 proxy listens unless told.
const SOCKS_USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// How a site's connections get to its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Taken from the LAN interface; clients notice nothing.
    Transparent,
    /// Clients use the gateway's SOCKS5 proxy.
    Explicit,
}

/// What both verbs ask about a site.
#[derive(Debug, Args)]
struct SiteFlags {
    /// Configuration file to write.
    #[arg(long, value_name = "FILE", default_value = "farhaul.toml")]
    config: PathBuf,
    /// Name of this site.
    #[arg(long, value_name = "NAME", value_parser = name)]
    site: Option<String>,
    /// Networks at this site, which the peer may reach.
    #[arg(long, value_name = "NETWORK,...", value_parser = network_list)]
    networks: Option<Networks>,
    /// transparent: take connections from the LAN. explicit: offer a proxy.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// LAN interface for transparent mode.
    #[arg(long, value_name = "NAME", value_parser = interface)]
    interface: Option<String>,
    /// Take any LAN interface: the file is for another machine, or the interface comes later.
    #[arg(long)]
    elsewhere: bool,
    /// Address of the SOCKS5 proxy in explicit mode [default: 127.0.0.1:1080].
    #[arg(long, value_name = "ADDRESS:PORT")]
    socks: Option<SocketAddr>,
    /// Name for the peer, where its own does not suit.
    #[arg(long, value_name = "NAME", value_parser = name)]
    peer_name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `farhaul init`.
#[derive(Debug, Args)]
#[command(
    after_help = "At the first site:   farhaul init                    prints a token\n\
                  at the other site:   farhaul join TOKEN              prints an answer\n\
                  at the first site:   farhaul init --accept ANSWER    done"
)]
pub(crate) struct Init {
    #[command(flatten)]
    site: SiteFlags,
    /// Where peers reach this gateway (UDP), or `none` if it only dials out.
    #[arg(long, value_name = "HOST:PORT", value_parser = reach)]
    address: Option<Reach>,
    /// Networks at the other site.
    #[arg(long, value_name = "NETWORK,...", value_parser = network_list)]
    peer_networks: Option<Networks>,
    /// Make a token for one more peer of an existing configuration.
    #[arg(long, conflicts_with = "accept")]
    another: bool,
    /// Finish a pairing: the text that `farhaul join` printed, or `-` to read it.
    #[arg(long, value_name = "ANSWER")]
    accept: Option<String>,
}

/// `farhaul join`.
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// What `farhaul init` printed at the other site, or `-` to read it.
    #[arg(value_name = "TOKEN")]
    token: String,
    #[command(flatten)]
    site: SiteFlags,
    /// Where the peer reaches this gateway (UDP), if only the peer dials.
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    address: Option<HostPort>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_str(text, true).map_err(|_| "transparent or explicit".to_owned())
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A token or answer from the command line, or from standard input for `-`.
fn carried(text: String) -> Result<String, Failure> {
    match text.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::failed(format!("standard input: {error}"))),
        _ => Ok(text),
    }
}

/// Where the offer of a configuration waits for its answer.
fn pending_path(config: &Config) -> PathBuf {
    config.site.key.with_extension("pairing")
}

fn load_existing(path: &Path) -> Result<Config, Failure> {
    load::load_for_any_machine(path)
        .map(|loaded| loaded.config)
        .map_err(Failure::failed)
}

impl SiteFlags {
    /// Asks for what is missing and describes the site.
    fn starter(
        &self,
        ask: &Questions,
        address: impl FnOnce(&Questions) -> Result<Option<HostPort>, Failure>,
        planned: &[Network],
    ) -> Result<Starter, Failure> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|host| units::name(host).is_ok());
        let site = ask.value(self.site.clone(), "--site", "Name of this site", host, name)?;
        let planned: Vec<String> = planned.iter().map(Network::to_string).collect();
        let planned = Some(planned.join(",")).filter(|text| !text.is_empty());
        let given = self.networks.clone();
        // Where the first operator has planned them, only a person can object.
        let given = match (given, &planned) {
            (None, Some(planned)) if !ask.can_ask() => network_list(planned).ok(),
            (given, _) => given,
        };
        let question = "Networks at this site, as in 10.1.0.0/16";
        let networks = ask.value(
            given,
            "--networks",
            question,
            planned.as_deref(),
            network_list,
        )?;
        let question = "Take connections from the LAN (transparent) or offer a proxy (explicit)?";
        // Who names a LAN interface has said which mode is meant.
        let named = self.interface.is_some().then_some(Mode::Transparent);
        let given = self.mode.or(named);
        let mode = ask.value(given, "--mode", question, Some("transparent"), mode)?;
        self.fit_mode(mode)?;
        let interfaces = match mode {
            Mode::Explicit => Vec::new(),
            Mode::Transparent => {
                let question = "LAN interface";
                let here = |text: &str| match self.elsewhere {
                    true => interface(text),
                    false => interface_among(text, &interfaces_known()),
                };
                let given = self.interface.as_deref().map(here).transpose();
                let given = given.map_err(Failure::usage)?;
                vec![ask.value(given, "--interface", question, None, here)?]
            }
        };
        let address = address(ask)?;
        Ok(Starter {
            key: format!("{}.key", file_stem(&site)),
            site,
            address,
            networks: networks.0,
            mode: match mode {
                Mode::Transparent => InterceptMode::Transparent,
                Mode::Explicit => InterceptMode::Explicit,
            },
            interfaces,
            socks: self.socks.unwrap_or(SOCKS_USUAL),
        })
    }

    /// Adds a peer to the existing file.
    fn add(&self, peer: &NewPeer) -> Result<(), Failure> {
        let old = load::read_file(&self.config).map_err(Failure::failed)?;
        let new = starter::with_peer(&old, &self.config, peer).map_err(|error| {
            Failure::failed(format!(
                "{error}\nThe file is unchanged. To add the peer by hand, put this into it:\n\n{}",
                starter::peer_block(peer)
            ))
        })?;
        starter::replace_file(&self.config, &new)
            .map_err(|error| Failure::failed(format!("{}: {error}", self.config.display())))
    }

    fn file(&self) -> String {
        self.config.display().to_string()
    }
}

impl Init {
    /// Writes a first configuration and prints a token; or accepts an answer.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let file = self.site.file();
        if let (None, Some(given)) = (&self.accept, &self.site.peer_name) {
            return Err(Failure::usage(format!(
                "--peer-name {given}: the peer is not known yet; give it with --accept ANSWER"
            )));
        }
        if self.accept.is_none() && !self.another {
            place_for_a_file(&self.site.config)?;
        }
        match &self.accept {
            Some(_) => self.accept(),
            None if self.another => self.another(),
            None if self.site.config.exists() => Err(Failure::failed(format!(
                "{file} exists already and is not overwritten; for one more peer: farhaul init --another --config {file}, \
                 to finish a pairing: farhaul init --accept ANSWER --config {file}"
            ))),
            None => self.first(),
        }
    }

    fn address(&self, ask: &Questions) -> Result<Option<HostPort>, Failure> {
        let question =
            "Where do peers reach this gateway (HOST:PORT, UDP), or `none` if it only dials out";
        let given = self.address.clone();
        ask.value(given, "--address", question, None, reach)
            .map(|reach| reach.0)
    }

    fn peer_networks(&self, ask: &Questions) -> Result<Vec<Network>, Failure> {
        let question = "Networks at the other site, as in 10.2.0.0/16";
        let given = self.peer_networks.clone();
        ask.value(given, "--peer-networks", question, None, network_list)
            .map(|networks| networks.0)
    }

    fn first(self) -> Result<(), Failure> {
        let ask = Questions::new();
        let start = self.site.starter(&ask, |ask| self.address(ask), &[])?;
        let peer_networks = self.peer_networks(&ask)?;
        differ(&start.networks, &peer_networks)?;
        let made = self.site.write(&start, None, |_| Ok(()))?;
        let offer = self.keep_offer(start.address, start.networks, peer_networks);
        let (config, offer) = offer.inspect_err(|_| made.undo())?;
        let public = made.key.public();
        match made.key_is_new {
            true => eprintln!(
                "farhaul: wrote {} and its key {} (public: {public})",
                self.site.file(),
                start.key
            ),
            false => eprintln!(
                "farhaul: wrote {}; it uses the key that is there, {} (public: {public})",
                self.site.file(),
                start.key
            ),
        }
        self.tell(&config, &offer)
    }

    fn another(self) -> Result<(), Failure> {
        let ask = Questions::new();
        let config = load_existing(&self.site.config)?;
        self.site.agree_with(&config)?;
        let address = self.address(&ask)?;
        if let Some(address) = address
            .as_ref()
            .filter(|_| config.tunnel.listen.port() == 0)
        {
            return Err(Failure::failed(format!(
                "{}: this gateway does not listen so far; add [tunnel] listen = \"[::]:{}\" and run this again",
                self.site.file(),
                address.port
            )));
        }
        let networks = match &self.site.networks {
            Some(networks) => networks.0.clone(),
            None => config.accept.destinations.clone(),
        };
        let peer_networks = self.peer_networks(&ask)?;
        differ(&networks, &peer_networks)?;
        let (config, offer) = self.keep_offer(address, networks, peer_networks)?;
        self.tell(&config, &offer)
    }

    /// Makes an offer for the configuration that is there, to wait for its answer.
    fn keep_offer(
        &self,
        address: Option<HostPort>,
        networks: Vec<Network>,
        peer_networks: Vec<Network>,
    ) -> Result<(Config, Offer), Failure> {
        let config = load_existing(&self.site.config)?;
        let key = PrivateKey::load(&config.site.key).map_err(Failure::failed)?;
        let pending = pending_path(&config);
        may_replace(&pending, &key)?;
        let site = config.site.name.clone();
        let offer = Offer::new(
            site,
            key.public(),
            address,
            networks,
            peer_networks,
            now_s(),
        )
        .map_err(Failure::failed)?;
        offer.keep(&pending).map_err(Failure::failed)?;
        Ok((config, offer))
    }

    fn tell(&self, config: &Config, offer: &Offer) -> Result<(), Failure> {
        let token = offer.token();
        if self.site.json {
            return print::json(&json!({
                "config": self.site.config,
                "key": config.site.key,
                "public_key": offer.key.to_string(),
                "token": token.as_str(),
                "expires_s": offer.expires_s,
            }));
        }
        eprintln!(
            "farhaul: carry this token to the other site within 24 hours, where only its operator sees it:\n\n\
             \x20 farhaul join TOKEN\n\n\
             Then bring its answer back: farhaul init --config {} --accept ANSWER\n",
            self.site.file()
        );
        print::line(&token)
    }

    fn accept(self) -> Result<(), Failure> {
        let text = carried(self.accept.clone().unwrap_or_default())?;
        let config = load_existing(&self.site.config)?;
        self.check_accept(&config)?;
        let pending = pending_path(&config);
        let offer = Offer::pending(&pending).map_err(Failure::failed)?;
        let answer = offer.accept(&text, now_s()).map_err(Failure::failed)?;
        if offer.address.is_none() && answer.address.is_none() {
            return Err(Failure::failed(
                "neither gateway has an address the other could dial; join again with --address HOST:PORT",
            ));
        }
        if !offer.peer_networks.is_empty() && offer.peer_networks != answer.networks {
            eprintln!(
                "farhaul: the other site serves {}, not {} as planned here; what was planned is written, edit `networks` if it should follow",
                several(&answer.networks),
                several(&offer.peer_networks)
            );
        }
        let networks = match offer.peer_networks.is_empty() {
            true => answer.networks,
            false => offer.peer_networks.clone(),
        };
        let peer = NewPeer {
            name: self.site.peer_name.clone().unwrap_or(answer.site),
            // Only one side dials: the joining one, if it can.
            address: answer.address.filter(|_| offer.address.is_none()),
            key: answer.key,
            networks,
        };
        named_apart(&config.site.name, &peer.name)?;
        self.site.add(&peer)?;
        pairing::forget(&pending).map_err(Failure::failed)?;
        paired(&self.site, &peer)
    }
}

/// A network lies at one site. Inside a larger one of the other it may, and is
/// said to: it can be meant, as where one site is everybody's way out.
fn differ(ours: &[Network], theirs: &[Network]) -> Result<(), Failure> {
    if let Some(network) = ours.iter().find(|network| theirs.contains(network)) {
        return Err(Failure::failed(format!(
            "{network} cannot lie at this site and at the other one, too: name what is here with --networks"
        )));
    }
    for (here, there) in ours
        .iter()
        .flat_map(|here| theirs.iter().map(move |there| (here, there)))
    {
        if there.contains_network(here) {
            eprintln!(
                "farhaul: {here}, which is here, is a part of {there} at the other site: connections to it stay here"
            );
        } else if here.contains_network(there) {
            eprintln!(
                "farhaul: {there}, which is at the other site, is a part of {here} here: connections to it go there"
            );
        }
    }
    Ok(())
}

/// Two sites of one name could not be told apart in any list.
fn named_apart(site: &str, peer: &str) -> Result<(), Failure> {
    match site == peer {
        false => Ok(()),
        true => Err(Failure::failed(format!(
            "this site is called {site}, and so is the other one: call it something else here with --peer-name, \
             or give one of them another name with --site"
        ))),
    }
}

fn not_our_own(key: &PrivateKey, offer: &Offer) -> Result<(), Failure> {
    match key.public() == offer.key {
        true => Err(Failure::failed(pairing::PairingError::OwnOffer)),
        false => Ok(()),
    }
}

fn several(networks: &[Network]) -> String {
    let texts: Vec<String> = networks.iter().map(Network::to_string).collect();
    texts.join(", ")
}

/// The last words of a pairing, for both sides.
fn paired(site: &SiteFlags, peer: &NewPeer) -> Result<(), Failure> {
    if site.json {
        return print::json(&json!({
            "config": site.config,
            "peer": peer.name,
            "peer_key": peer.key.to_string(),
        }));
    }
    print::line(&format!(
        "{}: paired with {} ({}); start `farhaul gateway --config {}`, or reload it with SIGHUP where it runs",
        site.file(),
        peer.name,
        peer.key,
        site.file()
    ))
}

/// What a join has found or written here.
struct Joined {
    key: PrivateKey,
    site: String,
    /// What the peer is told lies here.
    networks: Vec<Network>,
    /// The peer's name here.
    peer: String,
    /// Whether the peer was not in the file before.
    is_new: bool,
}

impl Join {
    /// Writes this site's configuration, or adds a peer to it, and prints the answer.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let offer = Offer::from_token(&carried(self.token.clone())?).map_err(Failure::failed)?;
        offer.check_time(now_s()).map_err(Failure::failed)?;
        let own_address = self.own_address(&offer)?;
        let peer = NewPeer {
            name: self.site.peer_name.clone().unwrap_or(offer.site.clone()),
            address: offer.address.clone(),
            key: offer.key,
            networks: offer.networks.clone(),
        };
        place_for_a_file(&self.site.config)?;
        let joined = match self.site.config.exists() {
            true => self.join_existing(&offer, &peer)?,
            false => self.join_new(&offer, &peer, own_address.clone())?,
        };
        let about = Answer {
            site: joined.site.clone(),
            key: joined.key.public(),
            address: own_address,
            networks: joined.networks.clone(),
        };
        let answer = offer.answer(&about, &joined.key).map_err(Failure::failed)?;
        self.tell(&joined, &peer, &answer)
    }

    fn tell(&self, joined: &Joined, peer: &NewPeer, answer: &str) -> Result<(), Failure> {
        if self.site.json {
            return print::json(&json!({
                "config": self.site.config,
                "peer": joined.peer,
                "peer_key": peer.key.to_string(),
                "public_key": joined.key.public().to_string(),
                "added": joined.is_new,
                "answer": answer,
            }));
        }
        let (file, name, key) = (self.site.file(), &joined.peer, &peer.key);
        let known = match joined.is_new {
            true => format!("{file} now knows {name} ({key})"),
            false => format!("{file} knows {name} ({key}) already and is unchanged"),
        };
        eprintln!(
            "farhaul: {known}. Bring this answer back there:\n\n\
             \x20 farhaul init --accept ANSWER\n"
        );
        print::line(answer)
    }

    /// Where the peer is to dial us, if it has to.
    fn own_address(&self, offer: &Offer) -> Result<Option<HostPort>, Failure> {
        match (&offer.address, &self.address) {
            (None, _) => self.needed_address(offer).map(Some),
            (Some(_), None) => Ok(None),
            (Some(theirs), Some(ours)) => Err(Failure::usage(format!(
                "--address {ours}: nobody would dial it, as this gateway dials {} at {theirs}; leave it out",
                offer.site
            ))),
        }
    }

    fn needed_address(&self, offer: &Offer) -> Result<HostPort, Failure> {
        let question = format!(
            "The gateway of {} only dials out: where does it reach this one (HOST:PORT, UDP)",
            offer.site
        );
        let given = self.address.clone();
        Questions::new().value(given, "--address", &question, None, host_port)
    }

    fn join_new(
        &self,
        offer: &Offer,
        peer: &NewPeer,
        address: Option<HostPort>,
    ) -> Result<Joined, Failure> {
        let ask = Questions::new();
        let start = self
            .site
            .starter(&ask, |_| Ok(address), &offer.peer_networks)?;
        differ(&start.networks, &offer.networks)?;
        let fits = |key: &PrivateKey| {
            not_our_own(key, offer)?;
            named_apart(&start.site, &peer.name)
        };
        let Made {
            key, key_is_new, ..
        } = self.site.write(&start, Some(peer), fits)?;
        if !key_is_new {
            eprintln!("farhaul: uses the key that is there, {}", start.key);
        }
        Ok(Joined {
            key,
            site: start.site,
            networks: start.networks,
            peer: peer.name.clone(),
            is_new: true,
        })
    }
}
