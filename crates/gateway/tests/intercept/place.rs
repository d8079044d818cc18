//! The namespaces and the processes in them; everything is gone when dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub const SERVER_V4: &str = "10.2.0.2";
pub const SERVER_V6: &str = "fd02::2";

/// Three namespaces in a row; 10.1/fd01 on the client's side, 10.2/fd02 on
/// the server's.
pub struct Place {
    name: String,
    /// Connections the server saw reset.
    resets: Arc<AtomicU32>,
}

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            name: format!("intercept-{}-{number}", std::process::id()),
            resets: Arc::default(),
        };
        for part in ["c", "r", "s"] {
            ip(&format!("netns add {}-{part}", place.name));
        }
        place.connect("c", "r", 1);
        place.connect("s", "r", 2);
        place.run(
            "r",
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        );
        // The kernel lets a new link carry traffic up to a second later.
        for address in [SERVER_V4, SERVER_V6] {
            until(
                Duration::from_secs(5),
                "the new links carry traffic",
                || {
                    let ping = ["-c1", "-W1", "-q", address];
                    let output = place.within("c", || Command::new("ping").args(ping).output());
                    output.unwrap().status.success()
                },
            );
        }
        place
    }

    /// `end` gets eth0 with .2, the router lanN with .1.
    fn connect(&self, end: &str, router: &str, net: u8) {
        let (end, router) = (self.ns(end), self.ns(router));
        let batch =
            format!("link add eth0 netns {end} type veth peer name lan{net} netns {router}\n");
        ip_batch("", &batch);
        ip_batch(
            &end,
            &format!(
                "link set lo up\nlink set eth0 up\n\
                 addr add 10.{net}.0.2/24 dev eth0\naddr add fd0{net}::2/64 dev eth0 nodad\n\
                 route add default via 10.{net}.0.1\n-6 route add default via fd0{net}::1\n"
            ),
        );
        ip_batch(
            &router,
            &format!(
                "link set lo up\nlink set lan{net} up\n\
                 addr add 10.{net}.0.1/24 dev lan{net}\naddr add fd0{net}::1/64 dev lan{net} nodad\n"
            ),
        );
    }

    fn ns(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Runs `work` on a thread inside a namespace. Sockets and processes it
    /// makes stay there.
    pub fn within<T: Send>(&self, part: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.ns(part));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let namespace = std::fs::File::open(path).unwrap();
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
                work()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Runs a command in a namespace; it must succeed.
    pub fn run(&self, part: &str, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = self
            .within(part, || Command::new(words[0]).args(&words[1..]).output())
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything interception could have left in the router.
    pub fn residue(&self) -> String {
        [
            "nft list tables",
            "ip -4 rule",
            "ip -6 rule",
            "ip -4 route show table 250",
            "ip -6 route show table 250",
        ]
        .map(|command| {
            let words: Vec<&str> = command.split_whitespace().collect();
            let output = self.within("r", || Command::new(words[0]).args(&words[1..]).output());
            String::from_utf8(output.unwrap().stdout).unwrap()
        })
        .concat()
    }

    /// A server on `ports` of both families that greets with the client's
    /// address and echoes until end of input.
    pub fn serve(&self, ports: &[u16]) {
        for &port in ports {
            for address in ["0.0.0.0", "::"] {
                let address: IpAddr = address.parse().unwrap();
                let listener = self.within("s", || listen(SocketAddr::new(address, port)));
                let resets = Arc::clone(&self.resets);
                std::thread::spawn(move || {
                    while let Ok((stream, client)) = listener.accept() {
                        let resets = Arc::clone(&resets);
                        std::thread::spawn(move || {
                            if greet_and_echo(stream, client).is_err() {
                                resets.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    }
                });
            }
        }
    }

    /// A UDP echo on both families.
    pub fn serve_udp(&self, port: u16) {
        for address in ["0.0.0.0", "::"] {
            let address: IpAddr = address.parse().unwrap();
            let socket = self.within("s", || {
                let socket = socket2::Socket::new(
                    socket2::Domain::for_address(SocketAddr::new(address, port)),
                    socket2::Type::DGRAM,
                    None,
                )
                .unwrap();
                if address.is_ipv6() {
                    socket.set_only_v6(true).unwrap();
                }
                socket.bind(&SocketAddr::new(address, port).into()).unwrap();
                UdpSocket::from(socket)
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 1500];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            });
        }
    }

    /// Connections the server saw reset so far.
    pub fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Sends `count` SYNs from ports of the client that nobody uses.
    pub fn flood(&self, destination: SocketAddr, count: u32, pause: Duration) {
        let IpAddr::V4(target) = destination.ip() else {
            panic!("IPv4 only")
        };
        let kind = socket2::Type::RAW;
        let raw = Some(socket2::Protocol::from(libc::IPPROTO_RAW));
        let socket = self.within("c", || {
            socket2::Socket::new(socket2::Domain::IPV4, kind, raw).unwrap()
        });
        for number in 0..count {
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 2];
            packet.extend(target.octets());
            packet.extend((1024 + (number % 30_000) as u16).to_be_bytes());
            packet.extend(destination.port().to_be_bytes());
            packet.extend(number.to_be_bytes());
            packet.extend([0, 0, 0, 0, 5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0]);
            socket.send_to(&packet, &destination.into()).unwrap();
            let until = Instant::now() + pause;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }

    /// Connects from the client's namespace and reads the greeting.
    pub fn greeted(&self, destination: SocketAddr, patience: Duration) -> std::io::Result<Greeted> {
        let start = Instant::now();
        let stream = self.within("c", || TcpStream::connect_timeout(&destination, patience))?;
        stream.set_read_timeout(Some(patience))?;
        let mut line = String::new();
        BufReader::new(Once(&stream)).read_line(&mut line)?;
        Ok(Greeted {
            took: start.elapsed(),
            line: line.trim().to_owned(),
            stream,
        })
    }

    /// Starts the toy gateway on the router.
    pub fn gateway(&self, options: &str) -> Gateway {
        let gateway = self.start_gateway(options);
        gateway.wait_for("ready", Duration::from_secs(10));
        gateway
    }

    pub fn start_gateway(&self, options: &str) -> Gateway {
        let mut child = self.within("r", || {
            Command::new(std::env::current_exe().unwrap())
                .arg("--role-gateway")
                .args(options.split_whitespace())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        let said = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let stdout = child.stdout.take().unwrap();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                heard.0.lock().unwrap().push(line);
                heard.1.notify_all();
            }
        });
        Gateway {
            stdin: child.stdin.take(),
            child,
            said,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for part in ["c", "r", "s"] {
            ip(&format!("netns del {}", self.ns(part)));
        }
    }
}

/// Reads one byte at a time, so that a buffered reader takes no more than a line.
struct Once<'a>(&'a TcpStream);

impl Read for Once<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(&mut buffer[..1])
    }
}

/// A connection whose server has greeted.
pub struct Greeted {
    pub took: Duration,
    pub line: String,
    pub stream: TcpStream,
}

impl Greeted {
    /// The server saw the client's own address and port.
    pub fn assert_kept(&self) {
        assert_eq!(
            self.line,
            format!("hello {}", self.stream.local_addr().unwrap())
        );
    }

    /// Bytes go there and come back.
    pub fn assert_echo(&mut self) {
        let sent: Vec<u8> = (0..200_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
        let (mut writer, expected) = (self.stream.try_clone().unwrap(), sent.clone());
        let writing = std::thread::spawn(move || writer.write_all(&sent));
        let mut received = vec![0; expected.len()];
        self.stream.read_exact(&mut received).unwrap();
        writing.join().unwrap().unwrap();
        assert!(received == expected, "echoed bytes differ");
    }
}

/// The toy gateway process.
pub struct Gateway {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Gateway {
    /// Waits for a line that begins with `start` and has not been waited for.
    pub fn wait_for(&self, start: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        let mut lines = self.said.0.lock().unwrap();
        loop {
            if let Some(at) = lines.iter().position(|line| line.starts_with(start)) {
                return lines.remove(at);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no `{start}` from the gateway; it said {lines:?}"
            );
            lines = self.said.1.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Lines so far that contain `text`.
    pub fn count(&self, text: &str) -> usize {
        let lines = self.said.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    /// Sends a command.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    pub fn stats(&mut self) -> serde_json::Value {
        self.tell("stats");
        let line = self.wait_for("stats ", Duration::from_secs(2));
        serde_json::from_str(&line["stats ".len()..]).unwrap()
    }

    pub fn stop(mut self) {
        self.tell("stop");
        self.wait_for("stopped", Duration::from_secs(5));
        assert!(self.child.wait().unwrap().success());
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Stops it until `SIGCONT`, and returns once no thread of it runs any more: the signal alone
    /// takes effect only when the kernel next gets to each, and until then they go on working.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            // A thread may end meanwhile; the next look no longer finds it.
            let stat =
                std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            // The state comes after the name, which is in parentheses (proc_pid_stat(5)).
            stat.rsplit_once(") ")
                .is_some_and(|(_, state)| state.starts_with('T'))
        };
        until(Duration::from_secs(2), "every thread has stopped", || {
            std::fs::read_dir(&tasks).unwrap().all(is_stopped)
        });
    }

    /// Kilobytes of memory it occupies.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Its only lasting child: the guard.
    pub fn guard(&self) -> Option<Pid> {
        let id = self.child.id();
        let path = format!("/proc/{id}/task/{id}/children");
        let tasks = format!("/proc/{id}/task");
        let _ = path;
        std::fs::read_dir(tasks).ok()?.find_map(|task| {
            let children = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
            Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::CONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` holds; tells how long that took.
pub fn until(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < patience,
            "not within {patience:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

pub fn v4(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), port)
}

pub fn v6(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V6.parse().unwrap(), port)
}

fn listen(address: SocketAddr) -> TcpListener {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket.listen(1024).unwrap();
    socket.into()
}

fn greet_and_echo(mut stream: TcpStream, client: SocketAddr) -> std::io::Result<u64> {
    writeln!(stream, "hello {client}")?;
    let mut back = stream.try_clone()?;
    std::io::copy(&mut stream, &mut back)
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

fn ip_batch(namespace: &str, lines: &str) {
    for line in lines.lines() {
        if namespace.is_empty() {
            ip(line);
        } else {
            ip(&format!("-n {namespace} {line}"));
        }
    }
}
