//! Transactions a second: a byte there and back on one connection (netperf's
//! TCP_RR), and on a new connection each time (TCP_CRR).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::client::Client;
use super::error::{ProbeError, While};
use super::message::{PATIENCE, is_slice_over};

const DURING: &str = "making transactions";

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
    both_ways(client, duration).map_err(|error| client.why_lost(error))
}

fn both_ways(client: &Client, duration: Duration) -> Result<Transactions, ProbeError> {
    let mut kept = client.open_echo()?;
    let (on_one_connection, on_one_connection_per_s) =
        repeat(client, duration / 2, || exchange(client, &mut kept))?;
    drop(kept);
    let (on_new_connections, on_new_connections_per_s) =
        repeat(client, duration / 2, || on_a_new_connection(client))?;
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

fn on_a_new_connection(client: &Client) -> Result<(), ProbeError> {
    let mut stream = client.open_echo()?;
    exchange(client, &mut stream)?;
    // Ended with a reset: closed, each would keep its port for a minute, and a
    // fast network makes more than there are ports.
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .locally("ending a connection")
}

/// A byte there and back; the socket's read timeout is a slice, between two of
/// which the operator is heard.
fn exchange(client: &Client, stream: &mut TcpStream) -> Result<(), ProbeError> {
    stream.write_all(&[1]).lost_while(DURING)?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        client.check_stop()?;
        match stream.read(&mut [0]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof).lost_while(DURING),
            Ok(_) => return Ok(()),
            Err(error) if is_slice_over(&error) => {}
            Err(error) => return Err(error).lost_while(DURING),
        }
    }
    Err(ProbeError::Silent {
        seconds: PATIENCE.as_secs(),
        during: DURING.to_owned(),
    })
}
