//! One half of a flow's optimiser, as a gateway drives it.
//!
//! The near half faces the client, the far half the server. Between them runs the flow, which carries items
//! (`item.rs`) until one half gives up, and the application's bytes as they are from there on.

use bytes::{Bytes, BytesMut};

use crate::detect::{Protocol, Verdict, detect};
use crate::item::{Item, Items};
use crate::output::{Outbox, Output};
use crate::reason::Reason;
use crate::settings::Settings;
use crate::smb::{Far, NearSmb};
use crate::stats::Stats;

/// Everything a gateway needs to know about optimisers.
#[derive(Debug)]
pub struct Half {
    settings: Settings,
    state: State,
    items: Items,
    out: Outbox,
    stats: Stats,
    has_local_ended: bool,
    has_peer_ended: bool,
    answers_writes: bool,
}

#[derive(Debug)]
enum State {
    /// Near: the client's first bytes, until they tell.
    Detecting {
        held: BytesMut,
        due_ns: Option<u64>,
    },
    /// Far: until the near half knows, or the server speaks first.
    Waiting,
    NearSmb(Box<NearSmb>),
    FarSmb(Box<Far>),
    Opaque,
}

impl Half {
    /// The half that faces the client.
    #[must_use]
    pub fn near(settings: Settings) -> Self {
        let held = BytesMut::new();
        let mut half = Self::new(settings, State::Detecting { held, due_ns: None });
        if !settings.can_gain() {
            half.surrender(Reason::NoGain);
        }
        half
    }

    /// The half that faces the server.
    #[must_use]
    pub fn far(settings: Settings) -> Self {
        Self::new(settings, State::Waiting)
    }

    fn new(settings: Settings, state: State) -> Self {
        Self {
            settings,
            state,
            items: Items::default(),
            out: Outbox::default(),
            stats: Stats::default(),
            has_local_ended: false,
            has_peer_ended: false,
            answers_writes: true,
        }
    }

    /// The same half, but every write of its client's is the server's to answer.
    #[must_use]
    pub fn without_write_behind(mut self) -> Self {
        self.answers_writes = false;
        self
    }

    /// Bytes from the application.
    pub fn handle_local(&mut self, now_ns: u64, bytes: Bytes) {
        self.tell_time(now_ns);
        let result = match &mut self.state {
            State::Detecting { held, due_ns } => {
                held.extend_from_slice(&bytes);
                due_ns.get_or_insert(now_ns.saturating_add(self.settings.detect_ns_max));
                self.decide(&[]);
                Ok(())
            }
            State::NearSmb(smb) => smb.handle_client(&bytes, &mut self.out, &mut self.stats),
            State::FarSmb(smb) => smb.handle_server(&bytes, &mut self.out, &mut self.stats),
            State::Waiting => {
                // What a server that speaks first says in the round trip until the near half has answered would be items:
                // at the speed of what is repeated, hundreds of megabytes with a stranger's five bytes in every 64 KiB.
                self.surrender(Reason::ServerFirst);
                self.out.peer(bytes);
                Ok(())
            }
            State::Opaque => {
                self.out.peer(bytes);
                Ok(())
            }
        };
        self.settle(result);
    }

    /// Bytes from the flow.
    pub fn handle_peer(&mut self, now_ns: u64, bytes: Bytes) {
        self.tell_time(now_ns);
        self.items.push(bytes);
        while !self.out.is_cut() {
            match self.items.poll() {
                Ok(Some(item)) => self.handle_item(item),
                Ok(None) => break,
                // Not what our other half sends: what follows cannot be told apart.
                Err(_) => self.out.cut(Reason::Halves),
            }
        }
    }

    /// The application sends no more.
    pub fn handle_local_end(&mut self) {
        self.has_local_ended = true;
        let result = match &mut self.state {
            State::Detecting { .. } => {
                // What was said is all there is.
                self.surrender(Reason::UnknownProtocol);
                Ok(())
            }
            State::NearSmb(smb) => smb.handle_client_end(&mut self.out),
            State::FarSmb(smb) => smb.handle_server_end(&mut self.out),
            State::Waiting | State::Opaque => Ok(()),
        };
        self.settle(result);
        if !matches!(self.state, State::NearSmb(_)) {
            self.out.peer_end();
        }
        self.end_both();
    }

    /// The flow sends no more.
    pub fn handle_peer_end(&mut self) {
        self.has_peer_ended = true;
        if !self.items.is_between() {
            return self.out.cut(Reason::Halves);
        }
        let result = match &mut self.state {
            State::NearSmb(smb) => smb.handle_server_end(&mut self.out),
            State::FarSmb(smb) => smb.handle_client_end(&mut self.out, &mut self.stats),
            State::Detecting { .. } | State::Waiting | State::Opaque => Ok(()),
        };
        self.settle(result);
        // The far half of SMB may have to wait for the server first.
        if !matches!(self.state, State::FarSmb(_)) {
            self.out.local_end();
        }
        self.end_both();
    }

    /// Of an application that has ended nothing is to be waited for before it hears of the other's end.
    fn end_both(&mut self) {
        if self.has_local_ended && self.has_peer_ended {
            self.out.local_end();
        }
    }

    /// The time that was asked for has come.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.tell_time(now_ns);
        let is_due = self.due_ns().is_some_and(|at| at <= now_ns);
        match &mut self.state {
            State::Detecting { .. } if is_due => self.surrender(Reason::DetectLate),
            State::FarSmb(smb) if is_due => {
                let result = smb.handle_due(&mut self.out, &mut self.stats);
                self.settle(result);
            }
            _ => (),
        }
    }

    /// What the link carries towards the other half has been measured anew.
    pub fn handle_link(&mut self, settings: &Settings) {
        match &mut self.state {
            State::FarSmb(smb) => smb.handle_link(settings, &mut self.out, &mut self.stats),
            State::NearSmb(smb) => smb.handle_link(settings),
            _ => (),
        }
    }

    /// Whether it reads further ahead over a faster link.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        matches!(self.state, State::FarSmb(_))
    }

    /// Whether the other half could be heard a moment ago. While it cannot, nothing is answered in its place. And whether
    /// all that it has said lately can be taken to have come: not when it was silent for long, and for a while after that.
    pub fn handle_hearing(&mut self, now_ns: u64, is_heard: bool, is_sure: bool) {
        match &mut self.state {
            State::NearSmb(smb) => {
                smb.handle_hearing((is_heard, is_sure), &mut self.out, &mut self.stats);
            }
            State::FarSmb(smb) => smb.handle_hearing(!is_heard && !is_sure, now_ns),
            _ => (),
        }
    }

    /// Whether the server may say something that must not wait, however much waits for the flow: somebody wants a file of which
    /// the near half may hold something.
    #[must_use]
    pub fn must_listen(&self) -> bool {
        match &self.state {
            State::FarSmb(smb) => smb.may_be_recalled(),
            _ => false,
        }
    }

    /// Whether the server's end is to overtake what the server said before, for a client that has not ended: what the near half
    /// holds of files is no longer protected from others.
    #[must_use]
    pub fn must_break(&self) -> bool {
        self.must_listen() && !self.has_peer_ended
    }

    /// Whether the client may have been told of writes that are not at the server yet: when the client is gone, they are to get there
    /// all the same.
    #[must_use]
    pub fn owes(&self) -> bool {
        match &self.state {
            State::NearSmb(smb) => smb.owes(),
            _ => false,
        }
    }

    /// Bytes of writes that the client was told are done, and that may not be at the server: lost if the flow ends now.
    #[must_use]
    pub fn owed_bytes(&self) -> u64 {
        match &self.state {
            State::NearSmb(smb) => smb.owed_bytes(),
            _ => 0,
        }
    }

    /// Stop optimising: every byte from here on passes as it is, or as good as that where the
    /// protocol does not allow to go back (`docs/design/optimisers.md`).
    pub fn handle_give_up(&mut self, reason: Reason) {
        match &mut self.state {
            State::Opaque => (),
            State::NearSmb(smb) => smb.give_up(reason, &mut self.out),
            State::FarSmb(smb) => {
                let result = smb.give_up(reason, &mut self.out);
                self.settle(result);
            }
            State::Detecting { .. } | State::Waiting => self.surrender(reason),
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Output {
        if let Some(output) = self.out.poll() {
            return output;
        }
        self.due_ns().map_or(Output::Idle, Output::Timeout)
    }

    /// Why the flow is not optimised, if it is not.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.out.reason()
    }

    /// Bytes of the flow that wait for the application to answer: while they are many, no more should be handed over.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::FarSmb(smb) => smb.held_bytes(),
            _ => 0,
        }
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn due_ns(&self) -> Option<u64> {
        match &self.state {
            State::Detecting { due_ns, .. } => *due_ns,
            State::FarSmb(smb) => smb.due_ns(),
            _ => None,
        }
    }

    fn tell_time(&mut self, now_ns: u64) {
        if let State::FarSmb(smb) = &mut self.state {
            smb.handle_time(now_ns);
        }
    }

    fn handle_item(&mut self, item: Item) {
        let result = match (&mut self.state, item) {
            (_, Item::Opaque(reason)) => {
                self.surrender(reason);
                Ok(())
            }
            (State::Waiting, Item::Start(Protocol::Smb, knows)) => {
                let far = Far::new(self.settings, knows);
                self.state = State::FarSmb(Box::new(far));
                Ok(())
            }
            (State::Detecting { .. }, Item::Bytes(bytes)) => {
                self.decide(&bytes);
                self.out.local(bytes);
                Ok(())
            }
            (State::NearSmb(smb), Item::Bytes(bytes)) => smb.handle_server(&bytes, &mut self.out),
            (State::NearSmb(smb), Item::Message(message)) => {
                smb.handle_message(&message, &mut self.out, &mut self.stats)
            }
            (State::FarSmb(smb), Item::Bytes(bytes)) => {
                smb.handle_client(&bytes, &mut self.out, &mut self.stats)
            }
            (State::FarSmb(smb), Item::Message(message)) => {
                smb.handle_message(&message, &mut self.out, &mut self.stats)
            }
            (State::Opaque | State::Waiting, Item::Bytes(bytes)) => {
                self.out.local(bytes);
                Ok(())
            }
            // Said before the other half knew that we gave up.
            (State::Opaque, Item::Message(_) | Item::Start(..)) => Ok(()),
            _ => {
                self.out.cut(Reason::Halves);
                Ok(())
            }
        };
        self.settle(result);
    }

    /// Whether what is known of both directions tells what is spoken.
    fn decide(&mut self, server: &[u8]) {
        let State::Detecting { held, .. } = &mut self.state else {
            return;
        };
        match detect(held, server) {
            Verdict::More => (),
            Verdict::Not(reason) => self.surrender(reason),
            Verdict::Is(Protocol::Smb) => {
                let held = held.split();
                self.out.start(Protocol::Smb);
                let mut near = NearSmb::new(self.settings);
                if !self.answers_writes {
                    near.leave_writes();
                }
                let result = near.handle_client(&held, &mut self.out, &mut self.stats);
                self.state = State::NearSmb(Box::new(near));
                self.settle(result);
            }
        }
    }

    fn settle(&mut self, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.surrender(reason);
        }
    }

    /// From here on both directions are opaque; what was held goes first.
    fn surrender(&mut self, reason: Reason) {
        let result = match &mut self.state {
            State::Detecting { held, .. } => {
                let held = held.split().freeze();
                self.out.opaque(reason);
                self.out.peer(held);
                Ok(())
            }
            State::NearSmb(smb) => smb.surrender(&mut self.out),
            State::FarSmb(smb) => smb.surrender(&mut self.out),
            State::Waiting | State::Opaque => Ok(()),
        };
        if result.is_err() {
            return self.out.cut(reason);
        }
        self.out.opaque(reason);
        let was_near = matches!(self.state, State::NearSmb(_));
        self.state = State::Opaque;
        if was_near && self.has_local_ended {
            self.out.peer_end();
        }
    }
}
