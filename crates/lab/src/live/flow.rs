//! iperf3 connections that run at the same time, read at the receiver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cell::Company;
use crate::deployment::Lab;
use crate::error::LabError;
use crate::iperf::{PORT, Running, odd, wait_listening};
use crate::topology::SERVER;

/// How long a connection may take beyond its duration; what waits in queues
/// and gateways has to arrive first.
const END_PATIENCE: Duration = Duration::from_secs(90);

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the gateways, if they run.
    Tunnel,
    /// Past them.
    Past,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    way: Way,
    controller: &'static str,
    start_s: u64,
    pub(super) seconds: u64,
}

/// What arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrived {
    /// Start, end (s) and payload (bytes) of each interval.
    intervals: Vec<(f64, f64, f64)>,
    /// Controller that the sender really had.
    pub(super) controller: String,
}

impl Flow {
    pub(super) fn new(way: Way, controller: &'static str, start_s: u64, seconds: u64) -> Self {
        Self {
            way,
            controller,
            start_s,
            seconds,
        }
    }

    fn port(&self) -> u16 {
        match self.way {
            Way::Tunnel => PORT,
            Way::Past => Company::PAST_PORT,
        }
    }
}

impl Arrived {
    /// Mean rate at the receiver between two times since the start.
    pub(super) fn mbit_per_s(&self, from_s: u64, to_s: u64) -> f64 {
        let (from, to) = (from_s as f64 - 0.5, to_s as f64 + 0.5);
        let counted = self
            .intervals
            .iter()
            .filter(|(start, end, _)| *start >= from && *end <= to);
        let (bytes, seconds) = counted.fold((0.0, 0.0), |(bytes, seconds), (start, end, more)| {
            (bytes + more, seconds + end - start)
        });
        bytes * 8.0 / f64::max(seconds, 1e-9) / 1e6
    }

    /// All that arrived, in Gbit.
    pub(super) fn gbit(&self) -> f64 {
        let bytes: f64 = self.intervals.iter().map(|(_, _, bytes)| bytes).sum();
        bytes * 8.0 / 1e9
    }

    fn read(client: &Value, server: &Value) -> Result<Self, LabError> {
        for (who, output) in [("client", client), ("server", server)] {
            if let Some(error) = output.get("error").and_then(Value::as_str) {
                return Err(odd(who, error));
            }
        }
        let intervals = server.get("intervals").and_then(Value::as_array);
        let sums = intervals.into_iter().flatten().filter_map(|i| i.get("sum"));
        let intervals = sums.map(|sum| {
            let number = |key: &str| sum.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            (number("start"), number("end"), number("bytes"))
        });
        let controller = client.pointer("/end/sender_tcp_congestion");
        Ok(Self {
            intervals: intervals.collect(),
            controller: controller
                .and_then(Value::as_str)
                .unwrap_or("unknown")
                .to_owned(),
        })
    }
}

/// Runs them all; results in the order they were asked for.
pub(super) fn run_flows(
    lab: &Lab,
    flows: &[Flow],
    stop: &AtomicBool,
) -> Result<Vec<Arrived>, LabError> {
    let check = || match stop.load(Ordering::Relaxed) {
        true => Err(LabError::Interrupted),
        false => Ok(()),
    };
    let (client, server) = (lab.client()?, lab.server()?);
    let mut servers = Vec::new();
    for flow in flows {
        let port = flow.port();
        let mut command = server.command("iperf3");
        command
            .args(["-s", "-1", "-J", "-B", &SERVER.to_string()])
            .args(["-p", &port.to_string()]);
        let mut running = Running::start(&mut command)?;
        wait_listening(&server, port, &mut running)?;
        servers.push(running);
    }
    let start = Instant::now();
    let mut order: Vec<_> = flows.iter().enumerate().collect();
    order.sort_by_key(|(_, flow)| flow.start_s);
    let mut clients = Vec::new();
    for (index, flow) in order {
        while start.elapsed() < Duration::from_secs(flow.start_s) {
            check()?;
            sleep(Duration::from_millis(20));
        }
        let mut command = client.command("iperf3");
        command
            .args(["-c", &SERVER.to_string(), "-J", "-C", flow.controller])
            .args(["-p", &flow.port().to_string()])
            .args(["-t", &flow.seconds.to_string()]);
        clients.push((index, Running::start(&mut command)?));
    }
    clients.sort_by_key(|(index, _)| *index);
    let mut arrived = Vec::new();
    for ((_, client), (server, flow)) in clients.into_iter().zip(servers.into_iter().zip(flows)) {
        let patience = Duration::from_secs(flow.seconds) + END_PATIENCE;
        let client = client.finish(patience, check)?;
        let server = server.finish(END_PATIENCE, check)?;
        arrived.push(Arrived::read(&client, &server)?);
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_arrived_between_the_times_counts() {
        let interval = |start: u64, bytes: u64| json!({"sum": {"start": start as f64, "end": start as f64 + 1.0, "bytes": bytes}});
        let server = json!({"intervals": [interval(0, 1), interval(1, 1_000_000), interval(2, 3_000_000), interval(3, 7)]});
        let client = json!({"end": {"sender_tcp_congestion": "bbr"}});
        let arrived = Arrived::read(&client, &server).unwrap();
        assert_eq!(arrived.controller, "bbr");
        assert_eq!(arrived.mbit_per_s(1, 3), 16.0);
        assert_eq!(arrived.gbit(), 0.032_000_064);
        let error = Arrived::read(&json!({"error": "no route"}), &server).unwrap_err();
        assert!(error.to_string().contains("no route"));
    }
}
