//! Who is being served. The clients of all protocols are counted and entered
//! under one lock: no two of them take the last place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{MutexGuard, PoisonError};

use super::send_back::Echoes;
use super::{Shared, Stream};
use crate::probe::iperf3::Cookie;
use crate::probe::message::Token;

/// A session of ours, as its further connections find it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) streams: SyncSender<Stream>,
    pub(super) echoes: Echoes,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) sessions: HashMap<Token, Known>,
    pub(super) iperf3_tests: HashMap<Cookie, SyncSender<Stream<u64>>>,
    /// Connections of each iperf 2 client.
    iperf2: HashMap<IpAddr, u32>,
    /// Flows of datagrams of each; it may be anybody's name.
    iperf2_senders: HashMap<IpAddr, u32>,
}

impl Clients {
    /// Clients of all protocols.
    pub(super) fn count(&self) -> u32 {
        let all = self.connected() + self.iperf2_senders.len();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Those whose address is proved by a connection.
    fn connected(&self) -> usize {
        self.sessions.len() + self.iperf3_tests.len() + self.iperf2.len()
    }

    /// Those of iperf 2 that come so.
    fn iperf2(&mut self, transport: Transport) -> &mut HashMap<IpAddr, u32> {
        match transport {
            Transport::Tcp => &mut self.iperf2,
            Transport::Udp => &mut self.iperf2_senders,
        }
    }
}

/// What a client of iperf 2 comes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Shared {
    pub(super) fn clients(&self) -> MutexGuard<'_, Clients> {
        // A thread that died in between has left the tables whole.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self, clients: usize) -> bool {
        u32::try_from(clients).is_ok_and(|clients| clients >= self.options.sessions_max)
    }

    /// How many others there are; an error where they are as many as allowed.
    pub(super) fn enlist_session(&self, token: Token, session: Known) -> Result<u32, u32> {
        let mut clients = self.clients();
        let others = clients.count();
        if self.is_full(clients.connected()) {
            return Err(others);
        }
        clients.sessions.insert(token, session);
        Ok(others)
    }

    /// False when there are as many clients as allowed.
    pub(super) fn enlist_iperf3(&self, cookie: Cookie, streams: SyncSender<Stream<u64>>) -> bool {
        let mut clients = self.clients();
        if self.is_full(clients.connected()) {
            return false;
        }
        match clients.iperf3_tests.entry(cookie) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(streams);
                true
            }
        }
    }

    /// One more connection or flow of a client; `None` when there are as many
    /// clients as allowed, and it is none of them. Senders of datagrams have a
    /// share of their own: their addresses prove nothing, and invented ones
    /// must not shut out anybody else.
    pub(super) fn enlist_iperf2(
        &self,
        client: IpAddr,
        transport: Transport,
    ) -> Option<Iperf2Client<'_>> {
        let mut clients = self.clients();
        let so_many = match transport {
            Transport::Tcp => clients.connected(),
            Transport::Udp => clients.iperf2_senders.len(),
        };
        let table = clients.iperf2(transport);
        if self.is_full(so_many) && !table.contains_key(&client) {
            return None;
        }
        *table.entry(client).or_insert(0) += 1;
        Some(Iperf2Client {
            shared: self,
            client,
            transport,
        })
    }
}

/// A connection or flow of an iperf 2 client; forgotten when dropped.
pub(super) struct Iperf2Client<'a> {
    shared: &'a Shared,
    client: IpAddr,
    transport: Transport,
}

impl Drop for Iperf2Client<'_> {
    fn drop(&mut self) {
        let mut clients = self.shared.clients();
        let table = clients.iperf2(self.transport);
        if let Some(count) = table.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::server::{Server, ServerOptions};
    use std::net::Ipv4Addr;
    use std::sync::mpsc::sync_channel;
    use std::sync::{Arc, Barrier};

    #[test]
    fn no_two_take_the_last_place() {
        const AT_ONCE: u8 = 12;
        let options = ServerOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            sessions_max: 2,
            ..ServerOptions::default()
        };
        let server = Server::listen(options, Arc::default()).unwrap();
        let shared = &server.shared;
        for _ in 0..200 {
            let barrier = Barrier::new(AT_ONCE.into());
            let barrier = &barrier;
            std::thread::scope(|scope| {
                for nth in 0..AT_ONCE {
                    scope.spawn(move || {
                        let address = IpAddr::from([127, 0, 0, nth]);
                        let (streams, _) = sync_channel(1);
                        let echoes = Echoes::of(&Arc::default());
                        barrier.wait();
                        match nth % 3 {
                            0 => drop(shared.enlist_session([nth; 16], Known { streams, echoes })),
                            1 => drop(shared.enlist_iperf3([nth; 37], sync_channel(1).0)),
                            // It stays.
                            _ => std::mem::forget(shared.enlist_iperf2(address, Transport::Tcp)),
                        }
                    });
                }
            });
            assert_eq!(shared.clients().connected(), 2);
            *shared.clients() = Clients::default();
        }
    }

    #[test]
    fn a_client_is_counted_once_whatever_it_opens_and_until_it_has_closed_all() {
        let options = ServerOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            sessions_max: 1,
            ..ServerOptions::default()
        };
        let server = Server::listen(options, Arc::default()).unwrap();
        let enlist = |last| {
            let address = IpAddr::from([127, 0, 0, last]);
            server.shared.enlist_iperf2(address, Transport::Tcp)
        };
        let (first, second) = (enlist(1).unwrap(), enlist(1).unwrap());
        assert!(enlist(2).is_none());
        drop(first);
        assert!(enlist(2).is_none());
        drop(second);
        assert!(enlist(2).is_some());
        assert_eq!(server.shared.clients().count(), 0);
    }
}
