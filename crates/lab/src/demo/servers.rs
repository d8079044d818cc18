//! The real servers: nginx and smbd with folders and configuration of their
//! own, inside the server's namespace. The system's own are not touched.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deployment::{Lab, require_program};
use crate::error::{During, LabError};
use crate::topology::SERVER;

/// Port of nginx.
pub const HTTP_PORT: u16 = 80;
/// Port of smbd.
pub const SMB_PORT: u16 = 445;
/// The one share of smbd; nginx serves the same folder.
pub const SHARE: &str = "files";
/// What the demo's share says besides.
const READ_ONLY: &str = "read only = yes";
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(15);

/// Folders of servers and clients in a lab.
#[derive(Debug, Clone)]
pub struct Folders {
    /// What both servers offer.
    pub offered: PathBuf,
    /// Where clients put what they fetch.
    pub fetched: PathBuf,
    /// smbclient's configuration.
    pub smb_client_config: PathBuf,
    /// smbd's.
    pub smb_server_config: PathBuf,
}

impl Folders {
    fn make(lab: &Lab) -> Result<Self, LabError> {
        let base = lab.sandbox().folder();
        let folders = Self {
            offered: base.join("offered"),
            fetched: base.join("fetched"),
            smb_client_config: base.join("smb-client.conf"),
            smb_server_config: base.join("smbd-state/smb.conf"),
        };
        for folder in [&folders.offered, &folders.fetched] {
            make_folder(folder)?;
        }
        Ok(folders)
    }
}

/// Starts both servers on folders of the lab.
pub fn start(lab: &mut Lab) -> Result<Folders, LabError> {
    let folders = Folders::make(lab)?;
    start_on(lab, &folders)?;
    Ok(folders)
}

/// Starts both servers on these folders and waits until they listen.
pub fn start_on(lab: &mut Lab, folders: &Folders) -> Result<(), LabError> {
    start_nginx(lab, folders)?;
    start_smbd(lab, folders, READ_ONLY)?;
    write_smb_client_config(lab, folders)?;
    for (role, port) in [("nginx", HTTP_PORT), ("smbd", SMB_PORT)] {
        wait_listening(lab, role, port)?;
    }
    Ok(())
}

/// Starts smbd alone, with these lines at the end of its share, and waits until it listens.
pub fn start_files(lab: &mut Lab, share: &str) -> Result<Folders, LabError> {
    let folders = Folders::make(lab)?;
    start_smbd(lab, &folders, share)?;
    write_smb_client_config(lab, &folders)?;
    wait_listening(lab, "smbd", SMB_PORT)?;
    Ok(folders)
}

fn start_nginx(lab: &mut Lab, folders: &Folders) -> Result<(), LabError> {
    let program = require_program("nginx", "nginx")?;
    let base = lab.sandbox().folder().join("nginx-state");
    make_folder(&base)?;
    let config = base.join("nginx.conf");
    let (state, offered) = (base.display(), folders.offered.display());
    write(
        &config,
        &format!(
            "daemon off;\n\
             user root;\n\
             worker_processes 1;\n\
             pid {state}/nginx.pid;\n\
             error_log stderr warn;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
               access_log off;\n\
               default_type application/octet-stream;\n\
               sendfile on;\n\
               tcp_nopush on;\n\
               client_body_temp_path {state}/body;\n\
               proxy_temp_path {state}/proxy;\n\
               fastcgi_temp_path {state}/fastcgi;\n\
               uwsgi_temp_path {state}/uwsgi;\n\
               scgi_temp_path {state}/scgi;\n\
               server {{ listen {HTTP_PORT}; listen [::]:{HTTP_PORT}; root {offered}; }}\n\
             }}\n"
        ),
    )?;
    let (program, base, config) = (words(&program), words(&base), words(&config));
    let command = [program.as_str(), "-p", &base, "-c", &config, "-e", "stderr"];
    start_server(lab, "nginx", &command)
}

fn start_smbd(lab: &mut Lab, folders: &Folders, share: &str) -> Result<(), LabError> {
    let program = require_program("smbd", "samba")?;
    let base = lab.sandbox().folder().join("smbd-state");
    make_folder(&base)?;
    let config = folders.smb_server_config.clone();
    let offered = folders.offered.display();
    write(
        &config,
        &format!(
            "[global]\n\
             server role = standalone server\n\
             map to guest = Bad User\n\
             guest account = nobody\n\
             smb ports = {SMB_PORT}\n\
             disable netbios = yes\n\
             load printers = no\n\
             printcap name = /dev/null\n\
             disable spoolss = yes\n\
             log level = 0\n\
             {}\n\
             [{SHARE}]\n\
             path = {offered}\n\
             guest ok = yes\n\
             {share}\n",
            private_folders(&base)
        ),
    )?;
    let (program, config) = (words(&program), words(&config));
    let command = [
        program.as_str(),
        "--foreground",
        "--no-process-group",
        "--debug-stdout",
        "--configfile",
        &config,
    ];
    start_server(lab, "smbd", &command)
}

fn write_smb_client_config(lab: &Lab, folders: &Folders) -> Result<(), LabError> {
    let base = lab.sandbox().folder().join("smb-client-state");
    make_folder(&base)?;
    let text = format!("[global]\n{}\n", private_folders(&base));
    write(&folders.smb_client_config, &text)
}

/// Samba keeps its databases in many places; all of them in `base`.
fn private_folders(base: &Path) -> String {
    let base = base.display();
    let folders = [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
        "pid directory",
        "ncalrpc dir",
        "usershare path",
    ];
    let mut text = folders.map(|key| format!("{key} = {base}")).join("\n");
    text += &format!("\nlog file = {base}/log\nusershare max shares = 0");
    text
}

fn start_server(lab: &mut Lab, role: &str, command: &[&str]) -> Result<(), LabError> {
    let server = lab.server()?;
    lab.sandbox_mut().start(role, &server, command)?;
    Ok(())
}

/// Waits until a server of the lab listens.
pub(crate) fn wait_listening(lab: &mut Lab, role: &str, port: u16) -> Result<(), LabError> {
    let address = SocketAddr::from((SERVER, port));
    lab.wait_ready(role, role, PATIENCE, |lab| {
        let connected = lab.server().and_then(|server| {
            server.within(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        });
        matches!(connected, Ok(Ok(_)))
    })
}

fn words(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A folder that everybody may look into.
pub(crate) fn make_folder(path: &Path) -> Result<(), LabError> {
    fs::create_dir_all(path)
        // Guests of smbd are nobody and must be able to look inside.
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .during(|| format!("making {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).during(|| format!("writing {}", path.display()))
}
