//! What the stack has been given and the peer has not acknowledged whole, and whether that is the rest of what there was to send.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farhaul_tunnel::{Class, Transmit};

/// What a frame counts as.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) is_urgent: bool,
    pub(super) is_control: bool,
}

impl Kind {
    /// What goes at once waits for nothing, and is not among what is urgent.
    pub(super) fn of(frame: &Transmit) -> Self {
        Self {
            is_urgent: is_urgent(frame.class) && frame.priority != i32::MAX,
            is_control: frame.class == Class::Control,
        }
    }
}

/// Frames handed over whose last byte is not acknowledged, bytes.
#[derive(Debug, Default)]
pub(super) struct Held {
    all_bytes: AtomicU64,
    urgent_bytes: AtomicU64,
    /// Of class control.
    control_bytes: AtomicU64,
    /// Frames handed over so far that ended a rest.
    frames: AtomicU64,
    /// Frames that have left the machine and are not counted yet.
    pub(super) coming: AtomicU64,
    /// A frame has not been taken whole.
    is_waiting: AtomicBool,
}

impl Held {
    fn counts(&self, kind: Kind) -> impl Iterator<Item = &AtomicU64> {
        let urgent = kind.is_urgent.then_some(&self.urgent_bytes);
        let control = kind.is_control.then_some(&self.control_bytes);
        iter::once(&self.all_bytes).chain(urgent).chain(control)
    }

    pub(super) fn add(&self, bytes: u64, kind: Kind) {
        if self.ends_rest(kind) {
            self.frames.fetch_add(1, Ordering::Relaxed);
        }
        for count in self.counts(kind) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, bytes: u64, kind: Kind) {
        for count in self.counts(kind) {
            count.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether everything that has left the machine is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.coming.load(Ordering::Acquire) == 0 && self.all_bytes.load(Ordering::Relaxed) == 0
    }

    /// Of frames whose last byte is not acknowledged.
    pub(super) fn bytes(&self) -> u64 {
        self.all_bytes.load(Ordering::Relaxed)
    }

    /// Of those that somebody waits for.
    pub(super) fn urgent_bytes(&self) -> u64 {
        self.urgent_bytes.load(Ordering::Relaxed)
    }

    /// A frame has not been taken whole, or all have.
    pub(super) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    /// Whether there is more than the stack takes at present.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Frames handed over so far that ended a rest.
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether there is something new with such a frame. One of class control, a few bytes twice a second and more, leaves the end
    /// of a transfer what it is: while copies paused for it, one packet in twenty that was sent again went without.
    pub(super) fn ends_rest(&self, kind: Kind) -> bool {
        let all_bytes = self.all_bytes.load(Ordering::Relaxed);
        !kind.is_control || all_bytes <= self.control_bytes.load(Ordering::Relaxed)
    }

    /// Whether the stack has taken all there is, and not all of it is acknowledged.
    pub(super) fn is_rest(&self) -> bool {
        !self.is_waiting() && self.all_bytes.load(Ordering::Relaxed) > 0
    }
}

/// Whether somebody waits for frames of this class: they have a lane of their own.
pub(super) fn is_urgent(class: Class) -> bool {
    matches!(class, Class::Control | Class::Interactive)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK: Kind = Kind {
        is_urgent: false,
        is_control: false,
    };
    const CONTROL: Kind = Kind {
        is_urgent: true,
        is_control: true,
    };

    #[test]
    fn control_frames_leave_the_end_of_a_transfer_what_it_is() {
        let held = Held::default();
        held.add(60_000, BULK);
        let frames = held.frames();
        assert!(!held.ends_rest(CONTROL), "data is not acknowledged");
        held.add(17, CONTROL);
        assert_eq!(held.frames(), frames);
        held.add(100, BULK);
        assert_eq!(held.frames(), frames + 1, "more data");
        held.release(60_000, BULK);
        held.release(100, BULK);
        assert!(held.ends_rest(CONTROL) && held.is_rest(), "nothing but it");
        held.release(17, CONTROL);
        assert!(held.is_empty());
    }
}
