//! From the wire: what each frame of the peer does.

use super::{Event, Mux};
use crate::error::ProtocolError;
use crate::flow::{FlowId, OpenRequest, Refusal, ResetCode, Side, Stage};
use crate::frame::{Frame, HelloFrame};
use crate::hello::Negotiated;
use crate::limits::RECEIVE_FLOOR_BYTES;
use crate::schedule::{Control, Turn};
use bytes::Bytes;

impl Mux {
    /// Takes in one frame: all bytes of one stream of the peer, in any order among streams. Payload
    /// is kept without copying, so `frame` must not be a slice of a much larger buffer.
    ///
    /// # Errors
    /// [`ProtocolError`]: the peer broke the protocol. Close the connection with the error's text.
    pub fn handle_frame(&mut self, now_ns: u64, frame: Bytes) -> Result<(), ProtocolError> {
        let frame = Frame::decode(frame)?;
        self.stats.frames_received += 1;
        if let Frame::Hello(hello) = frame {
            return self.on_hello(hello);
        }
        if self.negotiated.is_none() {
            return Err(ProtocolError::BeforeHello);
        }
        if !self.is_heard {
            // The dialer speaks only after our hello reached it.
            self.is_heard = true;
            self.ping();
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.ask_idle(now_ns);
        match frame {
            Frame::Hello(hello) => self.on_hello(hello),
            Frame::Ping { nonce, sent_ns } => self.on_ping(nonce, sent_ns),
            Frame::Pong { nonce, .. } => {
                self.on_pong(now_ns, nonce);
                Ok(())
            }
            Frame::Open { flow, request } => self.on_open(flow, request),
            Frame::Data {
                flow,
                number,
                payload,
            } => self.on_data(now_ns, flow, number, payload, None),
            Frame::End {
                flow,
                number,
                bytes,
                payload,
            } => self.on_data(now_ns, flow, number, payload, Some(bytes)),
            Frame::Reset { flow, code } => self.on_reset(flow, code),
            Frame::Answer { flow, refusal } => self.on_answer(flow, refusal),
            Frame::Credit { flow, limit_bytes } => self.on_credit(flow, limit_bytes),
            Frame::Reclaim { flow, keep_bytes } => self.on_reclaim(flow, keep_bytes),
            Frame::Returned {
                flow,
                returned_bytes,
            } => self.on_returned(flow, returned_bytes),
            Frame::Drain => {
                if !std::mem::replace(&mut self.is_peer_draining, true) {
                    self.events.push_back(Event::Draining);
                }
                Ok(())
            }
            Frame::Optional { .. } => {
                self.stats.frames_skipped += 1;
                Ok(())
            }
        }
    }

    fn on_hello(&mut self, frame: HelloFrame) -> Result<(), ProtocolError> {
        if self.negotiated.is_some() {
            return Err(ProtocolError::SecondHello);
        }
        if frame.hello.instance == self.hello.instance {
            return Err(ProtocolError::Ourselves);
        }
        let version = self.hello.versions.negotiate(frame.hello.versions)?;
        let negotiated = Negotiated {
            version,
            features: self.hello.features & frame.hello.features,
            peer: frame.hello,
        };
        self.negotiated = Some(negotiated.clone());
        self.peer_window_bytes = frame.flow_window_bytes;
        self.peer_flows_max = frame.flows_max;
        self.events.push_back(Event::Hello(negotiated));
        match self.side {
            Side::Dialer => {
                // The acceptor speaks only after it heard us.
                self.is_heard = true;
                self.ping();
            }
            Side::Acceptor => self.hello_due = true,
        }
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.send.raise_limit(self.peer_window_bytes);
            }
            self.wake_sender(id);
            self.ask_newcomer(id);
        }
        Ok(())
    }

    fn on_ping(&mut self, nonce: u64, sent_ns: u64) -> Result<(), ProtocolError> {
        self.check_control()?;
        self.schedule.push_control(Control::Pong { nonce, sent_ns });
        Ok(())
    }

    fn on_pong(&mut self, now_ns: u64, nonce: u64) {
        let Some(place) = self.pings.iter().position(|(asked, _)| *asked == nonce) else {
            return;
        };
        let Some((_, sent_ns)) = self.pings.remove(place) else {
            return;
        };
        let rtt_ns = now_ns.saturating_sub(sent_ns).max(1);
        let smoothed_ns = match self.stats.rtt_ns {
            0 => rtt_ns,
            // RFC 6298 section 2: one eighth of each sample.
            before_ns => before_ns - before_ns / 8 + rtt_ns / 8,
        };
        self.stats.rtt_ns = smoothed_ns.max(1);
        self.events.push_back(Event::Pong { nonce, rtt_ns });
    }

    fn on_open(&mut self, id: FlowId, request: OpenRequest) -> Result<(), ProtocolError> {
        if id.opener() == self.side {
            return Err(ProtocolError::WrongSide(id));
        }
        if !self.locate(id)? {
            return Ok(());
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(());
        };
        if flow.stage != Stage::Early {
            return Ok(());
        }
        flow.stage = Stage::Asked;
        flow.dscp = request.dscp;
        flow.turn.ask(request.class);
        flow.correction = request.correction;
        flow.receive.head();
        self.events.push_back(Event::Incoming(id, request));
        self.tell_readable(id);
        Ok(())
    }

    fn on_answer(&mut self, id: FlowId, refusal: Option<Refusal>) -> Result<(), ProtocolError> {
        if id.opener() != self.side {
            return Err(ProtocolError::WrongSide(id));
        }
        if !self.locate(id)? {
            return Ok(());
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(());
        };
        if flow.stage != Stage::Opening {
            return Ok(());
        }
        if let Some(why) = refusal {
            self.remove(id);
            self.events.push_back(Event::Refused(id, why));
            return Ok(());
        }
        flow.stage = Stage::Open;
        flow.receive.head();
        self.events.push_back(Event::Opened(id));
        self.tell_readable(id);
        Ok(())
    }

    fn on_data(
        &mut self,
        now_ns: u64,
        id: FlowId,
        number: u64,
        payload: Bytes,
        end_bytes: Option<u64>,
    ) -> Result<(), ProtocolError> {
        if !self.locate(id)? {
            return Ok(());
        }
        let rtt_ns = self.rtt_ns();
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(());
        };
        let seen_bytes = flow.receive.bytes_seen();
        let held_bytes = flow.receive.insert(id, number, payload, end_bytes)?;
        self.stats.received_bytes += flow.receive.bytes_seen() - seen_bytes;
        let is_due = flow.receive.arrive(now_ns, rtt_ns, &mut self.budget);
        let flow_bytes = flow.receive.held_bytes();
        self.note_held(flow_bytes - held_bytes, flow_bytes);
        let is_hoarding = flow_bytes > RECEIVE_FLOOR_BYTES;
        if is_hoarding && self.receive_over_bytes > self.limits.receive_buffer_bytes_max {
            self.check_control()?;
            self.stats.reset_overload += 1;
            self.cut(id, ResetCode::Overload);
            self.schedule
                .push_control(Control::Reset(id, ResetCode::Overload));
            return Ok(());
        }
        if is_due {
            self.queue_credit(id);
        }
        self.tell_readable(id);
        Ok(())
    }

    fn on_credit(&mut self, id: FlowId, limit_bytes: u64) -> Result<(), ProtocolError> {
        if self.locate(id)?
            && let Some(flow) = self.flows.get_mut(&id)
        {
            flow.send.raise_limit(limit_bytes);
            self.wake_sender(id);
        }
        Ok(())
    }

    fn on_reset(&mut self, id: FlowId, code: ResetCode) -> Result<(), ProtocolError> {
        self.check_id(id)?;
        if id.opener() != self.side && self.seen.insert(id.index()) {
            // It overtook its OPEN, which is ignored when it comes.
            self.stats.flows_incoming += 1;
            return Ok(());
        }
        self.cut(id, code);
        Ok(())
    }

    /// Removes a flow for a reason the application did not give, and tells it.
    fn cut(&mut self, id: FlowId, code: ResetCode) {
        let is_known = self
            .flows
            .get(&id)
            .is_some_and(|flow| flow.stage != Stage::Early);
        self.remove(id);
        if is_known {
            self.events.push_back(Event::Reset(id, code));
        }
    }

    /// Whether the flow lives; a flow of the peer not seen before is created, or refused when
    /// there are too many. False: it has ended or was refused, ignore the frame.
    pub(super) fn locate(&mut self, id: FlowId) -> Result<bool, ProtocolError> {
        if self.flows.contains_key(&id) {
            return Ok(true);
        }
        self.check_id(id)?;
        if id.opener() == self.side || self.seen.contains(id.index()) {
            return Ok(false);
        }
        if self.flows.len() >= self.limits.flows_max {
            self.check_control()?;
            self.seen.insert(id.index());
            self.stats.flows_incoming += 1;
            self.stats.refused_overload += 1;
            self.schedule
                .push_control(Control::Answer(id, Some(Refusal::Overload)));
            return Ok(false);
        }
        self.check_control()?;
        self.seen.insert(id.index());
        self.stats.flows_incoming += 1;
        let flow = self.new_flow(Stage::Early, 0, Turn::new(crate::Class::Auto));
        self.flows.insert(id, flow);
        self.ask_newcomer(id);
        Ok(true)
    }

    /// An id of ours must have been used; one of the peer's must not run absurdly far ahead.
    fn check_id(&self, id: FlowId) -> Result<(), ProtocolError> {
        if id.opener() == self.side {
            return match id.index() < self.next_index {
                true => Ok(()),
                false => Err(ProtocolError::UnknownFlow(id)),
            };
        }
        let ahead = id.index().saturating_sub(self.seen.first_absent());
        if ahead >= self.limits.flow_ids_ahead_max {
            return Err(ProtocolError::AbsurdFlow(id));
        }
        Ok(())
    }

    /// What the peer makes us answer must not pile up without bound.
    fn check_control(&self) -> Result<(), ProtocolError> {
        if self.schedule.control_frames() >= self.limits.control_frames_max {
            return Err(ProtocolError::ControlFlood);
        }
        Ok(())
    }

    fn tell_readable(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && flow.receive.take_readable()
        {
            self.events.push_back(Event::Readable(id));
        }
    }
}
