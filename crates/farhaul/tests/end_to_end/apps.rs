//! Servers and clients as applications write them, and bytes to send.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use farhaul_lab::netns::Namespace;
use sha2::{Digest, Sha256};
use socket2::{Domain, SockRef, Socket, Type};

use crate::world::HANG;

/// Bytes that look random and are the same for the same seed.
pub struct Content(u64);

impl Content {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // Marsaglia's xorshift64.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// `len` bytes of a seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Content::new(seed).fill(&mut bytes);
    bytes
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A server; dropping it stops it from accepting.
pub struct Service {
    listeners: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Serves every connection to `port`, of both families, on a
    /// thread of its own.
    pub fn start(
        namespace: &Namespace,
        port: u16,
        serve: impl Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    ) -> Self {
        let serve = Arc::new(serve);
        let both = namespace.within(|| vec![listen("0.0.0.0", port), listen("::", port)]);
        let listeners = both.unwrap();
        let threads = listeners.iter().map(|listener| {
            let (listener, serve) = (listener.try_clone().unwrap(), Arc::clone(&serve));
            std::thread::spawn(move || {
                while let Ok((stream, client)) = listener.accept() {
                    let serve = Arc::clone(&serve);
                    stream.set_read_timeout(Some(HANG)).unwrap();
                    stream.set_write_timeout(Some(HANG)).unwrap();
                    std::thread::spawn(move || serve(stream, client));
                }
            })
        });
        Self {
            threads: threads.collect(),
            listeners,
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Wakes accept() with an error.
            let _ = SockRef::from(listener).shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A listener with a long queue, for one family only.
pub fn listen(address: &str, port: u16) -> TcpListener {
    let address = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket.listen(2048).unwrap();
    socket.into()
}

/// Says who it thinks the client is, then returns what it gets.
pub fn greet_and_echo(mut stream: TcpStream, client: SocketAddr) {
    let client = SocketAddr::new(client.ip(), client.port());
    if writeln!(stream, "{client}").is_ok() {
        echo(stream, client);
    }
}

/// Returns what it gets until end of input.
pub fn echo(mut stream: TcpStream, _client: SocketAddr) {
    let mut back = stream.try_clone().unwrap();
    if io::copy(&mut stream, &mut back).is_ok() {
        let _ = back.shutdown(Shutdown::Write);
    }
}

/// The greeting of [`greet_and_echo`]; takes no byte more than the line.
pub fn greeting(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            let text = String::from_utf8(line).map_err(io::Error::other)?;
            return text.parse().map_err(io::Error::other);
        }
        line.push(byte[0]);
    }
}

/// Sends bytes and expects them back.
pub fn assert_echo(stream: &mut TcpStream, bytes: &[u8]) {
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(bytes).unwrap());
        let mut received = vec![0; bytes.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(digest(&received), digest(bytes), "echoed bytes differ");
    });
}

/// Reads to the end of input, or to the error instead of it.
pub fn read_all(stream: &mut TcpStream) -> (usize, [u8; 32], io::Result<()>) {
    let (mut sum, mut len) = (Sha256::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (len, sum.finalize().into(), Ok(())),
            Ok(part) => {
                sum.update(&buffer[..part]);
                len += part;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (len, sum.finalize().into(), Err(error)),
        }
    }
}

/// Makes closing a connection send RST.
pub fn close_with_reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}
