//! Writes configuration files: a first one with comments, and the block of a
//! new peer into one that is there, leaving everything else as it was.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use super::load::{self, LoadError};
use super::meaning::{HostPort, InterceptMode, Network};
use super::print::{comment, list, networks, quoted};
use crate::keys::PublicKey;

/// What a first file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starter {
    /// `site.name`.
    pub site: String,
    /// `site.key`, as written.
    pub key: String,
    /// Where peers reach this gateway; absent where it only dials.
    pub address: Option<HostPort>,
    /// What lies behind this gateway: `accept.destinations`.
    pub networks: Vec<Network>,
    /// `intercept.mode`.
    pub mode: InterceptMode,
    /// `intercept.interfaces`.
    pub interfaces: Vec<String>,
    /// `listen.socks` of explicit mode.
    pub socks: SocketAddr,
}

/// What is known of a new peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPeer {
    /// `peer.name`.
    pub name: String,
    /// `peer.address`; absent where the peer dials.
    pub address: Option<HostPort>,
    /// `peer.key`.
    pub key: PublicKey,
    /// `peer.networks`.
    pub networks: Vec<Network>,
}

/// The text of a first file, with comments for whoever edits it next.
pub fn starter(start: &Starter) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "Configuration of a Farhaul gateway. `farhaul check-config` says what is wrong with it, \
         `farhaul print-config` shows every key with its default and what it means.",
    );
    let _ = writeln!(out, "\n[site]\nname = {}", quoted(&start.site));
    let _ = writeln!(out, "key = {}", quoted(&start.key));
    if let Some(address) = &start.address {
        out.push('\n');
        comment(
            &mut out,
            &format!("Peers reach this gateway at {address} (UDP)."),
        );
        let _ = writeln!(out, "[tunnel]\nlisten = \"[::]:{}\"", address.port);
    }
    out.push('\n');
    if start.mode == InterceptMode::Transparent {
        comment(
            &mut out,
            "TCP connections that arrive here for a peer's networks go through the tunnel. \
             Name the LAN side, never the interface towards the long link.",
        );
        let interfaces = list(start.interfaces.iter().map(quoted));
        let _ = writeln!(
            out,
            "[intercept]\nmode = \"transparent\"\ninterfaces = {interfaces}"
        );
    } else {
        comment(
            &mut out,
            "Clients on this machine use this SOCKS5 proxy. Others may, if it listens on a LAN address; \
             it asks for no password.",
        );
        let _ = writeln!(out, "[intercept]\nmode = \"explicit\"\n");
        let _ = writeln!(
            out,
            "[[listen]]\nsocks = {}",
            quoted(start.socks.to_string())
        );
    }
    out.push('\n');
    comment(&mut out, "What peers may reach at this site.");
    let _ = writeln!(
        out,
        "[accept]\ndestinations = {}",
        networks(&start.networks)
    );
    out.push('\n');
    out.push_str(
        "# Rules for usual ports are built in; yours come first, as in:\n\
         # [[rule]]\n# match = { port = [8443] }\n# optimise = \"direct\"\n",
    );
    out
}

/// A peer's block.
pub fn peer_block(peer: &NewPeer) -> String {
    let mut out = String::new();
    match &peer.address {
        Some(_) => comment(&mut out, "This gateway dials the peer."),
        None => comment(&mut out, "The peer dials this gateway."),
    }
    let _ = writeln!(out, "[[peer]]\nname = {}", quoted(&peer.name));
    if let Some(address) = &peer.address {
        let _ = writeln!(out, "address = {}", quoted(address.to_string()));
    }
    let _ = writeln!(out, "key = {}", quoted(peer.key.to_string()));
    let _ = writeln!(out, "networks = {}", networks(&peer.networks));
    comment(
        &mut out,
        &format!(
            "`link` may tell the circuit's rate; without it the tunnel learns. `farhaul probe peer {}` measures the \
             circuit and prints the line.",
            peer.name
        ),
    );
    out
}

/// The file's text with the peer added at its end, where TOML allows a new
/// block whatever stands before. Errors say what the file would be refused for.
pub fn with_peer(text: &str, path: &Path, peer: &NewPeer) -> Result<String, LoadError> {
    let text = format!("{}\n\n{}", text.trim_end(), peer_block(peer));
    load::check(&text, path, |_| None)?;
    Ok(text)
}

/// Writes a new file; an existing one is an error (`AlreadyExists`).
pub fn create_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Puts new text into an existing file: readers see the old or the new one
/// whole, mode and owner stay, and a symbolic link stays a link.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let metadata = fs::metadata(&path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fchown(&file, Some(metadata.uid()), Some(metadata.gid())))
        .and_then(|()| file.set_permissions(metadata.permissions()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meaning::Dial;
    use crate::config::units::{host_port, network};
    use std::os::unix::fs::PermissionsExt;

    fn start(mode: InterceptMode) -> Starter {
        Starter {
            site: "Häfen \u{3b1}".into(),
            key: "h.key".into(),
            address: Some(host_port("hq.example.org:5000").unwrap()),
            networks: vec![network("10.1.0.0/16").unwrap()],
            mode,
            interfaces: vec!["lan0".into()],
            socks: "127.0.0.1:1080".parse().unwrap(),
        }
    }

    fn peer() -> NewPeer {
        NewPeer {
            name: "hq".into(),
            address: None,
            key: PublicKey([3; 32]),
            networks: vec![network("10.2.0.0/16").unwrap()],
        }
    }

    #[test]
    fn a_first_file_with_a_peer_is_good_and_without_warnings() {
        for mode in [InterceptMode::Transparent, InterceptMode::Explicit] {
            let text = with_peer(&starter(&start(mode)), Path::new("a.toml"), &peer()).unwrap();
            let loaded = load::check(&text, Path::new("/x/a.toml"), |_| None).unwrap();
            assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
            let config = loaded.config;
            assert_eq!(config.intercept.mode, mode);
            assert_eq!(config.tunnel.listen.to_string(), "[::]:5000");
            assert_eq!(config.peers[0].dial, Dial::Peer);
            assert_eq!(config.accept.destinations, start(mode).networks);
            assert!(text.lines().all(|line| line.len() < 100), "{text}");
        }
    }

    #[test]
    fn adding_a_peer_keeps_the_rest_of_the_file() {
        let before =
            "# mine\n[site] # here\nname = \"a\"\nkey = \"k\"\n[log]\nlevel = \"debug\" # for now";
        let after = with_peer(before, Path::new("a.toml"), &peer()).unwrap();
        assert!(after.starts_with(before), "{after}");
        let error = with_peer(&after, Path::new("a.toml"), &peer()).unwrap_err();
        assert!(error.to_string().contains("has the same key"), "{error}");
    }

    #[test]
    fn replacing_keeps_mode_and_links() {
        let folder = std::env::temp_dir().join(format!("farhaul-starter-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (real, link) = (folder.join("real.toml"), folder.join("link.toml"));
        create_file(&real, "old").unwrap();
        assert_eq!(
            create_file(&real, "x").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace_file(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
