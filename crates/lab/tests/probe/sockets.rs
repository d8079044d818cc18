//! What a plan asks for reaches the sockets of both ends, as their kernel tells.

use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};

use crate::Running;

const WINDOW_BYTES: u32 = 20 << 10;
const SEND_BUFFER_BYTES: u32 = 48 << 10;
/// Expedited forwarding (RFC 3246).
const TOS: u8 = 0xb8;

#[test]
fn window_send_buffer_and_mark_of_a_plan_reach_the_sockets() {
    // The server's own limit is another one: the client's wish comes first.
    let server = Running::new(|options| options.window_bytes = Some(8 << 10));
    let mut plan = TcpPlan::new(Direction::Both, 500);
    plan.window_bytes = Some(WINDOW_BYTES);
    plan.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
    plan.tos = TOS;
    plan.mss_bytes = Some(1400);
    let result = server.client().tcp(&plan).unwrap();
    for way in [result.up.unwrap(), result.down.unwrap()] {
        let (sender, receiver) = (&way.streams[0].sender, &way.streams[0].receiver);
        let (sends, receives) = (&sender.settings, &receiver.settings);
        // Linux keeps twice what is asked for, the rest for its own use (socket(7)).
        let buffer = u64::from(SEND_BUFFER_BYTES) * 2;
        assert_eq!(sends.send_buffer_bytes, buffer);
        assert_ne!(receives.send_buffer_bytes, buffer);
        // Four windows have room, so that nothing else keeps the window small.
        let buffer = u64::from(WINDOW_BYTES) * 4 * 2;
        assert_eq!(receives.receive_buffer_bytes, buffer);
        assert_ne!(sends.receive_buffer_bytes, buffer);
        // Kernels before 5.14 do not tell.
        assert_ne!(receives.receive_buffer_fixed, Some(false));
        assert_ne!(sends.receive_buffer_fixed, Some(true));
        let window = way.figures.send_window_steady_bytes;
        let most = u64::from(WINDOW_BYTES);
        assert!((most / 2..=most).contains(&window), "{window}");
        // The accepting end has it, whichever way data goes.
        let syn = sends.syn.or(receives.syn).unwrap();
        assert_eq!(syn.tos, TOS);
    }
}

#[test]
fn a_plan_that_asks_for_nothing_leaves_the_sockets_as_they_are() {
    let server = Running::new(|_| {});
    let plan = TcpPlan::new(Direction::Both, 200);
    let result = server.client().tcp(&plan).unwrap();
    for way in [result.up.unwrap(), result.down.unwrap()] {
        let (sender, receiver) = (&way.streams[0].sender, &way.streams[0].receiver);
        for settings in [&sender.settings, &receiver.settings] {
            assert_ne!(settings.receive_buffer_fixed, Some(true));
        }
        let syn = sender.settings.syn.or(receiver.settings.syn).unwrap();
        assert_eq!(syn.tos, 0);
    }
}
