//! How a client of an explicit listener learns what became of its request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use farhaul_tunnel::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{connect, socks};

/// How long a refused client may take to read its reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of a refused client read and thrown away.
const CLOSE_BYTES_MAX: usize = 64 << 10;

/// The client's way of being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A SOCKS5 reply.
    Socks,
    /// An HTTP response.
    Connect,
    /// Nothing is said; failing is a reset.
    Forward,
}

impl Answer {
    /// Tells the client that the destination is connected; from now on its
    /// bytes are the application's. `bound` is the address the server sees,
    /// which only SOCKS clients are told; an unspecified one will do.
    pub async fn succeed(self, stream: &mut TcpStream, bound: SocketAddr) -> io::Result<()> {
        match self {
            Answer::Socks => {
                stream
                    .write_all(&socks::reply(socks::SUCCEEDED, bound))
                    .await
            }
            Answer::Connect => stream.write_all(connect::ESTABLISHED).await,
            Answer::Forward => Ok(()),
        }
    }

    /// Tells the client why not, and closes its connection. Takes at most a
    /// second and never fails: there is nobody left to tell.
    pub async fn fail(self, stream: TcpStream, why: Refusal) {
        match self {
            Answer::Socks => close(stream, &socks::refusal(why)).await,
            Answer::Connect => close(stream, &connect::refusal(why)).await,
            Answer::Forward => reset(&stream),
        }
    }
}

/// Sends a last reply so that it arrives: a socket closed with unread bytes
/// is reset, and a reset overtakes the reply. Without a reply it just closes.
pub(super) async fn close(mut stream: TcpStream, reply: &Bytes) {
    if reply.is_empty() {
        return;
    }
    let _ = timeout(CLOSE_TIMEOUT, async {
        stream.write_all(reply).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        let mut total = 0;
        while total < CLOSE_BYTES_MAX {
            match stream.read(&mut unread).await? {
                0 => break,
                length => total += length,
            }
        }
        io::Result::Ok(())
    })
    .await;
}

/// Closing will send RST: the nearest thing to a refusal once a connection is
/// accepted.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
