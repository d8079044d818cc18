//! What is kept for the peer, and what waits to be said to it, is bounded.

use super::*;
use crate::reduction::message::Why;
use crate::reduction::sending::RECORD_COST_BYTES;

/// Invariant 5: what may be asked for again is bounded, and so is what is pinned.
#[test]
fn invariant_5_what_is_kept_for_the_peer_is_bounded() {
    let mut world = ready();
    let mut kept_bytes = 0;
    for id in 0..400 {
        let input = noise(id, 100_000);
        let batch = Bytes::from(input);
        let drafts = world.sending.encode(&mut world.encoder, id, 0, &batch);
        kept_bytes += drafts.map_or(0, |_| batch.len() as u64);
    }
    assert!(kept_bytes <= MEMORY_BYTES / 4 + 100_000, "{kept_bytes}");
    assert!(kept_bytes >= MEMORY_BYTES / 8, "{kept_bytes}");
}

/// Invariant 5: a record costs more than its bytes, also where it is short and nobody reads it.
#[test]
fn invariant_5_short_records_take_no_more_memory_than_long_ones() {
    let mut world = ready();
    let mut kept = 0;
    for number in 0..60_000 {
        let (flow, batch) = (number % 300, Bytes::from(noise(number, 64)));
        if world.sending.must_wait(&world.encoder, flow) {
            continue;
        }
        let drafts = world
            .sending
            .encode(&mut world.encoder, flow, number / 300, &batch);
        kept += drafts.map_or(0, |drafts| drafts.len() as u64);
    }
    let room = MEMORY_BYTES / 4 / (64 + RECORD_COST_BYTES);
    assert!((room / 2..=room + 1).contains(&kept), "{kept} of {room}");
    (0..300).for_each(|flow| world.cut(flow));
    assert!(world.sending.is_all_read());
}

/// Invariant 5: a peer that asks for ever and does not read is seen.
#[test]
fn invariant_5_answers_that_wait_are_bounded() {
    let mut world = ready_with(4 * MEMORY_BYTES);
    for number in 0..20_000 {
        world.write(1, &noise(number, 100));
    }
    for record in 0..20_000 {
        let missing = Message::Missing {
            flow: 1,
            record,
            why: Why::Absent,
            position: 0,
            bytes: 0,
        };
        world.sending.handle(&mut world.encoder, &missing);
    }
    assert!(world.sending.is_flooded());
}

/// Nobody asked, and the peer is not to blame. Two hundred connections take turns and are reset at once, or one that wrote much.
#[test]
fn invariant_5_records_that_are_given_up_are_no_flood() {
    for flows in [1, 200] {
        let mut world = ready_with(4 * MEMORY_BYTES);
        for number in 0..20_000 {
            world.write(number % flows, &noise(number, 20));
        }
        (0..flows).for_each(|id| world.cut(id));
        assert!(!world.sending.is_flooded());
        let words = std::iter::from_fn(|| world.sending.poll_message());
        assert_eq!(words.count(), 1, "{flows} flows");
    }
}
