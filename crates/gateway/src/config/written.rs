//! What was written: the file's values with their places, nothing filled in.
//!
//! Everything that can be judged by looking at one value alone (type, unit,
//! notation) is judged here; what values mean together is judged in `load`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use farhaul_tunnel::Class;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnose::{Problems, nearest};
use super::meaning::{
    Circuit, ClientAddress, Compression, Dial, HostPort, InterceptMode, Level, Network, Optimise,
    Reduction, Switch,
};
use super::reader::{At, Reader, one_of, whole};
use super::schema::{SECTIONS, Section, section};
use super::units::{self, Fault};
use super::{defaults, not_yet};
use crate::keys::PublicKey;

/// The addresses a process has on a 64-bit machine: 128 TiB.
const STORE_MEMORY_BYTES_MAX: u64 = 1 << 47;

/// A value that may be absent.
pub type Maybe<T> = Option<At<T>>;
/// A list that may be absent, each entry with its own place.
pub type MaybeList<T> = Option<At<Vec<At<T>>>>;

/// The whole file.
#[derive(Debug, Default)]
pub struct Written {
    /// `[site]`.
    pub site: Site,
    /// `[tunnel]`.
    pub tunnel: Tunnel,
    /// `[[peer]]`.
    pub peers: Vec<Peer>,
    /// `[intercept]`.
    pub intercept: Intercept,
    /// `[[listen]]`.
    pub listens: Vec<Listen>,
    /// `[[rule]]`.
    pub rules: Vec<Rule>,
    /// `accept.destinations`.
    pub destinations: MaybeList<Network>,
    /// `[store]`.
    pub store: Store,
    /// `admin.socket`.
    pub socket: Maybe<PathBuf>,
    /// `admin.metrics`.
    pub metrics: Maybe<std::net::SocketAddr>,
    /// `log.format`: whether JSON.
    pub json: Maybe<bool>,
    /// `log.level`.
    pub level: Maybe<Level>,
}

/// `[site]`.
#[derive(Debug, Default)]
pub struct Site {
    /// `site.name`.
    pub name: Maybe<String>,
    /// `site.key`.
    pub key: Maybe<PathBuf>,
}

/// `[tunnel]`.
#[derive(Debug, Default)]
pub struct Tunnel {
    /// `tunnel.listen`.
    pub listen: Maybe<std::net::SocketAddr>,
    /// `tunnel.resume_max`.
    pub resume_max: Maybe<Duration>,
    /// `tunnel.keep_alive`.
    pub keep_alive: Maybe<Duration>,
    /// `tunnel.dead_after`.
    pub dead_after: Maybe<Duration>,
    /// `tunnel.open_timeout`.
    pub open_timeout: Maybe<Duration>,
    /// `tunnel.drain`.
    pub drain: Maybe<Duration>,
    /// `tunnel.flows_max`.
    pub flows_max: Maybe<u64>,
}

/// A `[[peer]]`.
#[derive(Debug)]
pub struct Peer {
    /// Where the block begins.
    pub span: Range<usize>,
    /// `peer.name`.
    pub name: Maybe<String>,
    /// `peer.address`.
    pub address: Maybe<HostPort>,
    /// `peer.key`.
    pub key: Maybe<PublicKey>,
    /// `peer.networks`.
    pub networks: MaybeList<Network>,
    /// `peer.dial`.
    pub dial: Maybe<Dial>,
    /// `peer.link`.
    pub link: Maybe<Circuit>,
    /// `peer.owned`.
    pub owned: Maybe<bool>,
}

/// `[intercept]`.
#[derive(Debug, Default)]
pub struct Intercept {
    /// `intercept.mode`.
    pub mode: Maybe<InterceptMode>,
    /// `intercept.interfaces`.
    pub interfaces: MaybeList<String>,
    /// `intercept.client_address`.
    pub client_address: Maybe<ClientAddress>,
    /// `intercept.mark`.
    pub mark: Maybe<u64>,
    /// `intercept.table`.
    pub table: Maybe<u64>,
    /// `intercept.queue`.
    pub queue: Maybe<u64>,
}

/// A `[[listen]]`.
#[derive(Debug)]
pub struct Listen {
    /// Where the block begins.
    pub span: Range<usize>,
    /// `listen.socks`.
    pub socks: Maybe<std::net::SocketAddr>,
    /// `listen.connect`.
    pub connect: Maybe<std::net::SocketAddr>,
    /// `listen.forward`.
    pub forward: Maybe<std::net::SocketAddr>,
    /// `listen.target`.
    pub target: Maybe<HostPort>,
    /// How many of its keys are there, also when their values are wrong.
    pub keys: usize,
}

/// A `[[rule]]`.
#[derive(Debug)]
pub struct Rule {
    /// Where the block begins.
    pub span: Range<usize>,
    /// `rule.name`.
    pub name: Maybe<String>,
    /// `rule.match.source`.
    pub source: MaybeList<Network>,
    /// `rule.match.destination`.
    pub destination: MaybeList<Network>,
    /// `rule.match.host`.
    pub host: MaybeList<String>,
    /// `rule.match.port`.
    pub port: MaybeList<(u16, u16)>,
    /// `rule.optimise`.
    pub optimise: Maybe<Optimise>,
    /// `rule.class`.
    pub class: Maybe<Class>,
    /// `rule.transport`.
    pub transport: Maybe<Switch>,
    /// `rule.reduction`.
    pub reduction: Maybe<Reduction>,
    /// `rule.compression`.
    pub compression: Maybe<Compression>,
    /// `rule.fec`.
    pub fec: Maybe<Switch>,
    /// `rule.write_behind`.
    pub write_behind: Maybe<Switch>,
    /// `rule.client_address`.
    pub client_address: Maybe<ClientAddress>,
}

/// `[store]`.
#[derive(Debug, Default)]
pub struct Store {
    /// `store.memory`.
    pub memory: Maybe<u64>,
    /// Whether there is a `store.disk`.
    pub disk: bool,
    /// `store.disk.path`.
    pub path: Maybe<PathBuf>,
    /// `store.disk.size`.
    pub size: Maybe<u64>,
}

const SWITCH: &[(&str, Switch)] = &[
    ("auto", Switch::Auto),
    ("on", Switch::On),
    ("off", Switch::Off),
];
const CLIENT_ADDRESS: &[(&str, ClientAddress)] = &[
    ("keep", ClientAddress::Keep),
    ("gateway", ClientAddress::Gateway),
];
const OPTIMISE: &[(&str, Optimise)] = &[
    ("auto", Optimise::Auto),
    ("opaque", Optimise::Opaque),
    ("direct", Optimise::Direct),
    ("smb", Optimise::Smb),
    ("http", Optimise::Http),
    ("nfs", Optimise::Nfs),
    ("dns", Optimise::Dns),
    ("mapi", Optimise::Mapi),
];
const CLASS: &[(&str, Class)] = &[
    ("auto", Class::Auto),
    ("control", Class::Control),
    ("interactive", Class::Interactive),
    ("bulk", Class::Bulk),
    ("background", Class::Background),
];
const REDUCTION: &[(&str, Reduction)] = &[
    ("auto", Reduction::Auto),
    ("off", Reduction::Off),
    ("memory", Reduction::Memory),
    ("disk", Reduction::Disk),
    ("both", Reduction::Both),
];

/// Reads the file's text. Everything that is wrong goes to `problems`; after a
/// syntax error the values are those of an empty file, since guesses about
/// where a broken file continues would only add noise.
pub fn read(text: &str, problems: &mut Problems) -> Written {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let problem = problems.error(span, format!("not TOML: {}", error.message()));
        problem.help(
            "texts stand in double quotes, lists in [ ], a block begins with [name] or [[name]]",
        );
    }
    let mut written = Written::default();
    if !errors.is_empty() {
        return written;
    }
    for (key, value) in document.get_ref().iter() {
        match section(key.get_ref()).filter(|section| !section.name.contains('.')) {
            Some(section) => read_section(&mut written, section, key.span(), value, problems),
            None => unknown_section(key, value, problems),
        }
    }
    if !document
        .get_ref()
        .iter()
        .any(|(key, _)| key.get_ref() == "site")
    {
        let problem = problems.error(0..0, "the file has no [site] block");
        problem.help("begin with: [site], name = \"harbour\", key = \"harbour.key\"; `farhaul init` writes a whole file");
    }
    written
}

fn unknown_section(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems,
) {
    let name: &str = key.get_ref();
    let tables: Vec<&Section> = SECTIONS.iter().filter(|s| !s.name.contains('.')).collect();
    let list = value.get_ref().as_array();
    let is_block = value.get_ref().is_table()
        || list.is_some_and(|list| list.iter().any(|item| item.get_ref().is_table()));
    let what = if is_block { "block" } else { "key" };
    let problem = problems.error(key.span(), format!("unknown {what} `{name}`"));
    if let Some(near) = nearest(name, tables.iter().map(|section| section.name)) {
        problem.help(format!("did you mean `{near}`?"));
    } else if let Some(home) = SECTIONS.iter().find(|s| s.key(name).is_some()) {
        problem.help(format!("`{name}` belongs into {}", home.header()));
    }
    let headers: Vec<String> = tables.iter().map(|section| section.header()).collect();
    problem.help(format!("known blocks: {}", headers.join(", ")));
}

fn read_section(
    written: &mut Written,
    section: &'static Section,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems,
) {
    let mut one = |table, span| {
        read_table(
            written,
            Reader::new(section, table, span),
            section,
            problems,
        );
    };
    match (value.get_ref(), section.repeated) {
        (DeValue::Table(table), false) => one(table, value.span()),
        (DeValue::Array(list), true) if list.iter().all(|item| item.get_ref().is_table()) => {
            for item in list.iter() {
                if let Some(table) = item.get_ref().as_table() {
                    one(table, item.span());
                }
            }
        }
        (_, repeated) => {
            let (what, brackets) = match repeated {
                true => ("a list of blocks", "two brackets"),
                false => ("one block", "one bracket"),
            };
            let name = section.name;
            let problem = problems.error(key, format!("`{name}` is {what}"));
            problem.help(format!("write {}, with {brackets}", section.header()));
        }
    }
}

fn read_table(
    written: &mut Written,
    mut reader: Reader<'_, '_>,
    section: &'static Section,
    problems: &mut Problems,
) {
    match section.name {
        "site" => read_site(written, &mut reader, problems),
        "tunnel" => read_tunnel(&mut written.tunnel, &mut reader, problems),
        "peer" => return written.peers.push(read_peer(reader, problems)),
        "intercept" => read_intercept(&mut written.intercept, &mut reader, problems),
        "listen" => return written.listens.push(read_listen(reader, problems)),
        "rule" => return written.rules.push(read_rule(reader, problems)),
        "accept" => {
            written.destinations = reader.texts(problems, "destinations", units::network);
        }
        "store" => read_store(&mut written.store, &mut reader, problems),
        "admin" => {
            written.socket = reader.text(problems, "socket", path);
            written.metrics = reader.text(problems, "metrics", units::socket_address);
        }
        _ => {
            written.json = reader.word(problems, "format", &[("text", false), ("json", true)]);
            let levels = [
                ("debug", Level::Debug),
                ("info", Level::Info),
                ("warn", Level::Warn),
                ("error", Level::Error),
            ];
            written.level = reader.word(problems, "level", &levels);
        }
    }
    reader.finish(problems);
}

fn path(text: &str) -> Result<PathBuf, Fault> {
    if text.is_empty() || text.contains('\0') {
        Err(Fault::new(
            "the path is empty or holds a zero byte".to_owned(),
        ))
    } else {
        Ok(PathBuf::from(text))
    }
}

fn read_site(written: &mut Written, reader: &mut Reader<'_, '_>, problems: &mut Problems) {
    let name = reader.text(problems, "name", units::name);
    reader.require(problems, "name", &name);
    let key = reader.text(problems, "key", path);
    reader.require(problems, "key", &key);
    written.site = Site { name, key };
}

/// A duration within bounds.
fn duration_in(min: Duration, max: Duration) -> impl Fn(&str) -> Result<Duration, Fault> {
    move |text| {
        let value = units::duration(text)?;
        let what = match value {
            value if value < min => "too short",
            value if value > max => "too long",
            value => return Ok(value),
        };
        Err(Fault::new(format!("`{text}` is {what}")))
    }
}

fn read_tunnel(tunnel: &mut Tunnel, reader: &mut Reader<'_, '_>, problems: &mut Problems) {
    let ms = Duration::from_millis;
    let s = Duration::from_secs;
    *tunnel = Tunnel {
        listen: reader.text(problems, "listen", units::socket_address),
        resume_max: reader.text(problems, "resume_max", duration_in(s(0), s(86_400))),
        keep_alive: reader.text(problems, "keep_alive", duration_in(ms(50), s(60))),
        dead_after: reader.text(problems, "dead_after", duration_in(ms(200), s(600))),
        open_timeout: reader.text(problems, "open_timeout", duration_in(s(1), s(600))),
        drain: reader.text(problems, "drain", duration_in(s(0), s(3600))),
        flows_max: reader.number(problems, "flows_max", |n| (1..=1_000_000).contains(&n)),
    };
}

fn read_peer(mut reader: Reader<'_, '_>, problems: &mut Problems) -> Peer {
    let name = reader.text(problems, "name", units::name);
    reader.require(problems, "name", &name);
    let key = reader.text(problems, "key", |text| {
        text.parse()
            .map_err(|error: crate::keys::KeyError| Fault::new(error.to_string()))
    });
    reader.require(problems, "key", &key);
    let dials = [("us", Dial::Us), ("peer", Dial::Peer), ("both", Dial::Both)];
    Peer {
        name,
        address: reader.text(problems, "address", units::host_port),
        key,
        networks: reader.texts(problems, "networks", units::network),
        dial: reader.word(problems, "dial", &dials),
        link: reader.text(problems, "link", units::circuit),
        owned: reader.boolean(problems, "owned"),
        span: reader.finish(problems),
    }
}

fn read_intercept(intercept: &mut Intercept, reader: &mut Reader<'_, '_>, problems: &mut Problems) {
    let modes = [
        ("transparent", InterceptMode::Transparent),
        ("explicit", InterceptMode::Explicit),
    ];
    // The kernel uses 253 to 255 for its own tables, 0 for "any".
    let table_fits = |n: u64| u32::try_from(n).is_ok() && n != 0 && !(253..=255).contains(&n);
    let mask = u64::from(defaults::MARK_MASK);
    *intercept = Intercept {
        mode: reader.word(problems, "mode", &modes),
        interfaces: reader.texts(problems, "interfaces", units::interface),
        client_address: reader.word(problems, "client_address", CLIENT_ADDRESS),
        mark: reader.number(problems, "mark", |n| n != 0 && n & !mask == 0),
        table: reader.number(problems, "table", table_fits),
        queue: reader.number(problems, "queue", |n| {
            (1..=u64::from(u16::MAX)).contains(&n)
        }),
    };
}

fn read_listen(mut reader: Reader<'_, '_>, problems: &mut Problems) -> Listen {
    Listen {
        socks: reader.text(problems, "socks", units::socket_address),
        connect: reader.text(problems, "connect", units::socket_address),
        forward: reader.text(problems, "forward", units::socket_address),
        target: reader.text(problems, "target", units::host_port),
        keys: reader.keys(),
        span: reader.finish(problems),
    }
}

/// Adds "not in this version" to what `parse` understands.
fn available<T: Copy>(
    value: Result<T, Fault>,
    text: &str,
    missing: impl Fn(T) -> Option<&'static str>,
) -> Result<T, Fault> {
    let value = value?;
    match missing(value) {
        None => Ok(value),
        Some(instead) => Err(Fault::complete(format!(
            "`{text}` is not in this version: use {instead}"
        ))),
    }
}

fn compression(value: &DeValue<'_>) -> Option<Result<Compression, Fault>> {
    let words = [("auto", Compression::Auto), ("off", Compression::Off)];
    match value {
        DeValue::String(text) => Some(one_of(text, &words)),
        DeValue::Integer(integer) => {
            // zstd's 0 is another word for its own choice, and would be read as "off".
            let level = whole(integer).filter(|level| (-7..=22).contains(level) && *level != 0);
            let level = level.and_then(|level| i8::try_from(level).ok());
            let none = || Fault::new(format!("there is no level {integer}"));
            Some(level.map(Compression::Level).ok_or_else(none))
        }
        _ => None,
    }
}

fn port(value: &DeValue<'_>) -> Option<Result<(u16, u16), Fault>> {
    match value {
        DeValue::String(text) => Some(units::port_range(text)),
        DeValue::Integer(integer) => Some(units::port_range(&match whole(integer) {
            Some(port) => port.to_string(),
            None => integer.to_string(),
        })),
        _ => None,
    }
}

fn read_rule(mut reader: Reader<'_, '_>, problems: &mut Problems) -> Rule {
    let (mut source, mut destination, mut host, mut ports) = (None, None, None, None);
    let inner = section("rule.match").and_then(|section| reader.table(problems, "match", section));
    if let Some(mut inner) = inner {
        source = inner.texts(problems, "source", units::network);
        destination = inner.texts(problems, "destination", units::network);
        host = inner.texts(problems, "host", units::host_pattern);
        ports = inner.items(problems, "port", port);
        inner.finish(problems);
    }
    Rule {
        name: reader.text(problems, "name", units::name),
        source,
        destination,
        host,
        port: ports,
        optimise: reader.text(problems, "optimise", |text| {
            available(one_of(text, OPTIMISE), text, not_yet::optimise)
        }),
        class: reader.word(problems, "class", CLASS),
        transport: reader.word(problems, "transport", SWITCH),
        reduction: reader.text(problems, "reduction", |text| {
            available(one_of(text, REDUCTION), text, not_yet::reduction)
        }),
        compression: reader.value(problems, "compression", compression),
        fec: reader.word(problems, "fec", SWITCH),
        write_behind: reader.word(problems, "write_behind", SWITCH),
        client_address: reader.word(problems, "client_address", CLIENT_ADDRESS),
        span: reader.finish(problems),
    }
}

fn read_store(store: &mut Store, reader: &mut Reader<'_, '_>, problems: &mut Problems) {
    store.memory = reader.text(problems, "memory", |text| match units::size(text)? {
        size if size > STORE_MEMORY_BYTES_MAX => Err(Fault::new(format!(
            "`{text}` is more memory than a process can have"
        ))),
        size => Ok(size),
    });
    let inner = section("store.disk").and_then(|section| reader.table(problems, "disk", section));
    if let Some(mut inner) = inner {
        store.disk = true;
        store.path = inner.text(problems, "path", path);
        inner.require(problems, "path", &store.path);
        store.size = inner.text(problems, "size", |text| {
            let size = units::size(text)?;
            if size < 64 << 20 {
                return Err(Fault::new(format!("`{text}` is too small to be of use")));
            }
            Ok(size)
        });
        inner.require(problems, "size", &store.size);
        inner.finish(problems);
    }
}
/// The words of the language and their values, for writing a file.
pub(super) mod words {
    use super::*;

    fn word<T: PartialEq + Copy>(words: &[(&'static str, T)], value: T) -> &'static str {
        let found = words.iter().find(|(_, known)| *known == value);
        found.map_or("auto", |(word, _)| word)
    }

    pub fn switch(value: Switch) -> &'static str {
        word(SWITCH, value)
    }

    pub fn client_address(value: ClientAddress) -> &'static str {
        word(CLIENT_ADDRESS, value)
    }

    pub fn optimise(value: Optimise) -> &'static str {
        word(OPTIMISE, value)
    }

    pub fn class(value: Class) -> &'static str {
        word(CLASS, value)
    }

    pub fn reduction(value: Reduction) -> &'static str {
        word(REDUCTION, value)
    }

    /// What the language has and this version has not, as `key = value`.
    pub fn missing() -> Vec<String> {
        let name = |key: &str, word: &str| format!("{key} = \"{word}\"");
        let mut all = Vec::new();
        let optimise = OPTIMISE
            .iter()
            .filter(|(_, value)| not_yet::optimise(*value).is_some());
        all.extend(optimise.map(|(word, _)| name("optimise", word)));
        let reduction = REDUCTION
            .iter()
            .filter(|(_, value)| not_yet::reduction(*value).is_some());
        all.extend(reduction.map(|(word, _)| name("reduction", word)));
        all
    }
}
