//! The sending half: what may leave now, and what acknowledgements mean.

use super::congestion::{At, Window};
use super::profile::{Idle, Profile, Recovery};
use super::retransmit_timer::RetransmitTimer;
use super::scoreboard::Scoreboard;
use super::segment::Segment;

/// Duplicate acknowledgements that mean loss (RFC 5681, 3.2).
const DUPLICATES: u64 = 3;

/// A stretch of the stream to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) seq: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) is_fin: bool,
}

/// Sending half of one end. Sequence number 0 is the SYN.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    mss: u64,
    buffer_bytes: u64,
    peer_window_bytes: u64,
    peer_window_bytes_max: u64,
    /// Oldest not acknowledged, next to send, highest ever sent.
    una: u64,
    nxt: u64,
    max: u64,
    /// End of what the application wrote.
    end: u64,
    is_finishing: bool,
    window: Window,
    duplicates: u64,
    is_recovering: bool,
    /// What was sent when the last recovery began.
    recover: u64,
    arrived: Scoreboard,
    /// Holes below this were sent again in this recovery.
    resent_below: u64,
    is_resend_due: bool,
    /// What is timed, and since when (Karn: nothing sent twice).
    timed: Option<(u64, u64)>,
    sent_ns: u64,
    heard_ns: u64,
}

impl Sender {
    pub(crate) fn new(profile: &Profile, mss: u64, buffer_bytes: u64) -> Self {
        Self {
            mss,
            buffer_bytes,
            peer_window_bytes: 0,
            peer_window_bytes_max: 0,
            una: 0,
            nxt: 0,
            max: 0,
            end: 1,
            is_finishing: false,
            window: Window::new(profile, mss),
            duplicates: 0,
            is_recovering: false,
            recover: 0,
            arrived: Scoreboard::default(),
            resent_below: 0,
            is_resend_due: false,
            timed: None,
            sent_ns: 0,
            heard_ns: 0,
        }
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        self.end += bytes;
    }

    pub(crate) fn finish(&mut self) {
        self.is_finishing = true;
    }

    /// Bytes written and not yet acknowledged.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.end - self.una.clamp(1, self.end)
    }

    pub(crate) fn is_outstanding(&self) -> bool {
        self.una < self.max
    }

    /// Whether the end was sent and acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finishing && self.una > self.end
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.window.bytes
    }

    /// The SYN leaves, or leaves again.
    pub(crate) fn synchronise(&mut self, now_ns: u64) {
        self.timed = (self.max == 0).then_some((1, now_ns));
        (self.nxt, self.max) = (1, 1);
        self.sent_ns = now_ns;
    }

    /// What may be sent now, if anything.
    pub(crate) fn next(&mut self, now_ns: u64, profile: &Profile, wait_ns: u64) -> Option<Piece> {
        let sent_below = self.max;
        let piece = if std::mem::take(&mut self.is_resend_due) && self.is_outstanding() {
            let piece = self.piece(self.una, self.max);
            self.resent_below = self.resent_below.max(self.una + length(&piece));
            piece
        } else if self.is_recovering && profile.recovery == Recovery::Sack {
            self.next_with_sack()?
        } else {
            self.restart_if_idle(now_ns, profile, wait_ns);
            self.next_in_window(profile)?
        };
        if piece.seq < sent_below {
            self.timed = None;
        } else if self.timed.is_none() {
            self.timed = Some((piece.seq + length(&piece), now_ns));
        }
        self.sent_ns = now_ns;
        Some(piece)
    }

    /// From `seq` on, no further than `to`, at most a segment. The end of the
    /// stream rides with its last byte.
    fn piece(&self, seq: u64, to: u64) -> Piece {
        let data = self.end.min(to).saturating_sub(seq).min(self.mss);
        let is_fin = self.is_finishing && seq + data == self.end && to > self.end;
        Piece {
            seq,
            payload_bytes: u32::try_from(data).unwrap_or(u32::MAX),
            is_fin,
        }
    }

    fn next_in_window(&mut self, profile: &Profile) -> Option<Piece> {
        if self.nxt < self.max {
            self.nxt = self.arrived.skip(self.nxt).min(self.max);
        }
        let extra = if profile.limited_transmit && !self.is_recovering {
            self.duplicates.min(2) * self.mss
        } else {
            0
        };
        let congestion = self.window.bytes.saturating_add(extra);
        let allowed = congestion
            .min(self.peer_window_bytes)
            .min(self.buffer_bytes);
        self.new_piece(self.una + allowed, profile.nagle)
    }

    /// What comes next at `nxt` if it is worth a segment (RFC 1122, 4.2.3.4).
    fn new_piece(&mut self, edge: u64, nagle: bool) -> Option<Piece> {
        let everything = self.end + u64::from(self.is_finishing);
        // The end of the stream takes no room in a window.
        let to = if edge >= self.end { everything } else { edge };
        let piece = self.piece(self.nxt, to);
        let bytes = u64::from(piece.payload_bytes);
        if bytes == 0 && !(piece.is_fin && self.nxt < everything) {
            return None;
        }
        let is_idle = self.una == self.max;
        let is_last = self.nxt + bytes == self.end;
        let is_worth = bytes >= self.mss
            || piece.is_fin
            || self.nxt < self.max
            || (is_last && (is_idle || !nagle))
            || bytes * 2 >= self.peer_window_bytes_max;
        if !is_worth {
            return None;
        }
        self.nxt += length(&piece);
        self.max = self.max.max(self.nxt);
        Some(piece)
    }

    /// RFC 6675, 5 (C): holes that count as lost first, then new data.
    fn next_with_sack(&mut self) -> Option<Piece> {
        if self.in_pipe_bytes() + self.mss > self.window.bytes {
            return None;
        }
        let lost_below = self.lost_below();
        if let Some((start, end)) = self
            .arrived
            .hole(self.resent_below.max(self.una), lost_below)
        {
            let piece = self.piece(start, end);
            self.resent_below = start + length(&piece).max(1);
            return Some(piece);
        }
        self.nxt = self.max;
        let allowed = self.peer_window_bytes.min(self.buffer_bytes);
        self.new_piece(self.una + allowed, false)
    }

    fn lost_below(&self) -> u64 {
        self.arrived
            .lost_below((DUPLICATES - 1) * self.mss)
            .min(self.max)
    }

    /// What is believed to be under way.
    fn in_pipe_bytes(&self) -> u64 {
        let lost_below = self.lost_below();
        let resent_below = self.resent_below.max(self.una);
        let lost = self.arrived.missing_bytes(resent_below, lost_below);
        (self.max - self.una)
            .saturating_sub(self.arrived.bytes())
            .saturating_sub(lost)
    }

    fn restart_if_idle(&mut self, now_ns: u64, profile: &Profile, wait_ns: u64) {
        let since_ns = match profile.idle {
            Idle::SinceReceived => self.heard_ns,
            Idle::SinceSent => self.sent_ns,
        };
        if self.una == self.max && now_ns.saturating_sub(since_ns) >= wait_ns && self.una > 0 {
            self.window.restart(profile, self.mss);
        }
    }

    /// A segment came from the other end. Says how many bytes are newly
    /// acknowledged.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        segment: &Segment,
        profile: &Profile,
        timer: &mut RetransmitTimer,
    ) -> u64 {
        self.heard_ns = now_ns;
        let Some(ack) = segment.ack.filter(|ack| *ack <= self.max) else {
            return 0;
        };
        let is_update = segment.window_bytes != self.peer_window_bytes;
        self.peer_window_bytes = segment.window_bytes;
        self.peer_window_bytes_max = self.peer_window_bytes_max.max(segment.window_bytes);
        for (start, end) in segment.sack.iter() {
            if profile.recovery == Recovery::Sack && end <= self.max {
                self.arrived.insert(start.max(self.una), end);
            }
        }
        if ack > self.una {
            self.advance(now_ns, ack, segment.echo_ns, profile, timer)
        } else {
            let is_duplicate = ack == self.una
                && self.is_outstanding()
                && segment.length() == 0
                && (!is_update || !segment.sack.is_empty());
            if is_duplicate {
                self.duplicate(profile);
            }
            0
        }
    }

    fn advance(
        &mut self,
        now_ns: u64,
        ack: u64,
        echo_ns: u64,
        profile: &Profile,
        timer: &mut RetransmitTimer,
    ) -> u64 {
        let is_full = self.max - self.una + self.mss > self.window.bytes.min(self.buffer_bytes);
        let acked = ack - self.una;
        let was_syn = self.una == 0;
        self.take_sample(now_ns, ack, echo_ns, profile, timer);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.arrived.trim(ack);
        self.resent_below = self.resent_below.max(ack);
        if self.is_recovering {
            self.advance_in_recovery(acked, profile);
        } else if !was_syn && (is_full || !profile.grows_only_when_full) {
            let at = At {
                now_ns,
                srtt_ns: timer.srtt_ns().unwrap_or(0),
            };
            self.window.grow(profile, self.mss, acked, at);
        }
        if !self.is_recovering {
            self.duplicates = 0;
        }
        acked
    }

    fn take_sample(
        &mut self,
        now_ns: u64,
        ack: u64,
        echo_ns: u64,
        profile: &Profile,
        timer: &mut RetransmitTimer,
    ) {
        timer.progress();
        let timed = self.timed.filter(|(end, _)| ack >= *end);
        if timed.is_some() {
            self.timed = None;
        }
        let since_ns = if profile.timestamps && echo_ns > 0 {
            Some(echo_ns)
        } else {
            timed.map(|(_, since_ns)| since_ns)
        };
        if let Some(since_ns) = since_ns {
            timer.sample(since_ns, now_ns);
        }
    }

    fn advance_in_recovery(&mut self, acked: u64, profile: &Profile) {
        let is_over = profile.recovery == Recovery::Reno || self.una >= self.recover;
        if is_over {
            self.is_recovering = false;
            let flight = self.max - self.una;
            self.window.bytes = match profile.recovery {
                // RFC 6582, 3.2: no burst into a path that has drained.
                Recovery::NewReno => self
                    .window
                    .ssthresh_bytes
                    .min(flight.max(self.mss) + self.mss),
                _ => self.window.ssthresh_bytes,
            };
        } else if profile.recovery == Recovery::NewReno {
            // A partial acknowledgement: the next hole begins right here.
            self.is_resend_due = true;
            let deflated = self.window.bytes.saturating_sub(acked);
            let added = if acked >= self.mss { self.mss } else { 0 };
            self.window.bytes = (deflated + added).max(self.mss);
        }
    }

    fn duplicate(&mut self, profile: &Profile) {
        self.duplicates += 1;
        if self.is_recovering {
            if profile.recovery != Recovery::Sack {
                self.window.bytes += self.mss;
            }
            return;
        }
        let is_lost = self.duplicates >= self.threshold(profile)
            || (profile.recovery == Recovery::Sack && self.lost_below() > self.una);
        // RFC 6582, 3.2 step 2: copies of what a recovery sent are no new loss.
        let is_new = profile.recovery == Recovery::Reno || self.una > self.recover;
        if is_lost && is_new {
            self.recover_fast(profile);
        }
    }

    /// Duplicates that mean loss; fewer where fewer can come (RFC 5827, 3.1).
    fn threshold(&self, profile: &Profile) -> u64 {
        let segments = (self.max - self.una).div_ceil(self.mss);
        let has_more = self.nxt < self.end && self.peer_window_bytes > self.max - self.una;
        if profile.early_retransmit && segments < 4 && !has_more {
            segments.saturating_sub(1).max(1)
        } else {
            DUPLICATES
        }
    }

    fn recover_fast(&mut self, profile: &Profile) {
        let outstanding = self.max - self.una;
        let flight = match profile.recovery {
            // 4.4BSD halves its window, not what is outstanding.
            Recovery::Reno => self.window.bytes.min(self.peer_window_bytes),
            _ if profile.halves_pipe => outstanding.saturating_sub(self.gone_bytes(profile)),
            // RFC 5681, 3.2: what limited transmit sent does not count.
            _ => outstanding.min(self.window.bytes),
        };
        self.window.reduce(profile, self.mss, flight);
        self.is_recovering = true;
        self.recover = self.max;
        self.resent_below = self.una;
        self.is_resend_due = true;
        let inflation = match profile.recovery {
            Recovery::Sack => 0,
            _ => DUPLICATES * self.mss,
        };
        self.window.bytes = self.window.ssthresh_bytes + inflation;
    }

    /// What has left the network when a loss is seen, by ns-3's count: with SACK
    /// also the segment that was lost.
    fn gone_bytes(&self, profile: &Profile) -> u64 {
        match profile.recovery {
            Recovery::Sack => self.arrived.bytes() + self.mss,
            _ => DUPLICATES * self.mss,
        }
    }

    /// Nothing was heard for too long: everything outstanding goes again,
    /// one segment first.
    pub(crate) fn handle_timeout(&mut self, profile: &Profile, attempts: u32) {
        let flight = match profile.recovery {
            Recovery::Reno => self.window.bytes.min(self.peer_window_bytes),
            _ => self.max - self.una,
        };
        // RFC 5681, 3.1: a segment lost again says nothing new.
        if attempts <= 1 || profile.recovery == Recovery::Reno {
            self.window.reduce(profile, self.mss, flight);
        }
        self.window.bytes = self.mss;
        self.is_recovering = false;
        self.is_resend_due = false;
        self.recover = self.max;
        self.duplicates = 0;
        self.timed = None;
        self.nxt = self.una;
    }
}

fn length(piece: &Piece) -> u64 {
    u64::from(piece.payload_bytes) + u64::from(piece.is_fin)
}
