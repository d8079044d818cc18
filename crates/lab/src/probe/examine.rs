//! The whole examination of a circuit, in the order in which each step needs
//! what the ones before it found.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::client::Client;
use super::datagram_flow::{DATAGRAMS_MAX, FlowPlan, Header};
use super::diagnose::{capacity_bit_per_s, diagnose};
use super::error::ProbeError;
use super::host::HostFacts;
use super::iperf3::Iperf3Plan;
use super::latency::Pinger;
use super::observe::{FlowResult, FlowWay};
use super::report::{LoadedTcp, Observations, Report};
use super::rfc6349::Figures;
use super::sweep::sweep;
use super::tcp_test::{Direction, TcpPlan};
use super::{path_check, transact};

/// Shortest TCP test that a verdict can rest on.
pub const TCP_MS_MIN: u64 = 1000;
/// And in round trips, for long paths: a start, and a second half to judge.
const TCP_ROUND_TRIPS_MIN: u64 = 10;

/// Where to, and how thoroughly.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Set to end everything.
    pub stop: Arc<AtomicBool>,
}

/// A step's name, told to whoever watches.
pub type Tell<'a> = &'a dyn Fn(&str);

/// What else than a diagnosis can be asked for.
#[derive(Debug, Clone)]
pub enum Single {
    /// TCP tests, one after the other.
    Tcp(Vec<TcpPlan>),
    /// UDP tests, one after the other.
    Flow(Vec<FlowPlan>),
    /// Window sizes: direction, largest window in bytes (twice what the circuit
    /// holds), duration of each.
    Sweep(Direction, Option<u32>, u64),
    /// Transactions for a time.
    Transact(Duration),
}

/// Examines a circuit and judges it. Always a report.
pub fn examine(target: &Target, tcp_ms: u64, tell: Tell<'_>) -> Report {
    let mut report = Report::new(&target.host);
    let outcome = Client::connect(&target.host, target.port, Arc::clone(&target.stop))
        .and_then(|mut client| look(&mut client, &mut report.observations, tcp_ms, tell));
    let is_whole = outcome.is_ok();
    report.rfc6349 = rfc6349(&report.observations);
    if is_whole {
        report.verdict = Some(diagnose(&report.observations));
        report.link_profile = super::link_words::of(&report.observations);
    }
    let outcome = outcome.and_then(|()| grounded(&report));
    report.ended(outcome)
}

/// One kind of test; what came of those before a failure is kept.
pub fn single(target: &Target, test: &Single) -> Report {
    let mut report = Report::new(&target.host);
    let seen = &mut report.observations;
    let outcome = Client::connect(&target.host, target.port, Arc::clone(&target.stop)).and_then(
        |mut client| {
            note_hosts(&client, seen);
            match test {
                Single::Tcp(plans) => {
                    for plan in plans {
                        let result = client.tcp(plan)?;
                        let outcome = result.carried();
                        seen.tcp.push(result);
                        outcome?;
                    }
                }
                Single::Flow(plans) => {
                    for plan in plans {
                        client.check_stop()?;
                        let result = client.datagrams(plan)?;
                        let outcome = result.carried();
                        seen.flows.push(result);
                        outcome?;
                    }
                }
                Single::Sweep(direction, largest_bytes, each_ms) => {
                    sweep(
                        &mut client,
                        *direction,
                        *largest_bytes,
                        *each_ms,
                        &mut seen.sweep,
                    )?;
                }
                Single::Transact(duration) => {
                    seen.transactions = Some(transact::transact(&client, *duration)?);
                }
            }
            client.end();
            Ok(())
        },
    );
    report.ended(outcome)
}

/// A test with an iperf3 server, which tells nothing of its host. One that is
/// busy, or about to be ready again, is asked again for as long as `patience`.
pub fn with_iperf3(target: &Target, plan: &Iperf3Plan, patience: Duration) -> Report {
    let mut report = Report::new(&target.host);
    let seen = &mut report.observations;
    seen.client_host = Some(HostFacts::here());
    let stop = Arc::clone(&target.stop);
    let outcome = super::iperf3::run_when_free(&target.host, target.port, plan, stop, patience)
        .and_then(|result| {
            let outcome = result.carried();
            seen.iperf3 = Some(result);
            outcome
        });
    report.ended(outcome)
}

fn note_hosts(client: &Client, seen: &mut Observations) {
    seen.client_host = Some(HostFacts::here());
    seen.server_host = Some(client.server_host.clone());
    seen.other_sessions = client.other_sessions;
    seen.control_rtt_us = Some(client.control_rtt_ns / 1000);
}

/// Between two echoes: a slow line carries them without a queue.
fn idle_spacing(control_rtt_ns: u64) -> Duration {
    Duration::from_nanos((control_rtt_ns / 2).clamp(20_000_000, 100_000_000))
}

/// Long enough for a start and a second half to judge.
fn tcp_ms_of(asked_ms: u64, rtt_us: u64) -> u64 {
    asked_ms.max(rtt_us.saturating_mul(TCP_ROUND_TRIPS_MIN) / 1000)
}

fn look(
    client: &mut Client,
    seen: &mut Observations,
    tcp_ms: u64,
    tell: Tell<'_>,
) -> Result<(), ProbeError> {
    note_hosts(client, seen);
    tell("round trip of the idle circuit");
    let never = AtomicBool::new(false);
    let idle = Pinger::new(client)?.run(idle_spacing(client.control_rtt_ns), 25, &never)?;
    seen.idle = Some(idle);
    let rtt_us = seen.idle_rtt_us().unwrap_or(0);
    let tcp_ms = tcp_ms_of(tcp_ms, rtt_us);
    tell("longest packet, rewritten marks");
    let path = path_check::check(client, &idle)?;
    let headers_bytes = if client.server().is_ipv6() { 48 } else { 28 };
    let mtu = path.mtu_bytes().unwrap_or(576);
    let mtu = mtu.clamp(128, path_check::FULL_PACKET_BYTES);
    client.stream_mss_bytes = path
        .is_black_hole()
        .then(|| (mtu - headers_bytes - 12) as u16);
    let is_too_slow = path.is_too_slow();
    seen.path = Some(path);
    if is_too_slow {
        return Ok(());
    }
    let payload = (mtu - headers_bytes) as u16;
    flows(client, seen, payload, tell)?;
    tell("TCP up");
    seen.tcp_up = Some(loaded_tcp(client, Direction::Up, tcp_ms)?);
    tell("TCP down");
    seen.tcp_down = Some(loaded_tcp(client, Direction::Down, tcp_ms)?);
    tell("transactions");
    seen.transactions = Some(transact::transact(client, Duration::from_secs(1))?);
    Ok(())
}

/// A clean circuit whose rate nobody has seen is none.
fn grounded(report: &Report) -> Result<(), ProbeError> {
    match &report.verdict {
        Some(verdict) if !verdict.is_grounded(&report.observations) => Err(ProbeError::NoVerdict {
            why: verdict.sentence.trim_end_matches('.').to_owned(),
        }),
        _ => Ok(()),
    }
}

fn flows(
    client: &mut Client,
    seen: &mut Observations,
    payload: u16,
    tell: Tell<'_>,
) -> Result<(), ProbeError> {
    tell("short trains both ways");
    let slow_bit_per_s = seen.path.as_ref().and_then(|path| path.slow_line_bit_per_s);
    seen.trains = Some(client.datagrams(&trains(payload, slow_bit_per_s))?);
    tell("more than the line carries, up");
    seen.flood_up = Some(overload(client, Direction::Up, payload, &seen.trains)?);
    tell("more than the line carries, down");
    seen.flood_down = Some(overload(client, Direction::Down, payload, &seen.trains)?);
    let capacity =
        |direction, seen: &Observations| capacity_bit_per_s(seen, direction).unwrap_or(1e6);
    let (up, down) = (
        capacity(Direction::Up, seen),
        capacity(Direction::Down, seen),
    );
    tell("small datagrams far below the line's rate, up");
    seen.quiet_up = Some(client.datagrams(&quiet(Direction::Up, up))?);
    tell("small datagrams far below the line's rate, down");
    seen.quiet_down = Some(client.datagrams(&quiet(Direction::Down, down))?);
    tell("both ways at once");
    let mut most = FlowPlan::even(Direction::Both, payload, up.min(down) * 0.7, 1.5);
    // A long burst of a sender that was held up is cut by any queue; with none
    // at all, senders whose timers are late fill neither direction.
    most.catch_up_ns = 2_000_000;
    seen.both_loaded = Some(client.datagrams(&most)?);
    Ok(())
}

/// Eight trains of thirty; on a slow line fewer, each when the one before has left it:
/// what waits there is in the way of everything else.
fn trains(payload_bytes: u16, slow_bit_per_s: Option<u64>) -> FlowPlan {
    const TRAIN_DATAGRAMS: u32 = 30;
    const GAP_NS_MIN: u64 = 100_000_000;
    const TIME_NS: u64 = 10_000_000_000;
    let train_bits = u64::from(TRAIN_DATAGRAMS) * (u64::from(payload_bytes) + 42) * 8;
    let drained_ns = slow_bit_per_s.and_then(|rate| (train_bits * 1_100_000_000).checked_div(rate));
    let gap_ns = drained_ns.unwrap_or(0).max(GAP_NS_MIN);
    FlowPlan {
        direction: Direction::Both,
        payload_bytes,
        trains: (TIME_NS / gap_ns).clamp(2, 8) as u32,
        train_datagrams: TRAIN_DATAGRAMS,
        gap_ns,
        catch_up_ns: FlowPlan::CATCH_UP_ALL_NS,
    }
}

/// A flood, and a larger one where it was none: trains of a sender that was held up come slower than the line carries.
fn overload(
    client: &mut Client,
    direction: Direction,
    payload_bytes: u16,
    trains: &Option<FlowResult>,
) -> Result<FlowResult, ProbeError> {
    const TIMES_MAX: u32 = 3;
    let mut plan = flood(direction, payload_bytes, trains);
    let mut result = client.datagrams(&plan)?;
    for _again in 1..TIMES_MAX {
        if !has_room(&result, direction) {
            break;
        }
        plan = flood_of(direction, payload_bytes, plan.bit_per_s() * 2.0);
        result = client.datagrams(&plan)?;
    }
    Ok(result)
}

/// Whether all that was planned was sent and nothing of it lost or queued.
fn has_room(result: &FlowResult, direction: Direction) -> bool {
    const LOSS_MAX: f64 = 0.001;
    const QUEUED_US_MAX: u64 = 20_000;
    const SENT_MIN: f64 = 0.9;
    let Some(way) = side(result, direction) else {
        return false;
    };
    let planned = result.plan.bit_per_s();
    let offered = way.count.offered_bit_per_s.unwrap_or(0.0);
    offered >= planned * SENT_MIN
        && way.loss() <= LOSS_MAX
        && way.count.delays.p50_us <= QUEUED_US_MAX
}

const FLOOD_S: f64 = 1.5;

fn flood_of(direction: Direction, payload_bytes: u16, bit_per_s: f64) -> FlowPlan {
    let most = DATAGRAMS_MAX as f64 * f64::from(payload_bytes) * 8.0 / FLOOD_S;
    let rate = bit_per_s.clamp(100e3, most / 2.0);
    FlowPlan::even(direction, payload_bytes, rate, FLOOD_S)
}

/// A quarter more than the trains' pace, for one and a half seconds.
fn flood(direction: Direction, payload_bytes: u16, trains: &Option<FlowResult>) -> FlowPlan {
    const DEFAULT_BIT_PER_S: f64 = 20e6;
    let way = trains.as_ref().and_then(|trains| side(trains, direction));
    let line = way
        .and_then(|way| way.count.line_bit_per_s)
        .unwrap_or(DEFAULT_BIT_PER_S);
    flood_of(direction, payload_bytes, line * 1.25)
}

/// Sixty thousand, so that one in ten thousand shows, as far as rate and time
/// allow. Never in bursts: those would fill small queues.
fn quiet(direction: Direction, capacity_bit_per_s: f64) -> FlowPlan {
    const DATAGRAMS: f64 = 60_000.0;
    /// Enough above 5 Mbit/s; below, both ways are judged together.
    const SECONDS_MAX: f64 = 20.0;
    const PER_SECOND_MAX: f64 = 15_000.0;
    /// With headers of IP, UDP and Ethernet.
    const FRAME_BITS: f64 = (Header::BYTES as f64 + 42.0) * 8.0;
    let per_second = (capacity_bit_per_s * 0.4 / FRAME_BITS).clamp(50.0, PER_SECOND_MAX);
    let datagrams = (per_second * SECONDS_MAX).min(DATAGRAMS);
    FlowPlan {
        direction,
        payload_bytes: Header::BYTES as u16,
        trains: datagrams as u32,
        train_datagrams: 1,
        gap_ns: (1e9 / per_second) as u64,
        catch_up_ns: 0,
    }
}

pub(crate) fn side(result: &FlowResult, direction: Direction) -> Option<&FlowWay> {
    match direction {
        Direction::Down => result.down.as_ref(),
        _ => result.up.as_ref(),
    }
}

fn loaded_tcp(client: &mut Client, direction: Direction, ms: u64) -> Result<LoadedTcp, ProbeError> {
    let pinger = Pinger::new(client)?;
    let done = AtomicBool::new(false);
    let every = Duration::from_millis(50);
    thread::scope(|scope| {
        let pings = scope.spawn(|| pinger.run(every, u32::MAX, &done));
        let test = client.tcp(&TcpPlan::new(direction, ms));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let latency = pings.join().unwrap_or(Err(ProbeError::Interrupted));
        Ok(LoadedTcp {
            test: test?,
            latency: latency?,
        })
    })
}

fn rfc6349(seen: &Observations) -> Vec<Figures> {
    let ways = [
        (Direction::Up, &seen.tcp_up),
        (Direction::Down, &seen.tcp_down),
    ];
    let figures = |(direction, loaded): (Direction, &Option<LoadedTcp>)| {
        let test = &loaded.as_ref()?.test;
        let way = test.up.as_ref().or(test.down.as_ref())?;
        Some(Figures::of(
            direction,
            way.mean_bit_per_s,
            super::diagnose::tcp_capacity_bit_per_s(seen, direction),
            way.figures.retransmitted,
            (seen.idle_rtt_us(), way.figures.mean_rtt_us),
        ))
    };
    ways.into_iter().filter_map(figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_line_is_empty_before_the_next_train() {
        let plan = trains(1472, None);
        assert_eq!((plan.trains, plan.gap_ns), (8, 100_000_000));
        for rate in [100_000, 128_000, 256_000, 499_000] {
            let plan = trains(1472, Some(rate));
            let carried = rate as f64 * plan.gap_ns as f64 / 8e9;
            assert!(carried > 30.0 * 1514.0, "{rate}: {plan:?}");
            assert!(plan.duration_ns() <= 10_000_000_000, "{rate}: {plan:?}");
        }
    }

    #[test]
    fn a_tcp_test_has_ten_round_trips() {
        assert_eq!(tcp_ms_of(5000, 40_000), 5000);
        assert_eq!(tcp_ms_of(5000, 2_000_000), 20_000);
        // Where no datagram came back, those of the control connection.
        let seen = Observations {
            control_rtt_us: Some(2_000_000),
            ..Observations::default()
        };
        assert_eq!(tcp_ms_of(5000, seen.idle_rtt_us().unwrap()), 20_000);
    }

    #[test]
    fn one_in_ten_thousand_shows_from_5_mbit_s_on() {
        for (capacity, datagrams_min) in
            [(5e6, 60_000), (20e6, 60_000), (1e9, 60_000), (2e6, 25_000)]
        {
            let plan = quiet(Direction::Up, capacity);
            assert!(plan.datagrams() >= datagrams_min, "{capacity}: {plan:?}");
            assert!(plan.duration_ns() <= 20_000_000_000, "{capacity}: {plan:?}");
            let with_frames = plan.bit_per_s() / 36.0 * 78.0;
            assert!(with_frames <= capacity * 0.41, "{capacity}: {with_frames}");
        }
    }
}
