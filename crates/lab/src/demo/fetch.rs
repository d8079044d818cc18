//! What the client fetches, and one fetch of it: timed, watched and compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::files::Offered;
use super::progress::Progress;
use super::servers::{Folders, HTTP_PORT, SHARE, SMB_PORT};
use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::topology::SERVER;

/// How often a fetch is looked at: the resolution of its duration.
const LOOK: Duration = Duration::from_millis(5);
/// How often progress is taken and, until it is known, the server's socket is
/// looked at.
const WATCH: Duration = Duration::from_millis(100);
/// Parallel connections of the page, as browsers open per HTTP/1.1 host.
const PAGE_CONNECTIONS: usize = 6;

/// The program that fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// curl, one connection.
    Curl,
    /// curl with as many connections as a browser, kept alive.
    CurlParallel,
    /// smbclient.
    Smbclient,
}

/// Something to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Short stable name for results.
    pub key: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// How many files.
    pub files: usize,
    /// Size of each.
    pub file_bytes: u64,
    /// By which program.
    pub client: Client,
    /// How long it may take.
    pub patience: Duration,
}

/// What the demo fetches.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        key: "http-4MB",
        title: "4 MB over HTTP",
        files: 1,
        file_bytes: 4_000_000,
        client: Client::Curl,
        patience: Duration::from_secs(150),
    },
    Workload {
        key: "http-page-100x30kB",
        title: "page, 100 x 30 kB over HTTP",
        files: 100,
        file_bytes: 30_000,
        client: Client::CurlParallel,
        patience: Duration::from_secs(90),
    },
    Workload {
        key: "smb-2MB",
        title: "2 MB over SMB",
        files: 1,
        file_bytes: 2_000_000,
        client: Client::Smbclient,
        patience: Duration::from_secs(120),
    },
];

impl Workload {
    /// All bytes of it.
    pub fn size_bytes(&self) -> u64 {
        self.files as u64 * self.file_bytes
    }

    /// The client, in words for the result.
    pub fn client_words(&self) -> String {
        match self.client {
            Client::Curl => "curl, 1 connection".to_owned(),
            Client::CurlParallel => format!(
                "curl --parallel --parallel-immediate --parallel-max {PAGE_CONNECTIONS}, HTTP/1.1 keep-alive"
            ),
            Client::Smbclient => "smbclient get, anonymous".to_owned(),
        }
    }

    fn port(&self) -> u16 {
        match self.client {
            Client::Curl | Client::CurlParallel => HTTP_PORT,
            Client::Smbclient => SMB_PORT,
        }
    }
}

/// One fetch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// From the start of the client program to its end, in seconds.
    pub seconds: f64,
    /// Every file arrived with the SHA-256 it was offered with.
    pub sha256_equal: bool,
    /// Congestion control of the server's accepted socket, as the kernel says.
    pub congestion_control: Option<String>,
    /// The client's address, as the server saw it.
    pub client_seen: Option<String>,
    /// Connections the client made, where it says.
    pub connections: Option<u64>,
    /// The client ended and said that all is well.
    pub is_done: bool,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Fetches fresh files once. A client that fails is an [`Outcome`] with an
/// error; only what prevents the attempt is an `Err`.
pub fn fetch(
    lab: &Lab,
    folders: &Folders,
    workload: &Workload,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Outcome, LabError> {
    empty(&folders.offered)?;
    empty(&folders.fetched)?;
    let offered = (0..workload.files)
        .map(|at| {
            Offered::new(
                &folders.offered,
                &format!("{at:03}.bin"),
                workload.file_bytes,
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    let output = lab.sandbox().folder().join("client.out");
    let file = File::create(&output).during(|| format!("writing {}", output.display()))?;
    let errors = file
        .try_clone()
        .during(|| format!("writing {}", output.display()))?;
    let mut command = client_command(lab, folders, workload, &offered)?;
    let start = Instant::now();
    let child = command
        .stdin(std::process::Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .during(|| "starting the client".to_owned())?;
    let mut outcome = Outcome::default();
    let status = watch(lab, workload, child, start, &mut outcome, progress, stop)?;
    outcome.seconds = start.elapsed().as_secs_f64();
    let said = fs::read_to_string(&output).unwrap_or_default();
    outcome.connections = connections(workload, &said);
    let fetched = |file: &Offered| folders.fetched.join(&file.name);
    outcome.sha256_equal = offered.iter().all(|file| file.is_equal(&fetched(file)));
    outcome.is_done = status.is_some_and(|status| status.success());
    outcome.error = match status {
        None => Some(format!("not done after {} s", workload.patience.as_secs())),
        Some(status) if !status.success() => Some(format!(
            "the client failed ({status}): {}",
            last_line(&said)
        )),
        Some(_) if !outcome.sha256_equal => Some("what arrived is not what was offered".to_owned()),
        Some(_) => None,
    };
    Ok(outcome)
}

/// Waits for the client's end; `None` when it ran out of time and was killed.
fn watch(
    lab: &Lab,
    workload: &Workload,
    mut child: Child,
    start: Instant,
    outcome: &mut Outcome,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Option<ExitStatus>, LabError> {
    let mut next_watch = start + WATCH;
    let received_before = received_bytes(lab);
    loop {
        if let Some(status) = child
            .try_wait()
            .during(|| "waiting for the client".to_owned())?
        {
            // Ctrl-C reaches the client, too, and perhaps sooner than us.
            if !status.success() {
                sleep(WATCH);
            }
            return match stop.load(Ordering::Relaxed) {
                true => Err(LabError::Interrupted),
                false => Ok(Some(status)),
            };
        }
        let is_late = start.elapsed() > workload.patience;
        if is_late || stop.load(Ordering::Relaxed) {
            child
                .kill()
                .and_then(|()| child.wait())
                .during(|| "ending the client".to_owned())?;
            return if is_late {
                Ok(None)
            } else {
                Err(LabError::Interrupted)
            };
        }
        if Instant::now() >= next_watch {
            next_watch += WATCH;
            let received = received_bytes(lab).saturating_sub(received_before) as f64;
            // Nearly 5 % of what arrives is headers; the last percent is for the end.
            progress.at((received / 1.05 / workload.size_bytes() as f64).min(0.99));
            if outcome.congestion_control.is_none() {
                look_at_server(lab, workload.port(), outcome);
            }
        }
        sleep(LOOK);
    }
}

/// Reads the server's accepted socket back from the kernel.
fn look_at_server(lab: &Lab, port: u16, outcome: &mut Outcome) {
    let filter = format!("sport = :{port}");
    let Ok(shown) = lab
        .server()
        .and_then(|server| server.exec(&["ss", "-tinH", &filter]))
    else {
        return;
    };
    if let Some((client, control)) = parse_ss(&shown) {
        outcome.client_seen = Some(client);
        outcome.congestion_control = Some(control);
    }
}

/// The first socket's remote address and congestion control in what
/// `ss -tinH` prints: a line of addresses, then an indented one of options.
pub(crate) fn parse_ss(shown: &str) -> Option<(String, String)> {
    let mut lines = shown.lines();
    let remote = lines.next()?.split_whitespace().nth(4)?;
    let (address, _port) = remote.rsplit_once(':')?;
    let address = address
        .trim_matches(['[', ']'])
        .trim_start_matches("::ffff:");
    let before_it = ["ts", "sack", "ecn", "ecnseen", "fastopen"];
    let control = lines
        .next()?
        .split_whitespace()
        .find(|word| !before_it.contains(word))?;
    Some((address.to_owned(), control.to_owned()))
}

fn client_command(
    lab: &Lab,
    folders: &Folders,
    workload: &Workload,
    offered: &[Offered],
) -> Result<Command, LabError> {
    let client = lab.client()?;
    let first = offered
        .first()
        .map(|file| file.name.as_str())
        .unwrap_or_default();
    let first_fetched = folders.fetched.join(first);
    Ok(match workload.client {
        Client::Curl => {
            let mut command = client.command("curl");
            command.args(["-q", "-sS", "--fail", "--noproxy", "*", "-o"]);
            command
                .arg(first_fetched)
                .arg(format!("http://{SERVER}/{first}"));
            command
        }
        Client::CurlParallel => {
            let list = page_list(lab, folders, offered)?;
            let mut command = client.command("curl");
            command.args([
                "-q",
                "-sS",
                "--fail",
                "--noproxy",
                "*",
                "--parallel",
                "--parallel-immediate",
            ]);
            command.args(["--parallel-max", &PAGE_CONNECTIONS.to_string()]);
            command
                .args(["-w", "connects %{num_connects}\n", "-K"])
                .arg(list);
            command
        }
        Client::Smbclient => {
            let mut command = client.command("smbclient");
            // It asks for up to 8 MB at once and by default gives each answer 20 s.
            let timeout = workload.patience.as_secs().to_string();
            command
                .arg(format!("//{SERVER}/{SHARE}"))
                .args(["-N", "-t", &timeout, "-s"]);
            command.arg(&folders.smb_client_config);
            command.args(["-c", &format!("get {first} {}", first_fetched.display())]);
            command
        }
    })
}

/// curl's list of the page's objects.
fn page_list(lab: &Lab, folders: &Folders, offered: &[Offered]) -> Result<PathBuf, LabError> {
    let path = lab.sandbox().folder().join("page.curl");
    let entry = |file: &Offered| {
        let output = folders.fetched.join(&file.name);
        format!(
            "url = \"http://{SERVER}/{}\"\noutput = \"{}\"\n",
            file.name,
            output.display()
        )
    };
    let text: String = offered.iter().map(entry).collect();
    fs::write(&path, text).during(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn connections(workload: &Workload, said: &str) -> Option<u64> {
    if workload.client != Client::CurlParallel {
        return None;
    }
    let counts = said
        .lines()
        .filter_map(|line| line.strip_prefix("connects "));
    Some(counts.filter_map(|count| count.parse::<u64>().ok()).sum())
}

fn last_line(said: &str) -> &str {
    said.lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
}

fn empty(folder: &Path) -> Result<(), LabError> {
    let entries = fs::read_dir(folder).during(|| format!("reading {}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        fs::remove_file(&path).during(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// Bytes the client's interface has received. Files would tell less: smbclient
/// writes only when a whole request of megabytes has been answered.
fn received_bytes(lab: &Lab) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let shown = lab
        .client()
        .and_then(|client| client.within(read))
        .unwrap_or_default();
    parse_received(&shown)
}

/// First column of `eth0` in `/proc/net/dev`.
fn parse_received(shown: &str) -> u64 {
    let line = shown
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("eth0:"));
    line.and_then(|counters| counters.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_socket_is_read_from_what_ss_prints() {
        let shown = "ESTAB 0 115840 [::ffff:10.2.0.2]:80 [::ffff:10.1.0.2]:51234\n\
                     \t ts sack cubic wscale:7,7 rto:404 rtt:200.1/0.1 cwnd:10\n\
                     ESTAB 0 0 10.2.0.2:80 10.1.0.3:1\n\t bbr wscale:7,7\n";
        assert_eq!(
            parse_ss(shown),
            Some(("10.1.0.2".to_owned(), "cubic".to_owned()))
        );
        assert_eq!(
            parse_ss("ESTAB 0 0 10.2.0.2:445 10.1.0.2:5\n\t reno rto:1\n")
                .unwrap()
                .1,
            "reno"
        );
        assert_eq!(parse_ss(""), None);
        assert_eq!(parse_ss("ESTAB 0 0 10.2.0.2:445 10.1.0.2:5\n"), None);
    }

    #[test]
    fn received_bytes_are_the_first_counter_of_the_interface() {
        let shown = "Inter-|   Receive\n face |bytes    packets\n    lo:       9 1 0\n  eth0: 1234567 8 0 0\n";
        assert_eq!(parse_received(shown), 1_234_567);
        assert_eq!(parse_received(""), 0);
    }

    #[test]
    fn connections_of_the_page_are_added_up() {
        let page = WORKLOADS
            .iter()
            .find(|workload| workload.client == Client::CurlParallel)
            .unwrap();
        assert_eq!(
            connections(page, "connects 1\nconnects 0\nconnects 1\ncurl: (7) x\n"),
            Some(2)
        );
        assert_eq!(connections(&WORKLOADS[0], "connects 1\n"), None);
    }
}
