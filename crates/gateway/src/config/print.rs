//! A configuration as text: with every default filled in, and the reference page.

use std::fmt::Write as _;
use std::path::Path;

use super::defaults;
use super::meaning::{
    Compression, Config, Dial, InterceptMode, Level, Listen, Match, Network, Peer, Rule,
};
use super::schema::{Key, SECTIONS, Section};
use super::units::{write_duration, write_size};
use super::written::words;

/// Width of comment lines.
const COLUMNS: usize = 88;

/// The whole file with every default filled in and what each key means.
/// Reading it back gives an equal configuration; it holds no secret.
pub fn full(config: &Config) -> String {
    let mut out = String::from(
        "# Everything this gateway runs with, defaults filled in, as `farhaul print-config` shows it.\n",
    );
    let built_in = defaults::rules();
    let own = config.rules.strip_suffix(built_in.as_slice());
    let own = own.unwrap_or(&config.rules);
    for section in SECTIONS.iter().filter(|s| !s.name.contains('.')) {
        out.push('\n');
        comment(&mut out, section.doc);
        match section.name {
            "peer" => blocks(&mut out, section, &config.peers, peer),
            "listen" => blocks(&mut out, section, &config.listens, listen),
            "rule" => {
                blocks(&mut out, section, own, rule);
                comment(&mut out, "Rules that follow, built in:");
                for rule in &built_in {
                    let ports = list(rule.matching.port.iter().map(|range| port(*range)));
                    let class = words::class(rule.class);
                    let name = &rule.name;
                    comment(&mut out, &format!("{name}: port {ports}, class {class}"));
                }
            }
            _ => block(&mut out, section, |key| single(config, section.name, key)),
        }
    }
    out
}

/// The same as data, for `--json`: the file's blocks and keys.
pub fn document(config: &Config) -> Result<serde_json::Value, String> {
    let table: toml::Table = full(config)
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    serde_json::to_value(table).map_err(|error| error.to_string())
}

fn blocks<T>(
    out: &mut String,
    section: &Section,
    values: &[T],
    value: fn(&T, &str) -> Option<String>,
) {
    if values.is_empty() {
        comment(out, &format!("There is no {}.", section.header()));
    }
    for (at, item) in values.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        // Repeating the explanations would bury the values.
        match at {
            0 => block(out, section, |key| value(item, key)),
            _ => bare_block(out, section, |key| value(item, key)),
        }
    }
}

fn block(out: &mut String, section: &Section, value: impl Fn(&str) -> Option<String>) {
    let _ = writeln!(out, "{}", section.header());
    for key in section.keys {
        comment(out, key.doc);
        match value(key.name) {
            Some(value) => {
                let _ = writeln!(out, "{} = {value}", key.name);
            }
            None => {
                let _ = writeln!(out, "# {} = ...   ({})", key.name, key.default);
            }
        }
    }
}

fn bare_block(out: &mut String, section: &Section, value: impl Fn(&str) -> Option<String>) {
    let _ = writeln!(out, "{}", section.header());
    for key in section.keys {
        if let Some(value) = value(key.name) {
            let _ = writeln!(out, "{} = {value}", key.name);
        }
    }
}

/// Comment lines of at most [`COLUMNS`] characters, broken between words.
pub(super) fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// A text in TOML's quotes.
pub(super) fn quoted(text: impl AsRef<str>) -> String {
    toml::Value::from(text.as_ref()).to_string()
}

fn path(path: &Path) -> String {
    quoted(path.to_string_lossy())
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

pub(super) fn networks(networks: &[Network]) -> String {
    list(networks.iter().map(|network| quoted(network.to_string())))
}

fn port((first, last): (u16, u16)) -> String {
    match first == last {
        true => first.to_string(),
        false => quoted(format!("{first}-{last}")),
    }
}

/// A key of a section that occurs once.
fn single(config: &Config, section: &str, key: &str) -> Option<String> {
    let tunnel = &config.tunnel;
    let intercept = &config.intercept;
    Some(match (section, key) {
        ("site", "name") => quoted(&config.site.name),
        ("site", "key") => path(&config.site.key),
        ("tunnel", "listen") => quoted(tunnel.listen.to_string()),
        ("tunnel", "resume_max") => quoted(write_duration(tunnel.resume_max)),
        ("tunnel", "keep_alive") => quoted(write_duration(tunnel.keep_alive)),
        ("tunnel", "dead_after") => quoted(write_duration(tunnel.dead_after)),
        ("tunnel", "open_timeout") => quoted(write_duration(tunnel.open_timeout)),
        ("tunnel", "drain") => quoted(write_duration(tunnel.drain)),
        ("tunnel", "flows_max") => tunnel.flows_max.to_string(),
        ("intercept", "mode") => quoted(match intercept.mode {
            InterceptMode::Transparent => "transparent",
            InterceptMode::Explicit => "explicit",
        }),
        ("intercept", "interfaces") => list(intercept.interfaces.iter().map(quoted)),
        ("intercept", "client_address") => quoted(words::client_address(intercept.client_address)),
        ("intercept", "mark") => format!("{:#010x}", intercept.mark),
        ("intercept", "table") => intercept.table.to_string(),
        ("intercept", "queue") => intercept.queue.to_string(),
        ("accept", "destinations") => networks(&config.accept.destinations),
        ("store", "memory") => {
            let memory = quoted(write_size(config.store.memory_bytes));
            match config.store.is_memory_by_disk {
                true => format!("{memory} # by the size of the disk"),
                false => memory,
            }
        }
        ("store", "disk") => {
            let disk = config.store.disk.as_ref()?;
            let size = quoted(write_size(disk.size_bytes));
            format!("{{ path = {}, size = {size} }}", path(&disk.path))
        }
        ("admin", "socket") => path(&config.admin.socket),
        ("admin", "metrics") => quoted(config.admin.metrics?.to_string()),
        ("log", "format") => quoted(if config.log.json { "json" } else { "text" }),
        ("log", "level") => quoted(match config.log.level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }),
        _ => return None,
    })
}

pub(super) fn peer(peer: &Peer, key: &str) -> Option<String> {
    Some(match key {
        "name" => quoted(&peer.name),
        "address" => quoted(peer.address.as_ref()?.to_string()),
        "key" => quoted(peer.key.to_string()),
        "networks" => networks(&peer.networks),
        "dial" => quoted(match peer.dial {
            Dial::Us => "us",
            Dial::Peer => "peer",
            Dial::Both => "both",
        }),
        "link" => quoted(&peer.link.as_ref()?.words),
        "owned" => peer.owned.to_string(),
        _ => return None,
    })
}

fn listen(listen: &Listen, key: &str) -> Option<String> {
    Some(match (listen, key) {
        (Listen::Socks(address), "socks") => quoted(address.to_string()),
        (Listen::Connect(address), "connect") => quoted(address.to_string()),
        (Listen::Forward { listen, .. }, "forward") => quoted(listen.to_string()),
        (Listen::Forward { target, .. }, "target") => quoted(target.to_string()),
        _ => return None,
    })
}

fn rule(rule: &Rule, key: &str) -> Option<String> {
    Some(match key {
        "name" => quoted(&rule.name),
        "match" => matching(&rule.matching),
        "optimise" => quoted(words::optimise(rule.optimise)),
        "class" => quoted(words::class(rule.class)),
        "transport" => quoted(words::switch(rule.transport)),
        "reduction" => quoted(words::reduction(rule.reduction)),
        "compression" => match rule.compression {
            Compression::Auto => quoted("auto"),
            Compression::Off => quoted("off"),
            Compression::Level(level) => level.to_string(),
        },
        "fec" => quoted(words::switch(rule.fec)),
        "write_behind" => quoted(words::switch(rule.write_behind)),
        "client_address" => quoted(words::client_address(rule.client_address?)),
        _ => return None,
    })
}

fn matching(matching: &Match) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, empty: bool, list: String| {
        if !empty {
            parts.push(format!("{name} = {list}"));
        }
    };
    let Match {
        source,
        destination,
        host,
        port: ports,
    } = matching;
    part("source", source.is_empty(), networks(source));
    part("destination", destination.is_empty(), networks(destination));
    part("host", host.is_empty(), list(host.iter().map(quoted)));
    let ranges = ports.iter().map(|range| port(*range));
    part("port", ports.is_empty(), list(ranges));
    match parts.is_empty() {
        true => "{}".to_owned(),
        false => format!("{{ {} }}", parts.join(", ")),
    }
}

/// The reference page, in Markdown: every section and key.
pub fn reference() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         <!-- Generated by `farhaul print-config --reference`; a test checks that it is fresh. -->\n\n\
         One TOML file per gateway. `farhaul init` and `farhaul join` write it, `farhaul check-config`\n\
         says everything that is wrong with it, `farhaul print-config` shows it with every default\n\
         filled in. Every key has a default except those marked *required*. The shortest useful file:\n\n\
         ```toml\n\
         [site]\n\
         name = \"harbour\"\n\
         key = \"harbour.key\"\n\n\
         [[peer]]\n\
         name = \"hq\"\n\
         address = \"hq.example.org:4433\"\n\
         key = \"fh1-...\"\n\
         networks = [\"10.2.0.0/16\"]\n\n\
         [intercept]\n\
         interfaces = [\"lan0\"]\n\
         ```\n\n\
         Durations and sizes always carry a unit: ns, us, ms, s, min, h, d; B, kB, MB, GB, TB, KiB, MiB, GiB, TiB.\n",
    );
    for section in SECTIONS {
        let heading = match section.name.rsplit_once('.') {
            Some((outer, inline)) => format!("`{inline}` of `{outer}`"),
            None => format!("`{}`", section.header()),
        };
        let _ = write!(out, "\n## {heading}\n\n{}\n\n", section.doc);
        out.push_str("| key | accepts | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys {
            row(&mut out, key);
        }
        if section.name == "rule" {
            usual_rules(&mut out);
        }
    }
    out
}

fn row(out: &mut String, key: &Key) {
    let cell = |text: &str| text.replace('|', "\\|");
    let default = match key.default {
        "required" => "*required*".to_owned(),
        other => cell(other),
    };
    let _ = writeln!(
        out,
        "| `{}` | {} | {default} | {} |",
        key.name,
        cell(key.accepts),
        cell(key.doc)
    );
}

fn usual_rules(out: &mut String) {
    let missing: Vec<String> = words::missing();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|word| format!("`{word}`")).collect();
        let missing = missing.join(", ");
        let _ = writeln!(
            out,
            "\nNot in this version, and refused with a message that says so: {missing}."
        );
    }
    out.push_str(
        "\nThese rules follow the operator's:\n\n| name | ports | class |\n|---|---|---|\n",
    );
    for rule in defaults::rules() {
        let ports: Vec<String> = rule.matching.port.iter().map(|p| port(*p)).collect();
        let ports = match ports.is_empty() {
            true => "all others".to_owned(),
            false => ports.join(", "),
        };
        let _ = writeln!(
            out,
            "| {} | {ports} | {} |",
            rule.name,
            words::class(rule.class)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::check;
    use crate::config::schema::section;

    /// The keys of one section that the printer has a value for.
    fn printed(config: &Config, name: &str) -> Vec<&'static str> {
        let keys = section(name)
            .map(|section| section.keys)
            .unwrap_or_default();
        let value = |key: &str| match name {
            "peer" => config.peers.iter().find_map(|item| peer(item, key)),
            "listen" => config.listens.iter().find_map(|item| listen(item, key)),
            "rule" => config.rules.iter().find_map(|item| rule(item, key)),
            _ => single(config, name, key),
        };
        let names = keys.iter().map(|key| key.name);
        names.filter(|name| value(name).is_some()).collect()
    }

    fn everything() -> Config {
        let text = include_str!("../../tests/config/good/everything.toml");
        check(text, Path::new("/etc/farhaul/a.toml"), |_| None)
            .unwrap()
            .config
    }

    #[test]
    fn no_key_is_left_out_of_print_config() {
        let config = everything();
        for section in SECTIONS.iter().filter(|s| !s.name.contains('.')) {
            let keys: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
            assert_eq!(printed(&config, section.name), keys, "{}", section.name);
        }
    }

    #[test]
    fn documented_keys_have_texts() {
        for section in SECTIONS {
            assert!(!section.doc.is_empty() && !section.keys.is_empty());
            for key in section.keys {
                for text in [key.name, key.accepts, key.default, key.doc] {
                    assert!(!text.is_empty(), "{}.{}", section.name, key.name);
                }
            }
        }
    }
}
