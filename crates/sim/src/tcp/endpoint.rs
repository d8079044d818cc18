//! One end of a connection: handshake, both halves, timers.

use super::profile::Profile;
use super::receiver::Receiver;
use super::retransmit_timer::RetransmitTimer;
use super::segment::{SackBlocks, Segment};
use super::sender::{Piece, Sender};

/// What one end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which TCP.
    pub profile: Profile,
    /// The maximum segment size both ends agreed on.
    pub mss_bytes: u32,
    /// Send and receive buffer each: bounds what is outstanding, and is the
    /// window offered.
    pub buffer_bytes: u64,
    /// When the host's coarse ticks fall, relative to time 0.
    pub phase_ns: u64,
}

/// What the application should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The handshake is through, as this end sees it.
    Connected,
    /// So many new bytes arrived in order, and were read.
    Received(u64),
    /// The other end has nothing more to say.
    PeerFinished,
    /// Both directions ended and are acknowledged.
    Closed,
    /// The other end did not answer: given up.
    Failed,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Send this; ask again.
    Transmit(Segment),
    /// Tell the application; ask again.
    Event(Event),
    /// Nothing before this time: call [`Endpoint::handle_timeout`] then.
    Timeout(u64),
    /// Nothing until something is handed in.
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Listening,
    SynSent,
    SynReceived,
    Established,
    /// Closed or given up, and the application knows.
    Over,
}

/// Events that wait to be polled, in the order they are told.
#[derive(Debug, Clone, Copy, Default)]
struct Pending {
    is_connected: bool,
    received_bytes: u64,
    is_finished: bool,
    is_closed: bool,
    is_failed: bool,
}

/// One end of a connection.
#[derive(Debug, Clone)]
pub struct Endpoint {
    options: Options,
    state: State,
    sender: Sender,
    receiver: Receiver,
    timer: RetransmitTimer,
    resend_at_ns: Option<u64>,
    is_syn_due: bool,
    pending: Pending,
}

impl Endpoint {
    /// An end that waits for a SYN.
    pub fn listen(options: Options) -> Self {
        let mss = u64::from(options.profile.payload_bytes(options.mss_bytes));
        Self {
            state: State::Listening,
            sender: Sender::new(&options.profile, mss, options.buffer_bytes),
            receiver: Receiver::new(options.profile.quick_acks),
            timer: RetransmitTimer::new(options.profile.clock, options.phase_ns),
            resend_at_ns: None,
            is_syn_due: false,
            pending: Pending::default(),
            options,
        }
    }

    /// An end that sends a SYN at once.
    pub fn connect(options: Options) -> Self {
        Self {
            state: State::SynSent,
            is_syn_due: true,
            ..Self::listen(options)
        }
    }

    /// Appends bytes to what this end sends; before the handshake they wait.
    pub fn write(&mut self, bytes: u64) {
        self.sender.write(bytes);
    }

    /// Half-closes: nothing more will be written.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Bytes written that the other end has not acknowledged.
    pub fn backlog_bytes(&self) -> u64 {
        self.sender.backlog_bytes()
    }

    /// The congestion window.
    pub fn window_bytes(&self) -> u64 {
        self.sender.window_bytes()
    }

    /// Payload of a full segment.
    pub fn payload_bytes(&self) -> u64 {
        u64::from(self.options.profile.payload_bytes(self.options.mss_bytes))
    }

    /// A segment arrived.
    pub fn handle_segment(&mut self, now_ns: u64, segment: &Segment) {
        if self.state == State::Over {
            // TIME-WAIT's one duty: our last acknowledgement was lost.
            if segment.is_fin {
                self.receiver.demand_ack();
            }
            return;
        }
        if segment.is_syn {
            self.handle_syn(segment);
        } else if matches!(self.state, State::Listening | State::SynSent) {
            return; // a stray of another life
        }
        let profile = self.options.profile;
        let acked = self
            .sender
            .handle_ack(now_ns, segment, &profile, &mut self.timer);
        if acked > 0 {
            self.establish();
            self.resend_at_ns = self
                .sender
                .is_outstanding()
                .then(|| self.timer.deadline_ns(now_ns));
        }
        if !segment.is_syn {
            self.receive(now_ns, segment);
        }
        self.close_if_done();
    }

    fn handle_syn(&mut self, segment: &Segment) {
        match self.state {
            State::Listening => {
                self.state = State::SynReceived;
                self.is_syn_due = true;
            }
            State::SynReceived => self.is_syn_due = true,
            State::SynSent | State::Established => self.receiver.demand_ack(),
            State::Over => {}
        }
        self.receiver.synchronise(segment);
    }

    fn establish(&mut self) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.state = State::Established;
            self.pending.is_connected = true;
        }
    }

    fn receive(&mut self, now_ns: u64, segment: &Segment) {
        let mss = self.payload_bytes();
        let arrival = self.receiver.handle_data(now_ns, segment, mss, &self.timer);
        self.pending.received_bytes += arrival.bytes;
        self.pending.is_finished |= arrival.is_last;
    }

    fn close_if_done(&mut self) {
        let is_done = self.sender.is_finished() && self.receiver.is_finished();
        if is_done && self.state == State::Established {
            self.pending.is_closed = true;
        }
    }

    /// Time has passed: what is due happens.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.receiver.handle_timeout(now_ns);
        if self.resend_at_ns.is_some_and(|at_ns| at_ns <= now_ns) && self.state != State::Over {
            self.resend_at_ns = None;
            self.resend(now_ns);
        }
    }

    fn resend(&mut self, now_ns: u64) {
        if !self.timer.back_off() {
            self.pending.is_failed = true;
            return;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.is_syn_due = true,
            _ => self
                .sender
                .handle_timeout(&self.options.profile, self.timer.attempts()),
        }
        self.resend_at_ns = Some(self.timer.deadline_ns(now_ns));
    }

    /// What happens next. Call until it says `Timeout` or `Idle`.
    pub fn poll_output(&mut self, now_ns: u64) -> Output {
        if let Some(event) = self.next_event() {
            return Output::Event(event);
        }
        if let Some(segment) = self.next_segment(now_ns) {
            return Output::Transmit(segment);
        }
        if self.state != State::Over {
            let waits = [self.resend_at_ns, self.receiver.ack_at_ns()];
            if let Some(at_ns) = waits.into_iter().flatten().min() {
                return Output::Timeout(at_ns);
            }
        }
        Output::Idle
    }

    fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.pending.is_connected) {
            return Some(Event::Connected);
        }
        if self.pending.received_bytes > 0 {
            let bytes = std::mem::take(&mut self.pending.received_bytes);
            return Some(Event::Received(bytes));
        }
        if std::mem::take(&mut self.pending.is_finished) {
            return Some(Event::PeerFinished);
        }
        // The last acknowledgement leaves before the end is told.
        if self.pending.is_closed && !self.receiver.owes_ack() {
            self.pending.is_closed = false;
            self.state = State::Over;
            return Some(Event::Closed);
        }
        if std::mem::take(&mut self.pending.is_failed) {
            self.state = State::Over;
            return Some(Event::Failed);
        }
        None
    }

    fn next_segment(&mut self, now_ns: u64) -> Option<Segment> {
        if std::mem::take(&mut self.is_syn_due) {
            self.sender.synchronise(now_ns);
            let segment = Segment {
                is_syn: true,
                ..self.segment(now_ns, None)
            };
            return Some(self.sent(now_ns, segment));
        }
        if self.state == State::Established {
            let wait_ns = self.timer.wait_ns();
            if let Some(piece) = self.sender.next(now_ns, &self.options.profile, wait_ns) {
                let segment = self.segment(now_ns, Some(piece));
                return Some(self.sent(now_ns, segment));
            }
        }
        self.receiver.owes_ack().then(|| {
            let segment = self.segment(now_ns, None);
            self.receiver.said();
            // Where nothing can be sent, what it acknowledges begins here.
            Segment {
                sack: self.sack_blocks(),
                ..segment
            }
        })
    }

    fn sack_blocks(&self) -> SackBlocks {
        if self.options.profile.recovery == super::Recovery::Sack {
            self.receiver.sack_blocks()
        } else {
            SackBlocks::default()
        }
    }

    fn segment(&self, now_ns: u64, piece: Option<Piece>) -> Segment {
        let ack = self.receiver.next();
        let has_timestamps = self.options.profile.timestamps;
        Segment {
            seq: piece.map_or(0, |piece| piece.seq),
            ack: (ack > 0).then_some(ack),
            payload_bytes: piece.map_or(0, |piece| piece.payload_bytes),
            window_bytes: self.options.buffer_bytes,
            is_syn: false,
            is_fin: piece.is_some_and(|piece| piece.is_fin),
            sack: SackBlocks::default(),
            timestamp_ns: if has_timestamps { now_ns } else { 0 },
            echo_ns: if has_timestamps {
                self.receiver.echo_ns()
            } else {
                0
            },
        }
    }

    /// A segment that takes sequence numbers leaves: it is waited for.
    fn sent(&mut self, now_ns: u64, segment: Segment) -> Segment {
        self.receiver.said();
        if self.resend_at_ns.is_none() {
            self.resend_at_ns = Some(self.timer.deadline_ns(now_ns));
        }
        segment
    }
}
