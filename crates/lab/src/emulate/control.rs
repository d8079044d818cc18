//! Talking to a running link: a Unix socket, one JSON document per line.
//!
//! Requests are `{"verb": "stats", "reset": false}`, `{"verb": "set", "words":
//! "loss 2%"}` and `{"verb": "stop"}`. Each is answered by one line,
//! `{"ok": ...}` or `{"error": "..."}`; the connection that asked to stop is
//! closed when everything has been put back.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::error::{Doing, EmulateError};
use super::events::Event;
use super::live::LiveLink;
use super::signals::StopSignals;
use super::stats::LinkStats;

/// Connections kept open; the oldest gives way.
const CONNECTIONS_MAX: usize = 16;
/// Longest request.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Stats {
        #[serde(default)]
        reset: bool,
    },
    Set {
        words: String,
    },
    Stop {},
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Option<Box<LinkStats>>),
    Set(String),
    Error(String),
}

/// Where a link between these interfaces listens unless told otherwise.
pub fn default_socket(folder: &Path, a: &str, b: &str) -> PathBuf {
    folder.join(format!("link-{a}-{b}.sock"))
}

/// The listening end. Dropping it removes the socket.
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at `path`, taking the place of a dead emulator's socket. Only
    /// the owner may connect.
    pub fn listen(path: &Path) -> Result<Self, EmulateError> {
        clear_the_way(path)?;
        let listening = || format!("listening at the control socket {}", path.display());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .doing(listening)?;
        // The mode of an unbound socket is the most its file will have.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).doing(listening)?;
        let address = SocketAddrUnix::new(path).doing(listening)?;
        rustix::net::bind(&socket, &address).doing(listening)?;
        let control = Self {
            listener: UnixListener::from(socket),
            path: path.to_owned(),
        };
        rustix::net::listen(&control.listener, CONNECTIONS_MAX as i32).doing(listening)?;
        Ok(control)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Left in place it is recognised as dead by the next run.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a dead socket; refuses a live one and anything else.
fn clear_the_way(path: &Path) -> Result<(), EmulateError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.doing(|| format!("looking at {}", path.display()))?,
    };
    let path = path.to_owned();
    if !found.file_type().is_socket() {
        return Err(EmulateError::NotASocket { path });
    }
    if UnixStream::connect(&path).is_ok() {
        return Err(EmulateError::SocketInUse { path });
    }
    fs::remove_file(&path).doing(|| format!("removing the dead socket {}", path.display()))
}

/// Serves a link until it is asked to stop, a signal arrives, or it ends by
/// itself; then stops it and puts everything back. `notice` gets what is worth
/// a line in a log.
pub fn serve(
    mut link: LiveLink,
    control: ControlSocket,
    signals: &StopSignals,
    mut notice: impl FnMut(&str),
) -> Result<(), EmulateError> {
    let mut connections = VecDeque::new();
    let mut outcome = Ok(());
    loop {
        wait(&link, &control, signals, &connections)?;
        if is_readable(signals) {
            break;
        }
        if let Some(ended) = report_events(&link, &mut notice) {
            outcome = ended;
            break;
        }
        accept(&control, &mut connections);
        if answer_all(&mut connections, &mut link) {
            break;
        }
    }
    outcome = outcome.and(link.stop());
    // Last of all: whoever asked to stop sees its connection close.
    drop(control);
    drop(connections);
    outcome
}

fn wait(
    link: &LiveLink,
    control: &ControlSocket,
    signals: &StopSignals,
    connections: &VecDeque<Connection>,
) -> Result<(), EmulateError> {
    let fixed = [
        signals.as_fd(),
        link.events_readable(),
        control.listener.as_fd(),
    ];
    let streams = connections
        .iter()
        .map(|connection| connection.stream.as_fd());
    let mut waiting: Vec<PollFd<'_>> = fixed
        .into_iter()
        .chain(streams)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut waiting, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).doing(|| "waiting for requests".to_owned()),
    }
}

fn is_readable(descriptor: impl AsFd) -> bool {
    let mut waiting = [PollFd::new(&descriptor, PollFlags::IN)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut waiting, Some(&now)), Ok(1))
}

/// The outcome of the link, if it has ended.
fn report_events(
    link: &LiveLink,
    notice: &mut impl FnMut(&str),
) -> Option<Result<(), EmulateError>> {
    while let Some(event) = link.next_event() {
        match event {
            Event::Notice(text) => notice(&text),
            Event::Ended(outcome) => return Some(outcome),
        }
    }
    None
}

/// One that asks.
struct Connection {
    stream: UnixStream,
    request: Vec<u8>,
}

fn accept(control: &ControlSocket, connections: &mut VecDeque<Connection>) {
    while let Ok((stream, _)) = control.listener.accept() {
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        if connections.len() == CONNECTIONS_MAX {
            connections.pop_front();
        }
        connections.push_back(Connection {
            stream,
            request: Vec::new(),
        });
    }
}

/// Whether one of them asked to stop.
fn answer_all(connections: &mut VecDeque<Connection>, link: &mut LiveLink) -> bool {
    let mut stop = false;
    connections.retain_mut(|connection| {
        if stop {
            return true;
        }
        let open = connection.read();
        while let Some(line) = connection.take_line() {
            let (answer, asked_to_stop) = answer(&line, link);
            stop |= asked_to_stop;
            if connection.write(&answer).is_err() {
                return false;
            }
        }
        open || stop
    });
    stop
}

impl Connection {
    /// Takes what has come; `false` when the other end is done or asks for
    /// more than a request can be.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self
                    .request
                    .extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if self.request.len() > REQUEST_BYTES_MAX {
                return false;
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.request.iter().position(|byte| *byte == b'\n')?;
        let rest = self.request.split_off(end + 1);
        Some(std::mem::replace(&mut self.request, rest))
    }

    /// Answers are shorter than a socket's buffer: one that does not fit is
    /// for somebody who does not read.
    fn write(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }
}

fn answer(line: &[u8], link: &mut LiveLink) -> (Answer, bool) {
    let request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return (Answer::Error(format!("not a request: {error}")), false),
    };
    let outcome = match request {
        Request::Stats { reset } => link
            .stats(reset)
            .map(|stats| Answer::Ok(Some(stats.into()))),
        Request::Set { words } => set(link, &words),
        Request::Stop {} => return (Answer::Ok(None), true),
    };
    let answer = outcome.unwrap_or_else(|error| Answer::Error(error.to_string()));
    (answer, false)
}

fn set(link: &mut LiveLink, words: &str) -> Result<Answer, EmulateError> {
    let profile = link.profile().changed(words)?;
    let text = profile.to_string();
    link.set(profile)?;
    Ok(Answer::Set(text))
}

/// The asking end.
pub struct ControlClient {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl ControlClient {
    /// Connects to a running link.
    pub fn connect(path: &Path) -> Result<Self, EmulateError> {
        let connecting = || format!("connecting to {}", path.display());
        let stream = match UnixStream::connect(path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Err(EmulateError::NotRunning {
                    path: path.to_owned(),
                });
            }
            other => other.doing(connecting)?,
        };
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .doing(connecting)?;
        Ok(Self {
            reader: BufReader::new(stream),
            path: path.to_owned(),
        })
    }

    /// Connects to the only link whose socket lies in `folder`.
    pub fn connect_to_only(folder: &Path) -> Result<Self, EmulateError> {
        let mut live: Vec<Self> = sockets(folder)
            .iter()
            .filter_map(|path| Self::connect(path).ok())
            .collect();
        match (live.pop(), live.len()) {
            (Some(client), 0) => Ok(client),
            (None, _) => Err(EmulateError::NoneRunning),
            (Some(last), _) => {
                let paths = live.iter().chain([&last]);
                let mut paths: Vec<_> = paths.map(|c| c.path.display().to_string()).collect();
                paths.sort();
                Err(EmulateError::SeveralRunning {
                    paths: paths.join(", "),
                })
            }
        }
    }

    /// Counters; `reset` starts them anew afterwards.
    pub fn stats(&mut self, reset: bool) -> Result<LinkStats, EmulateError> {
        match self.ask(&Request::Stats { reset })? {
            Answer::Ok(Some(stats)) => Ok(*stats),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes settings; returns all that are in force now.
    pub fn set(&mut self, words: &str) -> Result<String, EmulateError> {
        let words = words.to_owned();
        match self.ask(&Request::Set { words })? {
            Answer::Set(profile) => Ok(profile),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops the link and returns when the interfaces are as before.
    pub fn stop(mut self) -> Result<(), EmulateError> {
        self.ask(&Request::Stop {})?;
        let closing = || format!("waiting for the end of the link at {}", self.path.display());
        // Closed means done; anything sent before that means nothing.
        io::copy(&mut self.reader, &mut io::sink())
            .map(drop)
            .doing(closing)
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, EmulateError> {
        let asking = || format!("asking the link at {}", self.path.display());
        let mut line = serde_json::to_string(request)
            .map_err(io::Error::other)
            .doing(asking)?;
        line.push('\n');
        let mut text = String::new();
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .and_then(|()| self.reader.read_line(&mut text))
            .doing(asking)?;
        match serde_json::from_str(&text).map_err(io::Error::other) {
            Ok(Answer::Error(error)) => Err(EmulateError::Refused(error)),
            other => other.doing(asking),
        }
    }
}

fn unexpected(answer: &Answer) -> EmulateError {
    EmulateError::Broken(format!("an answer to another question: {answer:?}"))
}

/// Sockets of links, live or dead.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let is_link = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("link-") && name.ends_with(".sock"))
    };
    fs::read_dir(folder)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(is_link)
                .collect()
        })
        .unwrap_or_default()
}
