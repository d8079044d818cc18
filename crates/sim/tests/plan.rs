//! Plans from text to report: what is refused and why, shards that belong
//! together, runs that go on where they stopped.
#![allow(clippy::unwrap_used)]

use farhaul_sim::ladder::Rung;
use farhaul_sim::plan::{self, Plan};
use farhaul_sim::report::report;
use farhaul_sim::results::{
    self, Completeness, Header, MergeError, Merged, ResumeError, Shard, resume,
};

const PLAN: &str = r#"
name = "small"
about = "a plan for tests"

[study]
duration_s = 10
warm_up_s = 2
drain_s = 30
mss_bytes = 1460
proxy_buffer_bytes = 32767
idle_timeout_s = 15
overhead_bytes = 20

[links]
SS = "rate 34.368mbit framing ip queue 256000b delay 320ms"

[workload]
trace_mbit = 1.0
days = 2

[workload.generator]
hosts = 50
popularity_exponent = 0.8
request_bytes = 328
main = { median_bytes = 5000, sigma = 1.0, min_bytes = 100, max_bytes = 200000 }
embedded = { median_bytes = 3000, sigma = 1.0, min_bytes = 50, max_bytes = 200000 }
gap_s = 0.5
far_mean_s = 0.5
far_sigma = 1.0
windows = [{ value = 32767, weight = 1 }]
segment_sizes = [{ value = 1460, weight = 1 }]

[sweep]
link = ["SS"]
architecture = ["direct", "proxies"]
http = ["1.0", "1.1"]
tcp = ["bsd44"]
pool = [4, 8]
load_mbit = [1, 3]
seed = { from = 1, to = 2 }
"#;

fn no_file(name: &str) -> Result<String, String> {
    Err(format!("{name} was not to be read"))
}

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse(text, &no_file).map_err(|error| error.to_string())
}

fn with(old: &str, new: &str) -> String {
    assert!(PLAN.contains(old), "{old}");
    PLAN.replacen(old, new, 1)
}

fn merge(files: &[(String, String)]) -> Result<Merged, MergeError> {
    results::merge(files, Completeness::Whole)
}

/// What `farhaul sim run` writes for a shard.
fn file(plan: &Plan, shard: Shard) -> (String, String) {
    let mut text = serde_json::to_string(&Header::new(plan, shard)).unwrap();
    text.push('\n');
    for point in plan.shard(shard.shard, shard.of) {
        text += &serde_json::to_string(&plan::run(plan, point)).unwrap();
        text.push('\n');
    }
    (format!("shard {}", shard.shard), text)
}

#[test]
fn every_combination_is_a_point_and_a_pool_counts_only_where_there_is_one() {
    let plan = parse(PLAN).unwrap();
    // direct: 2 http x 2 loads x 2 seeds; proxies: the same for two pools.
    assert_eq!(plan.points().len(), 8 + 16);
    let numbers: Vec<u32> = plan.points().iter().map(|point| point.number).collect();
    assert_eq!(numbers, (0..24).collect::<Vec<_>>());
    let mut of_shards: Vec<u32> = (0..5)
        .flat_map(|shard| plan.shard(shard, 5).map(|point| point.number))
        .collect();
    of_shards.sort_unstable();
    assert_eq!(of_shards, numbers);
    assert_ne!(
        plan.fingerprint(),
        parse(&with("far_mean_s = 0.5", "far_mean_s = 0.6"))
            .unwrap()
            .fingerprint()
    );
}

#[test]
fn wrong_plans_are_refused_with_the_key_and_the_reason() {
    let wrong = [
        (
            with("warm_up_s = 2", "warm_up = 2"),
            "unknown field `warm_up`",
        ),
        (with("duration_s = 10", "duration_s = \"ten\""), "line 6"),
        (
            with("duration_s = 10", "duration_s = -1"),
            "study.duration_s",
        ),
        (with("warm_up_s = 2", "warm_up_s = 10"), "study.warm_up_s"),
        (with("drain_s = 30", "drain_s = nan"), "study.drain_s"),
        (with("mss_bytes = 1460", "mss_bytes = 0"), "study.mss_bytes"),
        (
            with("proxy_buffer_bytes = 32767", "proxy_buffer_bytes = 100"),
            "study.proxy_buffer_bytes",
        ),
        (with("delay 320ms", "delay 320"), "links.SS"),
        (
            with("name = \"small\"", "name = \"../x\""),
            "name: must be letters",
        ),
        (with("hosts = 50", "hosts = 0"), "workload.generator.hosts"),
        (
            with("median_bytes = 5000", "median_bytes = 500000"),
            "workload.generator.main",
        ),
        (
            with("trace_mbit = 1.0", "trace_mbit = 0"),
            "workload.trace_mbit",
        ),
        (with("days = 2", "days = 0"), "workload.days"),
        (
            with("\"direct\", ", "\"direkt\", "),
            "there is no `direkt`; there are direct, proxies, pair",
        ),
        (with("[\"bsd44\"]", "[\"reno\"]"), "there is no `reno`"),
        (with("[4, 8]", "[0]"), "sweep.pool"),
        (
            with("load_mbit = [1, 3]", "load_mbit = []"),
            "sweep.load_mbit",
        ),
        (with("from = 1, to = 2", "from = 3, to = 2"), "sweep.seed"),
        (
            with("from = 1, to = 2", "from = 1, to = 9000000"),
            "more than 1000000",
        ),
        (
            with("[workload.generator]", "[workload.generador]"),
            "unknown field",
        ),
    ];
    refuse(&wrong);
}

#[test]
fn plans_that_fit_into_no_memory_are_refused() {
    refuse(&[
        (
            with("load_mbit = [1, 3]", "load_mbit = [5000]"),
            "5000 times a trace of 1 Mbit/s",
        ),
        (
            with("load_mbit = [1, 3]", "load_mbit = [1e5]")
                .replace("trace_mbit = 1.0", "trace_mbit = 1e5"),
            "requests in a run, more than 5000000",
        ),
        (
            with("overhead_bytes = 20", "overhead_bytes = 90000"),
            "study.overhead_bytes",
        ),
        (
            with("max_bytes = 200000 }", "max_bytes = 9000000000000 }"),
            "workload.generator.main",
        ),
    ]);
}

fn refuse(wrong: &[(String, &str)]) {
    for (text, expected) in wrong {
        let error = parse(text).unwrap_err();
        assert!(
            error.contains(expected),
            "{error}\n does not name {expected}"
        );
    }
}

#[test]
fn a_plan_may_say_only_in_what_it_differs() {
    let read = |name: &str| match name {
        "base" => Ok(PLAN.to_owned()),
        "loop" => Ok("like = \"loop\"".to_owned()),
        _ => Err("not there".to_owned()),
    };
    let parse = |text: &str| Plan::parse(text, &read).map_err(|error| error.to_string());
    let plan =
        parse("like = \"base\"\nname = \"less\"\n[sweep]\npool = [4]\nload_mbit = [1]").unwrap();
    assert_eq!((plan.name(), plan.points().len()), ("less", 8));
    assert_eq!(plan.study(), parse(PLAN).unwrap().study());
    assert!(
        parse("like = \"base\"\n[study]\nduratoin_s = 1")
            .unwrap_err()
            .contains("duratoin_s")
    );
    assert!(
        parse("like = \"loop\"")
            .unwrap_err()
            .contains("build on each other")
    );
    assert!(parse("like = \"gone\"").unwrap_err().contains("not there"));
}

#[test]
fn a_tcp_of_ones_own_is_another_with_some_rules_changed() {
    let own = "[tcp.iw10]\nlike = \"bsd44\"\ninitial_window_segments = 10\nsack = true\n\n[sweep]";
    let text = with("[sweep]", own).replace("[\"bsd44\"]", "[\"bsd44\", \"iw10\"]");
    let plan = parse(&text).unwrap();
    let mean = |tcp: &str| {
        let point = plan.points().iter().find(|point| point.tcp == tcp).unwrap();
        plan::run(&plan, point).mean_s.unwrap()
    };
    assert!(mean("iw10") < 0.9 * mean("bsd44"));
    assert!(
        parse(&with("[sweep]", "[tcp.x]\nlike = \"y\"\n\n[sweep]"))
            .unwrap_err()
            .contains("tcp.x.like")
    );
    assert!(
        parse(&with(
            "[sweep]",
            "[tcp.modern]\nlike = \"bsd44\"\n\n[sweep]"
        ))
        .is_err()
    );
}

#[test]
fn logged_workloads_come_from_files_and_empty_ones_are_refused() {
    let from = PLAN.find("[workload]").unwrap();
    let to = PLAN.find("[sweep]").unwrap();
    let mut text = PLAN.to_owned();
    text.replace_range(
        from..to,
        "[workload]\nhosts = \"h\"\nlog = \"l\"\ndays = 1\n\n",
    );
    let read = |log: &'static str| {
        move |name: &str| {
            Ok(if name == "h" {
                "1 a 8760 1460\n".to_owned()
            } else {
                log.to_owned()
            })
        }
    };
    let plan = Plan::parse(&text, &read("0 1 300 5000 0.1\n8 1 300 0 0\n")).unwrap();
    let result = plan::run(&plan, &plan.points()[0]);
    // 1 Mbit/s of a trace of 5 kbit/s: 200 copies of two requests.
    assert!(
        result.requests > 200 && result.unanswered == 0,
        "{result:?}"
    );
    assert!(plan.malformed().is_empty());
    let with_bad = Plan::parse(&text, &read("0 1 300 5000 0.1\nx\n3 9 300 0 0\n")).unwrap();
    assert_eq!(
        with_bad.malformed(),
        [
            "l:2: `x` is no time in seconds",
            "l:3: host 9 is not in the host file",
            "l: 2 malformed lines were left out"
        ]
    );
    let error = Plan::parse(&text, &read("# nothing\n"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no request in it"), "{error}");
    let error = Plan::parse(&text, &no_file).unwrap_err().to_string();
    assert!(
        error.contains("workload.hosts: h was not to be read"),
        "{error}"
    );
    assert_ne!(
        plan.fingerprint(),
        Plan::parse(&text, &read("0 1 300 5000 0.2\n"))
            .unwrap()
            .fingerprint()
    );
}

#[test]
fn shards_make_the_whole_and_nothing_else_does() {
    let plan = parse(PLAN).unwrap();
    let whole = merge(&[file(&plan, Shard::WHOLE)]).unwrap();
    let shards: Vec<_> = (0..3)
        .map(|shard| file(&plan, Shard { shard, of: 3 }))
        .collect();
    let merged = merge(&shards).unwrap();
    assert_eq!(merged, whole);
    assert_eq!(merge(&[("again".into(), merged.to_text())]).unwrap(), whole);
    assert!(merged.is_of(&plan));

    let error = merge(&shards[..2]).unwrap_err();
    assert!(
        matches!(
            &error,
            MergeError::Missing {
                missing: 8,
                points: 24,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("2 (shard 2/3)"), "{error}");
    let partial = results::merge(&shards[..2], Completeness::Partial).unwrap();
    assert_eq!((partial.results.len(), partial.missing()), (16, 8));
    assert!(
        report(&plan, &partial, &[])
            .page
            .contains("8 of 24 points are missing")
    );
}

#[test]
fn what_does_not_belong_together_is_not_merged() {
    let plan = parse(PLAN).unwrap();
    let shards: Vec<_> = (0..3)
        .map(|shard| file(&plan, Shard { shard, of: 3 }))
        .collect();
    let twice = [
        shards[0].clone(),
        shards[1].clone(),
        shards[1].clone(),
        shards[2].clone(),
    ];
    assert!(matches!(
        merge(&twice),
        Err(MergeError::Point {
            why: "is there twice",
            ..
        })
    ));
    let other = parse(&with("far_mean_s = 0.5", "far_mean_s = 0.6")).unwrap();
    let foreign = [shards[0].clone(), file(&other, Shard { shard: 1, of: 3 })];
    assert!(matches!(merge(&foreign), Err(MergeError::Foreign { .. })));
    let other_model = (
        shards[1].0.clone(),
        shards[1].1.replacen("\"model\":", "\"model\":9", 1),
    );
    assert!(matches!(
        merge(&[shards[0].clone(), other_model]),
        Err(MergeError::Foreign { .. })
    ));
    let misplaced = shards[1].1.replacen("\"number\":1,", "\"number\":3,", 1);
    assert!(matches!(
        merge(&[("x".into(), misplaced)]),
        Err(MergeError::Point {
            why: "is not of this shard",
            ..
        })
    ));
    let cut = shards[2].1.trim_end().to_owned();
    assert!(
        merge(&[("x".into(), cut)])
            .unwrap_err()
            .to_string()
            .contains("--resume")
    );
    assert_eq!(merge(&[]), Err(MergeError::Nothing));
    assert!(matches!(
        merge(&[("x".into(), "hello\n".into())]),
        Err(MergeError::File { .. })
    ));
}

#[test]
fn a_stopped_run_goes_on_behind_its_last_whole_line() {
    let plan = parse(PLAN).unwrap();
    let shard = Shard { shard: 0, of: 3 };
    let header = Header::new(&plan, shard);
    let (_, text) = file(&plan, shard);
    let all: Vec<u32> = plan.shard(0, 3).map(|point| point.number).collect();
    let done = |cut: usize| resume(&text[..cut], &header).unwrap();
    assert_eq!(done(text.len()).done.into_iter().collect::<Vec<_>>(), all);
    assert_eq!((done(0).done.len(), done(0).whole_bytes), (0, 0));
    let stopped = done(text.len() - 5);
    assert_eq!(stopped.done.len(), all.len() - 1);
    assert!(text[..stopped.whole_bytes].ends_with('\n'));
    let foreign = Header::new(&plan, Shard { shard: 1, of: 3 });
    assert!(matches!(
        resume(&text, &foreign),
        Err(ResumeError::Foreign { .. })
    ));
    assert!(matches!(
        resume("a letter\n", &header),
        Err(ResumeError::NoHeader(_))
    ));
    let damaged = text.replacen("\"requests\"", "\"reqeusts\"", 1);
    assert!(matches!(
        resume(&damaged, &header),
        Err(ResumeError::Damaged(2))
    ));
}

#[test]
fn a_report_has_every_number_and_its_figures() {
    let plan = parse(PLAN).unwrap();
    let merged = merge(&[file(&plan, Shard::WHOLE)]).unwrap();
    let rung = Rung {
        name: "a rung".into(),
        expected: 1.0,
        simulated: 1.5,
        unit: "s",
        tolerance: Some(0.1),
    };
    let report = report(&plan, &merged, &[rung]);
    assert_eq!(report.figures.len(), 3);
    assert!(report.figures.iter().all(|figure| figure.series.len() == 6));
    for word in [
        "direct SS HTTP/1.0 bsd44",
        "proxies x8 SS HTTP/1.1 bsd44",
        "## Is the simulator right?",
        "a rung",
        "**outside**",
        "±",
    ] {
        assert!(report.page.contains(word), "{word}\n{}", report.page);
    }
    let latency = |config: &str| {
        let is_it = |finding: &&farhaul_sim::report::Finding| {
            finding.config.starts_with(config) && finding.metric == "mean latency"
        };
        report
            .findings
            .iter()
            .find(is_it)
            .and_then(|finding| finding.value)
            .unwrap()
    };
    assert!(latency("proxies x8 SS HTTP/1.0") < latency("direct SS HTTP/1.0"));
}

#[test]
fn the_plans_of_the_project_can_be_run() {
    let read = |name: &str| {
        let path = format!("{}/../../plans/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    };
    for (name, points) in [
        ("waikato", 2160),
        ("waikato-reduced", 72),
        ("waikato-far", 96),
        ("waikato-today", 960),
        ("tcp-enhancements", 420),
    ] {
        let text = read(&format!("{name}.toml")).unwrap();
        let plan = Plan::parse(&text, &read).unwrap();
        assert_eq!((plan.name(), plan.points().len()), (name, points));
    }
}
