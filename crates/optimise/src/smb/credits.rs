//! Credits: how many requests client and far half may have at the server (MS-SMB2 3.3.1.2).
//!
//! The far half asks for more in the client's requests than the client did, keeps what comes of that, and spends only
//! it. The client never has less than it would have without us, as far as the server grants what is asked; one that has
//! taken nearly all there are leaves us some of those that come back.

/// A client that has so many left can do without the next: the longest read takes 128.
pub const PLENTY: i64 = 512;

/// More than we need for anything.
const SPARE_MAX: u32 = 1024;

/// The far half's account.
#[derive(Debug, Default)]
pub struct Credits {
    /// Granted by the server and not given to the client.
    spare: u32,
    /// Asked for beyond what the client asked, not yet answered.
    asked: u32,
    /// What the client has left.
    client: i64,
    /// What it was given in all.
    given: u64,
}

/// What was asked in a request of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// By the client.
    pub by_client: u16,
    /// By us in addition, as long as it is not answered.
    pub by_us: u16,
    /// What is granted is shared: the request did not pass as it was.
    pub is_shared: bool,
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

    /// How many to ask for in addition so that there are `wanted` some day.
    pub fn ask(&mut self, by_client: u16, wanted: u32) -> Asked {
        let missing = wanted.saturating_sub(self.spare + self.asked);
        let by_us = missing.min(u32::from(u16::MAX - by_client)) as u16;
        self.asked += u32::from(by_us);
        Asked {
            by_client,
            by_us,
            is_shared: by_us > 0,
        }
    }

    /// The server granted credits in an answer to the client; returns how many the client is told of.
    /// An answer that is announced first grants in both.
    pub fn handle_grant(&mut self, granted: u16, asked: &mut Asked, is_alone: bool) -> u16 {
        let total = self.spare + u32::from(granted);
        let mut given = match asked.is_shared {
            true if self.client >= PLENTY => {
                granted.saturating_sub(asked.by_us).min(asked.by_client)
            }
            true => granted.min(asked.by_client),
            false => granted,
        };
        // What we have too much of goes back.
        let surplus = self.spare.saturating_sub(SPARE_MAX);
        let missing = u32::from(asked.by_client.saturating_sub(given));
        if asked.is_shared && self.client < PLENTY {
            given += surplus.min(missing) as u16;
        }
        // A client without credits and without requests could never go on; a server that leaves it
        // without counts ours.
        if given == 0 && is_alone && self.client <= 0 && total > 0 {
            given = 1;
        }
        self.spare = total.saturating_sub(given.into());
        self.asked = self.asked.saturating_sub(asked.by_us.into());
        asked.by_us = 0;
        asked.by_client = asked.by_client.saturating_sub(given);
        self.client += i64::from(given);
        self.given += u64::from(given);
        given
    }

    /// The server granted credits in an answer to us.
    pub fn handle_own_grant(&mut self, granted: u16, asked: &mut Asked) {
        self.asked = self.asked.saturating_sub(asked.by_us.into());
        asked.by_us = 0;
        self.spare += u32::from(granted);
    }

    /// Takes credits for a request of ours.
    pub fn spend(&mut self, charge: u32) -> bool {
        let is_enough = self.spare >= charge;
        if is_enough {
            self.spare -= charge;
        }
        is_enough
    }

    /// What the client was given since the connection began.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Ours to spend.
    #[must_use]
    pub fn spare(&self) -> u32 {
        self.spare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(credits.spare(), 0);
        // An interim answer granted one of four; three are left for the last.
        assert_eq!(asked.by_client, 3);
    }

    #[test]
    fn a_client_that_has_taken_all_leaves_some() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(8192, 0);
        assert_eq!(credits.handle_grant(8192, &mut asked, true), 8192);
        for nth in 0..3 {
            credits.handle_request(1);
            let mut asked = credits.ask(1, 20);
            assert_eq!(credits.handle_grant(1, &mut asked, true), 0);
            assert_eq!(credits.spare(), nth + 1);
        }
    }

    #[test]
    fn what_is_too_much_goes_back() {
        let mut credits = Credits::new();
        credits.handle_request(1);
        let mut asked = credits.ask(0, 4000);
        assert_eq!(credits.handle_grant(4000, &mut asked, false), 0);
        let mut asked = credits.ask(600, 0);
        assert_eq!(credits.handle_grant(1, &mut asked, true), 1, "as it was");
        let mut asked = Asked {
            by_client: 600,
            by_us: 1,
            is_shared: true,
        };
        assert_eq!(credits.handle_grant(2, &mut asked, true), 600);
        assert_eq!(credits.spare(), 4000 - 598);
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
        };
        assert_eq!(credits.handle_grant(0, &mut asked, true), 1, "out of ours");
        assert_eq!(credits.spare(), 19);
    }
}
