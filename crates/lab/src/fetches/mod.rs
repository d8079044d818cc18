//! `farhaul lab reduce`: the first rows of F5's brief on real packets. A disk
//! image is fetched by HTTP, FTP and CIFS over two links at six levels of
//! optimisation; random data and single bytes show what reduction costs.

mod client;
mod echo;
mod ftp;
mod random;
mod row;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::demo::progress::Progress;
use crate::demo::servers::{self, Folders};
use crate::deployment::{Lab, require_program};
use crate::error::{During, LabError};
use crate::gateways::GatewayOverrides;
use crate::measurement::{Measurement, Op, Row, median};
use crate::topology::LabOptions;

use client::{Wanted, fetch};
use row::{Fetched, LINKS, Level, Link, Protocol};

/// Files as the servers offer them.
const IMAGE: &str = "image-1.bin";
const EDITED: &str = "image-2.bin";
const START: &str = "start.bin";
const PART: &str = "part.bin";
const RANDOM: &str = "random.bin";
/// Of the image, fetched directly: the whole would take hours.
const START_BYTES: u64 = 16_000_000;
/// Of the image, fetched without compression.
const PART_BYTES: u64 = 512_000_000;
/// How long a fetch may take.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Gateways that were started are left alone for so long: they get the memory ready that their index needs.
const READY: Duration = Duration::from_secs(3);
/// Between a pass and the next, for the last acknowledgements.
const PAUSE: Duration = Duration::from_secs(1);
/// An echo may take so much longer (ms).
const ECHO_MS: f64 = 1.0;

/// How the measurement is run.
#[derive(Debug, Clone)]
pub struct FetchesOptions {
    /// Name of its labs.
    pub name: String,
    /// The `farhaul` program.
    pub program: PathBuf,
    /// A disk image and a later version of it.
    pub images: [PathBuf; 2],
    /// Only rows whose name contains this.
    pub only: Option<String>,
    /// Memory of each gateway for what has passed; `None` is enough for both images.
    pub memory_bytes: Option<u64>,
    /// Seed of the links' losses.
    pub seed: u64,
    /// How long all of it may take: what is not done by then is a failed row.
    pub within: Duration,
    /// Where `reduce-live.json` goes.
    pub out: PathBuf,
    /// Set from outside to end early.
    pub stop: Arc<AtomicBool>,
}

/// Runs it and writes `reduce-live.json` after every group of rows. A group that cannot be measured is a failed row.
pub fn run(options: &FetchesOptions) -> Result<Measurement, LabError> {
    for program in ["curl", "smbclient"] {
        require_program(program, program)?;
    }
    let only = options.only.as_deref().unwrap_or_default();
    let wanted = wanted(only);
    if wanted.is_empty() {
        return Err(LabError::Invalid {
            what: format!("`{only}`"),
            why: "no row has that in its name".to_owned(),
        });
    }
    let place = Place::make()?;
    let image_bytes = place.fill(&options.images)?;
    let memory_bytes = options.memory_bytes.unwrap_or(6 * image_bytes);
    let stages = wanted.iter().map(|group| group.stages()).sum();
    let mut fetches = Fetches {
        until: Instant::now() + options.within,
        image_bytes,
        options,
        place: &place,
        memory_bytes,
        progress: Progress::new(stages),
        measurement: Measurement::new(
            "reduce-live",
            plan(&options.images, image_bytes, memory_bytes),
            options.seed,
        ),
        lan: BTreeMap::new(),
    };
    for group in &wanted {
        let failed = match Instant::now() < fetches.until {
            true => fetches.group(group).err(),
            false => Some(LabError::Invalid {
                what: "the time for all of it".to_owned(),
                why: "it was up before this could begin".to_owned(),
            }),
        };
        if matches!(failed, Some(LabError::Interrupted)) {
            return Err(LabError::Interrupted);
        }
        if let Some(error) = failed {
            let row = Row::failed(
                &group.name(),
                "all",
                "effective",
                "Mbit/s",
                error.to_string(),
            );
            fetches.measurement.rows.push(row);
        }
        fetches.measurement.write(&options.out)?;
    }
    Ok(fetches.measurement)
}

fn plan(images: &[PathBuf; 2], image_bytes: u64, memory_bytes: u64) -> String {
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    format!(
        "{} ({image_bytes} bytes), then {} as its edited version, from page cache to disk, by curl from nginx, curl from \
         vsftpd and smbclient from Samba, every byte compared; end hosts cubic; links {} and {}; direct: the first \
         {START_BYTES} bytes; transport: the first {PART_BYTES}; gateways begin anew for each protocol and level, {} s \
         before the fetch, except for the second pass and the edited image; {memory_bytes} bytes of [store] memory at each; time is that of the \
         client program from start to end; lan: the same fetch without link and gateways, the faster of two; random: fresh bytes for {} s of the \
         link, {} times without reduction and with it in turn; gateways_cpu: processor time of both; wire_share: UDP payload that both gateways sent, \
         from the start of the fetch to {} ms after its end, for each byte of the file: records, framing, repairs, acknowledgements, what the \
         gateways say of records, and the client's own requests (one of HTTP, a few of FTP; of CIFS those of the session and each READ that the \
         gateways do not answer themselves)",
        name(&images[0]),
        name(&images[1]),
        LINKS[0].words(),
        LINKS[1].words(),
        READY.as_secs(),
        random::SECONDS,
        random::PAIRS,
        client::LAST_WORDS.as_millis(),
    )
}

/// What shares a lab.
#[derive(Debug, Clone, Copy)]
enum Group {
    Lan(Protocol),
    Image(Link, Protocol),
    Random(Link),
    Echo(Link),
}

impl Group {
    fn stages(self) -> usize {
        match self {
            Self::Lan(_) => 2,
            Self::Image(..) => 6,
            Self::Random(_) => 2 * random::PAIRS,
            Self::Echo(_) => 2,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Lan(protocol) => format!("lan/{}", protocol.word()),
            Self::Image(link, protocol) => format!("{}/{}", link.name, protocol.word()),
            Self::Random(link) => format!("{}/random", link.name),
            Self::Echo(link) => format!("{}/echo", link.name),
        }
    }
}

/// Groups whose name contains the text, and the bare LAN for those that need it.
fn wanted(only: &str) -> Vec<Group> {
    let of_link = |link: Link| {
        let images = Protocol::ALL.map(|protocol| Group::Image(link, protocol));
        images
            .into_iter()
            .chain([Group::Random(link), Group::Echo(link)])
    };
    let groups: Vec<_> = LINKS.into_iter().flat_map(of_link).collect();
    let groups = groups
        .into_iter()
        .filter(|group| group.name().contains(only));
    let groups: Vec<_> = groups.collect();
    let needs = |protocol: &Protocol| {
        let uses = |group: &Group| matches!(group, Group::Image(_, its) if its == protocol);
        groups.iter().any(uses)
    };
    let lans = Protocol::ALL.into_iter().filter(needs).map(Group::Lan);
    lans.chain(groups.iter().copied()).collect()
}

struct Fetches<'a> {
    options: &'a FetchesOptions,
    until: Instant,
    image_bytes: u64,
    place: &'a Place,
    memory_bytes: u64,
    progress: Progress,
    measurement: Measurement,
    /// Mbit/s by protocol, without link.
    lan: BTreeMap<&'static str, f64>,
}

impl Fetches<'_> {
    fn group(&mut self, group: &Group) -> Result<(), LabError> {
        match *group {
            Group::Lan(protocol) => self.on_lan(protocol),
            Group::Image(link, protocol) => self.image(link, protocol),
            Group::Random(link) => self.random(link),
            Group::Echo(link) => self.echo(link),
        }
    }

    fn on_lan(&mut self, protocol: Protocol) -> Result<(), LabError> {
        let lab = self.lab(None)?;
        let scenario = Group::Lan(protocol).name();
        let mut fetched = self.one(&lab, &scenario, (protocol, IMAGE))?;
        // The first one warms caches; the faster one is the harder comparison.
        if let Ok(first) = &mut fetched
            && let Ok(second) = self.one(&lab, &scenario, (protocol, IMAGE))?
            && second.seconds < first.seconds
        {
            *first = second;
        }
        let row = match fetched {
            Ok(fetched) => {
                self.lan.insert(protocol.word(), fetched.mbit_per_s());
                let mbit = fetched.mbit_per_s();
                Row::of(&scenario, "direct", "effective", "Mbit/s", mbit)
                    .detail("bytes", fetched.bytes)
                    .detail("seconds", fetched.seconds)
            }
            Err(error) => Row::failed(&scenario, "direct", "effective", "Mbit/s", error),
        };
        self.measurement.rows.push(row);
        lab.down()
    }

    /// All six levels, with gateways that begin anew where the level asks for it.
    fn image(&mut self, link: Link, protocol: Protocol) -> Result<(), LabError> {
        let mut lab = self.lab(Some(&link))?;
        let mut direct = None;
        let levels = [
            (Level::Direct, START),
            (Level::Transport, PART),
            (Level::Compression, IMAGE),
            (Level::First, IMAGE),
            (Level::Second, IMAGE),
            (Level::Edited, EDITED),
        ];
        for (level, file) in levels {
            if !matches!(level, Level::Second | Level::Edited) {
                self.gateways(&mut lab, level)?;
            }
            let what = format!("{}/{}", link.name, protocol.word());
            let label = format!("{what}, {}", level.word());
            let fetched = self.one(&lab, &label, (protocol, file))?;
            let rows = match fetched {
                Ok(fetched) => {
                    let mbit = fetched.mbit_per_s();
                    if level == Level::Direct {
                        direct = Some(mbit);
                    }
                    let lan = self.lan.get(protocol.word()).copied();
                    let mut rows = row::rows((&link, protocol, level), fetched, direct, lan);
                    if fetched.bytes < self.image_bytes && level != Level::Edited {
                        for row in &mut rows {
                            let whole = self.image_bytes.into();
                            row.detail.insert("prefix_of_bytes".to_owned(), whole);
                        }
                    }
                    rows
                }
                Err(error) => {
                    vec![Row::failed(
                        &what,
                        level.word(),
                        "effective",
                        "Mbit/s",
                        error,
                    )]
                }
            };
            self.measurement.rows.extend(rows);
            sleep(PAUSE);
        }
        lab.down()
    }

    /// Ends the gateways that run and starts those of a level.
    fn gateways(&self, lab: &mut Lab, level: Level) -> Result<(), LabError> {
        lab.gateways_down()?;
        if let Some(text) = level.configuration(self.memory_bytes) {
            lab.gateways_up(&GatewayOverrides::both(&text)?)?;
            sleep(READY);
        }
        Ok(())
    }

    /// Single bytes, without and with reduction.
    fn echo(&mut self, link: Link) -> Result<(), LabError> {
        let mut lab = self.lab(Some(&link))?;
        let scenario = Group::Echo(link).name();
        let mut without = None;
        for level in [Level::Transport, Level::First] {
            self.check_stop()?;
            self.gateways(&mut lab, level)?;
            self.progress
                .begin(&format!("{scenario}, {}", level.word()));
            let times_ms = echo::measure(&lab)?;
            let row = Row::of_samples(&scenario, level.word(), "echo", "ms", &times_ms);
            let middle_ms = median(&times_ms).unwrap_or(f64::NAN);
            self.progress.end(&format!("{middle_ms:.2} ms"));
            self.measurement
                .rows
                .push(match without.replace(middle_ms) {
                    Some(before_ms) => row.target(Op::AtMost, before_ms + ECHO_MS),
                    None => row,
                });
        }
        lab.down()
    }

    fn one(
        &mut self,
        lab: &Lab,
        label: &str,
        (protocol, file): (Protocol, &str),
    ) -> Result<Result<Fetched, String>, LabError> {
        self.check_stop()?;
        self.progress.begin(label);
        let wanted = Wanted {
            protocol,
            file,
            patience: PATIENCE.min(self.until.saturating_duration_since(Instant::now())),
        };
        let folders = self.place.folders(lab);
        let fetched = fetch(
            lab,
            &folders,
            wanted,
            &mut self.progress,
            &self.options.stop,
        )?;
        match &fetched {
            Ok(fetched) => self
                .progress
                .end(&format!("{:.1} Mbit/s", fetched.mbit_per_s())),
            Err(error) => self.progress.end(&format!("failed: {error}")),
        }
        Ok(fetched)
    }

    fn lab(&self, link: Option<&Link>) -> Result<Lab, LabError> {
        let mut options = LabOptions::new(&self.options.name, &self.options.program);
        options.link = link.map(Link::words);
        options.seed = self.options.seed;
        let mut lab = Lab::up(&options)?;
        lab.interrupt_by(Arc::clone(&self.options.stop));
        let folders = self.place.folders(&lab);
        servers::start_on(&mut lab, &folders)?;
        ftp::start(&mut lab, &folders)?;
        Ok(lab)
    }

    fn check_stop(&self) -> Result<(), LabError> {
        match self.options.stop.load(Ordering::Relaxed) {
            true => Err(LabError::Interrupted),
            false => Ok(()),
        }
    }
}

/// A folder on disk for what is offered and fetched. The lab's own lies in
/// memory, and the images may lie where a server's guests may not look.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Self, LabError> {
        let name = format!("farhaul-fetches-{}", std::process::id());
        let place = Self(Path::new("/var/tmp").join(name));
        for folder in ["offered", "fetched"] {
            servers::make_folder(&place.0.join(folder))?;
        }
        Ok(place)
    }

    fn folders(&self, lab: &Lab) -> Folders {
        Folders {
            offered: self.0.join("offered"),
            fetched: self.0.join("fetched"),
            smb_client_config: lab.sandbox().folder().join("smb-client.conf"),
            smb_server_config: lab.sandbox().folder().join("smbd-state/smb.conf"),
        }
    }

    /// Copies the images and their parts; the first one's size.
    fn fill(&self, images: &[PathBuf; 2]) -> Result<u64, LabError> {
        let offered = self.0.join("offered");
        let copy = |from: &Path, name: &str, bytes: u64| {
            let part = File::open(from).map(|file| file.take(bytes));
            let copied = part.and_then(|mut part| {
                std::io::copy(&mut part, &mut File::create(offered.join(name))?)
            });
            copied.during(|| format!("copying {} to {}", from.display(), offered.display()))
        };
        let [image, edited] = images;
        copy(edited, EDITED, u64::MAX)?;
        copy(image, START, START_BYTES)?;
        copy(image, PART, PART_BYTES)?;
        copy(image, IMAGE, u64::MAX)
    }

    /// Fresh random bytes to offer.
    fn random(&self, bytes: u64) -> Result<(), LabError> {
        let path = self.0.join("offered").join(RANDOM);
        let random = File::open("/dev/urandom").map(|file| file.take(bytes));
        let written = random.and_then(|mut random| {
            let mut file = File::create(&path)?;
            std::io::copy(&mut random, &mut file)?;
            file.flush()
        });
        written.during(|| format!("writing {}", path.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed lies in a folder for what is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_picked_by_name_and_bring_their_lan_along() {
        let names =
            |only: &str| -> Vec<_> { wanted(only).iter().map(|group| group.name()).collect() };
        assert_eq!(names("").len(), 3 + 2 * 5);
        assert_eq!(names("T3/http"), ["lan/http", "T3/http"]);
        assert_eq!(names("echo"), ["T3/echo", "OC3/echo"]);
        assert!(names("no such row").is_empty());
    }
}
