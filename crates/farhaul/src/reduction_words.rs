//! What people are told of reduction: the rows that `status` and `top` have of each peer, and the words all verbs use.
//!
//! What each figure means: `docs/reference/reduction.md`.

use farhaul_gateway::admin::status::{PeerStatus, ReductionStatus};

use crate::table::{Align, Table, Tone, bytes};

/// So many times as much as is left of it; nothing where there was nothing.
pub(crate) fn ratio(whole: u64, left: u64) -> Option<f64> {
    (whole > 0 && left > 0).then(|| whole as f64 / left as f64)
}

/// A part of a whole; nothing where there is none.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Such as `14.4 : 1`.
pub(crate) fn to_one(ratio: Option<f64>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(ratio) if ratio >= 100.0 => format!("{ratio:.0} : 1"),
        Some(ratio) => format!("{ratio:.1} : 1"),
    }
}

/// Such as `91.6 %`.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// How what is sent is compressed.
pub(crate) fn level(level: Option<i32>) -> String {
    match level {
        None => "-".to_owned(),
        Some(0) => "none".to_owned(),
        Some(level) => format!("zstd {level}"),
    }
}

/// What was counted after `before`, with the level and the sizes of now. What began anew counts from zero.
pub(crate) fn since(now: &ReductionStatus, before: Option<&ReductionStatus>) -> ReductionStatus {
    let mut since = now.clone();
    let Some(before) = before.filter(|before| {
        before.in_bytes <= now.in_bytes && before.restored_bytes <= now.restored_bytes
    }) else {
        return since;
    };
    for (count, then) in [
        (&mut since.in_bytes, before.in_bytes),
        (&mut since.out_bytes, before.out_bytes),
        (&mut since.compared_bytes, before.compared_bytes),
        (&mut since.known_bytes, before.known_bytes),
        (&mut since.known_memory_bytes, before.known_memory_bytes),
        (&mut since.known_disk_bytes, before.known_disk_bytes),
        (&mut since.run_bytes, before.run_bytes),
        (&mut since.new_bytes, before.new_bytes),
        (&mut since.packed_bytes, before.packed_bytes),
        (&mut since.restored_bytes, before.restored_bytes),
        (&mut since.received_bytes, before.received_bytes),
        (&mut since.asked_again, before.asked_again),
        (&mut since.missed, before.missed),
    ] {
        *count = count.saturating_sub(then);
    }
    since
}

/// Two rows for each peer: what goes to it, with where it was known from, and what comes.
pub(crate) fn table<'a>(
    peers: impl Iterator<Item = (&'a PeerStatus, ReductionStatus)>,
    amount: impl Fn(u64) -> String,
) -> Option<Table> {
    let mut table = Table::new(&[
        ("reduction", Align::Left),
        ("application", Align::Right),
        ("on the WAN", Align::Right),
        ("ratio", Align::Right),
        ("hit rate", Align::Right),
        ("from memory", Align::Right),
        ("from disk", Align::Right),
        ("compression", Align::Right),
        ("level", Align::Right),
        ("remembered", Align::Right),
        ("index", Align::Right),
    ]);
    let mut is_any = false;
    for (peer, figures) in peers {
        is_any = true;
        let of_compared = |part| percent(share(part, figures.compared_bytes));
        let dash = || "-".to_owned();
        let there = [
            format!("to {}", peer.name),
            amount(figures.in_bytes),
            amount(figures.out_bytes),
            to_one(ratio(figures.in_bytes, figures.out_bytes)),
            of_compared(figures.known_bytes),
            of_compared(figures.known_memory_bytes),
            of_compared(figures.known_disk_bytes),
            to_one(ratio(figures.new_bytes, figures.packed_bytes)),
            level(figures.level),
            bytes(figures.store_bytes),
            bytes(figures.index_bytes),
        ];
        let back = [
            format!("from {}", peer.name),
            amount(figures.restored_bytes),
            amount(figures.received_bytes),
            to_one(ratio(figures.restored_bytes, figures.received_bytes)),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
        ];
        for cells in [there, back] {
            table.row(cells.map(|cell| (Tone::Plain, cell)).into());
        }
    }
    is_any.then_some(table)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::table::Paint;

    pub(crate) fn peer() -> PeerStatus {
        PeerStatus {
            name: "hq".into(),
            reduction: Some(ReductionStatus {
                in_bytes: 1000 << 20,
                out_bytes: 50 << 20,
                compared_bytes: 1000 << 20,
                known_bytes: 900 << 20,
                known_memory_bytes: 600 << 20,
                known_disk_bytes: 250 << 20,
                run_bytes: 50 << 20,
                new_bytes: 110 << 20,
                packed_bytes: 44 << 20,
                level: Some(5),
                restored_bytes: 30 << 20,
                received_bytes: 20 << 20,
                store_bytes: 512 << 20,
                index_bytes: 57 << 20,
                ..ReductionStatus::default()
            }),
            ..PeerStatus::default()
        }
    }

    #[test]
    fn a_peer_has_a_row_for_each_direction() {
        let peer = peer();
        let figures = peer.reduction.clone().unwrap();
        let rows = [(&peer, figures)];
        let table = table(rows.into_iter(), bytes).unwrap();
        let expected = "\
reduction  application  on the WAN     ratio  hit rate  from memory  from disk  compression   level  remembered     index
to hq       1000.0 MiB    50.0 MiB  20.0 : 1    90.0 %       60.0 %     25.0 %      2.5 : 1  zstd 5   512.0 MiB  57.0 MiB
from hq       30.0 MiB    20.0 MiB   1.5 : 1         -            -          -            -       -           -         -
";
        assert_eq!(table.render(Paint::plain(), ""), expected);
    }

    #[test]
    fn without_anything_there_is_no_ratio() {
        let peer = PeerStatus {
            name: "hq".into(),
            ..PeerStatus::default()
        };
        let rows = [(&peer, ReductionStatus::default())];
        let table = table(rows.into_iter(), bytes).unwrap();
        let shown = table.render(Paint::plain(), "");
        assert!(!shown.contains(": 1") && !shown.contains('%'), "{shown}");
        assert!(super::table(std::iter::empty(), bytes).is_none());
    }

    #[test]
    fn what_is_counted_since_has_the_sizes_of_now() {
        let now = peer().reduction.unwrap();
        let before = ReductionStatus {
            in_bytes: 999 << 20,
            known_bytes: 900 << 20,
            store_bytes: 1 << 20,
            ..ReductionStatus::default()
        };
        let later = since(&now, Some(&before));
        assert_eq!((later.in_bytes, later.known_bytes), (1 << 20, 0));
        assert_eq!((later.store_bytes, later.level), (512 << 20, Some(5)));
        // A gateway that was started meanwhile.
        assert_eq!(since(&before, Some(&now)), before);
        assert_eq!(since(&now, None), now);
    }

    #[test]
    fn levels_and_ratios_read_as_people_say_them() {
        assert_eq!(
            [None, Some(0), Some(-3)].map(level),
            ["-", "none", "zstd -3"]
        );
        assert_eq!(to_one(ratio(100_000_000, 3_000)), "33333 : 1");
        assert_eq!(percent(share(1, 8)), "12.5 %");
    }
}
