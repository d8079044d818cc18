//! Shares of a real file server that are unlike others: where nobody is given an oplock, and one that is a printer.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use farhaul_lab::Side;
use farhaul_lab::demo::servers::SHARE;

use crate::apps::content;
use crate::smb::{FILE_BYTES, LINK, SLOW, Site, done, overtake_from};
use crate::smb1::old_site_with;
use crate::world::until;

pub const NO_OPLOCKS: &str = "oplocks = no\nlevel2 oplocks = no";
/// It keeps what it is given to print.
const PRINTER: &str = "printer";

/// Nothing protects a file: nothing of it is read ahead or answered early, and what others write is seen at once.
fn read_beside_a_writer(site: &Site, seed: u64) {
    let (old, new) = (content(seed, FILE_BYTES), content(seed + 1, FILE_BYTES));
    site.offer("a.bin", &old);
    assert!(site.get("a.bin") == old, "not the file");
    overtake_from(site, "server", &old, &new);
    done(&mut site.putting("new.bin", &old));
    assert!(site.offered("new.bin") == old, "not what was put");
    for what in ["reads_answered", "writes_answered"] {
        assert_eq!(site.counted(Side::A, what), 0, "{what}");
    }
    for what in ["ahead_bytes", "breaks"] {
        assert_eq!(site.counted(Side::B, what), 0, "{what}");
    }
}

#[test]
fn a_server_without_oplocks_answers_everything_itself() {
    read_beside_a_writer(&Site::with(SLOW, "smbbare", "", NO_OPLOCKS), 61);
    let share = format!("[{SHARE}]\n{NO_OPLOCKS}");
    read_beside_a_writer(&old_site_with(SLOW, "smbonebare", "", &share), 63);
}

/// A printer without a print system: jobs stay where they were spooled.
fn printer(test: &str) -> (std::path::PathBuf, String) {
    let spool = std::env::temp_dir().join(format!("farhaul-{test}-{}", std::process::id()));
    fs::create_dir_all(&spool).unwrap();
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o777)).unwrap();
    let share = format!(
        "[global]\nprinting = bsd\n[{PRINTER}]\npath = {}\nprintable = yes\nguest ok = yes\n\
         print command = /bin/true %s\nlpq command = /bin/true\nlprm command = /bin/true\n",
        spool.display()
    );
    (spool, share)
}

/// As smbclient does, to the printer.
fn print(site: &Site, bytes: &[u8]) {
    fs::write(site.folders.fetched.join("to-print"), bytes).unwrap();
    let files = site.smbclient("client", &["-N", "-c", "print {fetched}/to-print"]);
    let mut command = Command::new(files.get_program());
    for word in files.get_args() {
        let word = word.to_string_lossy();
        command.arg(word.replace(&format!("/{SHARE}"), &format!("/{PRINTER}")));
    }
    done(command.stdin(Stdio::null()));
}

fn is_spooled(spool: &std::path::Path, bytes: &[u8]) -> bool {
    let jobs = fs::read_dir(spool).unwrap().flatten();
    jobs.map(|job| fs::read(job.path()).unwrap_or_default())
        .any(|job| job == bytes)
}

#[test]
fn what_is_printed_is_what_was_sent_and_is_answered_by_the_server_alone() {
    for (is_old, test) in [(false, "smbprint"), (true, "smboneprint")] {
        let (spool, share) = printer(test);
        let site = match is_old {
            false => Site::with(LINK, test, "", &share),
            true => old_site_with(LINK, test, "", &share),
        };
        let bytes = content(65 + u64::from(is_old), 1_000_000);
        print(&site, &bytes);
        until("the job", || is_spooled(&spool, &bytes));
        for what in ["reads_answered", "writes_answered", "opens_answered"] {
            assert_eq!(site.counted(Side::A, what), 0, "{test}: {what}");
        }
        assert_eq!(site.counted(Side::B, "ahead_bytes"), 0, "{test}");
        // And with files beside it, over the same gateways.
        site.offer("a.bin", &bytes);
        assert!(site.get("a.bin") == bytes, "not the file");
        fs::remove_dir_all(&spool).unwrap();
    }
}
