//! One fetch by a real client: timed from its start to its end, then compared byte by byte.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::row::{Fetched, Protocol, WireBytes};
use crate::demo::progress::Progress;
use crate::demo::servers::{Folders, SHARE};
use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::topology::{SERVER, Side};

/// How often a fetch is looked at: the resolution of its duration.
const LOOK: Duration = Duration::from_millis(5);
/// After a fetch its last acknowledgements are still to be sent: some round trips, and the word of what is held.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(500);
/// Compared at once.
const PIECE_BYTES: usize = 1 << 20;

/// What is fetched, and how long that may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) protocol: Protocol,
    /// Name in the offered folder.
    pub(super) file: &'a str,
    pub(super) patience: Duration,
}

/// Fetches a file. `Err(text)` inside is a fetch that failed.
pub(super) fn fetch(
    lab: &Lab,
    folders: &Folders,
    wanted: Wanted<'_>,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Result<Fetched, String>, LabError> {
    let offered = folders.offered.join(wanted.file);
    let fetched = folders.fetched.join("fetched.bin");
    let bytes = size(&offered)?;
    remove(&fetched)?;
    let log = folders.fetched.join("client.log");
    let mut command = command(lab, folders, wanted, &fetched)?;
    let before = wire_sent_bytes(lab);
    let cpu_before = gateways_cpu(lab);
    let said = File::create(&log).during(|| format!("writing {}", log.display()))?;
    // What earlier fetches wrote is not to be waited for in this one.
    rustix::fs::sync();
    let start = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .during(|| "starting the client".to_owned())?;
    let status = wait(child, start + wanted.patience, stop, || {
        let here = fs::metadata(&fetched).map_or(0, |file| file.len());
        progress.at((here as f64 / bytes as f64).min(0.99));
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = gateways_cpu(lab).zip(cpu_before);
    if before.is_some() {
        sleep(LAST_WORDS);
    }
    let wire_bytes = wire_sent_bytes(lab)
        .zip(before)
        .map(|(after, before)| after.since(before));
    Ok(match status {
        None => Err(format!("not done after {} s", wanted.patience.as_secs())),
        Some(status) if !status.success() => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it said nothing");
            Err(format!("the client failed ({status}): {last}"))
        }
        Some(_) if !is_equal(&offered, &fetched)? => {
            Err("what arrived is not what was offered".to_owned())
        }
        Some(_) => Ok(Fetched {
            seconds,
            bytes,
            wire_bytes,
            cpu_seconds: cpu.map(|(after, before)| after.saturating_sub(before).as_secs_f64()),
        }),
    })
}

/// Waits for the client's end; `None` when it ran out of time and was killed.
fn wait(
    mut child: Child,
    until: Instant,
    stop: &AtomicBool,
    mut look: impl FnMut(),
) -> Result<Option<ExitStatus>, LabError> {
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.during(|| "waiting for the client".to_owned())? {
            // Ctrl-C reaches the client, too, and perhaps sooner than us.
            return match stop.load(Ordering::Relaxed) {
                true => Err(LabError::Interrupted),
                false => Ok(Some(status)),
            };
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        if is_stopped || Instant::now() > until {
            let ended = child.kill().and_then(|()| child.wait());
            ended.during(|| "ending the client".to_owned())?;
            return match is_stopped {
                true => Err(LabError::Interrupted),
                false => Ok(None),
            };
        }
        look();
        sleep(LOOK);
    }
}

fn command(
    lab: &Lab,
    folders: &Folders,
    wanted: Wanted<'_>,
    into: &Path,
) -> Result<Command, LabError> {
    let (client, file) = (lab.client()?, wanted.file);
    let scheme = match wanted.protocol {
        Protocol::Http => "http",
        Protocol::Ftp => "ftp",
        Protocol::Cifs => {
            let mut command = client.command("smbclient");
            let timeout = wanted.patience.as_secs().to_string();
            command.arg(format!("//{SERVER}/{SHARE}"));
            command.args(["-N", "-t", &timeout, "-s"]);
            command.arg(&folders.smb_client_config);
            command.args(["-c", &format!("get {file} {}", into.display())]);
            return Ok(command);
        }
    };
    let mut command = client.command("curl");
    command.args(["-q", "-sS", "--fail", "--noproxy", "*", "-o"]);
    command.arg(into).arg(format!("{scheme}://{SERVER}/{file}"));
    Ok(command)
}

/// What both gateways have sent on the link; `None` where they do not run.
fn wire_sent_bytes(lab: &Lab) -> Option<WireBytes> {
    let sent = |side| {
        let status = lab.gateway_status(side).ok()?;
        status["peers"][0]["wire_sent_bytes"].as_u64()
    };
    Some(WireBytes {
        near: sent(Side::A)?,
        far: sent(Side::B)?,
    })
}

/// Processor time of both gateways; `None` where they do not run.
fn gateways_cpu(lab: &Lab) -> Option<Duration> {
    let [a, b] = Side::BOTH.map(|side| lab.gateway_cpu_time(side));
    Some(a? + b?)
}

fn size(path: &Path) -> Result<u64, LabError> {
    let file = fs::metadata(path).during(|| format!("looking at {}", path.display()))?;
    Ok(file.len())
}

fn remove(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).during(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether two files hold the same bytes.
fn is_equal(one: &Path, other: &Path) -> Result<bool, LabError> {
    if size(one)? != size(other)? {
        return Ok(false);
    }
    let open = |path: &Path| {
        let file = File::open(path).during(|| format!("opening {}", path.display()))?;
        Ok::<_, LabError>(BufReader::with_capacity(PIECE_BYTES, file))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    loop {
        let [first, second] = &mut pieces;
        let read = one
            .read(first)
            .during(|| "reading what was offered".to_owned())?;
        if read == 0 {
            return Ok(true);
        }
        let (first, second) = (&first[..read], &mut second[..read]);
        other
            .read_exact(second)
            .during(|| "reading what arrived".to_owned())?;
        if first != second {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let name = format!("farhaul-fetches-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let mut content = vec![7; 2 * PIECE_BYTES + 3];
        let offered = file("offered", &content);
        let same = file("same", &content);
        let short = file("short", &content[1..]);
        content[2 * PIECE_BYTES + 2] ^= 1;
        let flipped = file("flipped", &content);
        let compared = [&same, &short, &flipped].map(|path| is_equal(&offered, path).unwrap());
        let absent = is_equal(&offered, &folder.join("absent"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(compared, [true, false, false]);
        assert!(absent.is_err());
    }
}
