//! iperf3 from one host to the other, read at the receiver.

use std::time::Duration;

use serde_json::Value;

use super::{Hosts, right_address};
use crate::error::LabError;
use crate::iperf::{PORT, Running, odd, wait_listening};
use crate::overflows::receiver_overflows;

/// Seconds at the start that are not counted: slow start, filling of queues.
pub(super) const WARM_UP_S: u64 = 5;
/// Seconds at the end that are not counted: the sender stops meanwhile.
pub(super) const TAIL_S: u64 = 1;

/// How long both may take beyond the duration of the test; at 64 kbit/s the
/// last words of the control connection wait behind seconds of queue.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// What carries the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Carrier {
    /// Full-size datagrams at this many bits of payload per second.
    Udp { payload_bit_per_s: u64 },
    /// One connection with cubic.
    Tcp,
}

/// Payload of a full-size UDP datagram over IPv4 at MTU 1500.
pub(super) const UDP_PAYLOAD_BYTES: u64 = 1472;

/// What arrived between warm-up and tail.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Received {
    pub(super) payload_bytes: u64,
    pub(super) seconds: f64,
    /// Payload of one full-size segment.
    pub(super) segment_bytes: u64,
    /// Controller the sender really had.
    pub(super) controller: Option<String>,
    /// What the sender offered meanwhile, in Mbit/s of payload.
    pub(super) offered_mbit: f64,
    /// Datagrams that the receiver had no room for.
    pub(super) overflows: u64,
}

impl Received {
    pub(super) fn mbit_per_s(&self) -> f64 {
        self.payload_bytes as f64 * 8.0 / self.seconds / 1e6
    }

    /// Why this says more about iperf3 on this machine than about the link.
    pub(super) fn trouble(&self, expected_mbit: f64) -> Option<String> {
        if self.overflows > 0 {
            return Some(format!(
                "iperf3 read too slowly: its socket overflowed {} times",
                self.overflows
            ));
        }
        (self.offered_mbit < expected_mbit)
            .then(|| format!("iperf3 sent too slowly: {:.4} Mbit/s", self.offered_mbit))
    }

    pub(super) fn packets(&self) -> u64 {
        self.payload_bytes / self.segment_bytes.max(1)
    }
}

/// Sends from left to right for `seconds` and counts at the right.
pub(super) fn send(hosts: &Hosts, carrier: Carrier, seconds: u64) -> Result<Received, LabError> {
    let address = right_address();
    let overflows = receiver_overflows(&hosts.right)?;
    let mut server = Running::start(
        hosts
            .right
            .command("iperf3")
            .args(["-s", "-1", "-J", "-B", &address]),
    )?;
    wait_listening(&hosts.right, PORT, &mut server)?;
    let mut client = hosts.left.command("iperf3");
    client.args(["-c", &address, "-J", "-t", &seconds.to_string()]);
    match carrier {
        Carrier::Udp { payload_bit_per_s } => client
            .args(["-u", "-l", &UDP_PAYLOAD_BYTES.to_string()])
            .args(["-b", &payload_bit_per_s.to_string()]),
        Carrier::Tcp => client.args(["-C", "cubic"]),
    };
    let patience = Duration::from_secs(seconds) + END_PATIENCE;
    let client = Running::start(&mut client)?.finish(patience, || hosts.check_stop())?;
    let server = server.finish(END_PATIENCE, || hosts.check_stop())?;
    let mut received = read_result(&client, &server, carrier, seconds)?;
    received.overflows = receiver_overflows(&hosts.right)? - overflows;
    Ok(received)
}

fn read_result(
    client: &Value,
    server: &Value,
    carrier: Carrier,
    seconds: u64,
) -> Result<Received, LabError> {
    for (who, output) in [("client", client), ("server", server)] {
        if let Some(error) = output.get("error").and_then(Value::as_str) {
            return Err(odd(who, error));
        }
    }
    let segment_bytes = match carrier {
        Carrier::Udp { .. } => UDP_PAYLOAD_BYTES,
        Carrier::Tcp => client
            .pointer("/start/tcp_mss_default")
            .and_then(Value::as_u64)
            .ok_or_else(|| odd("client", "no segment size"))?,
    };
    let controller = client
        .pointer("/end/sender_tcp_congestion")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let (payload_bytes, counted_s) = counted(server, seconds);
    let (offered_bytes, offered_s) = counted(client, seconds);
    if payload_bytes == 0 || offered_s <= 0.0 {
        return Err(odd("server", "nothing arrived after the warm-up"));
    }
    Ok(Received {
        payload_bytes,
        seconds: counted_s,
        segment_bytes,
        controller,
        offered_mbit: offered_bytes as f64 * 8.0 / offered_s / 1e6,
        overflows: 0,
    })
}

/// Bytes and duration of the whole seconds between warm-up and tail.
fn counted(output: &Value, seconds: u64) -> (u64, f64) {
    let (first, last) = (WARM_UP_S as f64 - 0.5, (seconds - TAIL_S) as f64 + 0.5);
    let intervals = output.get("intervals").and_then(Value::as_array);
    let sums = intervals.into_iter().flatten().filter_map(|i| i.get("sum"));
    sums.fold((0, 0.0), |(bytes, duration_s), sum| {
        let number = |key: &str| sum.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
        match number("start") >= first && number("end") <= last {
            true => (
                bytes + number("bytes") as u64,
                duration_s + number("seconds"),
            ),
            false => (bytes, duration_s),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn interval(start: f64, bytes: u64) -> Value {
        json!({"sum": {"start": start, "end": start + 1.0, "seconds": 1.0, "bytes": bytes}})
    }

    #[test]
    fn only_whole_seconds_between_warm_up_and_tail_count() {
        let server = json!({"intervals": (0..12).map(|s| interval(f64::from(s), 10u64.pow(s as u32))).collect::<Vec<_>>()});
        let client = json!({
            "start": {"tcp_mss_default": 1448},
            "intervals": [interval(WARM_UP_S as f64, 1_000_000)],
            "end": {"sender_tcp_congestion": "cubic"},
        });
        let seconds = WARM_UP_S + 3 + TAIL_S;
        let received = read_result(&client, &server, Carrier::Tcp, seconds).unwrap();
        let first = 10u64.pow(WARM_UP_S as u32);
        assert_eq!(received.payload_bytes, first + 10 * first + 100 * first);
        assert_eq!((received.seconds, received.segment_bytes), (3.0, 1448));
        assert_eq!(received.controller.as_deref(), Some("cubic"));
        assert_eq!(received.offered_mbit, 8.0);
    }

    #[test]
    fn a_slow_iperf3_is_not_taken_for_a_slow_link() {
        let received = |offered_mbit, overflows| Received {
            payload_bytes: 1,
            seconds: 1.0,
            segment_bytes: 1472,
            controller: None,
            offered_mbit,
            overflows,
        };
        assert_eq!(received(10.3, 0).trouble(10.0), None);
        assert!(
            received(10.3, 1)
                .trouble(10.0)
                .unwrap()
                .contains("overflowed 1 times")
        );
        assert!(
            received(9.9, 0)
                .trouble(10.0)
                .unwrap()
                .contains("9.9000 Mbit/s")
        );
    }

    #[test]
    fn errors_of_iperf3_are_ours() {
        let failed = json!({"error": "unable to connect"});
        let error = read_result(&failed, &json!({}), Carrier::Tcp, 6).unwrap_err();
        assert!(error.to_string().contains("unable to connect"));
        let udp = Carrier::Udp {
            payload_bit_per_s: 1,
        };
        let error = read_result(&json!({}), &json!({"intervals": []}), udp, 6).unwrap_err();
        assert!(error.to_string().contains("nothing arrived"));
    }
}
