//! Credits: how many requests client and far half may have at the server (MS-SMB2 3.3.1.2).
//!
//! The far half asks for more in the client's requests than the client did, and what comes of that is its own. A client
//! that has plenty is given all that it asks for and the server has granted, and lends us some of what it does not use.
//! So no client ever has less than it would have without us. Should it use what it has lent, it waits until our requests
//! are answered.

use super::netbios::PREFIX_BYTES;
use super::smb2::header::Header;

/// A client that has so many left can do without the next: the longest read takes 128.
pub const PLENTY: i64 = 512;

/// More than we need for anything.
const SPARE_MAX: i64 = 1024;
/// What a client lends at most.
const BORROWED_MAX: i64 = 64;

/// The far half's account.
#[derive(Debug, Default)]
pub struct Credits {
    /// Granted by the server and not given to the client; below nothing: borrowed of what the client has left.
    spare: i64,
    /// Asked for beyond what the client asked, not yet answered.
    asked: u32,
    /// What the client has left.
    client: i64,
    /// What it was given in all.
    given: u64,
    /// Spent for requests of ours that are at the server.
    working: i64,
    /// With the near half, for writes that it answers.
    room: u32,
}

/// More than the near half was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Few;

/// What was asked in a request of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// By the client.
    pub by_client: u16,
    /// By us in addition, as long as it is not answered.
    pub by_us: u16,
    /// What is granted is shared: the request did not pass as it was.
    pub is_shared: bool,
    /// More than the server grants may be given.
    pub may_grow: bool,
}

impl Asked {
    /// In a request that passes as it is.
    #[must_use]
    pub fn alone(by_client: u16) -> Self {
        Self {
            by_client,
            ..Self::default()
        }
    }
}

impl Credits {
    /// Of a connection without messages: the client may send one (MS-SMB2 3.3.1.1).
    #[must_use]
    pub fn new() -> Self {
        Self {
            client: 1,
            ..Self::default()
        }
    }

    /// The client sent a request.
    pub fn handle_request(&mut self, charge: u64) {
        self.client -= charge as i64;
    }

    /// A request that the client has sent need not go to the server, or will be counted then.
    pub fn handle_returned(&mut self, packet: &[u8]) {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let header = Header::parse(message);
        self.client += header.map_or(0, |header| header.ids_taken() as i64);
    }

    /// Whether requests of ours use what the client has lent.
    #[must_use]
    pub fn is_borrowing(&self) -> bool {
        self.spare < 0
    }

    /// Whether requests of the client's that take so many are more than the server takes now: it has lent them.
    #[must_use]
    pub fn lacks(&self, charge: u64) -> bool {
        let left = self.client + self.spare + i64::from(self.room);
        self.is_borrowing() && left < charge as i64
    }

    /// How many to ask for in addition so that there are `wanted` some day.
    pub fn ask(&mut self, by_client: u16, wanted: u32) -> Asked {
        let missing = wanted.saturating_sub(self.spare() + self.asked);
        let by_us = missing.min(u32::from(u16::MAX - by_client)) as u16;
        self.asked += u32::from(by_us);
        Asked {
            by_client,
            by_us,
            is_shared: by_us > 0,
            may_grow: true,
        }
    }

    /// The server granted credits in an answer to the client; returns how many the client is told of.
    /// An answer that is announced first grants in both.
    pub fn handle_grant(&mut self, granted: u16, asked: &mut Asked, is_alone: bool) -> u16 {
        let total = self.spare + i64::from(granted);
        let most = match asked.is_shared {
            true => granted.min(asked.by_client),
            false => granted,
        };
        // What our requests have cost for good comes out of what follows.
        let lost = (-self.spare - self.working).clamp(0, most.into());
        let mut given = most - lost as u16;
        let missing = i64::from(asked.by_client.saturating_sub(most));
        given += self.surplus(given, asked).min(missing) as u16;
        // A client without credits and without requests could never go on; a server that leaves it
        // without counts ours.
        let is_dry = given == 0 && is_alone && self.client <= 0;
        if is_dry && total + i64::from(self.room) > 0 {
            given = 1;
        }
        self.spare = total - i64::from(given);
        self.asked = self.asked.saturating_sub(asked.by_us.into());
        asked.by_us = 0;
        asked.by_client = asked.by_client.saturating_sub(given);
        self.client += i64::from(given);
        self.given += u64::from(given);
        given
    }

    /// What goes to the client of what we had before: all if it can lend, else what is too much.
    fn surplus(&self, given: u16, asked: &Asked) -> i64 {
        let is_plenty = self.client + i64::from(given) >= PLENTY;
        match is_plenty {
            true if asked.may_grow => self.spare.max(0),
            false if asked.is_shared => (self.spare - SPARE_MAX).max(0),
            _ => 0,
        }
    }

    /// The server granted credits in an answer to us.
    pub fn handle_own_grant(&mut self, granted: u16, asked: &mut Asked) {
        self.asked = self.asked.saturating_sub(asked.by_us.into());
        asked.by_us = 0;
        self.spare += i64::from(granted);
    }

    /// A request of ours is answered for the last time.
    pub fn handle_own_end(&mut self) {
        self.working = (self.working - 1).max(0);
    }

    /// Gives credits of our own to the near half.
    pub fn spend(&mut self, charge: u32) -> bool {
        let is_enough = self.spare() >= charge;
        if is_enough {
            self.spare -= i64::from(charge);
            self.room += charge;
        }
        is_enough
    }

    /// The near half has spent so many of its own.
    ///
    /// # Errors
    /// When it has not so many.
    pub fn spend_room(&mut self, charge: u32) -> Result<(), Few> {
        self.room = self.room.checked_sub(charge).ok_or(Few)?;
        Ok(())
    }

    /// What the near half has.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Takes a credit for a request of ours. One that somebody waits for borrows of a client that has few, too.
    pub fn take(&mut self, is_awaited: bool) -> bool {
        let kept = if is_awaited { 0 } else { PLENTY };
        let is_enough = self.left(kept) > 0;
        if is_enough {
            self.spare -= 1;
            self.working += 1;
        }
        is_enough
    }

    /// What requests of ours may take of a client that keeps so many.
    fn left(&self, kept: i64) -> u32 {
        let lent = (self.client - kept).clamp(0, BORROWED_MAX);
        u32::try_from(self.spare + lent).unwrap_or(0)
    }

    /// What the client was given since the connection began.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Ours to spend.
    #[must_use]
    pub fn spare(&self) -> u32 {
        u32::try_from(self.spare).unwrap_or(0)
    }

    /// Ours, and what the client lends.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.left(PLENTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a client that has taken all there are.
    fn of_plenty(granted: u16) -> Credits {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(u16::MAX, 20);
        assert_eq!(credits.handle_grant(granted, &mut asked, true), granted);
        credits
    }

    #[test]
    fn what_the_client_did_not_ask_for_is_ours() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(3, 20);
        assert_eq!(asked.by_us, 20);
        assert_eq!(credits.ask(1, 20).by_us, 0, "they are on their way");
        assert_eq!(credits.handle_grant(23, &mut asked, true), 3);
        assert_eq!(credits.spare(), 20);
        assert!(!credits.spend(21));
        assert!(credits.spend(20));
        credits.handle_own_grant(2, &mut Asked::default());
        assert_eq!(credits.spare(), 2);
    }

    #[test]
    fn a_miserly_server_serves_the_client_first() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(4, 20);
        assert_eq!(credits.handle_grant(1, &mut asked, true), 1);
        assert_eq!((credits.spare(), credits.available()), (0, 0));
        // An interim answer granted one of four; three are left for the last.
        assert_eq!(asked.by_client, 3);
    }

    #[test]
    fn a_client_that_has_taken_all_keeps_it_and_lends_some() {
        let mut credits = of_plenty(8192);
        for _ in 0..3 {
            credits.handle_request(1);
            let mut asked = credits.ask(1, 20);
            assert_eq!(credits.handle_grant(1, &mut asked, true), 1);
        }
        assert_eq!((credits.spare(), credits.available()), (0, 64));
        assert!(!credits.spend(1), "what is borrowed is not lent on");
        assert!((0..64).all(|_| credits.take(false)));
        assert!(!credits.take(false));
        // It takes all that it has.
        credits.handle_request(8192 - 64);
        assert!(credits.lacks(1));
        credits.handle_own_grant(1, &mut Asked::default());
        credits.handle_own_end();
        assert!(!credits.lacks(1) && credits.lacks(2));
    }

    #[test]
    fn what_was_ours_goes_to_a_client_that_can_lend_it() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(1, 20);
        assert_eq!(credits.handle_grant(21, &mut asked, true), 1);
        credits.handle_request(1);
        let mut asked = credits.ask(u16::MAX, 20);
        assert_eq!(credits.handle_grant(8172, &mut asked, true), 8192);
        assert_eq!(credits.spare(), 0);
    }

    #[test]
    fn a_client_that_has_few_lends_only_what_somebody_waits_for() {
        let mut credits = of_plenty(1);
        assert!(!credits.take(false));
        assert!(credits.take(true));
        assert!(credits.lacks(1));
        assert!(!credits.take(true));
    }

    #[test]
    fn what_the_server_does_not_give_back_is_missing_from_what_follows() {
        let mut credits = of_plenty(600);
        assert!(credits.take(false) && credits.take(false));
        credits.handle_own_grant(0, &mut Asked::default());
        credits.handle_own_end();
        credits.handle_request(3);
        let mut asked = credits.ask(3, 0);
        assert_eq!(
            credits.handle_grant(3, &mut asked, true),
            2,
            "the other may come back"
        );
        credits.handle_own_grant(1, &mut Asked::default());
        credits.handle_own_end();
        assert_eq!((credits.spare, credits.client), (0, 599));
    }

    #[test]
    fn what_is_too_much_goes_back() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(0, 4000);
        assert_eq!(credits.handle_grant(4000, &mut asked, false), 0);
        let mut asked = Asked {
            by_client: 100,
            by_us: 1,
            is_shared: true,
            may_grow: true,
        };
        assert_eq!(credits.handle_grant(2, &mut asked, true), 100);
        assert_eq!(credits.spare(), 4000 - 98);
    }

    #[test]
    fn a_client_never_runs_dry_because_of_us() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(1, 20);
        credits.handle_grant(21, &mut asked, true);
        credits.handle_request(1);
        let mut asked = Asked {
            by_client: 1,
            by_us: 1,
            is_shared: true,
            may_grow: true,
        };
        assert_eq!(credits.handle_grant(0, &mut asked, true), 1, "out of ours");
        assert_eq!(credits.spare(), 19);
    }

    #[test]
    fn a_client_goes_on_with_what_the_near_half_does_not_use() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(1, 20);
        credits.handle_grant(21, &mut asked, true);
        assert!(credits.spend(20) && credits.room() == 20);
        credits.handle_request(1);
        let mut asked = credits.ask(1, 0);
        assert_eq!(credits.handle_grant(0, &mut asked, true), 1);
        assert!(!credits.lacks(1));
        assert_eq!(credits.spend_room(20), Ok(()));
        assert!(credits.lacks(1), "it waits for the writes");
        assert_eq!(credits.spend_room(1), Err(Few));
    }
}
