//! Several tunnels at once, and words that come late or never.

use super::*;

/// The announcement of the log that is under way.
fn take_log(world: &mut World) -> Message {
    let at = world
        .there
        .iter()
        .position(|message| matches!(message, Message::Log { .. }));
    world.there.remove(at.unwrap()).unwrap()
}

#[test]
fn the_late_word_of_a_log_that_is_over_changes_nothing() {
    let mut world = ready();
    let input = noise(1, 300_000);
    world.send(1, &input);
    // Another log begins, and the word of it is held up in a tunnel that stays.
    world.sending.restart(&mut world.encoder);
    world.speak();
    let late = take_log(&mut world);
    let mut older = std::mem::take(&mut world.receiving);
    world.connect();
    world.settle();
    world.send(2, &input);
    let epoch = world.decoder.epoch();
    older.handle(&mut world.decoder, &late).unwrap();
    assert_eq!(world.decoder.epoch(), epoch);
    assert!(world.send(3, &input) < 2000);
    assert_eq!(world.sending.missed, 0);
}

#[test]
fn the_late_word_of_what_a_log_begins_with_changes_nothing() {
    let mut world = ready();
    world.sending.restart(&mut world.encoder);
    world.settle();
    let shelf = |epoch| crate::reduction::shelf::Shelf {
        log: 1,
        epoch,
        base: 0,
        seeds: 0,
    };
    let epoch = world.decoder.epoch();
    assert!(world.decoder.announce(epoch + 2, shelf(2), &[1, 2]));
    for late in [epoch - 1, epoch + 1] {
        assert!(world.decoder.announce(late, shelf(1), &[3]));
    }
    let announced = world.decoder.announced_numbers();
    assert_eq!(announced, Some((epoch + 2, &[1, 2][..])));
}

#[test]
fn a_record_whose_log_is_never_announced_is_asked_for_again() {
    let mut world = ready();
    world.sending.restart(&mut world.encoder);
    world.speak();
    let lost = take_log(&mut world);
    let input = noise(1, 50_000);
    world.write(1, &input);
    world.arrive(1);
    world.read(1);
    let flow = world.flows.get_mut(&1).unwrap();
    let record = flow.waiting.take().unwrap();
    world.receiving.give_up((1, 0), &record).unwrap();
    flow.is_asked = true;
    world.settle();
    assert_eq!(world.flows[&1].received, input);
    // It comes after all, and what was said again leaves no gap.
    world.receiving.handle(&mut world.decoder, &lost).unwrap();
    world.settle();
    world.send(2, &input);
    assert!(world.send(3, &input) < 2000);
}

#[test]
fn when_the_newest_tunnel_ends_the_one_before_has_the_log_again() {
    for told_first in [false, true] {
        let mut world = ready();
        let input = noise(1, 300_000);
        world.send(1, &input);
        // Another takes the log over.
        let number = world.tunnels + 1;
        let mut newer = Sending::new(number);
        newer.handle(&mut world.encoder, &world.decoder.state());
        while let Some(message) = newer.poll_message() {
            world
                .receiving
                .handle(&mut world.decoder, &message)
                .unwrap();
        }
        assert!(world.send(2, &input) > 300_000, "the newer has the log");
        // Either end may be the first to see that it has gone.
        if !told_first {
            world.encoder.detach(number);
        }
        let state = world.decoder.state();
        world.sending.handle(&mut world.encoder, &state);
        world.encoder.detach(number);
        world.sending.review(&mut world.encoder, 0, true);
        world.settle();
        assert!(world.send(3, &input) < 2000, "told first: {told_first}");
        assert_eq!(world.sending.missed, 0);
    }
}

/// Invariant 5: each new log costs its memory.
#[test]
fn invariant_5_a_peer_that_asks_for_a_new_log_again_and_again_gets_one_a_second() {
    let mut world = ready();
    let epoch = world.encoder.epoch;
    let ask = |world: &mut World| {
        for _ in 0..1000 {
            world.sending.handle(&mut world.encoder, &Message::Restart);
        }
    };
    ask(&mut world);
    assert_eq!(world.encoder.epoch, epoch + 1);
    for second in 1..4 {
        ask(&mut world);
        world
            .sending
            .review(&mut world.encoder, second * 1_000_000_000, true);
        assert_eq!(world.encoder.epoch, epoch + 1 + second as u32);
    }
    for second in 4..6 {
        world
            .sending
            .review(&mut world.encoder, second * 1_000_000_000, true);
    }
    assert_eq!(world.encoder.epoch, epoch + 4, "and none for nothing");
    world.settle();
    let input = noise(1, 100_000);
    world.send(1, &input);
    assert!(world.send(2, &input) < 2000);
}
