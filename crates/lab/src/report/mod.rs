//! `farhaul lab report`: documents of measurements as one HTML page that needs nothing else: no script, no font, no
//! picture from anywhere. It prints, and fits a phone.
//!
//! Made from the documents alone, so anybody can make it again. Throughput of a plan's cells is shown as the study of 2006
//! did, beside its figures and beside the physical limit; every row of every document stands in a table at the end.

mod figure;
mod group;
mod paper;
mod tables;
mod times;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::measurement::{Machine, Measurement};
use crate::probe::campaign::chart::{Chart, escaped, mark};
use crate::probe::campaign::page::STYLE;
use crate::study::COMMIT;

use group::{Group, groups};
use paper::Printed;

const MORE_STYLE: &str = "\
pre{overflow:auto;max-height:20rem;background:#f4f4f4;padding:.5rem;font-size:.8rem}
td.words{white-space:normal;min-width:12rem;text-align:left}th{vertical-align:bottom}
body{max-width:80rem}.charts{margin-top:1rem}th.words{text-align:left}
h3{font-size:1.05rem;margin:1.4rem 0 .4rem}th[colspan]{text-align:center}.first{border-left:1px solid #ccc}
.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr))}
.key span{display:inline-block}
@media screen and (max-width:40rem){td:first-child{white-space:normal;min-width:7rem}}
@media print{body{max-width:none}pre{overflow:visible;max-height:none;white-space:pre-wrap}h2{break-before:auto}td.words{min-width:8rem}}
";

/// The page.
pub fn page(documents: &[Measurement]) -> String {
    let names: Vec<_> = documents
        .iter()
        .map(|document| escaped(&document.name))
        .collect();
    let title = names.join(", ");
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}{MORE_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    let printed = paper::printed();
    for document in documents {
        page += &head(document);
        for group in groups(&document.rows) {
            page += &section(&group, &printed);
        }
        page += &times::section(&document.rows);
        page += "<h3>Every row</h3>\n";
        page += &tables::of_rows(&document.rows);
    }
    page + &foot()
}

/// What was run, on what, from which sources.
fn head(document: &Measurement) -> String {
    let rows = document.rows.len();
    let failed = document
        .rows
        .iter()
        .filter(|row| row.ok == Some(false))
        .count();
    let asked = document.rows.iter().filter(|row| row.ok.is_some()).count();
    format!(
        "<h2>{}</h2>\n<p>{} · {} · seed {} · {}</p>\n<p>{rows} rows; {asked} have something to reach, {failed} of them do not.</p>\n<h3>The plan</h3>\n<pre>{}</pre>\n",
        escaped(&document.name),
        escaped(&document.date),
        escaped(&commits(document)),
        document.seed,
        escaped(&machine(&document.machine)),
        escaped(&document.plan)
    )
}

/// The commit of the last run, and of rows that are of another.
fn commits(document: &Measurement) -> String {
    let last = document.commit.as_deref().unwrap_or("unknown");
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &document.rows {
        let commit = row.detail.get(COMMIT).and_then(Value::as_str);
        if let Some(commit) = commit.filter(|commit| *commit != last) {
            *others.entry(commit).or_default() += 1;
        }
    }
    let others: Vec<_> = others
        .into_iter()
        .map(|(commit, count)| match count {
            1 => format!("1 row: {commit}"),
            _ => format!("{count} rows: {commit}"),
        })
        .collect();
    match others.is_empty() {
        true => format!("commit {last}"),
        false => format!("commit {last} ({})", others.join(", ")),
    }
}

fn machine(machine: &Machine) -> String {
    let mut words: Vec<String> = Vec::new();
    words.extend(machine.cores.map(|cores| format!("{cores} cores")));
    words.extend(machine.processor.clone());
    words.extend(
        machine
            .memory_bytes
            .map(|bytes| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))),
    );
    words.extend(machine.system.clone());
    words.extend(
        machine
            .kernel
            .as_ref()
            .map(|kernel| format!("Linux {kernel}")),
    );
    words.join(", ")
}

fn section(group: &Group<'_>, printed: &[Printed]) -> String {
    let has_study = group
        .configs()
        .iter()
        .any(|config| !figure::study(group, config, printed).is_empty());
    let mut text = format!("<h3>{}, KiB/s</h3>\n", escaped(&group.title()));
    text += &tables::of_group(group, printed);
    text += &tables::turning_points(group, printed);
    if group.points.len() < 2 {
        return text;
    }
    text += "<div class=\"charts\">\n";
    let key = key(group, has_study);
    text += &drawn("Throughput", &figure::throughput(group, printed), &key);
    if let Some(chart) = figure::times(group, printed) {
        text += &drawn("Times the baseline of the same link", &chart, &key);
    }
    text + "</div>\n"
}

fn drawn(title: &str, chart: &Chart, key: &str) -> String {
    let svg = chart.to_svg();
    format!("<figure><figcaption>{title}</figcaption>\n{svg}{key}</figure>\n")
}

fn key(group: &Group<'_>, has_study: bool) -> String {
    let mut text = String::from("<p class=\"key\">");
    for config in group.configs() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<span><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\">{}</svg> {}</span>",
            mark(figure::number(config), 6.0, 6.0, 5.0),
            tables::config_words(config)
        );
    }
    if has_study {
        text += "<span>dashed: the study</span>";
    }
    text + "<span>dotted: limit</span></p>\n"
}

fn foot() -> String {
    format!(
        "<footer><p>{}</p><p>KiB are 1024 bytes. The limit is bytes / (least round trip + bytes / payload rate), 1448 bytes of payload in a frame of 1514. Benefit is in percent of B on the same link. The study: D.-J. van Helmond, M. Smeets, <i>Benefits and tradeoffs of application-specific WAN acceleration in different bandwidth, latency and loss scenarios</i>, University of Amsterdam, 2006, tables 10, 11 and 16 (Windows XP and Server 2003, a pair of Juniper WX).</p></footer>\n</body>\n</html>\n",
        tables::FLAGS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Op, Row};
    use crate::probe::campaign::page::tests::is_balanced;
    use serde_json::json;

    fn document() -> Measurement {
        let mut document = Measurement::new("wx<2006>", "name = \"<x>\"", 7);
        for (delay_ms, direct, ours) in [(0.0, 4000.0, 4100.0), (250.0, 55.0, 5600.0)] {
            for (config, value) in [("B", direct), ("A", ours)] {
                let scenario = format!("51.84M/{delay_ms}ms lockstep-smb1 read");
                let row = Row::of(&scenario, config, "throughput", "KiB/s", value)
                    .limit(5878.0)
                    .target(Op::AtLeast, 5500.0)
                    .detail("rate_mbit", 51.84)
                    .detail("delay_ms", delay_ms)
                    .detail("jitter_ms", 0.0)
                    .detail("loss", 0.0)
                    .detail("client", "lockstep-smb1")
                    .detail("work", "read")
                    .detail("receive_buffer_bytes", json!(null))
                    .detail("ended", "flat")
                    .detail("smb_dialect", "NT LM 0.12")
                    .detail("tcp_rmem", json!([4096, 17_520, 17_520]))
                    .detail("tcp_rmem_server", json!([4096, 131_072, 6_291_456]))
                    .detail("bytes", 5_242_880);
                document.rows.push(row);
            }
        }
        document
            .rows
            .push(Row::failed("s", "A", "time", "s", "it <broke>").detail("work", "folder"));
        document.commit = Some("new".to_owned());
        for row in document.rows.iter_mut().take(3) {
            row.detail.insert("commit".to_owned(), json!("old"));
        }
        document
    }

    #[test]
    fn the_studys_figures_stand_beside_its_kind_of_client_alone() {
        let mut others = document();
        for row in &mut others.rows {
            row.detail.insert("client".to_owned(), json!("smbclient"));
        }
        let page = page(&[others]);
        assert!(page.contains("+10081.8 %") && !page.contains("617.8 %"));
        assert!(!page.contains("dashed: the study") && !page.contains("in the study"));
    }

    #[test]
    fn losses_have_the_plans_digits() {
        let mut lossy = document();
        for (row, loss) in lossy.rows.iter_mut().zip([0.0001, 0.0001, 0.07, 0.07]) {
            row.detail.insert("loss".to_owned(), json!(loss));
            row.detail.insert("delay_ms".to_owned(), json!(30.0));
        }
        let page = page(&[lossy]);
        for expected in ["<tr><td>0.01 %</td>", "<tr><td>7 %</td>"] {
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
    }

    /// Who has it on paper cannot open anything.
    #[test]
    fn the_plan_stands_on_the_page_and_on_paper() {
        let page = page(&[document()]);
        assert!(page.contains("<pre>name = &quot;&lt;x&gt;&quot;</pre>"));
        assert!(!page.contains("<details"), "it is printed as it is, closed");
        let paper = page.lines().filter(|line| line.starts_with("@media print"));
        let paper: Vec<_> = paper.collect();
        assert_eq!(paper.len(), 2);
        assert!(paper.iter().all(|rules| !rules.contains("display:none")));
        assert!(paper[1].contains("pre{overflow:visible;max-height:none"));
    }

    #[test]
    fn a_page_stands_alone_and_has_ours_beside_the_studys_and_the_limit() {
        let page = page(&[document(), Measurement::new("empty", "", 1)]);
        assert_eq!(is_balanced(&page), Ok(()));
        assert_eq!(page.matches("<figure>").count(), 2);
        for foreign in [
            "<script", "NaN", "inf,", "url(", "src=", "href=", "<x>", "<broke>",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for expected in [
            "55.0 *",
            "+10081.8 %",
            "617.8 %",
            "4294.6",
            "ended when flat, after 5.0 MiB",
            "A: at every one measured with both; in the study from 21 ms on",
            "it &lt;broke&gt;",
            "commit new (3 rows: old)",
            "Folders, listings and documents",
            "dialect NT LM 0.12; tcp_rmem 4096 17520 17520",
        ] {
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http"), "it needs something else");
    }
}
