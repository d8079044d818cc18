//! One byte there and back, again and again: what waits for a batch would show here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::topology::SERVER;

/// The echo's port.
const PORT: u16 = 7;
const ECHOES: usize = 100;
/// A byte that is lost is sent again by someone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Milliseconds of each echo, after a first one.
pub(super) fn measure(lab: &Lab) -> Result<Vec<f64>, LabError> {
    let address = SocketAddr::from((SERVER, PORT));
    let trouble = || "echoing a byte".to_owned();
    let listener = lab
        .server()?
        .within(|| TcpListener::bind(address))?
        .during(trouble)?;
    // It ends with the connection.
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte)? == 1 {
            stream.write_all(&byte)?;
        }
        Ok::<_, std::io::Error>(())
    });
    let echoes = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut byte = [0];
        let mut times_ms = Vec::new();
        for _ in 0..=ECHOES {
            let start = Instant::now();
            stream.write_all(b"x")?;
            stream.read_exact(&mut byte)?;
            times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times_ms.remove(0);
        Ok::<_, std::io::Error>(times_ms)
    };
    let times_ms = lab.client()?.within(echoes)?.during(trouble)?;
    // Its trouble was ours.
    let _ = server.join();
    Ok(times_ms)
}
