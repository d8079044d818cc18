//! What tests have shown, with both ends' views side by side.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::datagram_flow::{FlowCount, FlowPlan};
use super::error::ProbeError;
use super::tcp_test::{Sample, StreamEnd, TcpPlan};

/// Datagrams one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowWay {
    /// Datagrams that left.
    pub sent: u64,
    /// Datagrams the circuit lost.
    pub lost: u64,
    /// What arrived.
    pub count: FlowCount,
}

impl From<(u64, FlowCount)> for FlowWay {
    fn from((sent, count): (u64, FlowCount)) -> Self {
        let arrived = count.received.saturating_add(count.dropped_by_host);
        let judged = count.read_until.map_or(sent, |until| until.min(sent));
        let lost = judged.saturating_sub(arrived);
        Self { sent, lost, count }
    }
}

impl FlowResult {
    /// Whether something arrived in each direction that was tested, be it only at the host.
    pub(crate) fn carried(&self) -> Result<(), ProbeError> {
        let arrived = |way: &FlowWay| way.count.received > 0 || way.count.dropped_by_host > 0;
        ProbeError::unless_carried(
            self.up.as_ref().map(arrived),
            self.down.as_ref().map(arrived),
        )
    }
}

/// Times in which a circuit brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Datagrams sent meanwhile.
    pub datagrams: u64,
    /// How long the longest took, or took at least, microseconds.
    pub longest_us: u64,
    /// Whether something came after the last.
    pub is_over: bool,
}

impl FlowWay {
    /// Datagrams of which it is known what became of them.
    pub fn judged(&self) -> u64 {
        let until = self.count.read_until;
        until.map_or(self.sent, |until| until.min(self.sent))
    }

    /// Whether what was lost was so in a few long stretches, as of a circuit that was
    /// away for a moment; not where it is not known in how many.
    pub fn is_lost_in_stretches(&self) -> bool {
        const STRETCH_MIN: u64 = 50;
        let places = self.count.loss_events;
        places > 0 && self.lost / places >= STRETCH_MIN
    }

    /// Share of them that was lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.judged() as f64).max(1.0)
    }

    /// Times in which the circuit brought nothing: what the host dropped is none.
    pub fn outage(&self) -> Option<Outage> {
        let silence = self.count.silence?;
        let left = |from: u64| self.judged().saturating_sub(from);
        let last = silence.silent_from.map_or(0, left);
        let is_long = last >= silence.datagrams_min;
        let last = if is_long { last } else { 0 };
        let outage = Outage {
            datagrams: silence.datagrams.saturating_add(last),
            longest_us: silence.longest_us.max(silence.least_us(last)),
            is_over: last == 0,
        };
        (1..=self.lost)
            .contains(&outage.datagrams)
            .then_some(outage)
    }

    /// The same without what an outage took, which says nothing of other times.
    pub fn without_outage(&self) -> Self {
        let away = self.outage().map_or(0, |outage| outage.datagrams);
        let count = FlowCount {
            read_until: self
                .count
                .read_until
                .map(|until| until.saturating_sub(away)),
            silence: None,
            ..self.count.clone()
        };
        Self {
            sent: self.sent.saturating_sub(away),
            lost: self.lost - away.min(self.lost),
            count,
        }
    }

    /// Share that came out of order.
    pub fn reordering(&self) -> f64 {
        self.count.reordered as f64 / (self.count.received as f64).max(1.0)
    }
}

/// A UDP test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowResult {
    /// What was asked for.
    pub plan: FlowPlan,
    /// From client to server.
    pub up: Option<FlowWay>,
    /// From server to client.
    pub down: Option<FlowWay>,
    /// Other clients of the server meanwhile, at most.
    pub other_sessions: u32,
}

/// A stream, seen by both ends at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamPair {
    /// Who sent.
    pub sender: StreamEnd,
    /// Who received.
    pub receiver: StreamEnd,
}

/// TCP one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpWay {
    /// Payload that arrived, all streams, from first to last byte, bit/s.
    pub mean_bit_per_s: Option<f64>,
    /// The same over the second half of the test.
    pub steady_bit_per_s: Option<f64>,
    /// What the second half showed, of the first stream.
    pub figures: WayFigures,
    /// Every stream.
    pub streams: Vec<StreamPair>,
}

/// Figures of a stream over the second half of its test.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WayFigures {
    /// Share of the time with data to send in which the receiver's window was
    /// the limit.
    pub receive_window_limited: f64,
    /// The same for the send buffer.
    pub send_buffer_limited: f64,
    /// Share of segments sent again, over the whole test.
    pub retransmitted: f64,
    /// Segments sent again, over the whole test.
    pub retransmitted_segments: u64,
    /// Segments with data, over the whole test.
    pub data_segments: u64,
    /// Time-outs, over the whole test.
    pub timeouts: u64,
    /// Greatest window the receiver advertised, over the whole test, bytes.
    pub send_window_max_bytes: u64,
    /// Window at the end, bytes.
    pub send_window_bytes: u64,
    /// Greatest window over the second half, bytes: a reader that is held up
    /// makes the last one small, and a first one may be larger than what the
    /// receiver keeps to.
    #[serde(default)]
    pub send_window_steady_bytes: u64,
    /// Payload of a full segment, bytes.
    pub segment_bytes: u64,
    /// Least round trip, microseconds.
    pub min_rtt_us: u64,
    /// Mean of the smoothed round trip, microseconds.
    pub mean_rtt_us: f64,
    /// Share of the time in which the sending thread ran or waited for a processor.
    pub sender_busy: f64,
    /// The same of the receiving thread.
    pub receiver_busy: f64,
    /// Share in which the sending thread waited for a processor.
    pub sender_starved: f64,
    /// The same of the receiving thread.
    pub receiver_starved: f64,
    /// Whether windows were scaled.
    pub scales_windows: bool,
}

/// A TCP test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpResult {
    /// What was asked for.
    pub plan: TcpPlan,
    /// From client to server.
    pub up: Option<TcpWay>,
    /// From server to client.
    pub down: Option<TcpWay>,
    /// Other clients of the server meanwhile, at most.
    pub other_sessions: u32,
}

impl TcpResult {
    /// Puts both ends' views together. The server's are foreign: they must fit
    /// the plan.
    pub(crate) fn of(
        plan: TcpPlan,
        client: Vec<StreamEnd>,
        server: Vec<StreamEnd>,
        other_sessions: u32,
    ) -> Result<Self, ProbeError> {
        if client.len() != server.len() {
            return Err(ProbeError::protocol(
                "its result has another number of streams",
            ));
        }
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for (ours, theirs) in client.into_iter().zip(server) {
            let fits = theirs.connection == ours.connection
                && theirs.goes_up == ours.goes_up
                && theirs.sends != ours.sends;
            if !fits || !is_orderly(&theirs.samples) {
                return Err(ProbeError::protocol("its result contradicts the plan"));
            }
            match ours.goes_up {
                true => up.push(StreamPair {
                    sender: ours,
                    receiver: theirs,
                }),
                false => down.push(StreamPair {
                    sender: theirs,
                    receiver: ours,
                }),
            }
        }
        Ok(Self {
            plan,
            up: TcpWay::of(up),
            down: TcpWay::of(down),
            other_sessions,
        })
    }

    /// Whether something arrived in each direction that was tested.
    pub(crate) fn carried(&self) -> Result<(), ProbeError> {
        let arrived = |way: &TcpWay| way.streams.iter().any(|pair| pair.receiver.bytes > 0);
        ProbeError::unless_carried(
            self.up.as_ref().map(arrived),
            self.down.as_ref().map(arrived),
        )
    }
}

fn is_orderly(samples: &[Sample]) -> bool {
    samples
        .windows(2)
        .all(|pair| matches!(pair, [a, b] if a.at_ns <= b.at_ns && a.bytes <= b.bytes))
}

impl TcpWay {
    fn of(streams: Vec<StreamPair>) -> Option<Self> {
        let first = streams.first()?;
        let sum = |rates: Vec<f64>| (!rates.is_empty()).then(|| rates.iter().sum());
        let each = |rate: fn(&StreamPair) -> Option<f64>| streams.iter().filter_map(rate).collect();
        Some(Self {
            mean_bit_per_s: sum(each(|stream| stream.receiver.mean_bit_per_s())),
            steady_bit_per_s: sum(each(steady)),
            figures: WayFigures::of(first),
            streams,
        })
    }
}

/// First and last sample of the second half of the time in which data was
/// sent, by this end's samples.
fn second_half(end: &StreamEnd, until_ns: u64) -> Option<(&Sample, &Sample)> {
    let middle_ns = end.start_ns + until_ns.saturating_sub(end.start_ns) / 2;
    let mut counted = end
        .samples
        .iter()
        .filter(|sample| sample.at_ns >= middle_ns && sample.at_ns <= until_ns);
    let first = counted.next()?;
    Some((first, counted.next_back()?))
}

/// The greatest window of these samples.
fn greatest_window(sender: &StreamEnd, until_ns: u64) -> Option<u64> {
    let (from, to) = second_half(sender, until_ns)?;
    let is_counted = |sample: &&Sample| (from.at_ns..=to.at_ns).contains(&sample.at_ns);
    let counted = sender.samples.iter().filter(is_counted);
    counted
        .map(|sample| sample.state.send_window_bytes.into())
        .max()
}

/// When its sender stopped, in the common clock.
fn sending_ended_ns(stream: &StreamPair) -> u64 {
    stream
        .sender
        .samples
        .last()
        .map_or(0, |sample| sample.at_ns)
}

fn steady(stream: &StreamPair) -> Option<f64> {
    let (from, to) = second_half(&stream.receiver, sending_ended_ns(stream))?;
    let ns = to.at_ns.checked_sub(from.at_ns).filter(|ns| *ns > 0)?;
    Some((to.bytes - from.bytes) as f64 * 8e9 / ns as f64)
}

impl WayFigures {
    fn of(stream: &StreamPair) -> Self {
        let until_ns = sending_ended_ns(stream);
        let mut figures = Self::default();
        if let Some((from, to)) = second_half(&stream.sender, until_ns) {
            figures.limits(from, to);
            (figures.sender_busy, figures.sender_starved) = busy(from, to);
        }
        if let Some((from, to)) = second_half(&stream.receiver, until_ns) {
            (figures.receiver_busy, figures.receiver_starved) = busy(from, to);
        }
        figures.whole(&stream.sender);
        figures.send_window_steady_bytes =
            greatest_window(&stream.sender, until_ns).unwrap_or(figures.send_window_bytes);
        figures
    }

    fn limits(&mut self, from: &Sample, to: &Sample) {
        let since = |of: fn(&Sample) -> u64| of(to).saturating_sub(of(from)) as f64;
        let busy_us = since(|sample| sample.state.busy_us).max(1.0);
        let share = |of: fn(&Sample) -> u64| (since(of) / busy_us).min(1.0);
        self.receive_window_limited = share(|sample| sample.state.receive_window_limited_us);
        self.send_buffer_limited = share(|sample| sample.state.send_buffer_limited_us);
    }

    fn whole(&mut self, sender: &StreamEnd) {
        let states = || sender.samples.iter().map(|sample| sample.state);
        let Some(last) = states().next_back() else {
            return;
        };
        self.retransmitted_segments = last.retransmitted_segments.into();
        self.data_segments = last.data_segments_out.into();
        self.retransmitted =
            self.retransmitted_segments as f64 / (self.data_segments as f64).max(1.0);
        self.timeouts = last.timeouts.into();
        self.send_window_max_bytes = states()
            .map(|state| state.send_window_bytes.into())
            .max()
            .unwrap_or(0);
        self.send_window_bytes = last.send_window_bytes.into();
        self.segment_bytes = last.send_mss_bytes.into();
        self.min_rtt_us = last.min_rtt_us.into();
        self.scales_windows = last.scales_windows();
        let half = sender.samples.len() / 2;
        let late: Vec<f64> = states()
            .skip(half)
            .map(|state| state.rtt_us.into())
            .collect();
        self.mean_rtt_us = late.iter().sum::<f64>() / (late.len() as f64).max(1.0);
    }
}

fn busy(from: &Sample, to: &Sample) -> (f64, f64) {
    let wall_ns = to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
    let spent = to.thread.since(&from.thread);
    let share = |ns: u64| (ns as f64 / wall_ns).min(1.0);
    (share(spent.wanted_ns()), share(spent.waited_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::socket_state::TcpState;

    #[test]
    fn the_window_of_a_stream_is_neither_its_first_nor_its_last() {
        let sample = |at_ns, send_window_bytes| Sample {
            at_ns,
            bytes: at_ns,
            state: TcpState {
                send_window_bytes,
                ..TcpState::default()
            },
            ..Sample::default()
        };
        let windows = [34_560, 8192, 8192, 6000, 8192, 8192, 900];
        let samples = (0..)
            .zip(windows)
            .map(|(at_ns, window)| sample(at_ns, window));
        let stream = StreamPair {
            sender: StreamEnd {
                samples: samples.collect(),
                ..StreamEnd::default()
            },
            ..StreamPair::default()
        };
        let figures = WayFigures::of(&stream);
        assert_eq!(
            (
                figures.send_window_max_bytes,
                figures.send_window_steady_bytes,
                figures.send_window_bytes
            ),
            (34_560, 8192, 900)
        );
        // A stream too short to have two halves has its last.
        let mut short = stream;
        short.sender.samples.truncate(1);
        let figures = WayFigures::of(&short);
        assert_eq!(figures.send_window_steady_bytes, 34_560);
    }
}
