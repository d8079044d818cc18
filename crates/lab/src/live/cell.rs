//! The links, and what is asked of the tunnel on each.

use std::cell::Cell as Slot;

use crate::measurement::{Op, Row};

/// Rates in Mbit/s: a T1, an OC-1 and an OC-3.
const RATES_MBIT: [f64; 3] = [1.544, 51.84, 155.52];
const ONE_WAYS_MS: [u64; 2] = [30, 100];
const LOSSES_PERCENT: [u64; 2] = [0, 1];

/// One link, alone.
#[derive(Debug, Clone)]
pub struct Cell {
    rate_mbit: f64,
    one_way_ms: u64,
    loss_percent: u64,
    cubic_mbit: Slot<Option<f64>>,
}

impl Cell {
    /// The twelve links.
    pub fn all() -> impl Iterator<Item = Self> {
        RATES_MBIT.into_iter().flat_map(|rate_mbit| {
            ONE_WAYS_MS.into_iter().flat_map(move |one_way_ms| {
                LOSSES_PERCENT.into_iter().map(move |loss_percent| Self {
                    rate_mbit,
                    one_way_ms,
                    loss_percent,
                    cubic_mbit: Slot::new(None),
                })
            })
        })
    }

    /// Short and stable: `51.84M/100ms/1%`.
    pub fn name(&self) -> String {
        let (rate, delay, loss) = (self.rate_mbit, self.one_way_ms, self.loss_percent);
        format!("{rate}M/{delay}ms/{loss}%")
    }

    /// As `farhaul link` takes it.
    pub(super) fn words(&self) -> String {
        let (rate, delay, loss) = (self.rate_mbit, self.one_way_ms, self.loss_percent);
        format!("rate {rate}mbit delay {delay}ms loss {loss}% queue 100ms")
    }

    /// 10 s or 20 round trips.
    pub(super) fn warm_up_s(&self) -> u64 {
        (self.one_way_ms * 2 * 20).div_ceil(1000).max(10)
    }

    /// TCP payload of full-size Ethernet frames, less what is lost.
    pub(super) fn limit_mbit(&self) -> f64 {
        self.rate_mbit * 1448.0 / 1514.0 * (1.0 - self.loss_percent as f64 / 100.0)
    }

    pub(super) fn note_cubic(&self, mbit: Option<f64>) {
        self.cubic_mbit.set(mbit);
    }

    /// What the pair is held to: the better of the kernel's controllers, and
    /// ten times CUBIC where loss makes that collapse.
    pub(super) fn verdicts(&self, mbit: f64, best_mbit: f64) -> Vec<Row> {
        let name = self.name();
        let ratio = |metric: &str, of: f64| Row::of(&name, "farhaul", metric, "x", mbit / of);
        let mut rows = vec![ratio("of_better_kernel", best_mbit).target(Op::AtLeast, 0.98)];
        if let Some(cubic_mbit) = self.cubic_mbit.get() {
            let row = ratio("of_cubic", cubic_mbit);
            let is_collapsed =
                self.loss_percent >= 1 && self.one_way_ms >= 100 && self.rate_mbit >= 45.0;
            rows.push(match is_collapsed {
                true => row.target(Op::AtLeast, 10.0),
                false => row,
            });
        }
        rows
    }
}

/// Which of two connections was there first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Ours,
    Theirs,
    /// Both are theirs, without gateways: what one more of them gets in the place of ours.
    BothTheirs,
}

/// One connection through the gateways, one past them.
#[derive(Debug, Clone)]
pub(super) struct Company {
    queue_ms: u64,
    pub(super) controller: &'static str,
    pub(super) first: First,
}

impl Company {
    /// Connections to this port go past the gateways.
    pub(super) const PAST_PORT: u16 = 5301;
    /// How that is said to the client's gateway.
    pub(super) const RULE: &str =
        "[[rule]]\nname = 'past'\nmatch = { port = [5301] }\noptimise = 'direct'\n";
    /// How much later the second one starts.
    pub(super) const LATER_S: u64 = 10;
    /// How long both run.
    pub(super) const TOGETHER_S: u64 = 60;
    /// Of which the last seconds count.
    pub(super) const COUNTED_S: u64 = 50;

    pub(super) fn all() -> impl Iterator<Item = Self> {
        [100, 300].into_iter().flat_map(|queue_ms| {
            let company = move |(controller, first)| Self {
                queue_ms,
                controller,
                first,
            };
            [
                ("cubic", First::Ours),
                ("cubic", First::Theirs),
                ("cubic", First::BothTheirs),
                ("bbr", First::Ours),
                ("bbr", First::Theirs),
            ]
            .map(company)
        })
    }

    pub(super) fn name(&self) -> String {
        let (queue_ms, controller) = (self.queue_ms, self.controller);
        let first = match self.first {
            First::Ours => "farhaul first".to_owned(),
            First::Theirs => "farhaul second".to_owned(),
            First::BothTheirs => format!("{controller} second"),
        };
        format!("beside {controller}, 51.84M/30ms, queue {queue_ms} ms, {first}")
    }

    pub(super) fn words(&self) -> String {
        format!("rate 51.84mbit delay 30ms queue {}ms", self.queue_ms)
    }

    /// The controller of the connection that may go through the gateways.
    pub(super) fn ours(&self) -> &'static str {
        match self.first {
            First::Ours | First::Theirs => "cubic",
            First::BothTheirs => self.controller,
        }
    }

    /// Neither may starve the other. Two of the kernel's are held to nothing.
    pub(super) fn verdicts(&self, ours_mbit: f64, theirs_mbit: f64) -> Vec<Row> {
        let name = self.name();
        let share = ours_mbit / (ours_mbit + theirs_mbit);
        let both = Row::of(&name, "both", "goodput", "Mbit/s", ours_mbit + theirs_mbit);
        if self.first == First::BothTheirs {
            let second = format!("second {}", self.controller);
            return vec![Row::of(&name, &second, "share", "", share), both];
        }
        vec![
            Row::of(&name, "farhaul", "share", "", share).target(Op::AtLeast, 0.35),
            Row::of(&name, self.controller, "share", "", 1.0 - share).target(Op::AtLeast, 0.35),
            both,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twelve_links_and_ten_companies() {
        let names: Vec<_> = Cell::all().map(|cell| cell.name()).collect();
        assert_eq!(names.len(), 12);
        assert!(names.contains(&"51.84M/100ms/1%".to_owned()));
        assert_eq!(Company::all().count(), 10);
        for words in Cell::all()
            .map(|c| c.words())
            .chain(Company::all().map(|c| c.words()))
        {
            assert!(
                words.parse::<farhaul_link::LinkProfile>().is_ok(),
                "{words}"
            );
        }
    }

    #[test]
    fn ten_times_cubic_is_asked_where_loss_makes_it_collapse() {
        let cell = |name: &str| Cell::all().find(|cell| cell.name() == name).unwrap();
        let asked = |name: &str| {
            let cell = cell(name);
            cell.note_cubic(Some(1.0));
            cell.verdicts(20.0, 19.0)
                .iter()
                .map(|row| row.target)
                .collect::<Vec<_>>()
        };
        assert_eq!(asked("51.84M/100ms/1%"), [Some(0.98), Some(10.0)]);
        assert_eq!(asked("51.84M/100ms/0%"), [Some(0.98), None]);
        assert_eq!(asked("1.544M/100ms/1%"), [Some(0.98), None]);
    }
}
