//! Which tunnels talk of reduction at present. The newest has the log; when it ends, the newest of those that are left has it again,
//! as soon as its peer has said once more what it holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Store;
use crate::lock::lock;

#[derive(Debug, Default)]
pub(super) struct Tunnels {
    /// The number of the next one.
    next: u64,
    talking: BTreeSet<u64>,
    /// The newest that has ended.
    ended: Option<u64>,
}

impl Tunnels {
    /// A number for a new one, higher than all before.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether this is the newest because a newer one has ended, and which that was.
    pub(super) fn heir_of(&self, tunnel: u64) -> Option<u64> {
        let is_newest = self.talking.last() == Some(&tunnel);
        self.ended.filter(|&ended| is_newest && ended > tunnel)
    }
}

/// For as long as a tunnel talks.
pub(super) struct Talking {
    store: Arc<Store>,
    tunnel: u64,
}

impl Talking {
    pub(super) fn begin(store: &Arc<Store>, tunnel: u64) -> Self {
        lock(&store.tunnels).talking.insert(tunnel);
        Self {
            store: store.clone(),
            tunnel,
        }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let mut tunnels = lock(&self.store.tunnels);
        tunnels.talking.remove(&self.tunnel);
        tunnels.ended = tunnels.ended.max(Some(self.tunnel));
        drop(tunnels);
        lock(&self.store.encoder).detach(self.tunnel);
        self.store.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_is_left_is_the_heir() {
        let store = Store::new(0);
        let numbers: Vec<u64> = (0..3).map(|_| lock(&store.tunnels).number()).collect();
        let mut talking: Vec<_> = numbers
            .iter()
            .map(|&number| Talking::begin(&store, number))
            .collect();
        let heirs = || {
            let tunnels = lock(&store.tunnels);
            let heirs = numbers.iter().map(|&number| tunnels.heir_of(number));
            heirs.collect::<Vec<_>>()
        };
        drop(talking.remove(1));
        assert_eq!(heirs(), [None; 3], "a newer one has the log");
        drop(talking.pop());
        assert_eq!(heirs(), [Some(numbers[2]), None, None]);
        let newer = lock(&store.tunnels).number();
        let _newer = Talking::begin(&store, newer);
        assert_eq!(heirs(), [None; 3]);
    }
}
