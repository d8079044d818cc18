//! One direction of a circuit, as all tests together show it.

use crate::probe::examine::side;
use crate::probe::host::HostFacts;
use crate::probe::observe::{FlowResult, FlowWay, Outage, TcpWay};
use crate::probe::path_check::FULL_PACKET_BYTES;
use crate::probe::report::{LoadedTcp, Observations};
use crate::probe::socket_state::TcpState;
use crate::probe::tcp_test::Direction;

use super::{Finding, hosts, loss, mbit, silence};

/// One direction.
#[derive(Debug, Clone)]
pub struct Way<'a> {
    pub(crate) direction: Direction,
    pub(crate) payload_bytes: f64,
    pub(crate) train_datagrams: u32,
    pub(crate) trains: Option<&'a FlowWay>,
    pub(crate) flood: Option<&'a FlowWay>,
    /// Without outages, as what both directions together lost.
    pub(crate) quiet: Option<FlowWay>,
    pub(crate) both: Option<FlowWay>,
    pub(super) outage: Option<Outage>,
    /// Whether both senders sent about what the test of both directions asks for.
    pub(crate) is_both_loaded: bool,
    pub(crate) loaded: Option<&'a LoadedTcp>,
    pub(crate) sender_host: Option<&'a HostFacts>,
    pub(crate) receiver_host: Option<&'a HostFacts>,
    pub(crate) idle_rtt_us: f64,
    pub(crate) line_bit_per_s: Option<f64>,
    /// Payload rate of full datagrams that the circuit carries.
    pub(crate) capacity_bit_per_s: Option<f64>,
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) is_black_hole: bool,
    pub(crate) has_v6_headers: bool,
    /// Sent in all UDP tests, where none of them arrived.
    pub(super) blocked_datagrams: Option<u64>,
}

/// A flood that lost more than this filled the circuit.
const FULL_LOSS: f64 = 0.01;

/// Half of the load is enough to meet the other direction's.
fn is_loaded(both: &FlowResult) -> bool {
    const SHARE_MIN: f64 = 0.5;
    let planned = both.plan.bit_per_s();
    let is_enough = |way: &FlowWay| {
        let offered = way.count.offered_bit_per_s;
        offered.is_none_or(|offered| offered >= planned * SHARE_MIN)
    };
    [&both.up, &both.down].into_iter().flatten().all(is_enough)
}

/// By what a full packet has beside its payload; datagrams fill no jumbo frame.
fn has_v6_headers(mtu_bytes: u32, payload_bytes: f64) -> bool {
    f64::from(mtu_bytes.min(FULL_PACKET_BYTES)) - payload_bytes > 40.0
}

impl<'a> Way<'a> {
    /// `None` where the direction was not looked at.
    pub(crate) fn of(seen: &'a Observations, direction: Direction) -> Option<Self> {
        let (flood, quiet, loaded) = match direction {
            Direction::Down => (&seen.flood_down, &seen.quiet_down, &seen.tcp_down),
            _ => (&seen.flood_up, &seen.quiet_up, &seen.tcp_up),
        };
        let (client, server) = (seen.client_host.as_ref(), seen.server_host.as_ref());
        let (sender_host, receiver_host) = match direction {
            Direction::Down => (server, client),
            _ => (client, server),
        };
        let in_way = |flow: &'a Option<FlowResult>| side(flow.as_ref()?, direction);
        let plan = seen.trains.as_ref()?.plan;
        let path = seen.path.as_ref();
        let mtu_bytes = path.and_then(|path| path.mtu_bytes());
        let payload_bytes = f64::from(plan.payload_bytes);
        let mut way = Self {
            direction,
            payload_bytes,
            train_datagrams: plan.train_datagrams,
            trains: in_way(&seen.trains),
            flood: in_way(flood),
            quiet: in_way(quiet).map(FlowWay::without_outage),
            both: in_way(&seen.both_loaded).map(FlowWay::without_outage),
            outage: silence::first_outage(
                [in_way(quiet), in_way(&seen.both_loaded)],
                [in_way(flood), in_way(&seen.trains)],
            ),
            is_both_loaded: seen.both_loaded.as_ref().is_some_and(is_loaded),
            loaded: loaded.as_ref(),
            sender_host,
            receiver_host,
            idle_rtt_us: seen.idle_rtt_us()? as f64,
            line_bit_per_s: None,
            capacity_bit_per_s: None,
            mtu_bytes,
            is_black_hole: path.is_some_and(|path| path.is_black_hole()),
            has_v6_headers: mtu_bytes.is_some_and(|mtu| has_v6_headers(mtu, payload_bytes)),
            blocked_datagrams: None,
        };
        way.leave_out_blocked();
        way.line_bit_per_s = way.trains.and_then(|trains| trains.count.line_bit_per_s);
        way.capacity_bit_per_s = way.capacity();
        Some(way)
    }

    /// Tests of which nothing arrived say nothing of the circuit.
    fn leave_out_blocked(&mut self) {
        let flows = [
            self.trains,
            self.flood,
            self.quiet.as_ref(),
            self.both.as_ref(),
        ];
        if !silence::is_blocked(&flows) {
            return;
        }
        let sent = flows.into_iter().flatten().map(|way| way.sent);
        self.blocked_datagrams = Some(sent.fold(0, u64::saturating_add));
        (self.trains, self.flood, self.quiet, self.both) = (None, None, None, None);
    }

    /// What arrived of a flood that filled the circuit; where it did not, the
    /// pace of trains says more.
    fn capacity(&self) -> Option<f64> {
        let flood = self.flood?;
        let carried = self.carried_bit_per_s()?;
        let Some(line) = self.line_bit_per_s else {
            return Some(carried);
        };
        // A sender short of processor time sends bursts: they are cut, and the
        // line is idle between them.
        let offered = flood.count.offered_bit_per_s;
        let was_enough = offered.is_none_or(|offered| offered >= line);
        match flood.loss() > FULL_LOSS && !self.cuts_trains() && was_enough {
            true => Some(carried),
            false => Some(carried.max(line)),
        }
    }

    /// What really came, by the flood or by TCP.
    pub(super) fn carried_bit_per_s(&self) -> Option<f64> {
        let steady = self.flood?.count.steady_bit_per_s?;
        Some(steady.max(self.tcp_as_datagrams_bit_per_s()))
    }

    /// What the flood would have brought if its sender had not paused: what a token bucket has no room for meanwhile
    /// is no lower rate.
    pub(super) fn unpaused_bit_per_s(&self) -> Option<f64> {
        /// With less than that of a flood nothing can be said.
        const SENT_MIN: f64 = 0.1;
        let paused = self.flood?.count.sender_paused.unwrap_or(0.0);
        Some(self.capacity_bit_per_s? / (1.0 - paused).max(SENT_MIN))
    }

    /// What the TCP stream got, with UDP's headers in place of TCP's: the circuit carries at least that.
    fn tcp_as_datagrams_bit_per_s(&self) -> f64 {
        let by_tcp = self.tcp_by_datagrams().max(f64::EPSILON);
        self.goodput_bit_per_s().map_or(0.0, |rate| rate / by_tcp)
    }

    /// TCP's payload rate by that of datagrams on the same line: 20 bytes of headers and
    /// timestamps of 12 in place of UDP's 8, in packets of the same length or longer ones.
    fn tcp_by_datagrams(&self) -> f64 {
        let payload = self.payload_bytes;
        if payload <= 0.0 {
            return 1.0;
        }
        let same_length = (payload + 8.0 - 32.0).max(1.0);
        let headers = self.udp_headers_bytes() - 8.0 + 32.0;
        let segment = self
            .tcp()
            .map_or(0.0, |tcp| tcp.figures.segment_bytes as f64);
        match segment > payload {
            true => (payload + self.udp_headers_bytes()) / payload * segment / (segment + headers),
            false => same_length / payload,
        }
    }

    /// Whether anything filled the circuit, so that its capacity is known and not only a least one: a flood that lost
    /// or queued, or trains that came slower than they were sent. A sender that waits for a processor does neither.
    pub(super) fn is_filled(&self) -> bool {
        const QUEUED_US_MIN: f64 = 50_000.0;
        const SPREAD_MIN: f64 = 0.6;
        let has_flooded = self.flood.is_some_and(|flood| {
            let offered = flood.count.offered_bit_per_s.unwrap_or(f64::INFINITY);
            let is_queued = flood.count.delays.p50_us as f64 >= QUEUED_US_MIN;
            let is_enough = offered >= self.line_bit_per_s.unwrap_or(0.0);
            flood.loss() > FULL_LOSS || (is_queued && is_enough)
        });
        has_flooded || self.spread().is_some_and(|spread| spread >= SPREAD_MIN)
    }

    /// How long the middle packet of a train waited for those before it, beside how long it would have if all had been
    /// sent at once: 1 where the line set the pace, 0 where the sender did.
    fn spread(&self) -> Option<f64> {
        let delay_us = self.trains?.count.delays.p50_us as f64;
        let train_bits = f64::from(self.train_datagrams.checked_sub(1)?) * self.payload_bytes * 8.0;
        let line = self.line_bit_per_s.filter(|rate| *rate > 0.0)?;
        Some(delay_us / (train_bits / line * 1e6 / 2.0).max(1.0))
    }

    /// Whether trains lose their ends: a queue of few packets. A flood that is
    /// not perfectly even does not fill the line behind it.
    pub(super) fn cuts_trains(&self) -> bool {
        /// Policers let more pass at once.
        const HELD_MIN: u32 = 15;
        let held = self.trains.and_then(|trains| {
            let count = &trains.count;
            count.train_held.or(count.train_whole)
        });
        held.is_some_and(|held| held < HELD_MIN)
    }

    /// What is wrong in this direction.
    pub(crate) fn faults(&self) -> Vec<Finding> {
        let hosts = [
            hosts::window_scaling(self),
            hosts::receive_window(self),
            hosts::send_buffer(self),
            hosts::cpu_bound(self),
        ];
        let circuit = [
            loss::duplex_mismatch(self),
            silence::outage(self),
            silence::stalled_tcp(self),
            loss::random(self),
            loss::policer(self),
            loss::shallow_buffer(self),
            loss::reordering(self),
            silence::udp_blocked(self),
        ];
        hosts.into_iter().chain(circuit).flatten().collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        /// What a call notices (ITU-T G.114).
        const QUEUE_US_NOTED: f64 = 150_000.0;
        let mut notes = Vec::new();
        let name = self.name();
        if let Some(p95_us) = self.loaded.and_then(|loaded| loaded.latency.p95_us) {
            let more_us = p95_us as f64 - self.idle_rtt_us;
            if more_us > QUEUE_US_NOTED && silence::stalled_tcp(self).is_none() {
                let (idle_ms, loaded_ms) = (self.idle_rtt_us / 1e3, p95_us as f64 / 1e3);
                notes.push(format!("under load {name} the round trip grows from {idle_ms:.0} to {loaded_ms:.0} ms: the queue is deeper than interactive traffic likes"));
            }
        }
        if self.flood.is_some() && !self.is_filled() {
            notes.push(format!("nothing filled the circuit {name}, as if a host had been short of processor time: it carries at least what is said here, and faults that show at its full rate only may be missed"));
        }
        if let (Some(mss), Some(sent)) = (self.syn_mss_bytes(), self.sent_mss_bytes())
            && mss < sent
        {
            notes.push(format!(
                "a box on the way lowers the MSS from {sent} to {mss} bytes"
            ));
        }
        if let (Some(again), Some(quiet)) = (self.duplicates(), &self.quiet) {
            let sent = quiet.sent;
            notes.push(format!("{again} of {sent} small datagrams came twice {name}: a path on the way is joined to itself, or repeats what it takes for lost"));
        }
        notes.extend(self.stripped());
        notes.extend(silence::moment(self));
        if let Some(share) = self.share().filter(|share| *share < 0.8)
            && self.faults().is_empty()
        {
            let percent = share * 100.0;
            notes.push(format!("one TCP stream used {percent:.0} % of the circuit {name} in this time, and nothing seen limits it: its congestion control was still growing"));
        }
        notes
    }

    /// Datagrams of the quiet flow that came again, where it is no accident.
    pub(crate) fn duplicates(&self) -> Option<u64> {
        const DATAGRAMS_MIN: u64 = 5;
        let quiet = self.quiet.as_ref()?;
        Some(quiet.count.duplicates).filter(|again| *again >= DATAGRAMS_MIN)
    }

    /// What the stream did without although both hosts have it on.
    fn stripped(&self) -> Vec<String> {
        type IsOn = fn(&HostFacts) -> Option<bool>;
        let agreed = |state: &TcpState| [state.uses_sack(), state.uses_timestamps()];
        let streams = self.tcp().and_then(|tcp| tcp.streams.first());
        let Some(agreed) = streams.map(|pair| agreed(&pair.sender.settings.at_start)) else {
            return Vec::new();
        };
        let options: [(&str, u8, IsOn); 2] = [
            ("selective acknowledgements", 4, |host| host.sack),
            ("timestamps", 8, |host| host.timestamps),
        ];
        let is_on = |of: IsOn| {
            let hosts = [self.sender_host, self.receiver_host];
            hosts
                .into_iter()
                .all(|host| host.and_then(of) == Some(true))
        };
        let missing = options
            .into_iter()
            .zip(agreed)
            .filter(|(_, agreed)| !agreed);
        missing
            .filter(|((_, _, of), _)| is_on(*of))
            .map(|((what, number, _), _)| {
                format!("{what} were not agreed on {}, though both hosts have them on: a box on the way removes TCP option {number}", self.name())
            })
            .collect()
    }

    fn syn_mss_bytes(&self) -> Option<u32> {
        let pair = self.tcp()?.streams.first()?;
        let syn = pair.receiver.settings.syn.or(pair.sender.settings.syn)?;
        syn.mss_bytes.map(u32::from)
    }

    /// What the client's SYN told. Linux takes the 12 bytes of timestamps off once
    /// they are agreed on.
    fn sent_mss_bytes(&self) -> Option<u32> {
        const TIMESTAMP_BYTES: u32 = 12;
        let pair = self.tcp()?.streams.first()?;
        let connecting = match self.direction {
            Direction::Down => &pair.receiver,
            _ => &pair.sender,
        };
        let state = &connecting.settings.at_start;
        let taken_off = u32::from(state.uses_timestamps()) * TIMESTAMP_BYTES;
        Some(state.advertised_mss_bytes)
            .filter(|mss| *mss > 0)
            .map(|mss| mss.saturating_add(taken_off))
    }

    pub(super) fn tcp(&self) -> Option<&'a TcpWay> {
        self.loaded?.way()
    }

    /// Whether the receiving program has fixed its buffer, as far as its kernel tells.
    pub(super) fn has_fixed_receive_buffer(&self) -> bool {
        let stream = self.tcp().and_then(|tcp| tcp.streams.first());
        stream.is_some_and(|pair| pair.receiver.settings.receive_buffer_fixed == Some(true))
    }

    /// Payload rate of the TCP stream, in the second half of its time.
    pub(super) fn goodput_bit_per_s(&self) -> Option<f64> {
        self.tcp()?.steady_bit_per_s
    }

    /// The same as payload of a TCP stream.
    pub(super) fn tcp_capacity_bit_per_s(&self) -> Option<f64> {
        Some(self.capacity_bit_per_s? * self.tcp_by_datagrams())
    }

    /// What the stream's sender really used, or its host's default.
    pub(super) fn congestion_control(&self) -> Option<&'a str> {
        let stream = self.tcp().and_then(|tcp| tcp.streams.first());
        let used = stream.map(|pair| pair.sender.settings.congestion_control.as_str());
        let default = || self.sender_host?.congestion_control.as_deref();
        used.filter(|name| !name.is_empty()).or_else(default)
    }

    /// Share of the circuit that the TCP stream used.
    pub(super) fn share(&self) -> Option<f64> {
        Some(self.goodput_bit_per_s()? / self.tcp_capacity_bit_per_s().filter(|rate| *rate > 0.0)?)
    }

    /// Bytes on their way when the circuit is full.
    pub(super) fn bdp_bytes(&self) -> Option<f64> {
        Some(self.tcp_capacity_bit_per_s()? * self.idle_rtt_us / 8e6)
    }

    /// How long a packet waits at overload: the depth of the queue.
    pub(crate) fn queue_us(&self) -> Option<f64> {
        let flood = self.flood.filter(|flood| flood.loss() > FULL_LOSS)?;
        Some(flood.count.delays.p50_us as f64)
    }

    /// The same in full packets.
    pub(super) fn queue_packets(&self) -> Option<f64> {
        Some(self.queue_us()? * self.capacity_bit_per_s? / (self.payload_bytes * 8e6))
    }

    /// Ethernet frame by payload.
    pub(crate) fn frame_share(&self) -> Option<f64> {
        let headers = self.udp_headers_bytes();
        (self.payload_bytes > 0.0).then(|| (self.payload_bytes + headers) / self.payload_bytes)
    }

    /// Of UDP, IP and Ethernet.
    fn udp_headers_bytes(&self) -> f64 {
        if self.has_v6_headers { 62.0 } else { 42.0 }
    }

    /// Bytes of a train that passed whole.
    pub(crate) fn train_bytes(&self) -> Option<u64> {
        let whole = self.trains?.count.train_whole?;
        Some(u64::from(whole) * self.payload_bytes as u64)
    }

    /// Loss that does not depend on load.
    pub(crate) fn wire_loss(&self) -> Option<f64> {
        let quiet = loss::random(self).and(self.quiet.as_ref());
        quiet.map(FlowWay::loss)
    }

    pub(super) fn name(&self) -> &'static str {
        match self.direction {
            Direction::Down => "down",
            _ => "up",
        }
    }

    /// Names of sender and receiver.
    pub(super) fn ends(&self) -> (&'static str, &'static str) {
        match self.direction {
            Direction::Down => ("server", "client"),
            _ => ("client", "server"),
        }
    }

    /// What a stream got of what there is, for evidence.
    pub(super) fn got_of(&self) -> String {
        let text = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), mbit);
        format!(
            "one TCP stream {}: {} of {}",
            self.name(),
            text(self.goodput_bit_per_s()),
            text(self.tcp_capacity_bit_per_s())
        )
    }
}
