//! Sends datagrams back, as long and with the type of service they ask for.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::probe::datagram_flow::{Header, Kind};
use crate::probe::datagram_socket::DatagramSocket;
use crate::probe::message::Token;

/// Longest reply: a jumbo frame's payload.
const REPLY_BYTES_MAX: usize = 9_000;

/// Until stopped. Only the session's own client, which shows its token, is
/// answered: nobody can have replies sent to somebody else.
pub(super) fn serve(socket: &DatagramSocket, token: Token, client: IpAddr, stop: &AtomicBool) {
    let mut buffer = vec![0; 65_535];
    let mut tos_in_force = None;
    while !stop.load(Ordering::Relaxed) {
        let Ok(received) = socket.receive(&mut buffer) else {
            return;
        };
        let Some((arrival, from)) = received else {
            continue;
        };
        let datagram = buffer.get(..arrival.length).unwrap_or_default();
        let Some(header) = Header::read(datagram, &token) else {
            continue;
        };
        if header.kind != Kind::Echo || from.ip() != client {
            continue;
        }
        let tos = header.tos;
        if tos_in_force != Some(tos) && socket.set_tos(tos).is_ok() {
            tos_in_force = Some(tos);
        }
        let length = usize::from(header.bytes).clamp(Header::BYTES, REPLY_BYTES_MAX);
        let mut reply = vec![0; length];
        let answer = Header {
            kind: Kind::Reply,
            tos: arrival.tos.unwrap_or(0),
            bytes: u16::try_from(arrival.length).unwrap_or(u16::MAX),
            ..header
        };
        answer.write(&mut reply);
        // What our own interface refuses is lost, as on the way.
        let _ = socket.send_to(&reply, from);
    }
}
