//! The admin socket: a file that only the gateway's user and group may open.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Reading and writing for user and group: an administrators' group may be
/// given the folder.
const MODE: u32 = 0o660;

/// A listening socket whose file is removed when this is dropped, unless
/// another gateway has taken the path since.
#[derive(Debug)]
pub struct AdminSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl AdminSocket {
    /// Listens at `path`, creating its folder if needed. The file a dead
    /// gateway left behind is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if a live process listens there, `AlreadyExists` if the
    /// path is something else than a socket; both say what to do.
    pub fn bind(path: &Path) -> io::Result<AdminSocket> {
        let naming = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("admin.socket {}: {error}", path.display()),
            )
        };
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder).map_err(naming)?;
        }
        clear(path)?;
        // Bound under another name and renamed once its mode is set, so that
        // the socket is never open to everybody, not even for a moment.
        let mut hidden = path.as_os_str().to_owned();
        hidden.push(format!(".{}", std::process::id()));
        let hidden = PathBuf::from(hidden);
        let bound = UnixListener::bind(&hidden).and_then(|listener| {
            fs::set_permissions(&hidden, fs::Permissions::from_mode(MODE))?;
            fs::rename(&hidden, path)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => {
                let inode = fs::metadata(path).map_err(naming)?.ino();
                Ok(AdminSocket {
                    listener,
                    path: path.to_owned(),
                    inode,
                })
            }
            Err(error) => {
                let _ = fs::remove_file(&hidden);
                Err(naming(error))
            }
        }
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|now| now.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes sure that nothing alive is at `path`.
fn clear(path: &Path) -> io::Result<()> {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(io::Error::new(
                error.kind(),
                format!("admin.socket {shown}: {error}"),
            ));
        }
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("admin.socket {shown} exists and is not a socket; choose another path"),
        ));
    }
    // Only a refused connect proves that nobody listens any more; a gateway
    // too busy to answer still accepts into its backlog.
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "another gateway already serves admin.socket {shown}; stop it, or give this one \
                 a path of its own"
            ),
        )),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("admin.socket {shown}: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::Folder;

    #[tokio::test]
    async fn the_socket_is_private_and_leaves_nothing_behind() {
        let folder = Folder::new("private");
        let path = folder.0.join("deeper/gateway.sock");
        let socket = AdminSocket::bind(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            MODE
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        let folder = Folder::new("stale");
        let path = folder.0.join("gateway.sock");
        let live = AdminSocket::bind(&path).unwrap();
        let error = AdminSocket::bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("gateway.sock"), "{error}");
        drop(live);

        // What a killed gateway leaves: the file, and nobody behind it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let replaced = AdminSocket::bind(&path).unwrap();
        UnixStream::connect(replaced.path()).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_never_touched() {
        let folder = Folder::new("file");
        let path = folder.0.join("notes.txt");
        fs::write(&path, "precious").unwrap();
        let error = AdminSocket::bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_path_taken_over_by_another_gateway_is_left_alone() {
        let folder = Folder::new("taken");
        let path = folder.0.join("gateway.sock");
        let first = AdminSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = AdminSocket::bind(&path).unwrap();
        drop(first);
        UnixStream::connect(second.path()).unwrap();
    }
}
