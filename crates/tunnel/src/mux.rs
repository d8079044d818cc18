//! The facade: all flows to one peer, between the application and the frames.

mod inbound;
mod outbound;
mod reclaim;

pub use outbound::Transmit;

use crate::budget::Budget;
use crate::credit::Grant;
use crate::ended::FlowSet;
use crate::error::{FlowError, OpenError};
use crate::flow::{
    Class, Correction, Flow, FlowId, FlowStats, OpenRequest, Read, ReceiveHalf, Refusal, ResetCode,
    SendHalf, Side, Stage,
};
use crate::frame::{DATA_HEADER_BYTES_MAX, FRAME_BYTES_HARD_MAX, request_problem, site_for_wire};
use crate::hello::{Hello, Negotiated};
use crate::limits::{Limits, RECEIVE_FLOOR_BYTES, SEND_FLOOR_BYTES};
use crate::schedule::{Control, FrameSizes, Habits, Rank, Schedule, Turn};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Round trip assumed until the first PONG, nanoseconds.
const RTT_NS_ASSUMED: u64 = 100_000_000;

/// Shorter round trips are taken for this when windows are judged, nanoseconds.
const RTT_NS_MIN: u64 = 1_000_000;

/// How often the tunnel measures its round trip by itself while it sends, nanoseconds.
const PING_INTERVAL_NS: u64 = 1_000_000_000;

/// Pings waiting for their answer; an older one is forgotten.
const PINGS_MAX: usize = 8;

/// What the application should know. Drain [`Mux::poll_event`] after every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer said hello; flows can move.
    Hello(Negotiated),
    /// A PING was answered after this round trip.
    Pong {
        /// What [`Mux::ping`] returned, or that of a PING the tunnel sent by itself.
        nonce: u64,
        /// Between handing out the PING and handing in the PONG, nanoseconds.
        rtt_ns: u64,
    },
    /// The peer shuts down; what it is asked to open from now on it may refuse. Once per tunnel.
    Draining,
    /// The peer opened a flow: answer it. Its first bytes may be readable already.
    Incoming(FlowId, OpenRequest),
    /// Our flow was accepted.
    Opened(FlowId),
    /// Our flow was refused and is gone.
    Refused(FlowId, Refusal),
    /// After `Read::Blocked` (or at first): there is something to read, or the end.
    Readable(FlowId),
    /// At least half the flow's send buffer is free again. Who finds less room than it wants writes
    /// what fits and waits for this; it may also come unasked.
    Writable(FlowId),
    /// The flow was cut, by the peer or for want of room, and is gone.
    Reset(FlowId, ResetCode),
    /// Both directions ended cleanly and were read to the end; the flow is gone.
    Ended(FlowId),
}

/// Counters of one tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Flows alive.
    pub flows: u64,
    /// Flows opened by us so far.
    pub flows_opened: u64,
    /// Flows of the peer seen so far.
    pub flows_incoming: u64,
    /// Frames handed out.
    pub frames_sent: u64,
    /// Frames handed in.
    pub frames_received: u64,
    /// Payload handed out, bytes.
    pub sent_bytes: u64,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Written and unsent, buffers' cost included, bytes.
    pub send_buffered_bytes: u64,
    /// Received and unread, frames' cost included, bytes.
    pub receive_buffered_bytes: u64,
    /// What windows may still grow by, bytes.
    pub window_free_bytes: u64,
    /// What flows have in windows, above their floors, without having grown: credit is asked back
    /// when this is more than half of what there is for it, bytes.
    pub reserve_used_bytes: u64,
    /// How often credit of a flow was asked back.
    pub reclaims_sent: u64,
    /// What came back so far, bytes.
    pub credit_returned_bytes: u64,
    /// Control frames waiting to be sent.
    pub control_frames_queued: u64,
    /// Flows that have something to send and the credit for it.
    pub flows_ready: u64,
    /// Ranges the ended flow ids of the peer are kept in.
    pub ended_ranges: u64,
    /// Flows of the peer refused because of `flows_max`.
    pub refused_overload: u64,
    /// Flows reset because of `receive_buffer_bytes_max`.
    pub reset_overload: u64,
    /// Optional frames skipped.
    pub frames_skipped: u64,
    /// Smoothed round trip of PING, nanoseconds; 0 before the first.
    pub rtt_ns: u64,
}

/// The peer protocol of one connection. See the crate's page for the contract.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    limits: Limits,
    hello: Hello,
    hello_due: bool,
    negotiated: Option<Negotiated>,
    /// The peer is known to have heard our hello.
    is_heard: bool,
    peer_window_bytes: u64,
    peer_flows_max: u64,
    flows: BTreeMap<FlowId, Flow>,
    /// How many of the live flows are ours.
    own_flows: u64,
    next_index: u64,
    /// Flow indices of the peer that are live or ended.
    seen: FlowSet,
    budget: Budget,
    /// When idle flows may be asked for their credit again.
    scan_due_ns: u64,
    /// The latest time handed in.
    now_ns: u64,
    schedule: Schedule,
    sizes: FrameSizes,
    events: VecDeque<Event>,
    /// The peer is to be told that we shut down.
    drain_due: bool,
    /// Of a frame that says nothing; none where it is 0.
    filler_bytes: usize,
    is_peer_draining: bool,
    /// A PING to be sent; an unsent one says nothing that a newer one does not.
    ping_due: Option<u64>,
    /// Nonce and sending time of PINGs not answered yet.
    pings: VecDeque<(u64, u64)>,
    next_nonce: u64,
    /// When the last PING was handed out.
    pinged_ns: u64,
    data_frames_sent: u64,
    send_held_bytes: usize,
    /// All flows together hold too much unsent: each is limited to `SEND_FLOOR_BYTES`.
    is_send_floor: bool,
    receive_held_bytes: u64,
    /// What flows hold of that above their floors.
    receive_over_bytes: u64,
    stats: Stats,
}

impl Mux {
    /// A tunnel that says `hello`. The dialer's hello is ready to be sent at once.
    #[must_use]
    pub fn new(side: Side, limits: Limits, mut hello: Hello) -> Mux {
        let limits = limits.clamped();
        hello.site = site_for_wire(&hello.site);
        Mux {
            side,
            hello,
            hello_due: side == Side::Dialer,
            negotiated: None,
            is_heard: false,
            peer_window_bytes: 0,
            peer_flows_max: u64::MAX,
            flows: BTreeMap::new(),
            own_flows: 0,
            next_index: 0,
            seen: FlowSet::default(),
            budget: Budget::new(&limits),
            scan_due_ns: 0,
            now_ns: 0,
            schedule: Schedule::default(),
            sizes: FrameSizes::new(limits.frame_bytes_max),
            events: VecDeque::new(),
            drain_due: false,
            filler_bytes: 0,
            is_peer_draining: false,
            ping_due: None,
            pings: VecDeque::new(),
            next_nonce: 0,
            pinged_ns: 0,
            data_frames_sent: 0,
            send_held_bytes: 0,
            is_send_floor: false,
            receive_held_bytes: 0,
            receive_over_bytes: 0,
            stats: Stats::default(),
            limits,
        }
    }

    /// Asks the peer to connect. Data may be written at once and rides behind the OPEN.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was opened.
    pub fn open(&mut self, request: OpenRequest) -> Result<FlowId, OpenError> {
        if let Some(field) = request_problem(&request) {
            return Err(OpenError::BadRequest(field));
        }
        if self.flows.len() >= self.limits.flows_max || self.own_flows >= self.peer_flows_max {
            return Err(OpenError::TooManyFlows);
        }
        if self.schedule.control_frames() >= self.limits.control_frames_max {
            return Err(OpenError::Congested);
        }
        let id = FlowId::new(self.side, self.next_index);
        self.next_index += 1;
        self.own_flows += 1;
        let mut flow = self.new_flow(Stage::Opening, request.dscp, Turn::new(request.class));
        flow.correction = request.correction;
        flow.request = Some(request);
        self.flows.insert(id, flow);
        self.schedule.push_control(Control::Open(id));
        self.ask_newcomer(id);
        self.stats.flows_opened += 1;
        Ok(id)
    }

    /// Tells the opener that the connection stands. Ignored unless the flow waits for an answer.
    pub fn accept(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow.stage == Stage::Asked {
            flow.stage = Stage::Open;
            self.schedule.push_control(Control::Answer(id, None));
            self.wake_sender(id); // it may have been finished before
        }
    }

    /// Tells the opener why not; the flow is gone, without a further event. Ignored unless the
    /// flow waits for an answer.
    pub fn refuse(&mut self, id: FlowId, why: Refusal) {
        if self
            .flows
            .get(&id)
            .is_some_and(|flow| flow.stage == Stage::Asked)
        {
            self.remove(id);
            self.schedule.push_control(Control::Answer(id, Some(why)));
        }
    }

    /// How many bytes the flow's send buffer takes now; 0 when nothing may be written.
    #[must_use]
    pub fn writable_bytes(&self, id: FlowId) -> usize {
        let bytes_max = self.send_bytes_max();
        match self.flows.get(&id) {
            Some(flow) if flow.may_send() => flow.send.room_bytes(bytes_max),
            _ => 0,
        }
    }

    /// Appends to the flow; the bytes are not copied. A writer that finds less room than it wants
    /// writes what fits and waits for [`Event::Writable`].
    ///
    /// # Errors
    /// [`FlowError`]; nothing was taken.
    pub fn write(&mut self, id: FlowId, data: Bytes) -> Result<(), FlowError> {
        let bytes_max = self.send_bytes_max();
        let flow = self.flows.get_mut(&id).ok_or(FlowError::Gone)?;
        if !flow.may_send() {
            return Err(FlowError::NotAccepted);
        }
        let held_bytes = flow.send.held_bytes();
        flow.send.write(data, bytes_max)?;
        self.send_held_bytes += flow.send.held_bytes() - held_bytes;
        self.is_send_floor |= self.send_held_bytes >= self.limits.peer_send_buffer_bytes_max;
        self.wake_sender(id);
        Ok(())
    }

    /// Half-closes: nothing more will be written. The peer sees the end behind the last byte.
    pub fn finish(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.finish();
        }
        self.wake_sender(id);
    }

    /// Cuts the flow at once in both directions; it is gone, without a further event.
    pub fn reset(&mut self, id: FlowId, code: ResetCode) {
        if self.remove(id) {
            self.schedule.push_control(Control::Reset(id, code));
        }
    }

    /// The next bytes in order, at most `bytes_max` (at least one). What is read becomes credit
    /// for the sender; a flow that is not read holds its own window and no one else's.
    pub fn read(&mut self, now_ns: u64, id: FlowId, bytes_max: usize) -> Read {
        let rtt_ns = self.rtt_ns();
        self.now_ns = self.now_ns.max(now_ns);
        let Some(flow) = self.flows.get_mut(&id) else {
            return Read::Gone;
        };
        let Some((data, freed_bytes)) = flow.receive.read(bytes_max) else {
            let is_ended = flow.receive.is_ended();
            self.end_if_done(id);
            return if is_ended { Read::End } else { Read::Blocked };
        };
        let is_due = flow
            .receive
            .consume(now_ns, freed_bytes, rtt_ns, &mut self.budget);
        let held_bytes = flow.receive.held_bytes();
        self.note_held(held_bytes + freed_bytes, held_bytes);
        if is_due {
            self.queue_credit(id);
        }
        Read::Data(data)
    }

    /// Whether all that the peer will ever send of the flow is here, and all that it will ever get was
    /// handed out: only the reader here is missing, so the flow can do without the connection.
    #[must_use]
    pub fn is_settled(&self, id: FlowId) -> bool {
        let is_settled = |flow: &Flow| flow.send.is_ended() && flow.receive.is_whole();
        self.flows.get(&id).is_some_and(is_settled)
    }

    /// Queues a PING and returns its nonce; [`Event::Pong`] follows. What silence means is the
    /// gateway's to judge. While it sends, the tunnel pings about once a second by itself, because
    /// windows are judged by the round trip.
    pub fn ping(&mut self) -> u64 {
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        self.ping_due = Some(nonce);
        nonce
    }

    /// Tells the peer to open its flows elsewhere; [`Event::Draining`] follows over there. Nothing
    /// else changes.
    pub fn drain(&mut self) {
        self.drain_due = true;
    }

    /// Sends a frame of so many bytes, 256 KiB at most, that says nothing, as soon as there is nothing else to send: a controller
    /// learns the path's rate from it.
    pub fn fill(&mut self, bytes: usize) {
        self.filler_bytes = bytes.min(FRAME_BYTES_HARD_MAX);
    }

    /// Changes the largest size at which frames are cut from now on, bytes; brought into 1 KiB to
    /// 256 KiB.
    pub fn set_frame_bytes_max(&mut self, frame_bytes: usize) {
        self.sizes.set_bytes_max(frame_bytes);
    }

    /// What the tunnel carries at present, bytes per second (0: not known), and what of a frame
    /// fits into one packet, bytes. Frames are cut by time: bulk to 16 ms, interactive ones and
    /// whatever is sent while they wait to 2 ms, none below one packet; 64 KiB and 16 KiB at an
    /// unknown rate. The rate also tells how much is bulk on a slow link.
    pub fn set_rate(&mut self, rate_bytes_s: u64, packet_bytes: usize) {
        self.sizes.set_rate(rate_bytes_s, packet_bytes);
    }

    /// The next event, in the order they happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was agreed with the peer, once it has said hello.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Whether [`Mux::poll_transmit`] may give a frame now (it gives none when what is queued
    /// belongs to flows that are gone).
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        let queued = self.schedule.control_frames() + self.schedule.ready_flows();
        let is_due = self.ping_due.is_some() || self.drain_due || self.filler_bytes > 0;
        self.hello_due || (self.may_send() && (queued > 0 || is_due))
    }

    /// Whether no flow lives and nothing waits to be sent or reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty() && self.events.is_empty() && !self.has_transmit()
    }

    /// The live flows, in order of id.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        let is_known = |(_, flow): &(&FlowId, &Flow)| flow.stage != Stage::Early;
        self.flows.iter().filter(is_known).map(|(id, _)| *id)
    }

    /// Counters of the tunnel.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            flows: self.flows.len() as u64,
            send_buffered_bytes: self.send_held_bytes as u64,
            receive_buffered_bytes: self.receive_held_bytes,
            window_free_bytes: self.budget.pool.free_bytes(),
            reserve_used_bytes: self.budget.reserve.used_bytes(),
            control_frames_queued: self.schedule.control_frames() as u64,
            flows_ready: self.schedule.ready_flows() as u64,
            ended_ranges: self.seen.range_count() as u64,
            ..self.stats
        }
    }

    /// What the flow counts as now in the direction this side sends; never [`Class::Auto`].
    #[must_use]
    pub fn flow_class(&mut self, now_ns: u64, id: FlowId) -> Option<Class> {
        let flow = self.flows.get_mut(&id)?;
        if flow.send.buffered_bytes() == 0 && !flow.turn.is_queued() {
            flow.turn.judge(now_ns);
        }
        Some(flow.turn.rank().class())
    }

    /// Counters of a live flow.
    #[must_use]
    pub fn flow_stats(&self, id: FlowId) -> Option<FlowStats> {
        self.flows.get(&id).map(Flow::stats)
    }

    fn rtt_ns(&self) -> u64 {
        match self.stats.rtt_ns {
            0 => RTT_NS_ASSUMED,
            rtt_ns => rtt_ns.max(RTT_NS_MIN),
        }
    }

    fn new_flow(&mut self, stage: Stage, dscp: u8, turn: Turn) -> Flow {
        let grant = Grant::new(self.limits.flow_window_bytes_max, &mut self.budget);
        Flow {
            stage,
            send: SendHalf::new(self.peer_window_bytes),
            receive: ReceiveHalf::new(self.now_ns, grant),
            request: None,
            dscp,
            turn,
            correction: Correction::Auto,
            credit_queued: false,
            is_asked: false,
            return_queued: false,
        }
    }

    /// What a flow holds unread has changed.
    fn note_held(&mut self, before_bytes: u64, after_bytes: u64) {
        let change = |all: u64, before: u64, after: u64| (all + after).saturating_sub(before);
        let over = |held_bytes: u64| held_bytes.saturating_sub(RECEIVE_FLOOR_BYTES);
        self.receive_held_bytes = change(self.receive_held_bytes, before_bytes, after_bytes);
        self.receive_over_bytes = change(
            self.receive_over_bytes,
            over(before_bytes),
            over(after_bytes),
        );
    }

    /// What one flow may hold unsent at the present filling.
    fn send_bytes_max(&self) -> usize {
        if self.is_send_floor {
            SEND_FLOOR_BYTES
        } else {
            self.limits.send_buffer_bytes_max
        }
    }

    /// Unsent bytes went. When much of what was too much is gone, every flow has its full buffer
    /// again and all writers are told: rare, because half the bound must drain in between.
    fn free_send_bytes(&mut self, bytes: usize) {
        self.send_held_bytes -= bytes;
        let low_bytes = self.limits.peer_send_buffer_bytes_max / 2;
        if !self.is_send_floor || self.send_held_bytes > low_bytes {
            return;
        }
        self.is_send_floor = false;
        let bytes_max = self.send_bytes_max();
        for (id, flow) in &self.flows {
            if flow.may_send() && flow.send.has_room(bytes_max) {
                self.events.push_back(Event::Writable(*id));
            }
        }
    }

    /// What a frame of this class may carry now. Lower classes send small frames while a higher
    /// one waits.
    fn payload_bytes_max(&self, rank: Rank) -> usize {
        let frame_bytes = match rank.is_urgent() || self.schedule.is_contended(rank) {
            true => self.sizes.small_bytes(),
            false => self.sizes.bulk_bytes(),
        };
        frame_bytes - DATA_HEADER_BYTES_MAX
    }

    fn habits(&self) -> Habits {
        Habits::at_rate(self.sizes.rate_bytes_s())
    }

    /// Gives the flow a place among those that send, if it has something to send.
    fn wake_sender(&mut self, id: FlowId) {
        let payload_bytes_max = self.sizes.small_bytes();
        if let Some(flow) = self.flows.get_mut(&id)
            && flow.is_sendable(payload_bytes_max)
        {
            self.schedule.enqueue(id, &mut flow.turn);
        }
    }

    fn end_if_done(&mut self, id: FlowId) {
        let is_done = |flow: &Flow| flow.send.is_ended() && flow.receive.is_ended();
        if self.flows.get(&id).is_some_and(is_done) {
            self.remove(id);
            self.events.push_back(Event::Ended(id));
        }
    }

    /// Forgets the flow and everything it holds; false when there was none.
    fn remove(&mut self, id: FlowId) -> bool {
        let Some(mut flow) = self.flows.remove(&id) else {
            return false;
        };
        self.own_flows -= u64::from(id.opener() == self.side);
        self.free_send_bytes(flow.send.held_bytes());
        self.note_held(flow.receive.held_bytes(), 0);
        flow.receive.grant_mut().release(&mut self.budget);
        let flows = &self.flows;
        self.schedule
            .forget(&flow.turn, |id| flows.contains_key(&id));
        true
    }
}
