//! Transactions a second: a byte there and back on one connection (netperf's
//! TCP_RR), and on a new connection each time (TCP_CRR).

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::error::{ProbeError, While};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transactions {
    /// On one connection, per second.
    pub on_one_connection_per_s: f64,
    /// With a new connection each, per second.
    pub on_new_connections_per_s: f64,
    /// How many were made on one connection.
    pub on_one_connection: u64,
    /// How many connections were made.
    pub on_new_connections: u64,
}

/// Makes transactions for a time, half of it each way of doing it.
pub(crate) fn transact(client: &Client, duration: Duration) -> Result<Transactions, ProbeError> {
    let mut kept = client.open_echo()?;
    let (on_one_connection, on_one_connection_per_s) =
        repeat(client, duration / 2, || exchange(&mut kept))?;
    drop(kept);
    let (on_new_connections, on_new_connections_per_s) =
        repeat(client, duration / 2, || exchange(&mut client.open_echo()?))?;
    Ok(Transactions {
        on_one_connection_per_s,
        on_new_connections_per_s,
        on_one_connection,
        on_new_connections,
    })
}

fn repeat(
    client: &Client,
    duration: Duration,
    mut once: impl FnMut() -> Result<(), ProbeError>,
) -> Result<(u64, f64), ProbeError> {
    let start = Instant::now();
    let mut times = 0;
    while start.elapsed() < duration || times == 0 {
        client.check_stop()?;
        once()?;
        times += 1;
    }
    Ok((times, times as f64 / start.elapsed().as_secs_f64()))
}

fn exchange(stream: &mut (impl Read + Write)) -> Result<(), ProbeError> {
    let during = "making transactions";
    stream.write_all(&[1]).lost_while(during)?;
    stream.read_exact(&mut [0]).lost_while(during)
}
