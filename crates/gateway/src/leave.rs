//! The end of a server's connection of which something was borrowed: it is to notice at once, for others wait for that.

use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::flow::read;

/// So long a server may take to say what it has to say.
const HEARD_OUT: Duration = Duration::from_secs(10);
const HEARD_BYTES: usize = 64 << 10;

/// Ends our direction, and hears the server out. Samba 4.17 does not notice a reset while thousands of its answers wait to be
/// sent: it would keep its oplocks until somebody waits for one of them, and that for 32 s.
pub async fn hear_out(app: &TcpStream) {
    // Whoever is gone already needs no telling.
    let _ = SockRef::from(app).shutdown(Shutdown::Write);
    let said = async {
        while read(app, HEARD_BYTES)
            .await
            .is_ok_and(|bytes| !bytes.is_empty())
        {}
    };
    let _ = tokio::time::timeout(HEARD_OUT, said).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::intercept::prepare;

    /// As Samba does, which reads again when all of that is sent.
    #[tokio::test]
    async fn a_server_that_has_much_to_say_sees_an_end() {
        const SAID_BYTES: usize = 30_000_000;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.unwrap();
            server.write_all(&vec![1; SAID_BYTES]).await.unwrap();
            server.read(&mut [0; 10]).await.unwrap()
        });
        let app = TcpStream::connect(at).await.unwrap();
        prepare(&app).unwrap();
        app.readable().await.unwrap();
        hear_out(&app).await;
        drop(app);
        assert_eq!(serving.await.unwrap(), 0);
    }
}
