//! A flow as its task sees it: bytes in order, back-pressure, and the reason
//! when it is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use farhaul_tunnel::{
    FlowError, FlowId, FlowStats, OpenRequest, Payload, Read, Refusal, ResetCode,
};
use tokio::sync::{Notify, watch};

use super::Session;
use super::sharing::Sent;
use crate::lock::lock;

/// What the far side answered to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenOutcome {
    /// Connected.
    Opened,
    /// Not connected.
    Refused(Refusal),
    /// The flow or its tunnel was cut before there was an answer.
    Cut(ResetCode),
}

/// Wake-ups and fate of one flow.
#[derive(Debug)]
pub(super) struct FlowState {
    readable: Notify,
    writable: Notify,
    gone: Notify,
    outcome: watch::Sender<Option<OpenOutcome>>,
    code: OnceLock<ResetCode>,
}

impl Default for FlowState {
    fn default() -> Self {
        Self {
            readable: Notify::new(),
            writable: Notify::new(),
            gone: Notify::new(),
            outcome: watch::channel(None).0,
            code: OnceLock::new(),
        }
    }
}

impl FlowState {
    pub(super) fn wake_reader(&self) {
        self.readable.notify_one();
    }

    pub(super) fn wake_writer(&self) {
        self.writable.notify_one();
    }

    pub(super) fn answer(&self, outcome: OpenOutcome) {
        self.outcome.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(outcome);
            }
            first
        });
        self.end();
    }

    pub(super) fn reset(&self, code: ResetCode) {
        let _ = self.code.set(code);
        self.answer(OpenOutcome::Cut(code));
        self.gone.notify_one();
    }

    pub(super) fn refuse(&self, why: Refusal) {
        let _ = self.code.set(ResetCode::Application);
        self.answer(OpenOutcome::Refused(why));
        self.gone.notify_one();
    }

    pub(super) fn end(&self) {
        self.readable.notify_one();
        self.writable.notify_one();
    }
}

/// A request of the peer to open a flow; answer it with `accept` or `refuse`.
#[derive(Debug)]
pub struct Incoming {
    /// The flow's number.
    pub flow: FlowId,
    /// What the near side asks for.
    pub request: OpenRequest,
    pub(super) state: Arc<FlowState>,
}

/// What was agreed about a flow's bytes when it was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    payload: Payload,
    items: bool,
}

impl Carried {
    pub(super) fn by(request: &OpenRequest) -> Self {
        Self {
            payload: request.payload,
            items: request.items,
        }
    }
}

/// One flow of a tunnel. Dropping it before both directions have ended resets
/// the flow: a task that dies never leaves a clean end behind.
pub struct FlowHandle {
    session: Arc<Session>,
    flow: FlowId,
    carried: Carried,
    state: Arc<FlowState>,
    sent: Mutex<Sent>,
    finished: AtomicBool,
    ended: AtomicBool,
}

impl FlowHandle {
    pub(super) fn new(
        session: Arc<Session>,
        flow: FlowId,
        carried: Carried,
        state: Arc<FlowState>,
    ) -> Self {
        Self {
            session,
            flow,
            carried,
            state,
            sent: Mutex::default(),
            finished: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Waits for the far side's answer to the open.
    pub async fn opened(&self) -> OpenOutcome {
        let mut outcome = self.state.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.unwrap_or(OpenOutcome::Cut(ResetCode::TunnelLost)),
            Err(_) => OpenOutcome::Cut(ResetCode::TunnelLost),
        }
    }

    /// The next bytes in order, at most `max_bytes`; `None` is the peer's
    /// clean end. One reader at a time.
    pub async fn read(&self, max_bytes: usize) -> Result<Option<Bytes>, ResetCode> {
        loop {
            if let Some(code) = self.state.code.get() {
                return Err(*code);
            }
            let now = self.session.now_ns();
            match self
                .session
                .drive(|mux, _| mux.read(now, self.flow, max_bytes))
            {
                Read::Data(bytes) => return Ok(Some(bytes)),
                Read::End => {
                    self.ended.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                Read::Gone => return Err(self.code()),
                Read::Blocked => self.state.readable.notified().await,
            }
        }
    }

    /// Waits until at least one byte may be written; returns how many.
    pub async fn room(&self) -> Result<usize, ResetCode> {
        loop {
            if let Some(code) = self.state.code.get() {
                return Err(*code);
            }
            match self.session.drive(|mux, _| mux.writable_bytes(self.flow)) {
                0 => self.state.writable.notified().await,
                room => return Ok(room),
            }
        }
    }

    /// Writes all of `data`, waiting for room. One writer at a time.
    pub async fn write(&self, mut data: Bytes) -> Result<(), ResetCode> {
        while !data.is_empty() {
            let room = self.room().await?;
            let part = data.split_to(room.min(data.len()));
            self.session.note_sent(&mut lock(&self.sent), part.len());
            match self.session.drive(|mux, _| mux.write(self.flow, part)) {
                Ok(()) => {}
                Err(FlowError::Gone) => return Err(self.code()),
                Err(_) => return Err(ResetCode::Internal),
            }
        }
        Ok(())
    }

    /// Half-closes our direction after everything written.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
        self.session.drive(|mux, _| mux.finish(self.flow));
    }

    /// Cuts the flow.
    pub fn reset(&self, code: ResetCode) {
        self.state.reset(code);
        self.session.drive(|mux, flows| {
            mux.reset(self.flow, code);
            flows.remove(&self.flow);
        });
    }

    /// Waits until the flow is cut, by the peer, by an operator or with the
    /// tunnel. Does not return on a clean end.
    pub async fn cut(&self) -> ResetCode {
        loop {
            if let Some(code) = self.state.code.get() {
                return *code;
            }
            self.state.gone.notified().await;
        }
    }

    /// Counters, while the flow is alive.
    pub fn stats(&self) -> Option<FlowStats> {
        self.session.drive(|mux, _| mux.flow_stats(self.flow))
    }

    /// The flow's number in its tunnel.
    pub fn id(&self) -> FlowId {
        self.flow
    }

    /// What its bytes are.
    pub fn payload(&self) -> Payload {
        self.carried.payload
    }

    /// Whether they are items of an optimiser, in records or plainly.
    pub fn has_items(&self) -> bool {
        self.carried.items
    }

    /// The tunnel the flow runs in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn code(&self) -> ResetCode {
        self.state
            .code
            .get()
            .copied()
            .unwrap_or(ResetCode::TunnelLost)
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        // The machine still sends what is buffered, and its end.
        if *self.finished.get_mut() && *self.ended.get_mut() {
            return;
        }
        self.session.drive(|mux, flows| {
            if flows.remove(&self.flow).is_some() {
                mux.reset(self.flow, ResetCode::Internal);
            }
        });
    }
}
