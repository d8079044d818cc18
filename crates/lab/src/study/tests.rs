//! Runs of plans on nothing: what is done again, what is kept, and where a run goes on that was stopped.

use super::rows::tests::sample;
use super::*;

/// Whatever a test says comes of each copy, by how many there were before.
struct Fake<'a> {
    script: &'a Script<'a>,
    is_up: bool,
}

struct Script<'a> {
    give: &'a (dyn Fn(usize) -> Result<Sample, LabError> + Sync),
    /// Names of the cells whose copies were begun.
    begun: Mutex<Vec<String>>,
}

impl Bench for Fake<'_> {
    fn up(&mut self, _: &Cell) -> Result<(), LabError> {
        assert!(!self.is_up, "the one before is there still");
        self.is_up = true;
        Ok(())
    }

    fn copy(&mut self, cell: &Cell, _: &mut Progress) -> Result<Sample, LabError> {
        assert!(self.is_up);
        let mut begun = self.script.begun.lock().unwrap();
        begun.push(cell.name());
        (self.script.give)(begun.len() - 1)
    }

    fn down(&mut self) -> Result<(), LabError> {
        self.is_up = false;
        Ok(())
    }
}

/// A folder for documents that goes away.
struct Out(PathBuf);

impl Out {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farhaul-{test}-{}", std::process::id()));
        // Of an earlier test of that number.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn options(&self, resume: bool) -> StudyOptions {
        StudyOptions {
            name: "x".to_owned(),
            program: PathBuf::new(),
            only: None,
            resume,
            jobs: 1,
            out: self.0.clone(),
            stop: Arc::default(),
        }
    }

    /// Rows of cells in the document, if there is one.
    fn rows(&self, plan: &Plan) -> Vec<Row> {
        let path = self.0.join(format!("{}.json", plan.name));
        let Ok(text) = std::fs::read_to_string(path) else {
            return Vec::new();
        };
        let document: Measurement = serde_json::from_str(&text).unwrap();
        cells(&document)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cells(document: &Measurement) -> Vec<Row> {
    let rows = document.rows.iter();
    rows.filter(|row| row.metric == "throughput")
        .cloned()
        .collect()
}

/// Cells of two links, two samples each.
fn plan() -> Plan {
    let text = "name = 'fake'\nrepeat = 2\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms', '30ms']\n\
                client = ['smbclient']\nconfig = ['B', 'A']\nsize = '1 MiB'\n";
    Plan::parse("p", text).unwrap()
}

/// A run of a plan, and the cells whose copies it began.
fn run_fake(
    plan: &Plan,
    options: &StudyOptions,
    give: &(dyn Fn(usize) -> Result<Sample, LabError> + Sync),
) -> (Result<Measurement, LabError>, Vec<String>) {
    let script = Script {
        give,
        begun: Mutex::default(),
    };
    let make = |_: String| Fake {
        script: &script,
        is_up: false,
    };
    let ended = run_on(plan, options, make);
    (ended, script.begun.into_inner().unwrap())
}

#[test]
fn a_copy_that_was_disturbed_is_done_again_and_the_third_is_kept() {
    let out = Out::new("attempts");
    let text = "name = 'fake'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms']\nclient = ['smbclient']\n\
                config = ['B']\nsize = '1 MiB'\n";
    let plan = Plan::parse("p", text).unwrap();
    for (disturbed, attempts, remark) in [
        (0, 1, None),
        (1, 2, None),
        (2, 3, None),
        (9, 3, Some("the link was late")),
    ] {
        let give = |before: usize| {
            let doubts: &[&str] = match before < disturbed {
                true => &["the link was late"],
                false => &[],
            };
            Ok(sample(&[], doubts))
        };
        let (document, begun) = run_fake(&plan, &out.options(false), &give);
        let rows = cells(&document.unwrap());
        let [row] = rows.as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!(begun.len(), attempts, "{disturbed}");
        assert_eq!(row.detail["attempts"], attempts, "{disturbed}");
        let discarded = serde_json::json!(vec![7.0; attempts - 1]);
        assert_eq!(row.detail["discarded"], discarded, "{disturbed}");
        assert_eq!((row.value, row.n), (Some(7.0), Some(1)), "{disturbed}");
        assert_eq!(row.error.as_deref(), remark, "{disturbed}");
    }
}

/// It would be wrong again.
#[test]
fn a_copy_that_is_wrong_or_failed_is_not_done_again() {
    let out = Out::new("faults");
    let plan = plan();
    for is_failed in [false, true] {
        let give = |before: usize| match (before, is_failed) {
            (0, false) => Ok(sample(&["it differs"], &[])),
            (0, true) => Err(LabError::Invalid {
                what: "a gateway".to_owned(),
                why: "it is gone".to_owned(),
            }),
            _ => Ok(sample(&[], &[])),
        };
        let (document, begun) = run_fake(&plan, &out.options(false), &give);
        assert_eq!(begun.len(), 8, "two for each of four cells");
        let rows = cells(&document.unwrap());
        let wrong: Vec<_> = rows.iter().filter(|row| row.error.is_some()).collect();
        assert_eq!((rows.len(), wrong.len()), (4, 1));
        assert_eq!((wrong[0].ok, wrong[0].value), (Some(false), Some(7.0)));
    }
}

/// How a copy ends during which the operator stops the run.
#[derive(Debug, Clone, Copy)]
enum Stopped {
    /// It says so.
    Heard,
    /// Its programs were stopped by the same key.
    Broken,
    /// It was done just then.
    Done,
}

impl Stopped {
    fn end(self) -> Result<Sample, LabError> {
        match self {
            Self::Heard => Err(LabError::Interrupted),
            Self::Broken => Err(LabError::Invalid {
                what: "the client".to_owned(),
                why: "it was ended by a signal".to_owned(),
            }),
            Self::Done => Ok(sample(&[], &[])),
        }
    }
}

#[test]
fn a_run_that_is_stopped_keeps_what_is_whole_and_goes_on_there() {
    let plan = plan();
    let names: Vec<String> = plan.cells.iter().map(Cell::name).collect();
    for (at, how) in [
        (0, Stopped::Heard),
        (2, Stopped::Broken),
        (3, Stopped::Heard),
        (3, Stopped::Done),
        (5, Stopped::Broken),
        (6, Stopped::Done),
    ] {
        let out = Out::new("stopped");
        let options = out.options(false);
        let give = |before: usize| match before == at {
            true => {
                options.stop.store(true, Ordering::Relaxed);
                how.end()
            }
            false => Ok(sample(&[], &[])),
        };
        let (ended, begun) = run_fake(&plan, &options, &give);
        let told = format!("{how:?} at {at}");
        assert!(matches!(ended, Err(LabError::Interrupted)), "{told}");
        assert_eq!(begun.len(), at + 1, "{told}: it went on");
        // Two copies a cell; none is a row that is not whole.
        let copies = at + usize::from(matches!(how, Stopped::Done));
        let kept = out.rows(&plan);
        assert_eq!(kept.len(), copies / 2, "{told}");
        let is_whole = |row: &Row| (row.n, row.ok, row.error.as_ref()) == (Some(2), None, None);
        assert!(kept.iter().all(is_whole), "{told}: {kept:?}");

        let (document, begun) = run_fake(&plan, &out.options(true), &|_| Ok(sample(&[], &[])));
        let left = &names[copies / 2..];
        let expected: Vec<_> = left
            .iter()
            .flat_map(|name| [name.clone(), name.clone()])
            .collect();
        assert_eq!(begun, expected, "{told}");
        let rows = cells(&document.unwrap());
        assert_eq!(rows.len(), names.len(), "{told}");
        assert_eq!(rows[..kept.len()], kept, "{told}: changed");
        assert_eq!(rows, out.rows(&plan), "{told}");
    }
}

#[test]
fn only_a_whole_plan_is_begun_anew() {
    let out = std::env::temp_dir().join(format!("farhaul-begin-{}", std::process::id()));
    let options = |only: Option<&str>, resume| StudyOptions {
        name: "x".to_owned(),
        program: PathBuf::new(),
        only: only.map(str::to_owned),
        resume,
        jobs: 1,
        out: out.clone(),
        stop: Arc::default(),
    };
    let begun = |options: StudyOptions, plan: &str| begin(Measurement::new("p", plan, 1), &options);
    assert!(begun(options(Some("A"), true), "text").is_ok_and(|begun| begun.rows.is_empty()));
    let mut kept = Measurement::new("p", "text", 1);
    kept.rows
        .push(Row::of("s", "A", "throughput", "KiB/s", 1.0));
    kept.write(&out).unwrap();
    let rows = [
        (None, false),
        (Some("B"), false),
        (Some("B"), true),
        (None, true),
    ]
    .map(|(only, resume)| {
        begun(options(only, resume), "text")
            .map(|begun| begun.rows.len())
            .ok()
    });
    let other = begun(options(Some("B"), false), "another text").unwrap_err();
    std::fs::remove_dir_all(&out).unwrap();
    assert_eq!(rows, [Some(0), Some(1), Some(1), Some(1)]);
    assert!(
        other.to_string().contains("another version of the plan"),
        "{other}"
    );
}
