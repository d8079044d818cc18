//! What reduction does for each peer, as metrics: `docs/reference/reduction.md`.

use super::{PeerFamily, counter, gauge};
use crate::admin::status::{DiskStatus, PeerStatus};

/// All of them.
pub(super) fn families() -> impl Iterator<Item = PeerFamily> {
    families_of_known()
        .into_iter()
        .chain(families_of_new())
        .chain(families_of_memory())
        .chain(families_of_disk())
}

/// What was looked up, and where it was found.
fn families_of_known() -> [PeerFamily; 7] {
    [
        (
            counter(
                "farhaul_peer_reduction_in_bytes_total",
                "Application bytes towards the peer that were reduced.",
            ),
            |p| p.reduction.as_ref().map(|r| r.in_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_out_bytes_total",
                "What was left of them.",
            ),
            |p| p.reduction.as_ref().map(|r| r.out_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_compared_bytes_total",
                "Application bytes towards the peer that were looked up.",
            ),
            |p| p.reduction.as_ref().map(|r| r.compared_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_known_bytes_total",
                "Of those, bytes that need not be sent: the sum of the next three.",
            ),
            |p| p.reduction.as_ref().map(|r| r.known_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_known_memory_bytes_total",
                "Bytes that had passed before and were still in memory.",
            ),
            |p| p.reduction.as_ref().map(|r| r.known_memory_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_known_disk_bytes_total",
                "Bytes that had passed before and were read from disk.",
            ),
            |p| p.reduction.as_ref().map(|r| r.known_disk_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_run_bytes_total",
                "Bytes in runs of one byte.",
            ),
            |p| p.reduction.as_ref().map(|r| r.run_bytes as f64),
        ),
    ]
}

/// What was new, and what was sent of it.
fn families_of_new() -> [PeerFamily; 4] {
    [
        (
            counter(
                "farhaul_peer_reduction_new_bytes_total",
                "Bytes given to compression: what was not known, and what refers to the rest.",
            ),
            |p| p.reduction.as_ref().map(|r| r.new_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_packed_bytes_total",
                "What compression made of them.",
            ),
            |p| p.reduction.as_ref().map(|r| r.packed_bytes as f64),
        ),
        (
            gauge(
                "farhaul_peer_reduction_level",
                "Level of zstd for what is sent to the peer, 0 while it is not compressed.",
            ),
            |p| p.reduction.as_ref()?.level.map(f64::from),
        ),
        (
            counter(
                "farhaul_peer_reduction_asked_again_total",
                "Records that the peer could not read and was sent once more.",
            ),
            |p| p.reduction.as_ref().map(|r| r.asked_again as f64),
        ),
    ]
}

/// What came back, and what is remembered.
fn families_of_memory() -> [PeerFamily; 4] {
    [
        (
            counter(
                "farhaul_peer_reduction_restored_bytes_total",
                "Application bytes from the peer that were restored.",
            ),
            |p| p.reduction.as_ref().map(|r| r.restored_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_received_bytes_total",
                "What they had been reduced to.",
            ),
            |p| p.reduction.as_ref().map(|r| r.received_bytes as f64),
        ),
        (
            gauge(
                "farhaul_peer_reduction_store_bytes",
                "Memory of what was sent to the peer.",
            ),
            |p| p.reduction.as_ref().map(|r| r.store_bytes as f64),
        ),
        (
            gauge("farhaul_peer_reduction_index_bytes", "Memory of its index."),
            |p| p.reduction.as_ref().map(|r| r.index_bytes as f64),
        ),
    ]
}

/// What is on disk.
fn families_of_disk() -> [PeerFamily; 4] {
    [
        (
            gauge(
                "farhaul_peer_reduction_disk_bytes",
                "What is kept on disk of what passed to and from the peer.",
            ),
            |p| disk_of(p).map(|disk| disk.used_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_disk_damaged_blocks_total",
                "Blocks on disk that were not as they were written, and not used.",
            ),
            |p| disk_of(p).map(|disk| disk.bad_blocks as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_disk_unusable_files_total",
                "Files of the store that could not be used: cut short, unreadable, no files, removed meanwhile, or a damaged label.",
            ),
            |p| disk_of(p).map(|disk| disk.unusable_files as f64),
        ),
        (
            counter(
                "farhaul_peer_reduction_disk_failed_total",
                "Reads, writes and reservations on disk that failed.",
            ),
            |p| disk_of(p).map(|disk| disk.failed as f64),
        ),
    ]
}

fn disk_of(peer: &PeerStatus) -> Option<&DiskStatus> {
    peer.reduction.as_ref()?.disk.as_ref()
}
