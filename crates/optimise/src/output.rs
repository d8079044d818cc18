//! What a half wants done.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::detect::Protocol;
use crate::item::{Item, KNOWS_OFFERED_FILES};
use crate::reason::Reason;

/// To be done in the order in which it is polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write to the application.
    Local(Bytes),
    /// Write to the flow.
    Peer(Bytes),
    /// No more comes for the application: half close.
    LocalEnd,
    /// No more comes for the flow: half close.
    PeerEnd,
    /// To be told.
    Event(Event),
    /// Reset both directions. Nothing more comes.
    Cut(Reason),
    /// Nothing to do before this time, unless something arrives.
    Timeout(u64),
    /// Nothing to do until something arrives.
    Idle,
}

/// What log and status should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// From here on the connection is optimised.
    Recognised(Protocol),
    /// From here on it is not.
    GaveUp(Reason),
}

/// Collects outputs. Each `handle_*` adds to it, `poll_output` takes from it.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Output>,
    /// Items have ended in our direction.
    is_plain: bool,
    gave_up: Option<Reason>,
    is_cut: bool,
    has_peer_ended: bool,
    has_local_ended: bool,
}

impl Outbox {
    /// For the application.
    pub fn local(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.push(Output::Local(bytes));
        }
    }

    /// Of the application, for the other half.
    pub fn peer(&mut self, bytes: Bytes) {
        match (bytes.is_empty(), self.is_plain) {
            (true, _) => (),
            (false, true) => self.push(Output::Peer(bytes)),
            (false, false) => self.item(Item::Bytes(bytes)),
        }
    }

    /// For the other half. Nothing is said behind the end of items.
    pub fn message(&mut self, message: Vec<u8>) {
        if !self.is_plain {
            self.item(Item::Message(message.into()));
        }
    }

    pub(crate) fn start(&mut self, protocol: Protocol) {
        self.item(Item::Start(protocol, KNOWS_OFFERED_FILES));
        self.push(Output::Event(Event::Recognised(protocol)));
    }

    /// Items end in our direction.
    pub(crate) fn opaque(&mut self, reason: Reason) {
        if !self.is_plain {
            self.item(Item::Opaque(reason));
            self.is_plain = true;
        }
        self.gave_up(reason);
    }

    /// The connection is no longer optimised. Told once.
    pub fn gave_up(&mut self, reason: Reason) {
        if self.gave_up.is_none() {
            self.gave_up = Some(reason);
            self.push(Output::Event(Event::GaveUp(reason)));
        }
    }

    /// Why the connection is not optimised.
    pub fn reason(&self) -> Option<Reason> {
        self.gave_up
    }

    /// The application gets no more.
    pub fn local_end(&mut self) {
        if !self.has_local_ended {
            self.push(Output::LocalEnd);
            self.has_local_ended = true;
        }
    }

    /// The flow gets no more.
    pub fn peer_end(&mut self) {
        if !self.has_peer_ended {
            self.push(Output::PeerEnd);
            self.has_peer_ended = true;
        }
    }

    /// Both directions end here.
    pub fn cut(&mut self, reason: Reason) {
        self.gave_up(reason);
        self.push(Output::Cut(reason));
        self.is_cut = true;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    fn item(&mut self, item: Item) {
        let mut encoded = Vec::new();
        item.encode(&mut encoded);
        encoded
            .into_iter()
            .for_each(|bytes| self.push(Output::Peer(bytes)));
    }

    /// Nothing follows an end.
    fn push(&mut self, output: Output) {
        let is_late = match &output {
            Output::Peer(_) => self.has_peer_ended,
            Output::Local(_) => self.has_local_ended,
            _ => false,
        };
        if !self.is_cut && !is_late {
            self.queue.push_back(output);
        }
    }
}
