//! `farhaul cache stats|verify|warm|clear`: what has passed and is remembered.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use farhaul_gateway::admin::WarmRequest;
use farhaul_gateway::admin::status::{
    DiskStatus, PeerStatus, ReductionStatus, Status, WarmingStatus,
};
use farhaul_gateway::config::load::load_without_key;
use farhaul_gateway::store::{DANGLING, Verified, verify};
use serde_json::{Value, json};

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;
use crate::reduction_words::{level, percent, ratio, share, to_one};
use crate::table::{bytes, clean};

/// How often a file that is being sent is asked for.
const WARMING_EVERY: Duration = Duration::from_millis(300);

/// `farhaul cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheCommand {
    #[command(subcommand)]
    verb: CacheVerb,
}

#[derive(Debug, Subcommand)]
enum CacheVerb {
    /// What reduction does and holds, peer by peer.
    Stats(Stats),
    /// Read everything on disk and compare it with its hashes; works beside a running gateway and without one.
    #[command(
        after_help = "Exit code 0: everything is as it was written. 1: something is not; the gateway does not use it. \
                      2: `--path` has no store."
    )]
    Verify(Verify),
    /// Send a file to a peer before anybody asks for it, so that both gateways remember it.
    #[command(
        after_help = "It is sent in class background: only when nothing else wants the link. Where both sites have the file, \
                      `--copy` at the far gateway first: then each reads its own, and only what differs is sent. \
                      Only regular files that have a length; what one grows by meanwhile is left. \
                      Exit code 0: all of it was sent, or read. 1: it was not, as when it became shorter meanwhile."
    )]
    Warm(Warm),
    /// Forget what has passed, in memory and on disk.
    Clear(Clear),
}

#[derive(Debug, Args)]
struct Stats {
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("place").args(["config", "path"]).required(true).multiple(true)))]
struct Verify {
    /// The gateway's configuration file, which names the folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of `store.disk`, with or without a configuration.
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Warm {
    /// The file, on the machine of the gateway, which must be able to read it.
    path: PathBuf,
    /// The peer that shall have it, if there are several.
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Send nothing: this site has a copy of a file that a peer will warm. It is read, and known until the gateway restarts.
    #[arg(long)]
    copy: bool,
    /// Do not wait until it is sent: `farhaul flows` shows it, `farhaul reset` stops it.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Clear {
    /// Only what passed to and from this peer.
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CacheCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            CacheVerb::Stats(stats) => stats.run(),
            CacheVerb::Verify(verify) => verify.run(),
            CacheVerb::Warm(warm) => warm.run(),
            CacheVerb::Clear(clear) => clear.run(),
        }
    }
}

impl Stats {
    fn run(self) -> Result<(), Failure> {
        let status = self.gateway.ask(async |client| client.status().await)?;
        match self.json {
            true => print::json(&stats_document(&status)),
            false => print::out(&stats_page(&status)),
        }
    }
}

fn stats_document(status: &Status) -> Value {
    let peers = status.peers.iter();
    let peers = peers.map(|peer| json!({ "peer": peer.name, "reduction": peer.reduction }));
    json!({ "peers": peers.collect::<Vec<_>>() })
}

fn stats_page(status: &Status) -> String {
    let mut text = String::new();
    for peer in &status.peers {
        stats_of(peer, &mut text);
    }
    if text.is_empty() {
        text.push_str("no peer is configured\n");
    }
    text
}

fn stats_of(peer: &PeerStatus, text: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", clean(&peer.name));
    let Some(figures) = &peer.reduction else {
        let why = "no reduction: there is no tunnel, or one of the gateways has no `store.memory`";
        let _ = writeln!(text, "  {why}");
        return;
    };
    for (name, value) in stats_rows(figures) {
        let _ = writeln!(text, "  {name:<17} {value}");
    }
}

fn stats_rows(figures: &ReductionStatus) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        (
            "sent",
            format!(
                "{} reduced to {} on the WAN ({})",
                bytes(figures.in_bytes),
                bytes(figures.out_bytes),
                to_one(ratio(figures.in_bytes, figures.out_bytes))
            ),
        ),
        (
            "known of it",
            format!(
                "{} of {} compared ({}): {} from memory, {} from disk, {} in runs of one byte",
                bytes(figures.known_bytes),
                bytes(figures.compared_bytes),
                percent(share(figures.known_bytes, figures.compared_bytes)),
                bytes(figures.known_memory_bytes),
                bytes(figures.known_disk_bytes),
                bytes(figures.run_bytes)
            ),
        ),
        (
            "new of it",
            format!(
                "{} compressed to {} ({}), level now: {}",
                bytes(figures.new_bytes),
                bytes(figures.packed_bytes),
                to_one(ratio(figures.new_bytes, figures.packed_bytes)),
                level(figures.level)
            ),
        ),
        (
            "received",
            format!(
                "{} restored from {} ({})",
                bytes(figures.restored_bytes),
                bytes(figures.received_bytes),
                to_one(ratio(figures.restored_bytes, figures.received_bytes))
            ),
        ),
        (
            "repeated",
            format!(
                "{} records for the peer, {} for us",
                figures.asked_again, figures.missed
            ),
        ),
        (
            "memory",
            format!(
                "{} of what was sent, index {}, begun {} times",
                bytes(figures.store_bytes),
                bytes(figures.index_bytes),
                figures.epoch
            ),
        ),
    ];
    match &figures.disk {
        None => rows.push(("disk", "none: a restart begins with nothing".to_owned())),
        Some(disk) => rows.extend(disk_rows(disk, figures.warmed_bytes)),
    }
    rows
}

fn disk_rows(disk: &DiskStatus, warmed_bytes: u64) -> [(&'static str, String); 2] {
    let problem = disk.problem.as_deref();
    let problem = problem.map(|problem| format!("; last: {}", clean(problem)));
    let kept = (
        "disk",
        format!(
            "{} of {}, {} read back into memory, {} written since start",
            bytes(disk.used_bytes),
            bytes(disk.size_bytes),
            bytes(warmed_bytes),
            bytes(disk.saved_bytes)
        ),
    );
    let trouble = (
        "trouble",
        format!(
            "{} blocks damaged, {} operations failed, {} files unusable{}",
            disk.bad_blocks,
            disk.failed,
            disk.unusable_files,
            problem.unwrap_or_default()
        ),
    );
    [kept, trouble]
}

impl Verify {
    fn run(self) -> Result<(), Failure> {
        let stores = self.stores()?;
        match self.json {
            true => print::json(&verified_document(&stores))?,
            false => print::out(&verified_page(&stores))?,
        }
        match stores
            .iter()
            .all(|store| store.bad_blocks == 0 && store.unreadable.is_empty())
        {
            true => Ok(()),
            false => Err(Failure::Verdict(1)),
        }
    }

    fn stores(&self) -> Result<Vec<Verified>, Failure> {
        let is_named = self.path.is_some();
        let path = match &self.path {
            Some(path) => path.clone(),
            None => self.configured()?,
        };
        let is_absent =
            |kind| kind == ErrorKind::NotFound || (kind == ErrorKind::NotADirectory && is_named);
        let is_link = path.is_symlink();
        let found = match verify(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && is_link => {
                return Err(Failure::failed(format!(
                    "{}: {DANGLING}; a gateway keeps nothing on disk so",
                    path.display()
                )));
            }
            Err(error) if is_absent(error.kind()) => Vec::new(),
            other => {
                other.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?
            }
        };
        // A gateway makes the folder of its configuration when it needs it. One that somebody names is mistyped if nothing is there.
        match found.is_empty() && is_named {
            true => Err(Failure::usage(format!(
                "no store in {}: `--path` is the folder of `store.disk`, with a folder in it for each peer",
                path.display()
            ))),
            false => Ok(found),
        }
    }

    fn configured(&self) -> Result<PathBuf, Failure> {
        // Clap sees to it that there is one of both.
        let file = self.config.clone().unwrap_or_default();
        let config = load_without_key(&file).map_err(Failure::failed)?.config;
        let disk = config.store.disk;
        let none = || Failure::failed(format!("{}: there is no `store.disk`", file.display()));
        disk.map(|disk| disk.path).ok_or_else(none)
    }
}

fn verified_document(stores: &[Verified]) -> Value {
    let stores = stores.iter().map(|store| {
        json!({
            "path": store.path.to_string_lossy(),
            "segments": store.segments,
            "bytes": store.bytes,
            "bad_blocks": store.bad_blocks,
            "unreadable_files": store.unreadable.len(),
            "unreadable": store.unreadable.iter().map(|file| json!({
                "path": file.path.to_string_lossy(),
                "why": file.why,
            })).collect::<Vec<_>>(),
        })
    });
    json!({ "stores": stores.collect::<Vec<_>>() })
}

fn verified_page(stores: &[Verified]) -> String {
    let mut text = String::new();
    for store in stores {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {} in {} segments, {} blocks damaged, {} files unreadable",
            store.path.display(),
            bytes(store.bytes),
            store.segments,
            store.bad_blocks,
            store.unreadable.len()
        );
        for file in &store.unreadable {
            let _ = writeln!(text, "  {}: {}", file.path.display(), clean(&file.why));
        }
    }
    if text.is_empty() {
        text.push_str("nothing is on disk\n");
    }
    text
}

impl Warm {
    fn run(self) -> Result<(), Failure> {
        let path = std::path::absolute(&self.path)
            .map_err(|error| Failure::failed(format!("{}: {error}", self.path.display())))?;
        let wanted = WarmRequest {
            path,
            peer: self.peer.clone(),
            copy: self.copy,
        };
        let warming = self.gateway.ask(async |client| {
            let mut warming = client.warm_cache(&wanted).await?;
            while warming.end.is_none() && !self.detach {
                tokio::time::sleep(WARMING_EVERY).await;
                let known = client.warmings().await?;
                let known = known.into_iter().find(|known| is_same(known, &warming));
                warming = known.unwrap_or_else(|| WarmingStatus {
                    end: Some("the gateway has forgotten it".to_owned()),
                    ..warming
                });
            }
            Ok(warming)
        })?;
        match self.json {
            true => print::json(&json!(warming))?,
            false => print::out(&warming_page(&warming))?,
        }
        match warming.end.as_deref() {
            None | Some("sent" | "ready") => Ok(()),
            Some(_) => Err(Failure::Verdict(1)),
        }
    }
}

/// A copy is known by its path, whatever else by its flow.
fn is_same(one: &WarmingStatus, other: &WarmingStatus) -> bool {
    let key = |warming: &WarmingStatus| match warming.is_copy {
        true => (0, warming.path.clone()),
        false => (warming.flow, String::new()),
    };
    one.is_copy == other.is_copy && key(one) == key(other)
}

fn copy_page(copy: &WarmingStatus, end: &str) -> String {
    let mut text = format!(
        "{}: {} of {} read: {}\n",
        clean(&copy.path),
        bytes(copy.sent_bytes),
        bytes(copy.file_bytes),
        clean(end)
    );
    if end == "ready" {
        text.push_str("Until this gateway restarts a peer that warms it need not send it.\n");
    }
    text
}

fn warming_page(warming: &WarmingStatus) -> String {
    let end = match warming.end.as_deref() {
        None => "under way",
        Some(end) => end,
    };
    if warming.is_copy {
        return copy_page(warming, end);
    }
    let mut text = format!(
        "{}: {} of {} to {} as flow {}: {}\n",
        clean(&warming.path),
        bytes(warming.sent_bytes),
        bytes(warming.file_bytes),
        clean(&warming.peer),
        warming.flow,
        clean(end)
    );
    // Writing to a String cannot fail.
    let copied_bytes = warming.copied_bytes.saturating_sub(warming.repeated_bytes);
    if copied_bytes > 0 {
        let _ = writeln!(
            text,
            "The peer reads {} of it from a copy of its own.",
            bytes(copied_bytes)
        );
    }
    if warming.repeated_bytes > 0 {
        let (why, what_to_do) = match warming.copied_bytes {
            0 => ("the peer has forgotten what it refers to", "Warm it"),
            _ => (
                "the peer's copy is not what it was",
                "Have it read again there (`farhaul cache warm PATH --copy`), then warm this",
            ),
        };
        let _ = writeln!(
            text,
            "{} of it went once more and is not remembered: {why}. {what_to_do} once more.",
            bytes(warming.repeated_bytes)
        );
    }
    // Of one that was broken off nobody here knows what is left of it: a gateway may have restarted.
    if matches!(warming.end.as_deref(), None | Some("sent")) {
        text.push_str(&too_large(warming));
    }
    text
}

/// What becomes of a file that is larger than the memory for it.
fn too_large(warming: &WarmingStatus) -> String {
    let (memory, disk) = (bytes(warming.memory_bytes), bytes(warming.disk_bytes));
    match warming.file_bytes {
        file_bytes if file_bytes <= warming.memory_bytes => String::new(),
        _ if warming.disk_bytes == 0 => format!(
            "The gateways remember {memory} of it at most: its beginning will be forgotten. \
             A larger `store.memory` helps, or `store.disk` at both.\n"
        ),
        file_bytes if file_bytes > warming.disk_bytes => format!(
            "The disk here keeps {disk} of it at most: its beginning will be forgotten. A larger `store.disk` helps.\n"
        ),
        _ => format!(
            "The gateways remember {memory} of it in memory, the rest on disk, as far as the peer's has room for it.\n"
        ),
    }
}

impl Clear {
    fn run(self) -> Result<(), Failure> {
        let peer = self.peer.as_deref();
        self.gateway
            .ask(async |client| client.clear_cache(peer).await)?;
        match self.json {
            true => print::json(&json!({ "cleared": true })),
            false => print::line("what has passed is forgotten"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_larger_than_the_memory_is_told_what_becomes_of_it() {
        let told = |file_bytes, disk_bytes| {
            too_large(&WarmingStatus {
                file_bytes,
                memory_bytes: 100,
                disk_bytes,
                ..WarmingStatus::default()
            })
        };
        assert_eq!(told(100, 0), "");
        assert!(told(101, 0).contains("100 B of it at most: its beginning will be forgotten"));
        assert!(told(101, 5000).contains("100 B of it in memory, the rest on disk"));
        assert!(told(6000, 5000).contains("disk here keeps 4.9 KiB of it at most"));
    }

    #[test]
    fn of_a_file_that_was_not_sent_to_its_end_nothing_is_told_to_be_remembered() {
        let page = |end: Option<&str>| {
            warming_page(&WarmingStatus {
                file_bytes: 101,
                sent_bytes: 50,
                memory_bytes: 100,
                disk_bytes: 5000,
                end: end.map(str::to_owned),
                ..WarmingStatus::default()
            })
        };
        assert!(page(Some("sent")).contains("in memory, the rest on disk"));
        assert!(page(None).contains("in memory, the rest on disk"));
        let broken_off = page(Some("peer-restarted"));
        assert!(broken_off.ends_with(": peer-restarted\n"), "{broken_off}");
    }

    #[test]
    fn what_the_peer_could_not_make_of_its_copy_is_not_told_to_be_remembered() {
        let page = |copied_bytes, repeated_bytes| {
            warming_page(&WarmingStatus {
                file_bytes: 101,
                memory_bytes: 200,
                copied_bytes,
                repeated_bytes,
                end: Some("sent".to_owned()),
                ..WarmingStatus::default()
            })
        };
        let right = page(101, 0);
        assert!(right.contains("reads 101 B of it from a copy"), "{right}");
        assert!(!right.contains("once more"), "{right}");
        let changed = page(101, 101);
        assert!(!changed.contains("from a copy of its own"), "{changed}");
        let told =
            "101 B of it went once more and is not remembered: the peer's copy is not what it was.";
        assert!(changed.contains(told), "{changed}");
        let forgotten = page(0, 50);
        let told = "the peer has forgotten what it refers to. Warm it once more.";
        assert!(forgotten.contains(told), "{forgotten}");
    }
}
