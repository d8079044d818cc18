//! What is said of a peer that comes and goes.
//!
//! The first few times are said as they happen. From then on, as long as it goes again within a minute and for no new
//! reason, only what lasts is said, and once a minute how often it has happened: the log must not grow for ever, and what
//! else is in it must be found. A reason that is new in such a series is said at once. Metrics and subscribers get each.

use std::time::{Duration, Instant};

use crate::event::Event;
use crate::events::Events;

/// Said one by one.
const FIRST: u64 = 3;
/// Ends within so long of each other are a series, and so often it is spoken of.
const MINUTE: Duration = Duration::from_secs(60);
/// A state of that age is news even in a series.
const LASTS: Duration = Duration::from_secs(5);
/// A peer may word its reasons as it likes; with more than that in a series, further ones are not taken for new.
const REASONS_MAX: usize = 8;

/// What has been said lately, and what has not.
#[derive(Debug, Default)]
pub(crate) struct UpsAndDowns {
    /// Ends in this series, their reasons, and when the latest was.
    downs: u64,
    reasons: Vec<String>,
    latest: Option<Instant>,
    /// When one was said, and how many have not been since.
    said: Option<Instant>,
    unsaid: u64,
    /// The latest end, where it was not said; its coming back is not either.
    unsaid_down: Option<Event>,
    /// The latest change, where it was not said.
    pending: Option<(Instant, Event)>,
}

impl UpsAndDowns {
    /// Takes what has changed at a review of the peer, and says what is to be said.
    pub(crate) fn tell(&mut self, events: &Events, changed: Option<Event>) {
        let now = Instant::now();
        match changed {
            Some(event) => {
                let said = self.happened(now, event.clone());
                events.emit_as(event, said.as_ref());
            }
            None => self.lasting(now).iter().for_each(|event| events.say(event)),
        }
    }

    /// The peer has come, or gone. What is to be said of it at once, if anything.
    fn happened(&mut self, now: Instant, event: Event) -> Option<Event> {
        let is_said = match &event {
            Event::PeerDown { why, .. } => self.is_down_said(now, why),
            Event::PeerUp { .. } => self.unsaid_down.is_none(),
            _ => true,
        };
        if is_said {
            self.pending = None;
            return Some(self.with_count(event));
        }
        if let Event::PeerDown { .. } = event {
            self.unsaid += 1;
            self.unsaid_down = Some(event.clone());
        }
        self.pending = Some((now, event));
        None
    }

    /// What was not said and has lasted; where that is that the peer is up, with the end before.
    fn lasting(&mut self, now: Instant) -> Vec<Event> {
        let is_old =
            |(since, _): &mut (Instant, Event)| now.saturating_duration_since(*since) >= LASTS;
        let Some((_, event)) = self.pending.take_if(is_old) else {
            return Vec::new();
        };
        let mut said = Vec::new();
        if let Some(down) = self.unsaid_down.take() {
            self.unsaid -= 1;
            self.said = Some(now);
            said.push(self.with_count(down));
        }
        if let Event::PeerUp { .. } = event {
            said.push(event);
        }
        said
    }

    fn is_down_said(&mut self, now: Instant, why: &str) -> bool {
        let is_within = |at| now.saturating_duration_since(at) < MINUTE;
        if !self.latest.is_some_and(is_within) {
            self.downs = 0;
            self.reasons.clear();
        }
        self.downs += 1;
        self.latest = Some(now);
        let is_new =
            self.reasons.len() < REASONS_MAX && !self.reasons.iter().any(|known| known == why);
        if is_new {
            self.reasons.push(why.to_owned());
        }
        let is_said = self.downs <= FIRST || is_new || !self.said.is_some_and(is_within);
        if is_said {
            self.said = Some(now);
        }
        is_said
    }

    /// An end that is said tells of those before it that were not.
    fn with_count(&mut self, event: Event) -> Event {
        let Event::PeerDown { peer, why } = event else {
            return event;
        };
        self.unsaid_down = None;
        let why = match std::mem::take(&mut self.unsaid) {
            0 => why,
            1 => format!("{why} (and once before, not logged)"),
            before => format!("{why} (and {before} times before, not logged)"),
        };
        Event::PeerDown { peer, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up() -> Event {
        Event::PeerUp {
            peer: "hq".into(),
            address: ([192, 0, 2, 1], 4433).into(),
        }
    }

    fn down(why: &str) -> Event {
        Event::PeerDown {
            peer: "hq".into(),
            why: why.into(),
        }
    }

    /// What is said of these changes, each so many tenths of a second after the start, up to a moment.
    fn said(changes: impl IntoIterator<Item = (u64, Event)>, until: u64) -> Vec<(u64, String)> {
        let start = Instant::now();
        let mut changes = changes.into_iter().peekable();
        let mut all = UpsAndDowns::default();
        let mut said = Vec::new();
        for tenth in 0..=until {
            let now = start + Duration::from_millis(100 * tenth);
            while let Some((_, event)) = changes.next_if(|(at, _)| *at <= tenth) {
                said.extend(all.happened(now, event).map(|e| (tenth, e.to_string())));
            }
            said.extend(all.lasting(now).into_iter().map(|e| (tenth, e.to_string())));
        }
        said
    }

    #[test]
    fn a_peer_that_comes_and_goes_every_second_is_said_once_a_minute() {
        let second = |n: u64| [(10 * n, up()), (10 * n + 5, down("again"))];
        let said = said((0..180).flat_map(second), 1900);
        let up = "peer hq is up at 192.0.2.1:4433".to_owned();
        let down = |more: &str| format!("peer hq is down: again{more}");
        let expected = [
            (0, up.clone()),
            (5, down("")),
            (10, up.clone()),
            (15, down("")),
            (20, up.clone()),
            (25, down("")),
            (30, up.clone()),
            (625, down(" (and 59 times before, not logged)")),
            (630, up.clone()),
            (1225, down(" (and 59 times before, not logged)")),
            (1230, up),
            // It stays down.
            (1845, down(" (and 56 times before, not logged)")),
        ];
        assert_eq!(said, expected);
    }

    /// Twenty times up and down, and then these changes: what is said late.
    fn said_after_a_series(changes: &[(u64, Event)]) -> Vec<(u64, String)> {
        let second = |n: u64| [(10 * n, up()), (10 * n + 5, down("again"))];
        let series = (0..20).flat_map(second);
        let mut said = said(series.chain(changes.iter().cloned()), 400);
        said.retain(|(at, _)| *at > 30);
        said
    }

    #[test]
    fn what_lasts_is_said_with_the_end_before() {
        let said = said_after_a_series(&[(200, up())]);
        let down = "peer hq is down: again (and 16 times before, not logged)";
        let up = "peer hq is up at 192.0.2.1:4433";
        assert_eq!(said, [(250, down.to_owned()), (250, up.to_owned())]);
    }

    #[test]
    fn another_end_is_said_at_once_and_the_same_one_not_again() {
        let said = said_after_a_series(&[
            (200, up()),
            (202, down("another")),
            (204, up()),
            (206, down("again")),
            (208, up()),
            (210, down("another")),
        ]);
        let another = "peer hq is down: another";
        let expected = [
            (202, format!("{another} (and 17 times before, not logged)")),
            (204, "peer hq is up at 192.0.2.1:4433".to_owned()),
            (260, format!("{another} (and once before, not logged)")),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn reasons_that_are_always_new_are_not_said_for_ever() {
        let second = |n: u64| [(10 * n, up()), (10 * n + 5, down(&n.to_string()))];
        let said = said((0..50).flat_map(second), 499);
        assert_eq!(said.len(), 2 * REASONS_MAX + 1, "{said:?}");
    }

    #[test]
    fn a_shutdown_is_said_in_a_series_too() {
        let draining = Event::PeerDraining { peer: "hq".into() };
        let said = said_after_a_series(&[(200, up()), (202, draining.clone())]);
        assert_eq!(said, [(202, draining.to_string())]);
    }

    #[test]
    fn seldom_is_no_series() {
        let changes = (0..9).flat_map(|n| [(1000 * n, up()), (1000 * n + 300, down("again"))]);
        assert_eq!(said(changes, 9000).len(), 18);
    }
}
