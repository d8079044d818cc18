//! Two proxies with a pool of standing connections between them. Replies are
//! multiplexed: a reply goes on the connection that has the least to do, and
//! pieces of several replies follow each other on one connection.

use super::exchange::Exchange;
use super::spans::Spans;
use super::study::Alarm;
use crate::network::{ConnectionId, Network, Side};
use crate::tcp::Options;

/// A connection of the pool.
#[derive(Debug)]
struct Lane {
    id: ConnectionId,
    asked: Spans,
    replying: Spans,
    is_dead: bool,
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    lanes: Vec<Lane>,
    /// Added to every segment of a reply.
    overhead_bytes: u64,
}

impl Pool {
    /// Opens all connections at once. They must be the network's first, and
    /// are never closed: so a lane is known by its connection's place.
    pub(super) fn open(
        net: &mut Network<Alarm>,
        circuit: usize,
        connections: u32,
        near: Options,
        far: Options,
        overhead_bytes: u64,
    ) -> Self {
        let lanes = (0..connections).map(|_| Lane {
            id: net.connect(circuit, near, far),
            asked: Spans::default(),
            replying: Spans::default(),
            is_dead: false,
        });
        Self {
            lanes: lanes.collect(),
            overhead_bytes,
        }
    }

    pub(super) fn owns(&self, id: ConnectionId) -> bool {
        self.lanes.get(id.index()).is_some_and(|lane| lane.id == id)
    }

    /// A connection of the pool failed: what it carried is lost.
    pub(super) fn handle_failure(&mut self, id: ConnectionId) {
        if let Some(lane) = self.lanes.get_mut(id.index()) {
            lane.is_dead = true;
        }
    }

    /// The lane on which `side` has the fewest bytes unsent or unacknowledged.
    fn least(&self, net: &Network<Alarm>, side: Side) -> Option<usize> {
        let live = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| !lane.is_dead);
        let least = live.min_by_key(|(_, lane)| net.backlog_bytes(lane.id, side));
        least.map(|(number, _)| number)
    }

    /// The near proxy passes a request on.
    pub(super) fn ask(&mut self, net: &mut Network<Alarm>, exchange: &Exchange, index: u32) {
        let bytes = u64::from(exchange.request.request_bytes);
        let number = self.least(net, Side::Client);
        if let Some(lane) = number.and_then(|number| self.lanes.get_mut(number)) {
            lane.asked.push(index, bytes);
            net.write(lane.id, Side::Client, bytes);
        }
    }

    /// Bytes of requests reached the far proxy; complete ones are added to `out`.
    pub(super) fn hear(
        &mut self,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        bytes: u64,
        out: &mut Vec<u32>,
    ) {
        if let Some(lane) = self.lanes.get_mut(id.index()) {
            deliver(&mut lane.asked, exchanges, bytes, |index, exchange| {
                if exchange.delivered_bytes >= u64::from(exchange.request.request_bytes) {
                    exchange.delivered_bytes = 0;
                    out.push(index);
                }
            });
        }
    }

    /// A segment of a reply reached the far proxy: it is queued for the lane
    /// that had the least to do when the reply's first segment came.
    pub(super) fn reply(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        index: u32,
        bytes: u64,
    ) {
        let Some(exchange) = exchanges.get_mut(index as usize) else {
            return;
        };
        if exchange.lane.is_none() {
            let least = self.least(net, Side::Server);
            exchange.lane = least.and_then(|number| u32::try_from(number).ok());
        }
        let lane = exchange
            .lane
            .and_then(|number| self.lanes.get_mut(number as usize));
        if let Some(lane) = lane {
            let bytes = bytes + self.overhead_bytes;
            exchange.forwarded_bytes += bytes;
            lane.replying.push(index, bytes);
            net.write(lane.id, Side::Server, bytes);
        }
    }

    /// Reply bytes reached the near proxy; finished exchanges are added to `out`.
    pub(super) fn collect(
        &mut self,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        bytes: u64,
        out: &mut Vec<u32>,
    ) {
        if let Some(lane) = self.lanes.get_mut(id.index()) {
            deliver(&mut lane.replying, exchanges, bytes, |index, exchange| {
                if exchange.is_fetched() && exchange.delivered_bytes >= exchange.forwarded_bytes {
                    out.push(index);
                }
            });
        }
    }
}

/// Bytes that arrived on a lane, told to the exchanges they belong to in the
/// order in which they were written.
fn deliver(
    spans: &mut Spans,
    exchanges: &mut [Exchange],
    bytes: u64,
    mut tell: impl FnMut(u32, &mut Exchange),
) {
    let mut left = bytes;
    while let Some((index, taken)) = spans.take(&mut left) {
        if let Some(exchange) = exchanges.get_mut(index as usize) {
            exchange.delivered_bytes += taken;
            tell(index, exchange);
        }
    }
}
