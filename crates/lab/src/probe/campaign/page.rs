//! A campaign as one HTML page that needs nothing else: no script, no font, no
//! picture from anywhere. It prints, and fits a phone.

use std::fmt::Write as _;

use super::chart::{Axis, Chart, escaped, mark, number_text};
use super::group::Group;
use super::summary::Campaign;
use super::text::{cells, facts, heads, sizes};
use super::{Test, way_name, window_name};
use crate::probe::tcp_test::Direction;

/// How pages of results look; on paper, too.
pub(crate) const STYLE: &str = "\
body{font:16px/1.45 sans-serif;color:#111;background:#fff;max-width:66rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:1.6rem 0 .4rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.25rem .5rem;border-bottom:1px solid #ccc;text-align:right;white-space:nowrap}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}
.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr))}
figure{margin:0;border:1px solid #ddd;padding:.5rem;break-inside:avoid}
figcaption{font-weight:bold}figure svg{width:100%;height:auto;display:block}
.key{font-size:.85rem}.key span{margin-right:.9rem;white-space:nowrap}.key svg{width:12px;height:12px;display:inline;vertical-align:-1px}
.bad{color:#a00000}footer{font-size:.8rem;color:#444;margin-top:1.5rem}
@media screen and (max-width:40rem){table{font-size:.7rem}th,td{padding:.2rem .25rem}}
@media print{body{font-size:11px;max-width:none;padding:0}.charts{grid-template-columns:1fr 1fr}.wide{overflow:visible}td,th{padding:.1rem .3rem}}
";

/// More points than these are drawn without marks.
const MARKS_MAX: usize = 120;

/// The page.
pub fn of(campaign: &Campaign) -> String {
    let target = escaped(&campaign.subject.target);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Campaign to {target}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Circuit to {target}</h1>\n<p>{}</p>\n",
        escaped(&sizes(campaign))
    );
    for line in facts(campaign) {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<p>{}</p>", escaped(&line));
    }
    if let Some(trouble) = &campaign.error {
        let _ = writeln!(
            page,
            "<p class=\"bad\">Not finished: {}</p>",
            escaped(&trouble.text)
        );
    }
    page += &table(campaign);
    for direction in campaign.subject.directions() {
        page += &charts(campaign, direction);
    }
    let _ = write!(
        page,
        "<footer><p>{} {}p5 and p95: one run in twenty is below, above. Made by farhaul {} on {} from {}.</p></footer>\n</body>\n</html>\n",
        notes(&campaign.subject.test),
        match campaign.circuit_bit_per_s {
            Some(rate) => format!(
                "The circuit's rate is {} Mbit/s. ",
                number_text(rate as f64 / 1e6)
            ),
            None => String::new(),
        },
        escaped(&campaign.version),
        escaped(&campaign.date),
        escaped(&campaign.file)
    );
    page
}

/// What the figures are.
fn notes(test: &Test) -> String {
    let (protocol, more) = match test.is_udp() {
        true => (
            "UDP",
            "Lost is the mean share of a run's datagrams that did not come; jitter is as in RFC 3550, mean of the runs.",
        ),
        false => (
            "TCP",
            "Windows are in KB of 1024 bytes; window / RTT is what the advertised window allows in the least round trip.",
        ),
    };
    let time = match test {
        Test::Iperf3(_) => "as the receiver counted it over the time of a run",
        _ => "as it arrived, from its first to its last byte in a run",
    };
    format!("Rates are {protocol} payload in Mbit/s (10<sup>6</sup> bit/s) {time}. {more}")
}

fn table(campaign: &Campaign) -> String {
    let mut text = String::from("<h2>Throughput, Mbit/s</h2>\n<div class=\"wide\"><table>\n<tr>");
    for head in heads(campaign) {
        let _ = write!(text, "<th>{}</th>", escaped(head));
    }
    text += "</tr>\n";
    for group in &campaign.groups {
        text += "<tr>";
        for cell in cells(group, campaign) {
            let _ = write!(text, "<td>{}</td>", escaped(&cell));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// The groups of one direction, each with its number among all windows.
struct Charts<'a> {
    campaign: &'a Campaign,
    groups: Vec<(usize, &'a Group)>,
}

fn charts(campaign: &Campaign, direction: Direction) -> String {
    let of_way = campaign
        .groups
        .iter()
        .filter(|group| group.direction == direction);
    let groups: Vec<_> = of_way.enumerate().collect();
    if groups.iter().all(|(_, group)| group.runs == 0) {
        return String::new();
    }
    let charts = Charts { campaign, groups };
    let heading = match direction {
        Direction::Down => "Down: from the server",
        _ => "Up: to the server",
    };
    let mut text = format!("<h2>{heading}</h2>\n<div class=\"charts\">\n");
    let way = way_name(direction);
    let figures = [
        Some((format!("Throughput per run, {way}"), charts.runs())),
        Some((
            format!("How often which throughput, {way}"),
            charts.histogram(),
        )),
        charts
            .utilisation()
            .map(|chart| (format!("Utilisation, {way}"), chart)),
        charts
            .losses()
            .map(|chart| (format!("Datagrams lost per run, {way}"), chart)),
        charts.by_window().map(|chart| {
            (
                format!("Throughput by window (◇ window / RTT), {way}"),
                chart,
            )
        }),
    ];
    for (title, chart) in figures.into_iter().flatten() {
        let _ = write!(
            text,
            "<figure><figcaption>{}</figcaption>\n{}{}</figure>\n",
            escaped(&title),
            chart.to_svg(),
            charts.key()
        );
    }
    text + "</div>\n"
}

impl Charts<'_> {
    fn key(&self) -> String {
        if self.groups.len() < 2 {
            return String::new();
        }
        let mut text = String::from("<p class=\"key\">");
        for (number, group) in &self.groups {
            let _ = write!(
                text,
                "<span><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\">{}</svg> {}</span>",
                mark(*number, 6.0, 6.0, 5.0),
                escaped(&window_name(group.window_bytes))
            );
        }
        text + "</p>\n"
    }

    fn most_mbit(&self) -> f64 {
        let most = |(_, group): &(usize, &Group)| group.bit_per_s.map_or(0.0, |all| all.max / 1e6);
        self.groups.iter().map(most).fold(0.0, f64::max)
    }

    /// One mark a run, or a band from least to greatest with the median.
    fn runs(&self) -> Chart {
        let circuit_mbit = self
            .campaign
            .circuit_bit_per_s
            .map(|rate| rate as f64 / 1e6);
        let top = self.most_mbit().max(circuit_mbit.unwrap_or(0.0));
        let last = f64::from(self.campaign.runs_done.max(2));
        let mut chart = Chart::new(
            "throughput per run",
            Axis::exactly("run", 1.0, last),
            Axis::numbers("Mbit/s", 0.0, top),
        );
        if let Some(rate) = circuit_mbit {
            chart.limit(rate, "rate of the circuit");
        }
        for (number, group) in &self.groups {
            let middle = |from: u32, to: u32| f64::midpoint(from.into(), to.into());
            let mut band = Vec::new();
            for point in &group.series {
                let at = middle(point.first_run, point.last_run);
                if point.failed > 0 {
                    chart.failure(at);
                }
                if let (Some(least), Some(median), Some(most)) = (
                    point.min_bit_per_s,
                    point.median_bit_per_s,
                    point.max_bit_per_s,
                ) {
                    band.push((at, least / 1e6, median / 1e6, most / 1e6));
                }
            }
            if group.series.iter().any(|point| point.runs > 1) {
                let edges: Vec<_> = band
                    .iter()
                    .map(|(x, least, _, most)| (*x, *least, *most))
                    .collect();
                chart.band(*number, &edges);
            }
            let medians: Vec<_> = band.iter().map(|(x, _, median, _)| (*x, *median)).collect();
            chart.line(*number, &medians);
            if medians.len() <= MARKS_MAX {
                medians.iter().for_each(|at| chart.mark(*number, *at, 2.5));
            }
        }
        chart
    }

    /// One mark a run, or a band from the median to the greatest loss.
    fn losses(&self) -> Option<Chart> {
        let series = |group: &Group| -> Vec<(f64, f64, f64)> {
            let at = |first: u32, last: u32| f64::midpoint(first.into(), last.into());
            let points = group.series.iter().filter_map(|point| {
                let losses = point.median_lost_percent.zip(point.max_lost_percent)?;
                Some((at(point.first_run, point.last_run), losses.0, losses.1))
            });
            points.collect()
        };
        let all: Vec<_> = self
            .groups
            .iter()
            .map(|(number, group)| (*number, series(group)))
            .collect();
        let points = || all.iter().flat_map(|(_, points)| points);
        points().next()?;
        let most = points().map(|(_, _, most)| *most).fold(0.0, f64::max);
        let mut chart = Chart::new(
            "datagrams lost per run",
            Axis::exactly("run", 1.0, f64::from(self.campaign.runs_done.max(2))),
            // Where nothing is lost the axis still has an end.
            Axis::numbers("% lost", 0.0, most.max(0.01)),
        );
        for (number, points) in &all {
            chart.band(*number, points);
            let medians: Vec<_> = points.iter().map(|(x, median, _)| (*x, *median)).collect();
            chart.line(*number, &medians);
            if medians.len() <= MARKS_MAX {
                medians.iter().for_each(|at| chart.mark(*number, *at, 2.5));
            }
        }
        Some(chart)
    }

    /// Bars of all windows on each other.
    fn histogram(&self) -> Chart {
        let bars: Vec<_> = self
            .groups
            .iter()
            .map(|(number, group)| (*number, &group.histogram))
            .collect();
        let count = bars.iter().map(|(_, bars)| bars.len()).max().unwrap_or(0);
        let runs_at = |nth: usize| -> u32 {
            bars.iter()
                .filter_map(|(_, bars)| bars.get(nth))
                .map(|bar| bar.runs)
                .sum()
        };
        let most = (0..count).map(runs_at).max().unwrap_or(0);
        let all = || bars.iter().flat_map(|(_, bars)| bars.iter());
        let left = all()
            .map(|bar| bar.from_bit_per_s / 1e6)
            .fold(f64::INFINITY, f64::min);
        let right = all().map(|bar| bar.to_bit_per_s / 1e6).fold(0.0, f64::max);
        let mut chart = Chart::new(
            "how often which throughput",
            Axis::exactly("Mbit/s", left, right),
            Axis::numbers("runs", 0.0, f64::from(most)),
        );
        for nth in 0..count {
            let mut below = 0;
            for (number, bars) in &bars {
                let Some(bar) = bars.get(nth).filter(|bar| bar.runs > 0) else {
                    continue;
                };
                let across = (bar.from_bit_per_s / 1e6, bar.to_bit_per_s / 1e6);
                chart.bar(*number, across, (below.into(), (below + bar.runs).into()));
                below += bar.runs;
            }
        }
        chart
    }

    /// What share of runs reached what share of the circuit's rate.
    fn utilisation(&self) -> Option<Chart> {
        let has_any = |(_, group): &(usize, &Group)| group.utilisation.is_some();
        self.groups.iter().any(has_any).then(|| {
            let mut chart = Chart::new(
                "share of runs that reached a utilisation",
                Axis::exactly("% of the circuit's rate, or more", 0.0, 100.0),
                Axis::exactly("% of runs", 0.0, 100.0),
            );
            for (number, group) in &self.groups {
                let Some(utilisation) = &group.utilisation else {
                    continue;
                };
                let line: Vec<_> = (0..)
                    .map(f64::from)
                    .zip(utilisation.reached_percent.iter().copied())
                    .collect();
                chart.line(*number, &line);
                let marked = line.iter().skip(10).step_by(20);
                marked.for_each(|at| chart.mark(*number, *at, 3.0));
            }
            chart
        })
    }

    /// Median, p5 to p95, least to greatest, beside window / RTT.
    fn by_window(&self) -> Option<Chart> {
        let rates: Vec<_> = self
            .groups
            .iter()
            .filter_map(|(number, group)| Some((*number, *group, group.bit_per_s?)))
            .collect();
        if rates.len() < 2 {
            return None;
        }
        let least = rates
            .iter()
            .map(|(_, _, all)| all.min / 1e6)
            .fold(f64::INFINITY, f64::min);
        let (most, name) = (self.most_mbit(), "Mbit/s");
        let y = match most > 30.0 * least {
            true => Axis::powers(name, least, most),
            false => Axis::numbers(name, 0.0, most),
        };
        let names = self
            .groups
            .iter()
            .map(|(_, group)| window_name(group.window_bytes))
            .collect();
        let mut chart = Chart::new("throughput by window", Axis::names("window", names), y);
        for (number, group, all) in rates {
            let x = number as f64;
            chart.upright(number, x, (all.min / 1e6, all.max / 1e6), 1.5);
            chart.upright(number, x, (all.p5 / 1e6, all.p95 / 1e6), 9.0);
            chart.mark(number, (x, all.median / 1e6), 4.5);
            // Without a window asked for, the one that grows is no limit.
            if let (Some(_), Some(rate)) = (group.window_bytes, group.window_rate_bit_per_s) {
                chart.expected((x, rate / 1e6));
            }
        }
        Some(chart)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::summary::Summary;
    use super::super::tests::{good, start, start_of, subject_of};
    use super::super::{Line, Start};
    use super::*;
    use crate::probe::datagram_flow::FlowPlan;
    use crate::probe::report::Trouble;

    fn campaign(start: Start, runs: u32) -> Campaign {
        let mut summary = Summary::new(start.clone());
        for number in 1..=runs {
            let rate = match start.subject.window_of(number) {
                Some(window) => u64::from(window) * 800,
                None => 918_090_000 + u64::from(number) % 97 * 100_000,
            };
            let mut run = good(number, &start.subject, rate);
            if number % 50 == 7 {
                run.up = None;
                run.error = Some(Trouble {
                    code: "lost".into(),
                    text: "<script>".into(),
                });
            }
            summary.take(&Line::Run(run));
        }
        summary.campaign()
    }

    /// Every element that is opened is closed, in order.
    pub(crate) fn is_balanced(page: &str) -> Result<(), String> {
        let mut open: Vec<String> = Vec::new();
        for piece in page.split('<').skip(1) {
            let (tag, _) = piece
                .split_once('>')
                .ok_or_else(|| format!("no end: {piece}"))?;
            let name = tag.split([' ', '/']).next().unwrap_or("");
            if let Some(closed) = tag.strip_prefix('/') {
                let last = open.pop();
                if last.as_deref() != Some(closed) {
                    return Err(format!("{last:?} is closed by {closed}"));
                }
            } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
                open.push(name.to_owned());
            }
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!("{open:?}"))
        }
    }

    #[test]
    fn a_page_stands_alone_and_is_whole() {
        for (windows, runs, figures) in [
            (&[None][..], 0, 0),
            (&[None], 1, 3),
            (&[None], 8755, 3),
            (&[Some(8192), Some(65_536), None], 300, 4),
        ] {
            let page = of(&campaign(start(windows, 8755), runs));
            assert_eq!(is_balanced(&page), Ok(()));
            assert_eq!(page.matches("<figure>").count(), figures);
            assert!(page.len() < 400_000, "{} bytes", page.len());
            for foreign in ["<script", "NaN", "inf,", "url(", "src=", "href="] {
                assert!(!page.contains(foreign), "{foreign}");
            }
            assert!(page.contains("far &lt;end&gt;"));
            let outside = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!outside.contains("http"), "it needs something else");
        }
    }

    #[test]
    fn datagrams_have_a_chart_of_loss_and_none_of_windows() {
        for runs in [1, 8755] {
            let plan = FlowPlan::even(Direction::Up, 1000, 8e6, 1.0);
            let page = of(&campaign(start_of(subject_of(Test::Udp(plan)), 8755), runs));
            assert_eq!(is_balanced(&page), Ok(()));
            assert_eq!(page.matches("<figure>").count(), 4);
            assert!(page.contains("Datagrams lost per run") && page.contains("UDP payload"));
            assert!(!page.contains("window") && !page.contains("NaN"));
        }
    }

    #[test]
    fn without_the_circuits_rate_there_is_no_utilisation() {
        let mut start = start(&[None], 9);
        start.circuit_bit_per_s = None;
        let page = of(&campaign(start, 9));
        assert_eq!(page.matches("<figure>").count(), 2);
        assert!(!page.contains("% of circuit"));
    }
}
