//! Which scenario of a study is run next where several are at a time.
//!
//! A slow copy needs time and little else, and takes nothing from another one beside it: on a slow link, or where a client waits for
//! every block of a long one. Two fast ones would take processor time from each other, so there is only one of those at a time.

use std::collections::VecDeque;

use crate::plan::Cell;

/// With less a copy is slow, in bits per second: its programs and captures take less than a tenth of a processor.
const SLOW_BIT_PER_S_MAX: f64 = 10e6;

/// Cells that share a link and a client, and are all slow or all fast.
pub(super) type Scenario<'a> = &'a [&'a Cell];

/// What is not begun yet.
pub(super) struct Lanes<'a> {
    fast: VecDeque<Scenario<'a>>,
    slow: VecDeque<Scenario<'a>>,
}

impl<'a> Lanes<'a> {
    /// For so many lanes. One alone takes everything in its order.
    pub(super) fn new(open: &'a [&'a Cell], lanes: usize) -> Self {
        let (slow, fast) = open
            .chunk_by(|one, other| {
                one.scenario() == other.scenario() && is_slow(one) == is_slow(other)
            })
            .partition(|scenario| lanes > 1 && scenario.iter().all(|cell| is_slow(cell)));
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

/// Whether its link or its client's waiting makes it slow. Packets that are lost make no copy faster.
fn is_slow(cell: &Cell) -> bool {
    let bit_per_s = cell.moved_bytes() as f64 * 8.0 / cell.expected_s();
    bit_per_s.min(cell.circuit.rate_bit_per_s as f64) <= SLOW_BIT_PER_S_MAX
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

    #[test]
    fn who_waits_for_every_block_of_a_long_link_is_slow_and_who_is_accelerated_is_not() {
        let text = r#"
            name = "x"
            about = "y"
            [[cells]]
            rate = ["51.84mbit"]
            delay = ["0ms", "30ms"]
            client = ["lockstep-smb1", "smbclient"]
            config = ["B", "T", "A"]
            size = "100 MiB"
        "#;
        let plan = Plan::parse("x.toml", text).unwrap();
        let slow = plan.cells.iter().filter(|cell| is_slow(cell));
        let names: Vec<_> = slow.map(Cell::name).collect();
        let expected = ["B", "T"].map(|config| format!("51.84M/30ms lockstep-smb1 read {config}"));
        assert_eq!(names, expected);
        let open: Vec<&Cell> = plan.cells.iter().collect();
        let mut queue = Lanes::new(&open, 2);
        let beside = queue.next(1).unwrap();
        assert_eq!(beside.len(), 2);
        assert!(queue.next(1).is_none());
        let alone: usize = std::iter::from_fn(|| queue.next(0)).map(<[_]>::len).sum();
        assert_eq!(alone, plan.cells.len() - 2);
    }
}
