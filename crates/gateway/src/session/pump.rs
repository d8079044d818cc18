//! Gives the machine's frames to the QUIC stack, one short stream each, and no
//! sooner than they are to be sent: what waits here is still in order.
//!
//! * Control frames go at once: credit that waits behind data would stop the
//!   other direction.
//! * Control and interactive data goes when little of it is under way, or when
//!   there is room: it passes whatever else waits in the stack.
//! * The rest goes, part by part if need be, while the stack has less than some
//!   milliseconds' worth unsent (`backlog`), and while what it keeps for
//!   repetition is within bounds.
//!
//! Small frames that somebody waits for go more than once on a path that loses (`repeat`).
//!
//! How much the stack has taken and not yet seen acknowledged only the stack
//! knows, to the byte; its send window is the gauge. It is set to what is on
//! the wire (`quic/flight.rs`) plus the backlog allowed, and then the stack
//! takes as much of a frame as fits.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use farhaul_tunnel::Transmit;

use super::backlog::PathFigures;
use super::held::{Kind, is_urgent};
use super::lane::Lane;
use super::repeat::Repeats;
use super::shelter::Shelter;
use super::{Session, SessionEnd};
use crate::quic::flight::Flight;

/// How often the path's figures are read while there is something to do.
const FIGURES_NS: u64 = 20_000_000;

/// A frame that is held up is looked after this often, whatever was missed.
const TICK: Duration = Duration::from_millis(100);

/// When the path's figures were read, and what had been sent then: by the
/// path, and as its controller was overheard.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at_ns: u64,
    sent_bytes: u64,
    watched_bytes: u64,
}

pub(super) async fn run(session: Arc<Session>) {
    let mut pump = Pump::new(session);
    while !pump.session.is_over() {
        match pump.work().await {
            Ok(()) => pump.wait().await,
            // What it has sent before is still taken in, then `intake` says so.
            Err(SessionEnd::PeerClosed(_)) => return,
            Err(end) => return pump.session.finish(end),
        }
    }
}

struct Pump {
    session: Arc<Session>,
    flight: Option<Arc<Flight>>,
    path: PathFigures,
    reading: Option<Reading>,
    /// What had been sent when the frames held up were last looked after.
    looked_bytes: u64,
    /// Frames the stack has not taken whole.
    urgent: Option<Lane>,
    bulk: Option<Lane>,
    repeats: Repeats,
    shelter: Shelter,
    /// What the stack's send window is set to.
    window_bytes: Option<u64>,
}

impl Pump {
    fn new(session: Arc<Session>) -> Self {
        Self {
            flight: Flight::of(&session.connection),
            session,
            path: PathFigures::default(),
            reading: None,
            looked_bytes: 0,
            urgent: None,
            bulk: None,
            repeats: Repeats::default(),
            shelter: Shelter::default(),
            window_bytes: None,
        }
    }

    /// Hands over all that may go now.
    async fn work(&mut self) -> Result<(), SessionEnd> {
        self.read_figures();
        self.looked_bytes = self.sent_bytes();
        self.advance_urgent().await?;
        self.advance_bulk().await?;
        self.repeat().await?;
        while let Some(frame) = self.next_frame() {
            self.hand_over(frame).await?;
            self.session.held.coming.fetch_sub(1, Ordering::Release);
        }
        let is_waiting = self.urgent.is_some() || self.bulk.is_some();
        self.session.held.set_waiting(is_waiting);
        if !is_waiting {
            self.shelter.handle_idle();
        }
        Ok(())
    }

    /// Hands over the copies that are due.
    async fn repeat(&mut self) -> Result<(), SessionEnd> {
        while self.urgent.is_none() {
            let is_bulk_free = self.bulk.is_none();
            let is_free = |class| is_bulk_free || is_urgent(class);
            match self.repeats.poll(self.session.now_ns(), is_free) {
                Some(frame) => self.send(frame).await?,
                None => break,
            }
        }
        Ok(())
    }

    /// Reads the path's figures when they are old, and tells the machine.
    fn read_figures(&mut self) {
        let now_ns = self.session.now_ns();
        let is_fresh = |last: Reading| now_ns.saturating_sub(last.at_ns) < FIGURES_NS;
        if self.reading.is_some_and(is_fresh) {
            return;
        }
        let Some(stats) = self.session.connection.path_stats(noq::PathId::ZERO) else {
            return;
        };
        self.follow(now_ns, stats.sent_bytes);
        let pacing = self.flight.as_ref().map(|flight| flight.pacing_bytes_s());
        self.path = PathFigures::new(&stats, pacing.unwrap_or(0));
        let rate_bytes_s = self.path.rate_bytes_s;
        let packet_bytes = usize::try_from(self.path.packet_bytes()).unwrap_or(usize::MAX);
        self.session
            .operate(|mux, _| mux.set_rate(rate_bytes_s, packet_bytes));
    }

    /// A path to another address has a controller of its own: more was sent,
    /// and we heard nothing of it.
    fn follow(&mut self, now_ns: u64, sent_bytes: u64) {
        let last = self.reading.replace(Reading {
            at_ns: now_ns,
            sent_bytes,
            watched_bytes: self.sent_bytes(),
        });
        let unheard =
            |last: Reading| sent_bytes > last.sent_bytes && self.sent_bytes() == last.watched_bytes;
        if last.is_some_and(unheard) {
            self.flight = Flight::of(&self.session.connection);
        }
    }

    fn sent_bytes(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| flight.sent_bytes())
    }

    /// The next frame for which there is a place.
    fn next_frame(&mut self) -> Option<Transmit> {
        let now_ns = self.session.now_ns();
        let held_bytes = self.session.held.bytes();
        let takes_bulk = self.bulk.is_none() && held_bytes < self.path.held_bytes_max();
        let takes_urgent = self.urgent.is_none();
        let coming = &self.session.held.coming;
        self.session.operate(|mux, _| {
            let frame = match (takes_urgent, takes_bulk) {
                (false, _) => mux.poll_control(now_ns),
                (true, false) => mux.poll_urgent(now_ns),
                (true, true) => mux.poll_transmit(now_ns),
            };
            // Before anybody can see that its flow has ended.
            coming.fetch_add(u64::from(frame.is_some()), Ordering::Relaxed);
            frame
        })
    }

    async fn hand_over(&mut self, frame: Transmit) -> Result<(), SessionEnd> {
        let is_taken = self.shelter.takes(&frame);
        let correction = self.session.correction.get();
        if let Some(channel) = correction
            && self.session.held.ends_rest(Kind::of(&frame))
        {
            channel.repeat_rest(false);
        }
        if is_taken && let Some(channel) = correction {
            let copies = match Repeats::suits(&frame) {
                true => channel.pay_for_copies(Repeats::cost_bytes(&frame)),
                false => 0,
            };
            if copies > 0 {
                let (now_ns, packet_ns) = (self.session.now_ns(), self.path.packet_ns());
                self.repeats.add(now_ns, packet_ns, copies, &frame);
            } else {
                channel.protect(frame.frame_bytes());
            }
        }
        self.send(frame).await
    }

    async fn send(&mut self, frame: Transmit) -> Result<(), SessionEnd> {
        if frame.flow.is_some() {
            self.session.mark.store(frame.dscp, Ordering::Relaxed);
        }
        let (kind, goes_at_once) = (Kind::of(&frame), frame.priority == i32::MAX);
        let is_urgent = is_urgent(frame.class);
        let frame_bytes = frame.frame_bytes() as u64;
        let lane = Lane::open(&self.session, frame).await?;
        self.account(&lane, frame_bytes, kind);
        if goes_at_once {
            return self.send_control(lane).await;
        }
        if is_urgent {
            self.urgent = Some(lane);
            self.advance_urgent().await
        } else {
            self.bulk = Some(lane);
            self.advance_bulk().await
        }
    }

    /// Counts the frame until it is acknowledged.
    fn account(&self, lane: &Lane, frame_bytes: u64, kind: Kind) {
        let session = self.session.clone();
        session.held.add(frame_bytes, kind);
        let acknowledged = lane.acknowledged();
        tokio::spawn(async move {
            acknowledged.await;
            session.held.release(frame_bytes, kind);
            session.acknowledged.notify_one();
        });
    }

    async fn send_control(&mut self, mut lane: Lane) -> Result<(), SessionEnd> {
        self.allow(u64::MAX);
        while !lane.advance().await? {
            // Only the peer's credit for the whole connection can be missing.
            self.looked_bytes = self.sent_bytes();
            self.wait().await;
            if self.session.is_over() {
                break;
            }
        }
        Ok(())
    }

    async fn advance_urgent(&mut self) -> Result<(), SessionEnd> {
        let Some(mut lane) = self.urgent.take() else {
            return Ok(());
        };
        let urgent_bytes = self.session.held.urgent_bytes();
        let backlog_bytes = self.path.backlog_bytes();
        self.allow(match urgent_bytes <= backlog_bytes {
            true => u64::MAX,
            false => self.taken_bytes_max().saturating_add(backlog_bytes),
        });
        if !lane.advance().await? {
            self.urgent = Some(lane);
        }
        Ok(())
    }

    async fn advance_bulk(&mut self) -> Result<(), SessionEnd> {
        let Some(mut lane) = self.bulk.take() else {
            return Ok(());
        };
        self.allow(self.taken_bytes_max());
        if !lane.advance().await? {
            self.bulk = Some(lane);
        }
        Ok(())
    }

    /// What the stack may hold now, sent or not. Without figures of the flight
    /// a window is taken to be on the wire.
    fn taken_bytes_max(&self) -> u64 {
        let in_flight_bytes = match &self.flight {
            Some(flight) => flight.in_flight_bytes(),
            None => self.path.window_bytes,
        };
        self.path.taken_bytes_max(in_flight_bytes)
    }

    fn allow(&mut self, window_bytes: u64) {
        if self.window_bytes != Some(window_bytes) {
            self.window_bytes = Some(window_bytes);
            self.session.connection.set_send_window(window_bytes);
        }
    }

    /// Waits until something may have changed.
    async fn wait(&self) {
        let is_held_up = self.urgent.is_some() || self.bulk.is_some();
        let moved = async {
            match &self.flight {
                Some(flight) if is_held_up => {
                    let step_bytes = self.path.step_bytes();
                    if flight.wake_at(self.looked_bytes.saturating_add(step_bytes)) {
                        flight.moved().await;
                    }
                }
                _ => std::future::pending().await,
            }
        };
        let until_repeat = self.repeats.due_ns().map(|due_ns| {
            Duration::from_nanos(due_ns.saturating_sub(self.session.now_ns()).max(1))
        });
        let tick = async {
            match (is_held_up, until_repeat) {
                (true, time) => tokio::time::sleep(TICK.min(time.unwrap_or(TICK))).await,
                (false, Some(time)) => tokio::time::sleep(time).await,
                (false, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.session.work.notified() => {}
            () = self.session.acknowledged.notified() => {}
            () = moved => {}
            () = tick => {}
            () = woken() => {}
        }
    }
}

/// Resolves when the task is woken by anyone: by the stack, when it takes more
/// of a frame.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::replace(&mut is_first, false) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}
