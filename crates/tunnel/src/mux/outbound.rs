//! To the wire: the next frame.

use super::{Event, Mux, PING_INTERVAL_NS, PINGS_MAX};
use crate::flow::{Class, Correction, FlowId, Payload, Piece};
use crate::frame::{
    DATA_HEADER_BYTES_MAX, FILLER, FRAME_BYTES_HARD_MAX, Frame, HelloFrame, data_header,
};
use crate::hello::{FEATURE_FEC, FEATURE_LEVELS};
use crate::schedule::{Control, Rank};
use bytes::Bytes;

/// One frame to be written to a stream of its own, which is then finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The frame's bytes: a header, then payload as it was written, not copied.
    pub chunks: Vec<Bytes>,
    /// The stream's priority, higher first. Control frames are above all; data frames go by class,
    /// then by age, so that retransmissions queue neither behind new data nor before a higher class.
    /// The count starts anew after 2^30 frames; for one round trip new frames then go before old
    /// ones, which costs nothing but delay.
    pub priority: i32,
    /// What the frame counts as: `Control` for control frames, never `Auto`.
    pub class: Class,
    /// The flow it belongs to, if any.
    pub flow: Option<FlowId>,
    /// The flow's DSCP; 0 for the tunnel's own frames.
    pub dscp: u8,
    /// Whether it should be repaired when it is lost (see [`crate::fec`]).
    pub is_protected: bool,
    /// What the flow's rule says of repairs; `Auto` for control frames.
    pub correction: Correction,
}

impl Transmit {
    /// Length of the frame, bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    fn control(frame: &Frame, flow: Option<FlowId>, dscp: u8) -> Transmit {
        Transmit {
            chunks: vec![frame.encode()],
            priority: i32::MAX,
            class: Class::Control,
            flow,
            dscp,
            // A lost PING or CREDIT is made up for by the next, and nobody waits for credit that
            // is given back.
            is_protected: !matches!(
                frame,
                Frame::Ping { .. }
                    | Frame::Pong { .. }
                    | Frame::Credit { .. }
                    | Frame::Reclaim { .. }
                    | Frame::Returned { .. }
            ),
            correction: Correction::Auto,
        }
    }
}

impl Mux {
    /// The next frame to send, if there is one: control first, then the classes in their order and
    /// with their shares, flows of a class in turn. Ask only while the transport has room: what is
    /// not asked for stays here, where it can still be ordered. What [`Mux::fill`] asks for is last.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.poll_down_to(now_ns, Rank::Background)
            .or_else(|| self.filler_frame())
    }

    /// What [`Mux::fill`] asked for.
    fn filler_frame(&mut self) -> Option<Transmit> {
        static NOTHING: [u8; FRAME_BYTES_HARD_MAX] = [0; FRAME_BYTES_HARD_MAX];
        let bytes = self.filler_bytes;
        if bytes == 0 || !self.may_send() {
            return None;
        }
        self.filler_bytes = 0;
        self.stats.frames_sent += 1;
        let nothing = NOTHING.get(1..bytes).unwrap_or_default();
        Some(Transmit {
            chunks: vec![Bytes::from_static(&[FILLER]), Bytes::from_static(nothing)],
            priority: i32::MIN,
            class: Class::Background,
            flow: None,
            dscp: 0,
            is_protected: false,
            correction: Correction::Auto,
        })
    }

    /// Like [`Mux::poll_transmit`], but nothing below interactive: for a transport that has room
    /// only before what it has been given. None also when it is a lower class's turn.
    pub fn poll_urgent(&mut self, now_ns: u64) -> Option<Transmit> {
        self.poll_down_to(now_ns, Rank::Interactive)
    }

    fn poll_down_to(&mut self, now_ns: u64, lowest: Rank) -> Option<Transmit> {
        if let Some(transmit) = self.poll_control(now_ns) {
            return Some(transmit);
        }
        if !self.may_send() {
            return None;
        }
        let transmit = self.data_frame(now_ns, lowest)?;
        self.stats.frames_sent += 1;
        Some(transmit)
    }

    /// Like [`Mux::poll_transmit`], but control frames only. They are small, and credit that waits
    /// for room behind data stops the other direction: send them whether there is room or not.
    pub fn poll_control(&mut self, now_ns: u64) -> Option<Transmit> {
        let transmit = self.next_control(now_ns)?;
        self.stats.frames_sent += 1;
        Some(transmit)
    }

    fn next_control(&mut self, now_ns: u64) -> Option<Transmit> {
        if self.hello_due {
            self.hello_due = false;
            let frame = Frame::Hello(HelloFrame {
                hello: self.hello.clone(),
                flow_window_bytes: self.limits.flow_window_bytes_initial,
                flows_max: self.limits.flows_max as u64,
            });
            return Some(Transmit::control(&frame, None, 0));
        }
        if !self.may_send() {
            return None;
        }
        let has_work = self.schedule.control_frames() + self.schedule.ready_flows() > 0;
        if has_work && now_ns.saturating_sub(self.pinged_ns) >= PING_INTERVAL_NS {
            self.ping();
        }
        if let Some(nonce) = self.ping_due.take() {
            self.pinged_ns = now_ns;
            return Some(self.ping_frame(now_ns, nonce));
        }
        if std::mem::take(&mut self.drain_due) {
            return Some(Transmit::control(&Frame::Drain, None, 0));
        }
        while let Some(control) = self.schedule.pop_control() {
            if let Some(mut transmit) = self.control_frame(control) {
                let flow = transmit.flow.and_then(|id| self.flows.get(&id));
                let is_off = flow.is_some_and(|flow| flow.correction == Correction::Off);
                transmit.is_protected &= !is_off;
                return Some(transmit);
            }
        }
        None
    }

    /// Both know the version and the peer has heard our hello.
    pub(super) fn may_send(&self) -> bool {
        self.negotiated.is_some() && self.is_heard
    }

    fn ping_frame(&mut self, now_ns: u64, nonce: u64) -> Transmit {
        if self.pings.len() >= PINGS_MAX {
            self.pings.pop_front();
        }
        self.pings.push_back((nonce, now_ns));
        let sent_ns = now_ns;
        Transmit::control(&Frame::Ping { nonce, sent_ns }, None, 0)
    }

    /// The frame for a queued control entry; None when its flow is gone.
    fn control_frame(&mut self, control: Control) -> Option<Transmit> {
        let dscp_of = |mux: &Mux, id| mux.flows.get(&id).map_or(0, |flow| flow.dscp);
        match control {
            Control::Pong { nonce, sent_ns } => {
                Some(Transmit::control(&Frame::Pong { nonce, sent_ns }, None, 0))
            }
            Control::Open(id) => {
                let mut request = self.flows.get_mut(&id)?.request.take()?;
                let features = self.negotiated.as_ref()?.features;
                if features & FEATURE_FEC == 0 {
                    request.correction = Correction::Auto;
                }
                if let Payload::Records { level, .. } = &mut request.payload
                    && features & FEATURE_LEVELS == 0
                {
                    *level = None;
                }
                let dscp = request.dscp;
                let frame = Frame::Open { flow: id, request };
                Some(Transmit::control(&frame, Some(id), dscp))
            }
            Control::Answer(id, refusal) => {
                let frame = Frame::Answer { flow: id, refusal };
                Some(Transmit::control(&frame, Some(id), dscp_of(self, id)))
            }
            Control::Credit(id) => {
                let flow = self.flows.get_mut(&id)?;
                flow.credit_queued = false;
                let limit_bytes = flow.receive.grant_mut().announce();
                let frame = Frame::Credit {
                    flow: id,
                    limit_bytes,
                };
                Some(Transmit::control(&frame, Some(id), flow.dscp))
            }
            Control::Reclaim(id) => {
                let frame = self.reclaim_frame(id)?;
                Some(Transmit::control(&frame, Some(id), dscp_of(self, id)))
            }
            Control::Returned(id) => {
                let frame = self.returned_frame(id)?;
                Some(Transmit::control(&frame, Some(id), dscp_of(self, id)))
            }
            Control::Reset(id, code) => {
                let frame = Frame::Reset { flow: id, code };
                Some(Transmit::control(&frame, Some(id), dscp_of(self, id)))
            }
        }
    }

    fn data_frame(&mut self, now_ns: u64, lowest: Rank) -> Option<Transmit> {
        self.place_woken(now_ns);
        loop {
            let (rank, id) = self.schedule.next(self.sizes.small_bytes())?;
            if !self.flows.contains_key(&id) {
                self.schedule.drop_front(rank);
                continue;
            }
            if rank > lowest {
                return None;
            }
            if let Some(transmit) = self.take_frame(now_ns, rank, id) {
                return Some(transmit);
            }
        }
    }

    /// Flows that were bulk when they fell silent queue as what they are now.
    fn place_woken(&mut self, now_ns: u64) {
        while let Some(id) = self.schedule.pop_woken() {
            match self.flows.get_mut(&id) {
                Some(flow) => {
                    flow.turn.judge(now_ns);
                    self.schedule.place(id, &flow.turn);
                }
                None => self.schedule.skip_woken(),
            }
        }
    }

    /// The next frame of the flow at the front of `rank`; None when it has nothing to send after
    /// all.
    fn take_frame(&mut self, now_ns: u64, rank: Rank, id: FlowId) -> Option<Transmit> {
        let quantum_bytes = self.payload_bytes_max(rank);
        let small_bytes = self.sizes.small_bytes() - DATA_HEADER_BYTES_MAX;
        let (bytes_max, habits) = (self.send_bytes_max(), self.habits());
        let flow = self.flows.get_mut(&id)?;
        flow.turn.begin(quantum_bytes);
        let payload_bytes_max = quantum_bytes.min(flow.send.young_bytes_max(small_bytes));
        let held_bytes = flow.send.held_bytes();
        let had_room = flow.send.has_room(bytes_max);
        let Some(piece) = flow.send.take(payload_bytes_max) else {
            self.schedule.sent(rank, &mut flow.turn, 0, false);
            return None;
        };
        let freed_bytes = held_bytes - flow.send.held_bytes();
        let is_drained = flow.send.buffered_bytes() == 0;
        flow.turn
            .note(now_ns, piece.payload_bytes, is_drained, habits);
        let has_more = flow.is_sendable(payload_bytes_max);
        self.schedule
            .sent(rank, &mut flow.turn, piece.payload_bytes, has_more);
        if !had_room && flow.send.has_room(bytes_max) {
            self.events.push_back(Event::Writable(id));
        }
        let (dscp, is_protected) = (flow.dscp, flow.is_protected(rank));
        let correction = flow.correction;
        self.free_send_bytes(freed_bytes);
        let transmit = self.data_transmit(id, rank, piece);
        Some(Transmit {
            dscp,
            is_protected,
            correction,
            ..transmit
        })
    }

    fn data_transmit(&mut self, id: FlowId, rank: Rank, piece: Piece) -> Transmit {
        self.stats.sent_bytes += piece.payload_bytes as u64;
        let age = self.data_frames_sent;
        self.data_frames_sent += 1;
        let mut chunks = piece.chunks;
        chunks.insert(0, data_header(id, piece.number, piece.end_bytes));
        if piece.end_bytes.is_some() {
            self.end_if_done(id);
        }
        Transmit {
            chunks,
            priority: rank.priority(age),
            class: rank.class(),
            flow: Some(id),
            dscp: 0,
            is_protected: false,
            correction: Correction::Auto,
        }
    }
}
