//! Plans that are right, and what is said of those that are not.

use super::*;

const PLAN: &str = r#"name = "study"
about = "two rates"
seed = 7
cell_s = 500
flat_after_s = 30

[[cells]]
rate = ["1.544mbit"]
delay = ["0ms", "250ms"]
client = ["lockstep-smb1", "smbget"]
config = ["B", "T", "A"]
size = "10 MiB"
least_of_limit = 0.97

[[cells]]
rate = ["51.84mbit"]
delay = ["0ms"]
loss = ["0.1%", "10%"]
client = ["lockstep-smb2"]
work = ["write"]
config = ["A"]
receive_buffer = ["17520 B", "auto"]
size = "100 MB"
cell_s = 3600
repeat = 3

[[expect]]
cell = "1.544M/250ms smbget read B"
value = 42.7
within = 0.15
"#;

#[test]
fn every_combination_is_a_cell_in_its_order() {
    let plan = Plan::parse("p.toml", PLAN).unwrap();
    assert_eq!((plan.name.as_str(), plan.seed), ("study", 7));
    assert_eq!((plan.cells[0].repeat, plan.cells[15].repeat), (1, 3));
    assert_eq!(plan.flat_after_s, Some(30));
    assert_eq!((plan.cells[0].most_s, plan.cells[15].most_s), (500, 3600));
    let expected = Expected {
        cell: "1.544M/250ms smbget read B".to_owned(),
        value: 42.7,
        within: 0.15,
    };
    assert_eq!(plan.expected, [expected]);
    assert_eq!(plan.cells.len(), 12 + 4);
    let names: Vec<_> = plan.cells.iter().map(Cell::name).collect();
    assert_eq!(names[0], "1.544M/0ms lockstep-smb1 read B");
    assert_eq!(names[4], "1.544M/0ms smbget read T");
    assert_eq!(names[11], "1.544M/250ms smbget read A");
    assert_eq!(
        names[12],
        "51.84M/0ms/0.1% lockstep-smb2 write rcvbuf 17520 A"
    );
    assert_eq!(names[15], "51.84M/0ms/10% lockstep-smb2 write A");
    assert_eq!(plan.cells[0].size_bytes, 10 << 20);
    assert_eq!(plan.cells[15].size_bytes, 100_000_000);
    assert_eq!(plan.cells[0].least_of_limit, Some(0.97));
    assert_eq!(plan.text, PLAN);
}

#[test]
fn a_mistake_is_shown_with_file_line_and_key() {
    for (right, wrong, expected) in [
        (
            "name = \"study\"",
            "name = \"../x\"",
            "p.toml, line 1: name: ",
        ),
        (
            "\"1.544mbit\"",
            "\"5 parsecs\"",
            "p.toml, line 8: cells.rate: ",
        ),
        ("\"250ms\"", "\"250\"", "p.toml, line 9: cells.delay: "),
        (
            "\"smbget\"",
            "\"netcat\"",
            "p.toml, line 10: cells.client: `netcat` is none of ",
        ),
        ("\"T\", ", "\"X\", ", "p.toml, line 11: cells.config: "),
        (
            "\"10 MiB\"",
            "\"10 apples\"",
            "p.toml, line 12: cells.size: ",
        ),
        ("0.97", "-1.0", "p.toml, line 13: cells.least_of_limit: "),
        (
            "\"0.1%\", \"10%\"",
            "",
            "p.toml, line 18: cells.loss: the list is empty",
        ),
        (
            "\"write\"",
            "\"folder\"",
            "cells.client: lockstep-smb2 cannot folder",
        ),
        ("17520 B", "5 B", "p.toml, line 22: cells.receive_buffer: "),
        ("3600", "0", "p.toml, line 24: cells.cell_s: "),
        (
            "repeat = 3",
            "repeat = 0",
            "p.toml, line 25: cells.repeat: ",
        ),
        (
            "250ms smbget read B",
            "250ms smbget read F",
            "p.toml, line 28: expect.cell: the plan has no cell ",
        ),
        ("0.15", "15.0", "p.toml, line 30: expect.within: "),
        (
            "\"lockstep-smb1\", \"smbget\"",
            "\"smbget\", \"smbget\"",
            "is there twice",
        ),
    ] {
        let text = PLAN.replacen(right, wrong, 1);
        assert_ne!(text, PLAN, "{right}");
        let error = Plan::parse("p.toml", &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_no_plan_is_shown_with_its_line() {
    for (text, line) in [
        ("name = \"x\"\ncolour = \"red\"\ncells = []", "line 2"),
        ("name = \"x\"\ncells = [", "line 2"),
        ("name = \"x\"\nrepeat = \"often\"\ncells = []", "line 2"),
    ] {
        let error = Plan::parse("p.toml", text).unwrap_err().to_string();
        assert!(
            error.starts_with("p.toml: ") && error.contains(line),
            "{error}"
        );
    }
    let empty = Plan::parse("p.toml", "name = \"x\"\ncells = []").unwrap_err();
    assert!(empty.to_string().contains("there is none"), "{empty}");
}

#[test]
fn the_plans_of_the_repository_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    for (name, cells) in [
        ("quick", 9),
        ("wx2006-cifs", 48 + 16 + 16),
        ("wx2006-cifs-more", 36 + 8 + 4),
        ("wx2006-cifs-loss", 60),
        ("smb-modern", 54 + 8 + 8 + 3 + 4),
    ] {
        let plan = Plan::load(&folder.join(format!("{name}.toml"))).unwrap();
        assert_eq!((plan.name.as_str(), plan.cells.len()), (name, cells));
        assert!(!plan.about.is_empty());
    }
}

#[test]
fn cells_that_differ_in_queue_or_size_or_files_have_different_names() {
    let block = |more: &str| {
        format!(
            "[[cells]]\nrate = ['1mbit']\ndelay = ['30ms']\nclient = ['smbclient']\nwork = ['folder']\n{more}"
        )
    };
    let names = |blocks: &[&str]| {
        let blocks: String = blocks.iter().map(|more| block(more)).collect();
        let plan = Plan::parse("p", &format!("name = 'x'\n{blocks}"))?;
        Ok::<Vec<String>, PlanError>(plan.cells.iter().map(Cell::name).collect())
    };
    let queues = "queue = ['auto', '50ms', '0.2s', '64kb', '50p']\nconfig = ['A']\nsize = '1 MB'\n";
    let expected = [
        "",
        " queue 50ms",
        " queue 200ms",
        " queue 64000b",
        " queue 50p",
    ];
    let expected = expected.map(|queue| format!("1M/30ms{queue} smbclient folder A"));
    assert_eq!(names(&[queues]).unwrap(), expected);

    let amounts = [
        "config = ['B', 'A']\nsize = '10 MB'\nfiles = 100\n",
        "config = ['A']\nsize = '1 MiB'\nfiles = 100\n",
        "config = ['T']\nsize = '5 MB'\nfiles = 7\n",
    ];
    let expected = ["10 MB B", "10 MB A", "1 MiB A", "5 MB T"];
    let expected = expected.map(|words| format!("1M/30ms smbclient folder {words}"));
    assert_eq!(names(&amounts).unwrap(), expected);
    let more = [
        &amounts[..2],
        &["config = ['A']\nsize = '1 MiB'\nfiles = 9\n"],
    ]
    .concat();
    let found = names(&more).unwrap();
    let expected = [
        "100 files 10 MB B",
        "100 files 10 MB A",
        "100 files 1 MiB A",
        "9 files 1 MiB A",
    ];
    let expected = expected.map(|words| format!("1M/30ms smbclient folder {words}"));
    assert_eq!(found, expected);

    // What was never there twice is called as before.
    let alone = names(&[amounts[0], amounts[2]]).unwrap();
    let expected = ["B", "A", "T"].map(|config| format!("1M/30ms smbclient folder {config}"));
    assert_eq!(alone, expected);
    let twice = names(&[amounts[0], amounts[1], amounts[1]]).unwrap_err();
    let told = "p, line 21: cells: `1M/30ms smbclient folder 1 MiB A` is there twice";
    assert_eq!(twice.to_string(), told);
}

/// Results that are kept know their cells by name.
#[test]
fn cells_of_kept_results_are_called_as_they_were() {
    let kept = include_str!("../../../../docs/results/wx2006-cifs.json");
    let kept: crate::measurement::Measurement = serde_json::from_str(kept).unwrap();
    let plan = Plan::parse("kept", &kept.plan).unwrap();
    let names: Vec<_> = plan.cells.iter().map(Cell::name).collect();
    assert_eq!(names.len(), 80);
    for name in names {
        let is_it = |row: &crate::measurement::Row| {
            row.metric == "throughput" && format!("{} {}", row.scenario, row.config) == name
        };
        assert_eq!(
            kept.rows.iter().filter(|row| is_it(row)).count(),
            1,
            "{name}"
        );
    }
}
