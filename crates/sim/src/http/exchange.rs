//! One request and its reply on their way through the world.

use crate::network::ConnectionId;
use crate::workload::Request;

/// State of an exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) request: Request,
    /// The connection that fetches it from its server.
    pub(super) carrier: Option<ConnectionId>,
    /// Request bytes that reached the server.
    pub(super) asked_bytes: u64,
    /// Reply bytes the server has let go, and those it had to hold back.
    pub(super) released_bytes: u64,
    pub(super) held_bytes: u64,
    /// When the server began, and how many pieces it lets go.
    pub(super) began_ns: u64,
    pub(super) pieces: u64,
    pub(super) released_pieces: u64,
    /// Reply bytes that reached who fetches.
    pub(super) fetched_bytes: u64,
    /// On the connection between two proxies: bytes written and arrived.
    pub(super) forwarded_bytes: u64,
    pub(super) delivered_bytes: u64,
    pub(super) lane: Option<u32>,
    pub(super) state: State,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its time has not come.
    Future,
    /// Asked for.
    UnderWay,
    /// The last byte arrived at this time.
    Done(u64),
    /// Its connection failed.
    Failed,
}

impl Exchange {
    pub(super) fn new(request: Request) -> Self {
        Self {
            // A reply has a status line at least, and a request a method.
            request: Request {
                reply_bytes: request.reply_bytes.max(1),
                request_bytes: request.request_bytes.max(1),
                ..request
            },
            carrier: None,
            asked_bytes: 0,
            released_bytes: 0,
            held_bytes: 0,
            began_ns: 0,
            pieces: 0,
            released_pieces: 0,
            fetched_bytes: 0,
            forwarded_bytes: 0,
            delivered_bytes: 0,
            lane: None,
            state: State::Future,
        }
    }

    pub(super) fn is_fetched(&self) -> bool {
        self.fetched_bytes >= self.request.reply_bytes
    }

    pub(super) fn is_released(&self) -> bool {
        self.released_bytes >= self.request.reply_bytes
    }

    /// The server begins to reply, in pieces of a segment each.
    pub(super) fn begin(&mut self, now_ns: u64, payload_bytes: u64) {
        self.began_ns = now_ns;
        self.pieces = self.request.reply_bytes.div_ceil(payload_bytes.max(1));
    }

    /// When the next piece is let go: evenly, so that the last one goes when
    /// the far network had delivered the whole reply.
    pub(super) fn next_release_ns(&self) -> u64 {
        let far_ns = u128::from(self.request.far_ns);
        let number = u128::from(self.released_pieces + 1);
        let share_ns = far_ns * number / u128::from(self.pieces.max(1));
        self.began_ns
            .saturating_add(u64::try_from(share_ns).unwrap_or(u64::MAX))
    }

    /// Lets go every piece whose time has come; says how many bytes.
    pub(super) fn release(&mut self, now_ns: u64, payload_bytes: u64) -> u64 {
        let mut bytes = 0;
        while !self.is_released() && self.next_release_ns() <= now_ns {
            let left = self.request.reply_bytes - self.released_bytes;
            let piece = left.min(payload_bytes.max(1));
            self.released_bytes += piece;
            self.released_pieces += 1;
            bytes += piece;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(reply_bytes: u64, far_ns: u64) -> Exchange {
        Exchange::new(Request {
            at_ns: 0,
            client: 0,
            host: 0,
            request_bytes: 300,
            reply_bytes,
            far_ns,
        })
    }

    #[test]
    fn a_reply_is_released_at_the_mean_rate_of_the_far_network() {
        let mut exchange = exchange(3500, 4000);
        exchange.begin(100, 1000);
        let mut seen = Vec::new();
        while !exchange.is_released() {
            let at_ns = exchange.next_release_ns();
            seen.push((at_ns, exchange.release(at_ns, 1000)));
        }
        assert_eq!(
            seen,
            [(1100, 1000), (2100, 1000), (3100, 1000), (4100, 500)]
        );
    }

    #[test]
    fn what_took_no_time_is_released_at_once_and_nothing_is_one_byte() {
        let mut fast = exchange(3500, 0);
        fast.begin(100, 1000);
        assert_eq!(fast.release(100, 1000), 3500);
        let mut empty = exchange(0, 7);
        empty.begin(100, 1000);
        assert_eq!(
            (empty.next_release_ns(), empty.release(107, 1000)),
            (107, 1)
        );
        assert!(empty.is_released());
    }
}
