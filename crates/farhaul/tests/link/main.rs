//! `farhaul link` on real interfaces. Needs root, and fails without.

#![allow(clippy::unwrap_used)]

mod bench;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farhaul_lab::netns::Namespace;
use rustix::process::Signal;
use serde_json::Value;

use bench::{Bench, FARHAUL, PATIENCE, count, receive, stderr};

/// Shortest round trip of nine datagrams: the one that a busy machine disturbed
/// least.
fn round_trip(socket: &UdpSocket) -> Duration {
    (0..9u8)
        .map(|number| {
            let start = Instant::now();
            socket.send(&[number; 100]).unwrap();
            let mut buffer = [0; 200];
            assert_eq!(receive(socket, &mut buffer).unwrap(), 100);
            assert_eq!(buffer[0], number);
            start.elapsed()
        })
        .min()
        .unwrap()
}

fn assert_about(measured: Duration, expected_ms: f64) {
    let measured_ms = measured.as_secs_f64() * 1e3;
    // The lower bound is exact; the upper one allows for a busy machine.
    assert!(
        measured_ms >= expected_ms && measured_ms < expected_ms + 5.0,
        "{measured_ms} ms instead of {expected_ms} ms"
    );
}

#[test]
fn delay_is_as_asked_and_changes_at_once_in_each_direction() {
    let bench = Bench::new("delay");
    bench.echo("10.78.0.2:7");
    bench.echo("[fd78::2]:7");
    let link = bench.link(&["delay", "20ms"]);
    let (ipv4, ipv6) = (bench.client("10.78.0.2:7"), bench.client("[fd78::2]:7"));
    assert_about(round_trip(&ipv4), 40.0);
    assert_about(round_trip(&ipv6), 40.0);
    link.set(&["forward", "delay", "2ms", "backward", "delay", "7ms"]);
    assert_about(round_trip(&ipv4), 9.0);
    // What is not mentioned stays.
    link.set(&["loss", "0%"]);
    assert_about(round_trip(&ipv6), 9.0);
}

#[test]
fn a_change_loses_nothing_in_flight() {
    let bench = Bench::new("flight");
    bench.echo("10.78.0.2:7");
    let link = bench.link(&["rate", "1mbit", "delay", "100ms"]);
    let client = bench.client("10.78.0.2:7");
    // The addresses are resolved before it counts.
    client.send(b"first").unwrap();
    assert_eq!(receive(&client, &mut [0; 10]).unwrap(), 5);
    for number in 0..50u8 {
        client.send(&[number; 300]).unwrap();
    }
    link.set(&["rate", "50mbit", "delay", "1ms"]);
    for number in 0..50u8 {
        let mut buffer = [0; 400];
        assert_eq!(receive(&client, &mut buffer).unwrap(), 300);
        assert_eq!(buffer[0], number);
    }
}

/// Sends `total` patterned bytes from left to right by TCP and returns the
/// bits per second seen by the receiver after the first 100 kB.
fn tcp_transfer(bench: &Bench, address: &'static str, total: usize) -> f64 {
    let listener = bench
        .right
        .within(|| TcpListener::bind(address).unwrap())
        .unwrap();
    let sender = bench.left.spawn_within(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let data: Vec<u8> = (0..total).map(pattern).collect();
        stream.write_all(&data).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = Vec::with_capacity(total);
    let mut buffer = vec![0; 64 * 1024];
    let mut start = None;
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..count]);
        if start.is_none() && received.len() > 100_000 {
            start = Some((Instant::now(), received.len()));
        }
    }
    let (start, at_start) = start.unwrap();
    let rate = (received.len() - at_start) as f64 * 8.0 / start.elapsed().as_secs_f64();
    sender.join().unwrap().unwrap();
    assert_eq!(received.len(), total);
    assert!(
        received.into_iter().eq((0..total).map(pattern)),
        "bytes differ"
    );
    rate
}

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Sum of the named counters of the receiving host.
fn checksum_errors(host: &Namespace) -> u64 {
    let text = host.exec(&["cat", "/proc/net/snmp"]).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let names = lines.next().unwrap().split_whitespace();
    let values = lines.next().unwrap().split_whitespace();
    let (_, value) = names
        .zip(values)
        .find(|(name, _)| *name == "InCsumErrors")
        .unwrap();
    value.parse().unwrap()
}

#[test]
fn tcp_of_an_offloading_host_arrives_whole_at_the_rate_asked_for() {
    let bench = Bench::new("tcp");
    let link = bench.link(&["rate", "20mbit", "delay", "1ms", "mtu", "1500"]);
    // Its segmentation offload is on: it sends packets of up to 64 KiB.
    let features = bench.left.exec(&["ethtool", "-k", "eth0"]).unwrap();
    assert!(
        features.contains("tcp-segmentation-offload: on"),
        "{features}"
    );
    for address in ["10.78.0.2:80", "[fd78::2]:81"] {
        let rate = tcp_transfer(&bench, address, 3_000_000);
        let header_bytes = if address.starts_with('[') { 86 } else { 66 };
        let expected = 20e6 * (1514.0 - f64::from(header_bytes)) / 1514.0;
        // Never faster; a busy machine may be slower.
        let share = rate / expected;
        assert!((0.8..1.02).contains(&share), "{rate} instead of {expected}");
    }
    let stats = link.stats();
    // Nothing above the MTU reached the model, nothing was beyond repair.
    for cause in ["mtu", "kernel", "send", "offload", "line"] {
        assert_eq!(
            count(&stats, &format!("/forward/drops/{cause}")),
            0,
            "{cause}"
        );
    }
    assert_eq!(count(&stats, "/forward/requested_bit_per_s"), 20_000_000);
    let achieved = count(&stats, "/forward/achieved_bit_per_s_max");
    assert!((16_000_000..=20_200_000).contains(&achieved), "{achieved}");
    assert_eq!(checksum_errors(&bench.right), 0);
    // Unlimited, it still is cut into frames.
    link.set(&["unlimited", "mtu", "1500"]);
    tcp_transfer(&bench, "10.78.0.2:82", 3_000_000);
    assert_eq!(count(&link.stats(), "/forward/drops/mtu"), 0);
}

#[test]
fn vlan_tags_pass_and_count() {
    let bench = Bench::new("vlan");
    // The hosts have nothing to say of their own.
    for host in [&bench.left, &bench.right] {
        host.set(&[("ipv6/conf/all/disable_ipv6", "1")]).unwrap();
    }
    let capture = bench.sandbox.folder().join("b.pcap");
    let link = bench.link(&["mtu", "1500", "--pcap-b", capture.to_str().unwrap()]);
    let before = received_bytes(&bench.right);
    // A full-size packet: 1500 bytes, a header of 14 and a tag of 4. The kernel
    // takes the tag out on its way into the packet socket.
    let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&[0x81, 0, 0x60, 7, 0x88, 0xb5]);
    frame.extend((0..1500).map(|at| at as u8));
    bench.left.within(|| send_frame("eth0", &frame)).unwrap();
    let start = Instant::now();
    while count(&link.stats(), "/forward/packets_out") == 0 {
        assert!(start.elapsed() < PATIENCE, "{}", link.stats());
    }
    assert_eq!(count(&link.stats(), "/forward/bytes_out"), 1518);
    assert_eq!(received_bytes(&bench.right) - before, 1518);
    assert!(link.ask("stop", &[]).status.success());
    let frames = read_capture(&capture);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].1, frame);
    let now_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    let age_ns = now_ns - frames[0].0;
    assert!(age_ns < PATIENCE.as_nanos() as u64, "{age_ns}");
}

/// Bytes that arrived at a host, as its interface counts them.
fn received_bytes(host: &Namespace) -> u64 {
    let text = host
        .exec(&["cat", "/sys/class/net/eth0/statistics/rx_bytes"])
        .unwrap();
    text.trim().parse().unwrap()
}

/// Sends a frame as it is. A kernel without VLAN devices can do it like this.
#[allow(unsafe_code)]
fn send_frame(interface: &str, frame: &[u8]) {
    let name = std::ffi::CString::new(interface).unwrap();
    // SAFETY: all pointers are to live values of the sizes given, and zero is
    // a valid value of the address.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        let sent = libc::sendto(
            socket,
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        );
        assert_eq!(
            sent,
            frame.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
        libc::close(socket);
    }
}

/// Time in nanoseconds and bytes of every frame.
fn read_capture(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xa1b2_3c4d);
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let time_ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let length = word(at + 8) as usize;
        frames.push((time_ns, bytes[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    frames
}

#[test]
fn drops_are_counted_by_their_cause() {
    let bench = Bench::new("drops");
    // Some seconds after it began, which a busy machine takes to come here, a host looks for routers,
    // and asks again for a neighbour it has found: packets that would be counted.
    for host in [&bench.left, &bench.right] {
        host.set(&[
            ("ipv6/conf/eth0/disable_ipv6", "1"),
            ("ipv4/neigh/eth0/delay_first_probe_time", "600"),
        ])
        .unwrap();
    }
    let sink = bench
        .right
        .within(|| UdpSocket::bind("10.78.0.2:9").unwrap())
        .unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let link = bench.link(&["mtu", "1000", "--seed", "5"]);
    let client = bench.client("10.78.0.2:9");
    client.send(&[0; 972]).unwrap();
    client.send(&[0; 973]).unwrap();
    assert_eq!(receive(&sink, &mut [0; 2000]).unwrap(), 972);
    assert!(receive(&sink, &mut [0; 2000]).is_err());
    assert_eq!(count(&link.stats(), "/forward/drops/mtu"), 1);
    link.set(&["forward", "loss", "20%"]);
    let before = link.stats();
    // Received while it is sent: 500 would not fit into the socket's buffer.
    let counter =
        thread::spawn(move || std::iter::from_fn(|| receive(&sink, &mut [0; 2000]).ok()).count());
    for _ in 0..500 {
        client.send(&[0; 100]).unwrap();
        thread::sleep(Duration::from_micros(100));
    }
    let received = counter.join().unwrap() as u64;
    let lost = count(&link.stats(), "/forward/drops/loss") - count(&before, "/forward/drops/loss");
    assert_eq!(received + lost, 500);
    // 20 % of 500 with five standard deviations.
    assert!((55..=145).contains(&lost), "{lost}");
    let output = link.ask("stats", &["--reset"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("dropped: loss"));
    assert_eq!(count(&link.stats(), "/forward/drops/loss"), 0);
    assert_eq!(count(&link.stats(), "/forward/packets_in"), 0);
}

#[test]
fn offloads_are_off_meanwhile_and_as_before_afterwards() {
    let bench = Bench::new("offloads");
    // One switch was off before and must stay off.
    bench
        .wan
        .exec(&["ethtool", "-K", "a", "gso", "off"])
        .unwrap();
    let before = bench.offloads();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let link = bench.link(&[]);
        let meanwhile = bench.offloads();
        for name in [
            "tcp-segmentation-offload",
            "rx-checksumming",
            "tx-checksumming",
            "tx-vlan-offload",
        ] {
            assert!(meanwhile.contains(&format!("{name}: off")), "{meanwhile}");
            assert!(!meanwhile.contains(&format!("{name}: on")), "{meanwhile}");
        }
        link.signal(signal);
        let (code, text) = link.end();
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(bench.offloads(), before, "{signal:?}");
        assert!(!bench.socket().exists());
    }
    let link = bench.link(&[]);
    assert!(link.ask("stop", &[]).status.success());
    assert_eq!(bench.offloads(), before);
    assert_eq!(link.end().0, Some(0));
}

#[test]
fn what_a_killed_link_left_is_put_back() {
    let bench = Bench::new("killed");
    let before = bench.offloads();
    let restore = |words: &[&str]| {
        let mut command = bench.wan.command(FARHAUL);
        command
            .args(["link", "restore"])
            .args(words)
            .output()
            .unwrap()
    };
    let killed = || {
        let link = bench.link(&[]);
        // It still holds them: hands off.
        assert_eq!(restore(&["a"]).status.code(), Some(1));
        assert!(restore(&[]).status.success());
        assert_ne!(bench.offloads(), before);
        link.signal(Signal::KILL);
        link.end();
        assert_ne!(bench.offloads(), before);
    };
    killed();
    let output = restore(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("a: ") && text.contains("b: "),
        "{text}"
    );
    assert_eq!(bench.offloads(), before);
    killed();
    // The next run takes the dead one's socket and knows how it was.
    let link = bench.link(&[]);
    assert!(link.ask("stop", &[]).status.success());
    assert_eq!(bench.offloads(), before);
}

#[test]
fn what_a_killed_link_left_is_put_back_by_the_next_one_elsewhere() {
    let bench = Bench::new("elsewhere");
    let before = bench.offloads();
    let link = bench.link(&[]);
    link.signal(Signal::KILL);
    link.end();
    assert_ne!(bench.offloads(), before);
    bench
        .wan
        .ip("link add c type veth peer name d\nlink set dev c up\nlink set dev d up")
        .unwrap();
    let socket = bench.sandbox.folder().join("elsewhere.sock");
    let other = bench.link_between(["c", "d"], &[], socket);
    assert_eq!(bench.offloads(), before);
    // A link that runs keeps its own.
    let link = bench.link(&[]);
    assert!(other.ask("stop", &[]).status.success());
    let (code, text) = other.end();
    assert_eq!(code, Some(0));
    assert!(
        text.contains("`a` were left off") && text.contains("`b` were left off"),
        "{text}"
    );
    assert_ne!(bench.offloads(), before);
    drop(link);
    assert_eq!(bench.offloads(), before);
}

#[test]
fn an_interface_that_vanishes_ends_the_link_and_a_flap_does_not() {
    let bench = Bench::new("vanish");
    bench.echo("10.78.0.2:7");
    let link = bench.link(&["delay", "1ms"]);
    let client = bench.client("10.78.0.2:7");
    round_trip(&client);
    bench
        .wan
        .ip("link set dev a down\nlink set dev a up")
        .unwrap();
    let start = Instant::now();
    client
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    while client.send(&[1]).is_err() || receive(&client, &mut [0; 10]).is_err() {
        assert!(start.elapsed() < PATIENCE, "the link does not come back");
    }
    let before = bench.wan.exec(&["ethtool", "-k", "b"]).unwrap();
    assert!(before.contains("tcp-segmentation-offload: off"));
    bench.left.ip("link delete eth0").unwrap();
    let (code, text) = link.end();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("interface `a` is gone"), "{text}");
    let after = bench.wan.exec(&["ethtool", "-k", "b"]).unwrap();
    assert!(after.contains("tcp-segmentation-offload: on"), "{after}");
    assert!(!bench.socket().exists());
}

#[test]
fn bad_input_is_refused_and_leaves_nothing() {
    let bench = Bench::new("bad");
    assert!(bench.refused(&["a", "a"], 2).contains("given twice"));
    assert!(
        bench
            .refused(&["a", "nosuch"], 1)
            .contains("no interface `nosuch`")
    );
    assert!(bench.refused(&["lo", "b"], 1).contains("not Ethernet"));
    let text = bench.refused(&["a", "b", "oc1", "dealy", "1ms"], 2);
    assert!(text.contains("did you mean `delay`"), "{text}");
    let text = bench.refused(&["a", "b", "--pcap-a", "/nosuch/folder/x.pcap"], 1);
    assert!(text.contains("/nosuch/folder/x.pcap"), "{text}");
    bench.wan.ip("link set dev b down").unwrap();
    assert!(
        bench
            .refused(&["a", "b"], 1)
            .contains("ip link set dev b up")
    );
    bench
        .wan
        .ip("link set dev b up\nlink add bridge0 type bridge\nlink set dev b master bridge0")
        .unwrap();
    assert!(bench.refused(&["a", "b"], 1).contains("port of `bridge0`"));
    bench.wan.ip("link delete bridge0").unwrap();
    let file = bench.sandbox.folder().join("file");
    std::fs::write(&file, "precious").unwrap();
    let text = bench.refused(&["a", "b", "--socket", file.to_str().unwrap()], 1);
    assert!(text.contains("not a socket"), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    // Neither interface nor socket can be shared with a running link.
    let link = bench.link(&[]);
    assert!(bench.refused(&["a", "b"], 1).contains("listens at"));
    let other = bench.sandbox.folder().join("other.sock");
    let text = bench.refused(&["b", "a", "--socket", other.to_str().unwrap()], 1);
    assert!(text.contains("held by another"), "{text}");
    assert!(!other.exists());
    let output = link.ask("set", &["rate", "10parsec"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(link.ask("stop", &[]).status.success());
    let output = link.ask("stats", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no `farhaul link` listens at"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_capabilities_it_says_so() {
    let bench = Bench::new("caps");
    let before = bench.offloads();
    let output = bench
        .wan
        .command("setpriv")
        .args([
            "--bounding-set=-net_raw,-net_admin",
            "--inh-caps=-net_raw,-net_admin",
        ])
        .args([FARHAUL, "link", "run", "a", "b", "--socket"])
        .arg(bench.socket())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("not permitted") && text.contains("CAP_NET_RAW"),
        "{text}"
    );
    assert_eq!(bench.offloads(), before);
    assert!(!bench.socket().exists());
}

#[test]
fn strange_clients_do_not_disturb() {
    let bench = Bench::new("strange");
    let link = bench.link(&[]);
    let idle: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(bench.socket()).unwrap())
        .collect();
    let mut garbage = UnixStream::connect(bench.socket()).unwrap();
    garbage.set_read_timeout(Some(PATIENCE)).unwrap();
    garbage
        .write_all(b"{\"verb\": \"dance\"}\n\xff\xfe\n")
        .unwrap();
    let mut answers = BufReader::new(garbage);
    for _ in 0..2 {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert!(
            answer["error"].as_str().unwrap().contains("not a request"),
            "{line}"
        );
    }
    // A request without end is cut off.
    let mut endless = UnixStream::connect(bench.socket()).unwrap();
    endless.set_write_timeout(Some(PATIENCE)).unwrap();
    let flood = vec![b'x'; 1 << 20];
    assert!(endless.write_all(&flood).is_err());
    assert_eq!(count(&link.stats(), "/seed"), 1);
    drop(idle);
    assert!(link.ask("stop", &[]).status.success());
}
