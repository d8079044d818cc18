//! Which scenario of a study is run next where several are at a time.
//!
//! On a slow link a copy needs time and little else, and takes nothing from another one beside it. Two on fast links would take
//! processor time from each other, so there is only one of those at a time.

use std::collections::VecDeque;

use crate::plan::Cell;

/// With less a link is slow, in bits per second: programs and captures of a copy take less than a tenth of a processor.
const SLOW_BIT_PER_S_MAX: u64 = 10_000_000;

/// Cells that share a link and a client.
pub(super) type Scenario<'a> = &'a [&'a Cell];

/// What is not begun yet.
pub(super) struct Lanes<'a> {
    fast: VecDeque<Scenario<'a>>,
    slow: VecDeque<Scenario<'a>>,
}

impl<'a> Lanes<'a> {
    /// For so many lanes. One alone takes everything in its order.
    pub(super) fn new(open: &'a [&'a Cell], lanes: usize) -> Self {
        let is_slow = |scenario: &Scenario<'a>| {
            let mut circuits = scenario.iter().map(|cell| &cell.circuit);
            lanes > 1 && circuits.all(|circuit| circuit.rate_bit_per_s <= SLOW_BIT_PER_S_MAX)
        };
        let (slow, fast) = open
            .chunk_by(|one, other| one.scenario() == other.scenario())
            .partition(is_slow);
        Self { fast, slow }
    }

    /// What this lane does next. Only the first has fast links.
    pub(super) fn next(&mut self, lane: usize) -> Option<Scenario<'a>> {
        let fast = match lane {
            0 => self.fast.pop_front(),
            _ => None,
        };
        fast.or_else(|| self.slow.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn plan() -> Plan {
        let text = r#"
            name = "x"
            about = "y"
            [[cells]]
            rate = ["1.544mbit", "51.84mbit", "10mbit", "100mbit"]
            delay = ["0ms"]
            client = ["smbclient"]
            config = ["B", "A"]
            size = "1 MiB"
        "#;
        Plan::parse("x.toml", text).unwrap()
    }

    fn taken(lanes: usize, order: &[usize]) -> Vec<String> {
        let plan = plan();
        let open: Vec<&Cell> = plan.cells.iter().collect();
        let mut queue = Lanes::new(&open, lanes);
        let next = order.iter().filter_map(|lane| queue.next(*lane));
        next.map(|scenario| {
            assert_eq!(scenario.len(), 2, "what shares a link stays together");
            scenario[0].circuit.name()
        })
        .collect()
    }

    #[test]
    fn one_lane_takes_everything_in_its_order() {
        let names = ["1.544M/0ms", "51.84M/0ms", "10M/0ms", "100M/0ms"];
        assert_eq!(taken(1, &[0, 0, 0, 0, 0]), names);
    }

    #[test]
    fn fast_links_are_the_first_lanes_alone() {
        let names = ["1.544M/0ms", "51.84M/0ms", "10M/0ms", "100M/0ms"];
        assert_eq!(taken(2, &[1, 0, 1, 1, 0]), names);
        let names = ["51.84M/0ms", "100M/0ms", "1.544M/0ms", "10M/0ms"];
        assert_eq!(taken(2, &[0, 0, 0, 0, 0]), names);
    }
}
