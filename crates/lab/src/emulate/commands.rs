//! What the owner of a link asks of a packet thread, without the thread ever
//! waiting for the owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

use super::error::EmulateError;
use super::events::Wake;

/// The owner's end; the thread is woken by what is sent.
pub(super) struct CommandSender<C> {
    commands: Sender<C>,
    sent: Arc<AtomicU64>,
    wake: Wake,
}

/// The packet thread's end.
///
/// A receiver of the standard library that finds a sender in the middle of
/// sending spins until it has finished. A thread with real-time priority may have
/// taken the processor from that very sender: it spins until the kernel moves the
/// sender to another processor, some tens of milliseconds on a busy machine, and
/// every departure is late by as much. So it looks only for what was sent whole.
pub(super) struct Commands<C> {
    commands: Receiver<C>,
    sent: Arc<AtomicU64>,
    taken: u64,
}

pub(super) fn commands<C>() -> Result<(CommandSender<C>, Commands<C>, Wake), EmulateError> {
    let (sender, receiver) = channel();
    let sent = Arc::new(AtomicU64::new(0));
    let wake = Wake::new()?;
    let sender = CommandSender {
        commands: sender,
        sent: Arc::clone(&sent),
        wake: wake.clone(),
    };
    let commands = Commands {
        commands: receiver,
        sent,
        taken: 0,
    };
    Ok((sender, commands, wake))
}

impl<C> CommandSender<C> {
    /// Fails where nobody listens any more.
    pub(super) fn send(&self, command: C) -> Result<(), SendError<C>> {
        self.commands.send(command)?;
        self.sent.fetch_add(1, Ordering::Release);
        self.wake.raise();
        Ok(())
    }
}

impl<C> Commands<C> {
    /// The next that was sent whole.
    pub(super) fn take(&mut self) -> Option<C> {
        if self.sent.load(Ordering::Acquire) == self.taken {
            return None;
        }
        let command = self.commands.try_recv().ok()?;
        self.taken += 1;
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sent_whole_is_not_looked_for() {
        let (sender, mut commands, _wake) = commands().unwrap();
        assert_eq!(commands.take(), None);
        // In the middle of sending: in the channel, and not counted yet.
        sender.commands.send(1).unwrap();
        assert_eq!(commands.take(), None);
        sender.sent.fetch_add(1, Ordering::Release);
        sender.send(2).unwrap();
        assert_eq!((commands.take(), commands.take()), (Some(1), Some(2)));
        assert_eq!(commands.take(), None);
    }

    #[test]
    fn who_sends_to_nobody_is_told() {
        let (sender, receiver, _wake) = commands().unwrap();
        drop(receiver);
        assert!(sender.send(1).is_err());
    }
}
