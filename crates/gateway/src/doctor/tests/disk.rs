//! The folder of the store.

use super::*;
use crate::admin::status::{DiskStatus, ReductionStatus};

#[test]
fn disks() {
    let missing = without_gateway("disk", |paper| {
        paper.facts.remove(Path::new("/store"));
    });
    assert_found(&missing, Verdict::Fail, "/store", "mkdir");
    let read_only = without_gateway("disk", |paper| paper.read_only = true);
    assert_found(&read_only, Verdict::Fail, "cannot be written", "user");
    let full = without_gateway("disk", |paper| {
        paper.command("df --output=avail -B1 /store", said("Avail\n1073741824\n"));
    });
    assert_found(&full, Verdict::Warn, "1.0 GiB free", "store.disk.size");
    let damaged = with_gateway("disk", |status, _| {
        status.peers[0].reduction = Some(ReductionStatus {
            disk: Some(DiskStatus {
                bad_blocks: 3369,
                problem: Some("/store/hq/sent: 16 blocks of a segment are damaged".into()),
                ..DiskStatus::default()
            }),
            ..ReductionStatus::default()
        });
    });
    assert_found(
        &damaged,
        Verdict::Warn,
        "3369 damaged blocks",
        "farhaul cache clear",
    );
}

#[test]
fn a_disk_where_no_folder_can_be_is_moved_and_not_made() {
    let of = |place: &str| {
        let mut subject = subject(&configuration(), None);
        if let Some(disk) = subject
            .config
            .as_mut()
            .ok()
            .and_then(|loaded| loaded.config.store.disk.as_mut())
        {
            disk.path = place.into();
        }
        check(&examine(&subject, &Paper::healthy()), "disk")
    };
    for place in ["/proc/foo", "/dev/null"] {
        let found = of(place);
        assert_found(&found, Verdict::Fail, place, "another `store.disk.path`");
        assert!(
            found.evidence.contains("belongs to the kernel"),
            "{found:?}"
        );
    }
}
