//! Charts of a group: throughput, and how many times the baseline, against delay or loss.

use super::group::{Against, Group};
use super::paper::{self, Printed};
use crate::probe::campaign::chart::{Axis, Chart};

/// From this rate on the study drew its figures with a logarithmic axis.
const LOG_FROM_MBIT: f64 = 10.0;

/// Its client was Windows XP: others are not to be held against its figures.
const STUDY_CLIENT: &str = "lockstep-smb1";

/// Colour and mark of a configuration, the same in every chart.
pub(super) fn number(config: &str) -> usize {
    ["B", "T", "A", "F", "AF"]
        .iter()
        .position(|other| *other == config)
        .unwrap_or(6)
}

/// What the study printed for a group's points, where it has any.
pub(super) fn study(group: &Group<'_>, config: &str, printed: &[Printed]) -> Vec<(f64, f64)> {
    let is_its = group.client == STUDY_CLIENT && group.work == "read";
    if !is_its || group.jitter_ms > 0.0 {
        return Vec::new();
    }
    let points = group.points.iter().filter_map(|point| {
        let place = (group.rate_mbit, point.delay_ms, point.loss);
        Some((group.place(point), paper::find(printed, place, config)?))
    });
    points.collect()
}

/// Throughput, with the study's and the limit.
pub(super) fn throughput(group: &Group<'_>, printed: &[Printed]) -> Chart {
    let configs = group.configs();
    let ours = |config: &str| line(group, |point| point.value(config));
    let limits = line(group, |point| point.limit());
    let mut all: Vec<f64> = limits.iter().map(|(_, y)| *y).collect();
    for config in &configs {
        let lines = ours(config)
            .into_iter()
            .chain(study(group, config, printed));
        all.extend(lines.map(|(_, y)| y));
    }
    let most = all.iter().copied().fold(1.0, f64::max);
    let positive = all.iter().copied().filter(|value| *value > 0.0);
    let least = positive.fold(most, f64::min);
    let y = match group.rate_mbit > LOG_FROM_MBIT {
        true => Axis::powers("KiB/s", least, most),
        false => Axis::numbers("KiB/s", 0.0, most),
    };
    let mut chart = Chart::new(&format!("throughput: {}", group.title()), x_axis(group), y);
    chart.bound(&limits);
    for config in &configs {
        let mut theirs = study(group, config, printed);
        theirs.retain(|(_, value)| *value > 0.0);
        chart.dashed(number(config), &theirs);
        draw(&mut chart, config, &ours(config));
    }
    chart
}

/// How many times the baseline of the same link; `None` where nothing can be held against it.
pub(super) fn times(group: &Group<'_>, printed: &[Printed]) -> Option<Chart> {
    let configs: Vec<_> = group
        .configs()
        .into_iter()
        .filter(|config| *config != "B")
        .collect();
    let ours = |config: &str| line(group, |point| ratio(point.value(config), point.value("B")));
    let theirs = |config: &str| {
        let base = study(group, "B", printed);
        let lines = study(group, config, printed).into_iter().zip(base);
        lines
            .filter_map(|((x, value), (_, base))| Some((x, ratio(Some(value), Some(base))?)))
            .collect::<Vec<_>>()
    };
    let all: Vec<f64> = configs
        .iter()
        .flat_map(|config| ours(config).into_iter().chain(theirs(config)))
        .map(|(_, y)| y)
        .collect();
    if configs.iter().all(|config| ours(config).is_empty()) {
        return None;
    }
    let (least, most) = (
        all.iter().copied().fold(1.0, f64::min),
        all.iter().copied().fold(1.0, f64::max),
    );
    let y = Axis::powers("times the baseline", least, most);
    let mut chart = Chart::new(
        &format!("times the baseline: {}", group.title()),
        x_axis(group),
        y,
    );
    chart.limit(1.0, "as without gateways");
    for config in &configs {
        chart.dashed(number(config), &theirs(config));
        draw(&mut chart, config, &ours(config));
    }
    Some(chart)
}

/// A quotient of two positive numbers.
pub(super) fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = (value?, base?);
    (value > 0.0 && base > 0.0).then(|| value / base)
}

fn draw(chart: &mut Chart, config: &str, points: &[(f64, f64)]) {
    chart.line(number(config), points);
    points
        .iter()
        .for_each(|at| chart.mark(number(config), *at, 4.5));
}

fn line<'a>(
    group: &Group<'a>,
    value: impl Fn(&super::group::Point<'a>) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let points = group.points.iter();
    let points = points.filter_map(|point| Some((group.place(point), value(point)?)));
    points.filter(|(_, y)| *y > 0.0).collect()
}

fn x_axis(group: &Group<'_>) -> Axis {
    let places = || group.points.iter().map(|point| group.place(point));
    let most = places().fold(0.0, f64::max);
    match group.against {
        Against::Delay => Axis::exactly("one-way delay, ms", 0.0, most),
        Against::Loss => {
            let positive = places().filter(|place| *place > 0.0);
            Axis::powers("loss, %", positive.fold(most, f64::min), most)
        }
    }
}
