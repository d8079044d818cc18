//! vsftpd with a configuration of its own, for anonymous reading.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::demo::servers::{Folders, wait_listening};
use crate::deployment::{Lab, require_program};
use crate::error::{During, LabError};
use crate::topology::SERVER;

/// Where it listens.
const PORT: u16 = 21;

/// Starts it and waits until it listens.
pub(super) fn start(lab: &mut Lab, folders: &Folders) -> Result<(), LabError> {
    let program = require_program("vsftpd", "vsftpd")?;
    let base = lab.sandbox().folder().join("vsftpd-state");
    let empty = base.join("empty");
    fs::create_dir_all(&empty)
        // It refuses to be root in a folder that it could write to.
        .and_then(|()| fs::set_permissions(&empty, fs::Permissions::from_mode(0o555)))
        .during(|| format!("making {}", empty.display()))?;
    let config = base.join("vsftpd.conf");
    let (empty, offered) = (empty.display(), folders.offered.display());
    let text = format!(
        "listen=YES\n\
         listen_address={SERVER}\n\
         background=NO\n\
         anonymous_enable=YES\n\
         no_anon_password=YES\n\
         local_enable=NO\n\
         anon_root={offered}\n\
         nopriv_user=nobody\n\
         secure_chroot_dir={empty}\n\
         seccomp_sandbox=NO\n\
         xferlog_enable=NO\n"
    );
    fs::write(&config, text).during(|| format!("writing {}", config.display()))?;
    let (program, config) = (program.to_string_lossy(), config.to_string_lossy());
    let server = lab.server()?;
    lab.sandbox_mut()
        .start("vsftpd", &server, &[&program, &config])?;
    wait_listening(lab, "vsftpd", PORT)
}
