//! Rows that belong together: one client, one work, one rate, one queue; throughput against delay, or against loss.

use serde_json::Value;

use crate::measurement::Row;
use crate::plan::size_words;

/// What a group's cells differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Against {
    Delay,
    Loss,
}

/// Cells that are drawn in one chart and stand in one table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group<'a> {
    pub(super) against: Against,
    pub(super) rate_mbit: f64,
    /// Of all of them, where they differ in loss.
    pub(super) delay_ms: f64,
    pub(super) jitter_ms: f64,
    pub(super) client: &'a str,
    pub(super) work: &'a str,
    pub(super) buffer: Option<u64>,
    /// The link's, where one was asked for.
    queue: Option<&'a str>,
    /// Bytes and files, where some link has several of these.
    amount: Option<(u64, u64)>,
    /// In ascending order.
    pub(super) points: Vec<Point<'a>>,
}

/// All configurations of one link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point<'a> {
    pub(super) delay_ms: f64,
    pub(super) loss: f64,
    pub(super) rows: Vec<&'a Row>,
}

impl Point<'_> {
    /// The row of a configuration.
    pub(super) fn row(&self, config: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.config == config).copied()
    }

    pub(super) fn value(&self, config: &str) -> Option<f64> {
        self.row(config)?.value
    }

    /// Whether a configuration is there more than once.
    fn is_mixed(&self) -> bool {
        let mut rows = self.rows.iter().enumerate();
        rows.any(|(at, row)| {
            let others = self.rows.iter().skip(at + 1);
            others
                .map(|other| &other.config)
                .any(|other| *other == row.config)
        })
    }

    /// What nothing can be above: of the longest transfer.
    pub(super) fn limit(&self) -> Option<f64> {
        let limits = self.rows.iter().filter_map(|row| row.limit);
        limits.reduce(f64::max)
    }
}

impl Group<'_> {
    /// What a point differs from the others in.
    pub(super) fn place(&self, point: &Point<'_>) -> f64 {
        match self.against {
            Against::Delay => point.delay_ms,
            Against::Loss => point.loss * 100.0,
        }
    }

    /// Configurations that are there, in the study's order.
    pub(super) fn configs(&self) -> Vec<&'static str> {
        const ORDER: [&str; 5] = ["B", "T", "A", "F", "AF"];
        let is_there = |config: &&str| self.points.iter().any(|point| point.row(config).is_some());
        ORDER.into_iter().filter(is_there).collect()
    }

    pub(super) fn title(&self) -> String {
        let mut title = format!("{} {}, {} Mbit/s", self.client, self.work, self.rate_mbit);
        if self.against == Against::Loss {
            title += &format!(", {} ms one way", self.delay_ms);
        }
        if self.jitter_ms > 0.0 {
            title += &format!(", jitter {} ms", self.jitter_ms);
        }
        if let Some(queue) = self.queue {
            title += &format!(", queue {queue}");
        }
        if let Some(bytes) = self.buffer {
            title += &format!(", receive buffer of {bytes} bytes");
        }
        match self.amount {
            Some((bytes, 1)) => title + &format!(", {}", size_words(bytes)),
            Some((bytes, files)) => title + &format!(", {} in {files} files", size_words(bytes)),
            None => title,
        }
    }
}

/// All groups of a document's throughput rows.
pub(super) fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let throughput = rows.iter().filter(|row| row.metric == "throughput");
    for (row, mut group) in throughput.filter_map(|row| Some((row, alone(row)?))) {
        // Loss is what differs where the same delay has several.
        let alike = rows.iter().filter(|other| is_alike(row, other));
        let mut losses = alike.filter_map(|other| number(other, "loss").filter(|loss| *loss > 0.0));
        let first = losses.next();
        if losses.any(|loss| Some(loss) != first) {
            group.against = Against::Loss;
        }
        match groups.iter_mut().find(|other| other.takes(&group)) {
            Some(other) => other.add(group),
            None => groups.push(group),
        }
    }
    for group in &mut groups {
        let against = group.against;
        group.points.sort_by(|one, other| match against {
            Against::Delay => one.delay_ms.total_cmp(&other.delay_ms),
            Against::Loss => one.loss.total_cmp(&other.loss),
        });
    }
    groups.into_iter().flat_map(by_amount).collect()
}

/// A group for each amount, where some link has several: one point has one value of a configuration.
fn by_amount(group: Group<'_>) -> Vec<Group<'_>> {
    if !group.points.iter().any(Point::is_mixed) {
        return vec![group];
    }
    let rows = group.points.iter().flat_map(|point| &point.rows);
    let mut parts: Vec<Group<'_>> = Vec::new();
    for (row, mut one) in rows.filter_map(|row| Some((row, alone(row)?))) {
        one.against = group.against;
        one.amount = amount(row);
        match parts.iter_mut().find(|part| part.amount == one.amount) {
            Some(part) => part.add(one),
            None => parts.push(one),
        }
    }
    parts
}

fn amount(row: &Row) -> Option<(u64, u64)> {
    let count = |key: &str| row.detail.get(key)?.as_u64();
    Some((count("size_bytes")?, count("files")?))
}

/// Whether two rows are of one client on one link but for its loss.
fn is_alike(row: &Row, other: &Row) -> bool {
    // Rows of before there was one, or where nobody asked for one, have none.
    fn detail<'a>(row: &'a Row, key: &str) -> Option<&'a Value> {
        row.detail.get(key).filter(|value| !value.is_null())
    }
    const KEYS: [&str; 7] = [
        "rate_mbit",
        "delay_ms",
        "jitter_ms",
        "client",
        "work",
        "receive_buffer_bytes",
        "queue",
    ];
    row.config == other.config
        && row.metric == other.metric
        && KEYS
            .iter()
            .all(|key| detail(row, key) == detail(other, key))
}

/// A group of one row; `None` where the row is not one of a study.
fn alone(row: &Row) -> Option<Group<'_>> {
    let word = |key: &str| row.detail.get(key).and_then(Value::as_str);
    let (delay_ms, loss) = (number(row, "delay_ms")?, number(row, "loss")?);
    Some(Group {
        against: Against::Delay,
        rate_mbit: number(row, "rate_mbit")?,
        delay_ms,
        jitter_ms: number(row, "jitter_ms")?,
        client: word("client")?,
        work: word("work")?,
        buffer: row
            .detail
            .get("receive_buffer_bytes")
            .and_then(Value::as_u64),
        queue: word("queue"),
        amount: None,
        points: vec![Point {
            delay_ms,
            loss,
            rows: vec![row],
        }],
    })
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row.detail.get(key)?.as_f64()
}

impl<'a> Group<'a> {
    fn takes(&self, other: &Self) -> bool {
        let key = |group: &Self| {
            (
                group.rate_mbit.to_bits(),
                group.jitter_ms.to_bits(),
                group.buffer,
                group.queue,
            )
        };
        let loss = |group: &Self| group.points.first().map(|point| point.loss.to_bits());
        self.against == other.against
            && key(self) == key(other)
            && (self.client, self.work) == (other.client, other.work)
            && match self.against {
                Against::Delay => loss(self) == loss(other),
                Against::Loss => self.delay_ms.to_bits() == other.delay_ms.to_bits(),
            }
    }

    fn add(&mut self, other: Group<'a>) {
        for point in other.points {
            let is_same =
                |mine: &&mut Point<'_>| (mine.delay_ms, mine.loss) == (point.delay_ms, point.loss);
            match self.points.iter_mut().find(is_same) {
                Some(mine) => mine.rows.extend(point.rows),
                None => self.points.push(point),
            }
        }
    }
}

/// From which delay on something is faster than nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Turn {
    /// At every delay that was measured.
    Always,
    /// At none, or not at the longest.
    Never,
    /// From this delay on, in ms, read off straight lines between neighbouring points, as one does in the study's figures.
    From(f64),
}

/// Points of delay, ours, and what it is held against, in ascending order; `None` of fewer than two.
pub(super) fn turn(points: &[(f64, f64, f64)]) -> Option<Turn> {
    /// So much slower is within what one measures.
    const ALIKE: f64 = 0.98;
    let (last, _) = points
        .split_last()
        .filter(|(_, before)| !before.is_empty())?;
    let is_slower = |(_, ours, other): &(f64, f64, f64)| *ours < ALIKE * other;
    if is_slower(last) {
        return Some(Turn::Never);
    }
    let Some(at) = points.iter().rposition(is_slower) else {
        return Some(Turn::Always);
    };
    let (Some((from_ms, ours, other)), Some((to_ms, ours_then, other_then))) =
        (points.get(at), points.get(at + 1))
    else {
        return None;
    };
    let (behind, ahead) = (other - ours, (ours_then - other_then).max(0.0));
    Some(Turn::From(
        from_ms + (to_ms - from_ms) * behind / (behind + ahead),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(delay_ms: f64, loss: f64, config: &str, value: f64) -> Row {
        Row::of(
            &format!("{delay_ms}/{loss}"),
            config,
            "throughput",
            "KiB/s",
            value,
        )
        .limit(1000.0)
        .detail("rate_mbit", 51.84)
        .detail("delay_ms", delay_ms)
        .detail("jitter_ms", 0.0)
        .detail("loss", loss)
        .detail("client", "smbget")
        .detail("work", "read")
        .detail("receive_buffer_bytes", json!(null))
    }

    #[test]
    fn cells_of_one_client_and_rate_are_one_group() {
        let rows = [
            row(30.0, 0.0, "B", 1.0),
            row(0.0, 0.0, "B", 2.0),
            row(0.0, 0.0, "A", 3.0),
            Row::of("x", "A", "of_direct", "x", 1.0),
        ];
        let groups = groups(&rows);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].configs(), ["B", "A"]);
        let places: Vec<_> = groups[0]
            .points
            .iter()
            .map(|point| point.delay_ms)
            .collect();
        assert_eq!(places, [0.0, 30.0]);
        assert_eq!(groups[0].points[0].value("A"), Some(3.0));
        assert_eq!(groups[0].points[1].value("A"), None);
    }

    #[test]
    fn several_losses_of_one_delay_are_a_group_of_their_own() {
        let rows: Vec<_> = [0.0, 250.0]
            .into_iter()
            .flat_map(|delay| [0.001, 0.01].map(|loss| row(delay, loss, "F", 5.0)))
            .collect();
        let groups = groups(&rows);
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|group| group.against == Against::Loss));
        assert_eq!(groups[1].place(&groups[1].points[1]), 1.0);
    }

    #[test]
    fn cells_of_several_queues_or_sizes_are_not_drawn_in_one_chart() {
        let of = |delay: f64, queue: Option<&str>, mebibytes: u64, config: &str| {
            row(delay, 0.01, config, 5.0)
                .detail("queue", queue)
                .detail("size_bytes", mebibytes << 20)
                .detail("files", 1)
        };
        let mut rows = vec![row(250.0, 0.01, "B", 4.0)];
        for queue in [None, Some("50ms"), Some("64000b")] {
            rows.extend(["B", "A"].map(|config| of(0.0, queue, 10, config)));
        }
        let titles = |rows: &[Row]| {
            let groups = groups(rows);
            assert!(groups.iter().all(|group| group.against == Against::Delay));
            let told = groups.iter().map(|group| {
                let rows = group.points.iter().map(|point| point.rows.len());
                (group.title(), rows.collect())
            });
            told.collect::<Vec<(String, Vec<usize>)>>()
        };
        let told = |more: &str, rows: &[usize]| {
            (format!("smbget read, 51.84 Mbit/s{more}"), rows.to_vec())
        };
        assert_eq!(
            titles(&rows),
            [
                told("", &[2, 1]),
                told(", queue 50ms", &[2]),
                told(", queue 64000b", &[2]),
            ]
        );
        // Sizes that differ from link to link belong together, as long as each link has one.
        rows = vec![of(0.0, None, 10, "B"), of(250.0, None, 100, "B")];
        assert_eq!(titles(&rows), [told("", &[1, 1])]);
        rows.push(of(250.0, None, 10, "B"));
        assert_eq!(
            titles(&rows),
            [told(", 10 MiB", &[1, 1]), told(", 100 MiB", &[1])]
        );
    }

    #[test]
    fn the_studys_turning_points_come_out_as_it_says() {
        // Tables 11 and 10: around 20 ms, and above 150 ms.
        let oc1 = [
            (0.0, 2008.7, 4294.6),
            (30.0, 1373.4, 425.4),
            (100.0, 774.7, 126.1),
        ];
        let Some(Turn::From(at_ms)) = turn(&oc1) else {
            panic!("{:?}", turn(&oc1));
        };
        assert!((at_ms - 21.2).abs() < 0.1, "{at_ms}");
        let t1 = [
            (30.0, 79.4, 131.8),
            (100.0, 73.7, 83.6),
            (250.0, 62.0, 42.7),
        ];
        let Some(Turn::From(at_ms)) = turn(&t1) else {
            panic!("{:?}", turn(&t1));
        };
        assert!((at_ms - 150.9).abs() < 0.1, "{at_ms}");
        assert_eq!(
            turn(&[(0.0, 99.0, 100.0), (30.0, 5.0, 1.0)]),
            Some(Turn::Always)
        );
        assert_eq!(
            turn(&[(0.0, 9.0, 1.0), (30.0, 1.0, 5.0)]),
            Some(Turn::Never)
        );
        assert_eq!(turn(&[(0.0, 9.0, 1.0)]), None);
    }
}
