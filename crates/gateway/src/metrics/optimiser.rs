//! What protocol optimisers do for each peer, as metrics.

use super::{PeerFamily, counter};

/// All of them.
pub(super) fn families() -> impl Iterator<Item = PeerFamily> {
    families_of_bytes().into_iter().chain(families_of_opens())
}

/// Reads and writes.
fn families_of_bytes() -> [PeerFamily; 8] {
    [
        (
            counter(
                "farhaul_peer_optimiser_reads_answered_total",
                "Reads of clients here that were answered without asking the peer.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.reads_answered as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_answered_bytes_total",
                "Bytes of those.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.answered_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_ahead_bytes_total",
                "Bytes read ahead from servers here for clients at the peer.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.ahead_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_wasted_bytes_total",
                "Of those, bytes that nobody asked for.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.wasted_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_breaks_total",
                "Times a server here took back an oplock or lease.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.breaks as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_writes_answered_total",
                "Writes of clients here that were answered without asking the peer.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.writes_answered as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_behind_bytes_total",
                "Bytes of those.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.behind_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_writes_failed_total",
                "Writes that were answered at the peer and refused by a server here.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.writes_failed as f64),
        ),
    ]
}

/// What is opened ahead for each peer.
fn families_of_opens() -> [PeerFamily; 3] {
    [
        (
            counter(
                "farhaul_peer_optimiser_opens_answered_total",
                "Files that clients here were given without asking the peer.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.opens_answered as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_opens_made_total",
                "Files opened at servers here ahead of clients at the peer.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.opens_made as f64),
        ),
        (
            counter(
                "farhaul_peer_optimiser_opens_wasted_total",
                "Of those, files that nobody asked for.",
            ),
            |p| p.optimiser.as_ref().map(|o| o.opens_wasted as f64),
        ),
    ]
}
