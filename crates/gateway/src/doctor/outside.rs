//! Everything the doctor reads from the machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::keys::PrivateKey;

/// What `stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Permission bits.
    pub mode: u32,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// What a program said and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// It ended with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The machine as the doctor sees it. Nothing here changes it, except that
/// [`Outside::try_write`] leaves a file for a moment and the `try_bind`s hold
/// a port for one.
pub trait Outside {
    /// The time.
    fn now(&self) -> SystemTime;
    /// A small text file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Where a symbolic link leads.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// What is known of a file.
    fn facts(&self, path: &Path) -> io::Result<FileFacts>;
    /// The public half, as text, of a private key file.
    fn public_key(&self, path: &Path) -> Result<String, String>;
    /// Runs a program without input; `NotFound` if it is not installed.
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<CommandOutput>;
    /// Addresses of a name.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
    /// Whether a UDP port can be taken.
    fn try_bind_udp(&self, address: SocketAddr) -> io::Result<()>;
    /// Whether a TCP port can be taken.
    fn try_bind_tcp(&self, address: SocketAddr) -> io::Result<()>;
    /// Whether a file can be made in a folder.
    fn try_write(&self, folder: &Path) -> io::Result<()>;
}

/// The real machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Outside for System {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        let metadata = fs::metadata(path)?;
        Ok(FileFacts {
            mode: metadata.mode() & 0o7777,
            is_folder: metadata.is_dir(),
        })
    }

    fn public_key(&self, path: &Path) -> Result<String, String> {
        let key = PrivateKey::load(path).map_err(|error| error.to_string())?;
        Ok(key.public().to_string())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<CommandOutput> {
        let start = |program: &Path| {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env("LC_ALL", "C")
                .stdin(Stdio::null())
                .output()
        };
        let output = match start(program.as_ref()) {
            // Programs of administration are not in everybody's PATH.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                start(&Path::new("/usr/sbin").join(program))?
            }
            output => output?,
        };
        Ok(CommandOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    fn try_bind_udp(&self, address: SocketAddr) -> io::Result<()> {
        UdpSocket::bind(address).map(drop)
    }

    fn try_bind_tcp(&self, address: SocketAddr) -> io::Result<()> {
        TcpListener::bind(address).map(drop)
    }

    fn try_write(&self, folder: &Path) -> io::Result<()> {
        let file = folder.join(format!(".farhaul-doctor.{}", std::process::id()));
        fs::write(&file, b"")?;
        fs::remove_file(&file)
    }
}
