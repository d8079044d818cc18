//! What was asked on the command line and in the environment.

/// How to run.
#[derive(Debug)]
pub struct Options {
    /// Every pattern must be found in a job's name.
    only: Vec<String>,
    /// One run each.
    pub seeds: Vec<u64>,
    /// Threads.
    pub jobs: usize,
    /// Print every second.
    pub trace: bool,
    /// Print names only.
    pub list: bool,
}

impl Options {
    /// Reads arguments; those that cargo itself adds are passed over.
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let environment = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Self {
            only: environment("ONLY").into_iter().collect(),
            seeds: up_to(number("SEEDS", environment("SEEDS"), 1)?),
            jobs: usize::try_from(number("JOBS", environment("JOBS"), processors as u64)?)
                .unwrap_or(processors),
            trace: false,
            list: false,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || Some(arguments.next().unwrap_or_default());
            match argument.as_str() {
                "--only" => options.only.extend(value()),
                "--seeds" => options.seeds = up_to(number("--seeds", value(), 1)?),
                "--seed" => options.seeds = vec![number("--seed", value(), 1)?],
                "--jobs" => {
                    options.jobs = number("--jobs", value(), 1)? as usize;
                }
                "--trace" => options.trace = true,
                "--list" => options.list = true,
                "--bench" => {}
                option if option.starts_with('-') => {
                    return Err(format!(
                        "unknown option {option}; there are --only, --seeds, --seed, --jobs, \
                         --trace and --list"
                    ));
                }
                word => options.only.push(word.to_owned()),
            }
        }
        Ok(options)
    }

    /// Whether a job of this name was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.iter().all(|pattern| holds(name, pattern))
    }
}

fn up_to(count: u64) -> Vec<u64> {
    (1..=count.max(1)).collect()
}

fn number(what: &str, text: Option<String>, default: u64) -> Result<u64, String> {
    match text {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| format!("{what} needs a whole number, not `{text}`")),
    }
}

/// The pieces between `*` occur one after the other; a word begins at the
/// start of the name or after a blank, so that `5M` is not found in `155M`.
fn holds(name: &str, pattern: &str) -> bool {
    let mut rest = name;
    for (nth, piece) in pattern.split('*').enumerate() {
        let found = rest.match_indices(piece).map(|(at, _)| at).find(|at| {
            let before = rest[..*at].chars().next_back();
            nth > 0
                || piece.is_empty()
                || before.is_none_or(|before| !before.is_ascii_alphanumeric() && before != '.')
        });
        let Some(at) = found else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}
