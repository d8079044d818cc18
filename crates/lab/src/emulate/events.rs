//! What the packet threads have to say, without ever waiting for a listener.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};

use super::error::{Doing, EmulateError};

/// Something that happened to a running link.
#[derive(Debug)]
pub enum Event {
    /// Worth a line in a log; the link goes on.
    Notice(String),
    /// A direction ended, by itself if there is an error.
    Ended(Result<(), EmulateError>),
}

/// A flag that a thread can sleep on.
#[derive(Clone)]
pub(super) struct Wake(Arc<OwnedFd>);

impl Wake {
    pub(super) fn new() -> Result<Self, EmulateError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags).doing(|| "making an eventfd".to_owned())?;
        Ok(Self(Arc::new(descriptor)))
    }

    pub(super) fn raise(&self) {
        // Only fails where it is raised 2^64 times already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn lower(&self) {
        // Fails where it was not raised: then it is low already.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Clone)]
pub(super) struct EventSender {
    events: Sender<Event>,
    wake: Wake,
}

impl EventSender {
    pub(super) fn notice(&self, text: String) {
        self.send(Event::Notice(text));
    }

    pub(super) fn send(&self, event: Event) {
        // Nobody listens any more while the link is being taken down.
        let _ = self.events.send(event);
        self.wake.raise();
    }
}

/// The owner's end.
pub(super) struct Events {
    events: Receiver<Event>,
    wake: Wake,
}

impl Events {
    pub(super) fn new() -> Result<(EventSender, Self), EmulateError> {
        let (sender, events) = channel();
        let wake = Wake::new()?;
        let sender = EventSender {
            events: sender,
            wake: wake.clone(),
        };
        Ok((sender, Self { events, wake }))
    }

    /// The next event that has happened; `None` where there is none.
    pub(super) fn next(&self) -> Option<Event> {
        self.wake.lower();
        self.events.try_recv().ok()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
