//! A frame on its way into its stream, perhaps in several parts.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use farhaul_tunnel::Transmit;
use noq::VarInt;

use super::{Session, SessionEnd, intake};

/// One frame that the stack has taken none, a part, or all of.
pub(super) struct Lane {
    stream: noq::SendStream,
    chunks: Vec<Bytes>,
    /// How many of `chunks` are taken.
    taken: usize,
    finished: bool,
}

impl Lane {
    /// Opens a stream for the frame.
    pub(super) async fn open(session: &Session, frame: Transmit) -> Result<Self, SessionEnd> {
        let stream = session.connection.open_uni().await;
        let stream = stream.map_err(intake::end_of)?;
        // Class and age: what the stack has to repeat goes where it belongs.
        let _ = stream.set_priority(frame.priority);
        Ok(Self {
            stream,
            chunks: frame.chunks,
            taken: 0,
            finished: false,
        })
    }

    /// Gives the stack what it takes now; true when that was the last. If it
    /// took nothing, this task is woken when it takes something again.
    pub(super) async fn advance(&mut self) -> Result<bool, SessionEnd> {
        let mut rest = self.chunks.get_mut(self.taken..).unwrap_or_default();
        let left = rest.len();
        let written = {
            let mut write = pin!(self.stream.write_many_chunks(&mut rest));
            poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await
        };
        match written {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(noq::WriteError::ConnectionLost(error))) => {
                return Err(intake::end_of(error));
            }
            Poll::Ready(Err(error)) => return Err(SessionEnd::Protocol(error.to_string())),
            Poll::Ready(Ok(_)) => self.taken += left - rest.len(),
        }
        if self.taken < self.chunks.len() {
            return Ok(false);
        }
        self.finished = true;
        match self.stream.finish() {
            Ok(()) => Ok(true),
            Err(_) => Err(SessionEnd::Protocol("peer refused a frame".to_owned())),
        }
    }

    /// Resolves when the peer has all of the frame or the connection is gone.
    pub(super) fn acknowledged(&self) -> impl Future<Output = ()> + 'static {
        let stopped = self.stream.stopped();
        async move {
            let _ = stopped.await;
        }
    }
}

/// A frame cut short must never look like a whole one.
impl Drop for Lane {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.stream.reset(VarInt::from_u32(0));
        }
    }
}
