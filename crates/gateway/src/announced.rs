//! A flow from the moment it counts as opened to its end.

use std::ops::Deref;
use std::sync::Arc;

use crate::event::{Event, FlowEnd};
use crate::flow::Facing;
use crate::flow_table::{Entry, FlowRecord};
use crate::gateway::Gateway;

/// Keeps a flow in the table and owes its end: whatever becomes of it, there
/// is one [`Event::FlowEnded`] for each [`Event::FlowOpened`].
pub(crate) struct Announced {
    gateway: Arc<Gateway>,
    entry: Entry,
    end: FlowEnd,
}

impl Gateway {
    /// The flow goes through the tunnel: its far side is connected, or its
    /// client was accepted on trust.
    pub(crate) fn announced(self: &Arc<Self>, entry: Entry) -> Announced {
        let info = &entry.info;
        self.events.emit(Event::FlowOpened {
            flow: entry.id,
            peer: info.peer.clone(),
            client: info.client,
            destination: info.destination.clone(),
            rule: info.rule.clone(),
        });
        let end = match info.facing {
            // Between SYN and connection a client may think better of it.
            Facing::Client => FlowEnd::ResetByClient,
            Facing::Server => FlowEnd::Failed,
        };
        Announced {
            gateway: self.clone(),
            entry,
            end,
        }
    }

    fn ended(&self, entry: &Entry, end: FlowEnd) {
        let (sent_bytes, received_bytes) = entry.bytes();
        let peers = self.peers();
        let of_flow = |peer: &&Arc<crate::peer::Peer>| peer.config().name == entry.info.peer;
        if let Some(peer) = peers.iter().find(of_flow) {
            peer.count_payload(sent_bytes, received_bytes);
            peer.count_optimised(&entry.optimiser().stats);
        }
        if end == FlowEnd::Overload {
            self.events.emit(Event::Full {
                bound: "receive_buffer_bytes_max",
            });
        }
        self.events.emit(Event::FlowEnded {
            flow: entry.id,
            peer: entry.info.peer.clone(),
            end,
            sent_bytes,
            received_bytes,
        });
    }
}

impl Announced {
    /// It has ended.
    pub(crate) fn conclude(mut self, end: FlowEnd) {
        self.end = end;
    }
}

impl Deref for Announced {
    type Target = FlowRecord;

    fn deref(&self) -> &FlowRecord {
        &self.entry
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.gateway.ended(&self.entry, self.end);
    }
}
