//! What of memory and disk each peer has.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Config, meaning};
use crate::event::Event;
use crate::gateway::Gateway;
use crate::keys::PublicKey;
use crate::peer::Peer;
use crate::reduction::{Disk, Store};

/// Less of either finds nothing again.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
const DISK_BYTES_MIN: u64 = 64 << 20;

/// A peer's part of memory and disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Of `store.memory`.
    pub memory_bytes: u64,
    /// Of `store.disk.size`.
    pub disk_bytes: u64,
}

impl Share {
    /// Everything that there is.
    fn whole(config: &Config) -> Share {
        let disk = config.store.disk.as_ref();
        Share {
            memory_bytes: config.store.memory_bytes,
            disk_bytes: disk.map_or(0, |disk| disk.size_bytes),
        }
    }

    fn part(self, of: usize) -> Share {
        let of = of.max(1) as u64;
        Share {
            memory_bytes: self.memory_bytes / of,
            disk_bytes: self.disk_bytes / of,
        }
    }

    fn less(self, taken: Share) -> Share {
        Share {
            memory_bytes: self.memory_bytes.saturating_sub(taken.memory_bytes),
            disk_bytes: self.disk_bytes.saturating_sub(taken.disk_bytes),
        }
    }

    /// As much as `wanted`, or what there is if that is of any use.
    fn for_one_that_wants(self, wanted: Share) -> Share {
        let given = |there: u64, wanted: u64, least: u64| match there {
            there if there >= wanted => wanted,
            there if there >= least => there,
            _ => 0,
        };
        Share {
            memory_bytes: given(self.memory_bytes, wanted.memory_bytes, MEMORY_BYTES_MIN),
            disk_bytes: given(self.disk_bytes, wanted.disk_bytes, DISK_BYTES_MIN),
        }
    }
}

/// At the start of a gateway every peer has the same.
pub(crate) fn at_start(config: &Config) -> Share {
    Share::whole(config).part(config.peers.len())
}

/// What a peer that is added while the gateway runs can have: those that stay
/// keep theirs, whole, until the gateway starts again.
fn added(config: &Config, kept: &[Share], count: usize) -> Share {
    let left = kept
        .iter()
        .fold(Share::whole(config), |left, share| left.less(*share));
    left.part(count).for_one_that_wants(at_start(config))
}

/// A peer's memory and disk.
pub(crate) fn store_of(config: &Config, peer: &meaning::Peer, share: Share) -> Arc<Store> {
    let folder = folder_on_disk(config, peer).filter(|_| share.disk_bytes > 0);
    let disk = folder.map(|path| Disk {
        path,
        size_bytes: share.disk_bytes,
        read_within: Disk::READ_WITHIN,
    });
    Store::with_disk(share.memory_bytes, disk)
}

/// A peer's folder on disk, if there is to be one. It is named after its key: names may change.
pub(crate) fn folder_on_disk(config: &Config, peer: &meaning::Peer) -> Option<PathBuf> {
    let disk = config.store.disk.as_ref()?;
    Some(disk.path.join(folder_of(&peer.key)))
}

/// The first half of the key, in hexadecimal digits.
fn folder_of(key: &PublicKey) -> String {
    key.0
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Gateway {
    /// The peers of a reloaded configuration, those of `old` that stay among
    /// them, and those that are new.
    pub(crate) fn peers_of(
        &self,
        config: &Config,
        old: &[Arc<Peer>],
    ) -> (Vec<Arc<Peer>>, Vec<Arc<Peer>>) {
        let known = |wanted: &meaning::Peer| {
            let same = |peer: &&Arc<Peer>| peer.config().key == wanted.key;
            old.iter().find(same).cloned()
        };
        let kept: Vec<Share> = config
            .peers
            .iter()
            .filter_map(|wanted| known(wanted).map(|peer| peer.share))
            .collect();
        let share = added(config, &kept, config.peers.len() - kept.len());
        let mut new = Vec::new();
        let mut make = |wanted: &meaning::Peer| {
            self.tell_lack(config, wanted, share);
            let store = store_of(config, wanted, share);
            let peer = Arc::new(Peer::new(wanted.clone(), store, share));
            new.push(peer.clone());
            peer
        };
        let all = config.peers.iter().map(|wanted| match known(wanted) {
            Some(peer) => {
                peer.configure(wanted.clone());
                peer
            }
            None => make(wanted),
        });
        (all.collect(), new)
    }

    fn tell_lack(&self, config: &Config, peer: &meaning::Peer, share: Share) {
        let whole = Share::whole(config);
        let what = if whole.memory_bytes > 0 && share.memory_bytes == 0 {
            "the other peers have all of store.memory, so nothing is remembered of"
        } else if whole.disk_bytes > 0 && share.disk_bytes == 0 {
            "the other peers have all of store.disk, so nothing is kept on disk of"
        } else {
            return;
        };
        let name = &peer.name;
        self.events.emit(Event::Trouble {
            part: "store".to_owned(),
            what: format!("{what} {name}; restart the gateway to share anew"),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::load;
    use crate::keys::PrivateKey;
    use crate::reload;

    fn config(store: &str, peers: usize) -> Config {
        let mut text = format!("[site]\nname = 'a'\nkey = 'k'\n[store]\n{store}\n");
        for number in 0..peers {
            let key = PrivateKey::generate().unwrap().public();
            text += &format!(
                "[[peer]]\nname = 'p{number}'\nkey = '{key}'\nnetworks = ['10.{number}.0.0/16']\n"
            );
        }
        load::check(&text, Path::new("test.toml"), |_| None)
            .unwrap()
            .config
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_peer_that_is_added_has_what_is_left() {
        let share = |memory_bytes, disk_bytes| Share {
            memory_bytes,
            disk_bytes,
        };
        let store = "memory = '2 GiB'\ndisk = { path = '/d', size = '8 GiB' }";
        let two = config(store, 2);
        assert_eq!(at_start(&two), share(GIB, 4 * GIB));
        // One that was alone keeps all of it.
        let alone = at_start(&config(store, 1));
        assert_eq!(alone, share(2 * GIB, 8 * GIB));
        assert_eq!(added(&two, &[alone], 1), Share::default());
        // One has gone and another comes, or two others.
        assert_eq!(added(&two, &[at_start(&two)], 1), at_start(&two));
        let three = config(store, 3);
        let third = share(2 * GIB / 3, 8 * GIB / 3);
        assert_eq!(added(&three, &[at_start(&three)], 2), third);
        assert_eq!(added(&three, &[at_start(&two)], 2), share(GIB / 2, 2 * GIB));
        // Crumbs are of no use.
        let most = share(2 * GIB - 1000, 8 * GIB - 1000);
        assert_eq!(added(&two, &[most], 1), Share::default());
    }

    #[test]
    fn a_peer_can_be_added_where_the_disk_says_how_much_memory_there_is() {
        let disk = "disk = { path = '/d', size = '8 GiB' }";
        let (mut one, mut two) = (config(disk, 1), config(disk, 2));
        assert_ne!(one.store.memory_bytes, two.store.memory_bytes);
        assert_eq!(reload::check(&one, &two), Ok(()));
        // As much memory as two need, less what the first has.
        let left = added(&two, &[at_start(&one)], 1);
        assert_eq!(left.memory_bytes, 256 << 20);
        assert_eq!(left.disk_bytes, 0);
        let other = config(
            "memory = '1 GiB'\ndisk = { path = '/d', size = '8 GiB' }",
            1,
        );
        assert!(reload::check(&one, &other).is_err());
        one.store.is_memory_by_disk = false;
        two.store.is_memory_by_disk = false;
        assert!(reload::check(&one, &two).is_err());
    }
}
