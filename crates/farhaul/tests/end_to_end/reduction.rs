//! Reduction between two real gateways: what passes twice crosses the link once, and whatever happens to a gateway or its
//! memory, no application sees a wrong byte.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;

use crate::apps::{Service, assert_echo, content, digest, echo, read_all};
use crate::crowd::resident_mib;
use crate::transfer::{Transfer, Way};
use crate::world::{World, until, v4};

const ON: &str = "[store]\nmemory = '64 MiB'";
const RESUME: &str = "[store]\nmemory = '64 MiB'\n[tunnel]\nresume_max = '5s'";
const FILE_BYTES: usize = 3 << 20;

/// With a disk of its own; the folder is beside the configuration.
fn on_disk(folder: &str) -> String {
    format!(
        "[store]\nmemory = '256 MiB'\ndisk = {{ path = '{folder}', size = '512 MiB' }}\n[tunnel]\nresume_max = '5s'"
    )
}

/// A server that sends the same file to everybody.
fn files(world: &World, port: u16) -> Service {
    let file = content(77, FILE_BYTES);
    Service::start(&world.lab.server().unwrap(), port, move |mut stream, _| {
        let _ = stream.write_all(&file);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// Fetches the file; what the far gateway sent on the link for it.
fn fetch(world: &World, port: u16) -> u64 {
    let before = wire_bytes(world);
    let mut stream = world.connect(v4(port));
    assert!(world.is_tunnelled(&stream));
    let (len, sum, result) = read_all(&mut stream);
    result.unwrap();
    assert_eq!((len, sum), (FILE_BYTES, digest(&content(77, FILE_BYTES))));
    wire_bytes(world) - before
}

fn wire_bytes(world: &World) -> u64 {
    let status = world.status(Side::B);
    status["peers"][0]["wire_sent_bytes"].as_u64().unwrap()
}

/// Waits until what passed is held at both ends: a fetch that costs little.
fn assert_known(world: &World, port: u16) {
    until("a file that passed to cost little", || {
        fetch(world, port) < FILE_BYTES as u64 / 50
    });
}

fn echoes(world: &World, port: u16, bytes: &[u8]) {
    let mut stream: TcpStream = world.connect(v4(port));
    assert!(world.is_tunnelled(&stream));
    assert_echo(&mut stream, bytes);
}

#[test]
fn a_file_fetched_twice_crosses_a_slow_link_once() {
    let world = World::over(Some("rate 50mbit delay 20ms queue 100ms"), "twice", ON, ON);
    let _files = files(&world, 5000);
    let first = fetch(&world, 5000);
    assert!(first > FILE_BYTES as u64, "{first}");
    assert_known(&world, 5000);
    assert_tiers(&world);
    // The other direction, and edits: an echo of something like it.
    let mut edited = content(77, FILE_BYTES);
    edited.splice(1000..1001, *b"an insertion");
    let _echo = Service::start(&world.lab.server().unwrap(), 5001, echo);
    let before = wire_bytes(&world);
    echoes(&world, 5001, &edited);
    let back = wire_bytes(&world) - before;
    assert!(back < FILE_BYTES as u64 / 10, "{back}");
}

#[test]
fn what_was_fetched_and_is_sent_back_changed_crosses_a_link_once() {
    let link = "rate 50mbit delay 20ms queue 100ms";
    let world = World::over(Some(link), "sentback", ON, ON);
    let _files = files(&world, 5000);
    assert!(fetch(&world, 5000) > FILE_BYTES as u64);
    let _echo = Service::start(&world.lab.server().unwrap(), 5001, echo);
    let sent = || world.status(Side::A)["peers"][0]["wire_sent_bytes"].as_u64();
    let before = sent().unwrap();
    let mut edited = content(77, FILE_BYTES);
    edited.splice(1000..1001, *b"an insertion");
    echoes(&world, 5001, &edited);
    let crossed = sent().unwrap() - before;
    assert!(crossed < FILE_BYTES as u64 / 10, "{crossed}");
    assert_eq!(reduction_figure(&world, Side::B, "/missed"), 0);
}

/// A file was sent once and known from memory since: what status, top and the cache's figures say of that.
fn assert_tiers(world: &World) {
    let figure = |pointer| reduction_figure(world, Side::B, pointer);
    let file_bytes = FILE_BYTES as u64;
    assert!(figure("/known_memory_bytes") > file_bytes / 10 * 9);
    assert_eq!(figure("/known_disk_bytes"), 0);
    let tiers = ["/known_memory_bytes", "/known_disk_bytes", "/run_bytes"];
    let known: u64 = tiers.into_iter().map(figure).sum();
    assert_eq!(figure("/known_bytes"), known);
    // Noise, as the file is, stays as it is.
    assert!(figure("/new_bytes") >= file_bytes);
    assert!(figure("/packed_bytes") > figure("/new_bytes") / 100 * 99);
    let status = world.status(Side::B);
    assert!(status["peers"][0]["reduction"]["level"].is_i64());
    for words in ["status", "top --count 1", "cache stats"] {
        println!("{}", world.told(Side::B, words));
    }
    let page = world.told(Side::B, "status");
    let row = page
        .lines()
        .find(|line| line.trim_start().starts_with("to "));
    let row = row.unwrap_or_else(|| panic!("{page}"));
    assert!(row.contains(" : 1") && row.contains(" %  "), "{page}");
    let top = world.told(Side::B, "top --count 1 --json");
    let top: serde_json::Value = serde_json::from_str(&top).unwrap();
    let now = &top["peers"][0]["reduction"];
    assert!(
        now["ratio"].is_null() && now["store_bytes"].as_u64().unwrap() > 0,
        "{top}"
    );
}

#[test]
fn a_pair_of_which_one_has_no_memory_carries_bytes_as_they_are() {
    let world = World::with("onlyone", ON, "");
    let _files = files(&world, 5000);
    let _echo = Service::start(&world.lab.server().unwrap(), 5001, echo);
    for _ in 0..2 {
        assert!(fetch(&world, 5000) > FILE_BYTES as u64);
    }
    echoes(&world, 5001, b"hello");
}

#[test]
fn a_rule_switches_reduction_off() {
    let off = format!(
        "{ON}\n[[rule]]\nmatch = {{ port = [5000] }}\nreduction = 'off'\ncompression = 'off'"
    );
    let world = World::with("ruled", &off, ON);
    let _files = files(&world, 5000);
    for _ in 0..2 {
        assert!(fetch(&world, 5000) > FILE_BYTES as u64);
    }
    let _others = files(&world, 5001);
    fetch(&world, 5001);
    assert_known(&world, 5001);
}

#[test]
fn invariant_5_what_passed_takes_no_more_memory_than_it_is_given() {
    const MEMORY_MIB: u64 = 192;
    // A gateway without any, with a busy flow.
    const OTHER_MIB_MAX: u64 = 100;
    let config = format!("[store]\nmemory = '{MEMORY_MIB} MiB'");
    let world = World::with("resident", &config, &config);
    let _echo = Service::start(&world.lab.server().unwrap(), 5001, echo);
    for seed in 0..3 {
        echoes(&world, 5001, &content(seed, 40 << 20));
    }
    for side in Side::BOTH {
        let log_mib = reduction_figure(&world, side, "/store_bytes") >> 20;
        assert!(
            log_mib >= MEMORY_MIB / 2 / 4 * 3,
            "the log is full: {log_mib} MiB"
        );
        let mib = resident_mib(&world, side);
        println!("gateway {}: {mib} MiB resident", side.letter());
        assert!(
            mib < MEMORY_MIB / 20 * 23 + OTHER_MIB_MAX,
            "{side:?}: {mib} MiB"
        );
    }
}

#[test]
fn a_rule_pins_the_level_of_what_the_far_gateway_sends() {
    let pinned = format!("{ON}\n[[rule]]\nmatch = {{ port = [5000] }}\ncompression = 12");
    let world = World::with("pinned", &pinned, ON);
    let _files = files(&world, 5000);
    fetch(&world, 5000);
    assert_eq!(reduction_figure(&world, Side::B, "/level"), 12);
    // Of what is known little is left, which says nothing of a level.
    let others = |mut stream: TcpStream, _| {
        let _ = stream.write_all(&content(78, 1 << 20));
    };
    let _others = Service::start(&world.lab.server().unwrap(), 5001, others);
    read_all(&mut world.connect(v4(5001))).2.unwrap();
    assert_ne!(reduction_figure(&world, Side::B, "/level"), 12);
}

#[test]
fn invariant_2_gateways_that_are_killed_in_mid_transfer_deliver_no_wrong_byte() {
    let mut world = World::with("reducekill", RESUME, RESUME);
    let _files = files(&world, 5000);
    let _echo = Service::start(&world.lab.server().unwrap(), 5003, echo);
    fetch(&world, 5000);
    assert_known(&world, 5000);
    for killed in [Side::B, Side::A] {
        let transfers = [(5001, Way::Down), (5002, Way::Up)]
            .map(|(port, way)| Transfer::start(&world, port, way));
        let fault = Instant::now();
        world.signal(killed, Signal::KILL);
        for transfer in transfers {
            transfer.broken(fault, Duration::from_secs(20));
        }
        until("rules, routes and guard to be gone", || {
            world.residue(killed).is_empty()
        });
        world.lab.gateway_start(killed).unwrap();
        world.lab.wait_peers_up().unwrap();
        until("connections through the tunnel again", || {
            world.is_tunnelled(&world.connect(v4(5003)))
        });
        let first = fetch(&world, 5000);
        assert!(first > FILE_BYTES as u64, "it begins anew: {first}");
        assert_known(&world, 5000);
        echoes(&world, 5003, &content(5, 1 << 20));
    }
}

fn reduction_figure(world: &World, side: Side, pointer: &str) -> u64 {
    let status = world.status(side);
    let figure = status.pointer(&format!("/peers/0/reduction{pointer}"));
    figure.and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Waits until both have read back all they had: there is some of it, and it grows no more.
fn wait_warm(world: &World) {
    let warmed = || Side::BOTH.map(|side| reduction_figure(world, side, "/warmed_bytes"));
    until("what is on disk to be read back", || {
        let before = warmed();
        std::thread::sleep(Duration::from_millis(500));
        before == warmed()
            && before
                .iter()
                .all(|&bytes| bytes >= FILE_BYTES as u64 / 10 * 9)
    });
}

fn start_again(world: &mut World, sides: &[Side], port: u16) {
    for &side in sides {
        until("rules, routes and guard to be gone", || {
            world.residue(side).is_empty()
        });
        world.lab.gateway_start(side).unwrap();
    }
    world.lab.wait_peers_up().unwrap();
    until("connections through the tunnel again", || {
        world.is_tunnelled(&world.connect(v4(port)))
    });
}

#[test]
fn invariant_2_gateways_with_a_disk_are_warm_again_after_they_were_killed_in_mid_transfer() {
    let mut world = World::with("diskkill", &on_disk("disk-a"), &on_disk("disk-b"));
    let _files = files(&world, 5000);
    let _echo = Service::start(&world.lab.server().unwrap(), 5003, echo);
    fetch(&world, 5000);
    assert_known(&world, 5000);
    until("the file to be on both disks", || {
        let used = Side::BOTH.map(|side| reduction_figure(&world, side, "/disk/used_bytes"));
        used.iter().all(|&bytes| bytes >= FILE_BYTES as u64)
    });
    for killed in [&[Side::B] as &[Side], &[Side::A], &Side::BOTH] {
        let transfers = [(5001, Way::Down), (5002, Way::Up)]
            .map(|(port, way)| Transfer::start(&world, port, way));
        let fault = Instant::now();
        for &side in killed {
            world.signal(side, Signal::KILL);
        }
        for transfer in transfers {
            transfer.broken(fault, Duration::from_secs(20));
        }
        start_again(&mut world, killed, 5003);
        wait_warm(&world);
        let from_disk = || reduction_figure(&world, Side::B, "/known_disk_bytes");
        let before = from_disk();
        let again = fetch(&world, 5000);
        println!("{killed:?} killed: {again} bytes on the link for {FILE_BYTES}");
        assert!(again < FILE_BYTES as u64 / 10, "{killed:?}: {again}");
        let known = from_disk() - before;
        assert!(known > FILE_BYTES as u64 / 10 * 8, "{killed:?}: {known}");
        echoes(&world, 5003, &content(5, 1 << 20));
    }
    for side in Side::BOTH {
        let stats = world.told(side, "cache stats");
        assert!(
            stats.contains("0 blocks damaged, 0 operations failed"),
            "{stats}"
        );
        world.told(side, "cache clear");
        assert_eq!(reduction_figure(&world, side, "/disk/used_bytes"), 0);
    }
    assert!(fetch(&world, 5000) > FILE_BYTES as u64, "it was forgotten");
    assert_known(&world, 5000);
}

#[test]
fn what_is_wrong_with_the_files_of_a_disk_is_told_and_the_rest_is_used() {
    let mut world = World::with("diskpipe", &on_disk("disk-a"), &on_disk("disk-b"));
    let _files = files(&world, 5000);
    let _echo = Service::start(&world.lab.server().unwrap(), 5003, echo);
    fetch(&world, 5000);
    until("the file to be on both disks", || {
        let used = Side::BOTH.map(|side| reduction_figure(&world, side, "/disk/used_bytes"));
        used.iter().all(|&bytes| bytes >= FILE_BYTES as u64)
    });
    world
        .lab
        .gateway_stop(Side::B, Duration::from_secs(20))
        .unwrap();
    let disk = world
        .lab
        .gateway_config_path(Side::B)
        .with_file_name("disk-b");
    let peer = std::fs::read_dir(&disk).unwrap().next().unwrap().unwrap();
    let sent = peer.path().join("sent/segments-00000000");
    let cut = std::fs::File::options().write(true).open(sent).unwrap();
    cut.set_len(1 << 20).unwrap();
    let pipe = peer.path().join("received/segments-00000000");
    let _ = std::fs::remove_file(&pipe);
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    start_again(&mut world, &[Side::B], 5003);
    until("the store to be open", || {
        reduction_figure(&world, Side::B, "/disk/unusable_files") == 2
    });
    let stats = world.told(Side::B, "cache stats");
    assert!(
        stats.contains("2 files unusable; last: cannot use "),
        "{stats}"
    );
    until("the log to say so", || {
        let log = world.lab.gateway_log_tail(Side::B);
        log.contains("segments-00000000: a pipe, no regular file: the store does without it")
            && log.contains("segments-00000000: cut short, 1048576 of 16793600 bytes are left")
    });
    fetch(&world, 5000);
    until("the file to be on disk again", || {
        reduction_figure(&world, Side::B, "/disk/used_bytes") >= FILE_BYTES as u64
    });
    world
        .lab
        .gateway_stop(Side::B, Duration::from_secs(20))
        .unwrap();
}

/// Files of which more passed than a memory holds: what is read of them again comes from disk.
const DEEP_BYTES: [usize; 2] = [16 << 20, 48 << 20];

fn deep_files(world: &World) -> Vec<Service> {
    let server = world.lab.server().unwrap();
    let of = |(nth, bytes): (usize, usize)| {
        let file = content(90 + nth as u64, bytes);
        Service::start(&server, 5004 + nth as u16, move |mut stream, _| {
            let _ = stream.write_all(&file);
            let _ = stream.shutdown(Shutdown::Write);
        })
    };
    DEEP_BYTES.into_iter().enumerate().map(of).collect()
}

fn fetch_deep(world: &World, nth: usize) -> Duration {
    let started = Instant::now();
    let mut stream = world.connect(v4(5004 + nth as u16));
    assert!(world.is_tunnelled(&stream));
    let (len, sum, result) = read_all(&mut stream);
    result.unwrap();
    let right = content(90 + nth as u64, DEEP_BYTES[nth]);
    assert_eq!((len, sum), (right.len(), digest(&right)));
    started.elapsed()
}

/// Three bits of each file of segments in a folder.
fn rot(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("segments-") {
            continue;
        }
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let file = file.unwrap();
        let quarter = file.metadata().unwrap().len() / 4;
        for at in [quarter, 2 * quarter, 3 * quarter] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    }
}

/// What a reader's disk has lost while it was away is asked for again, of a tunnel that is new and has not yet found out what its link
/// carries: that takes about as long as to send the file, not as long as the little it knows would take.
#[test]
fn what_a_disk_has_lost_is_said_again_as_fast_as_the_link_is() {
    let small = |folder: &str| on_disk(folder).replace("256 MiB", "24 MiB");
    let link = Some("rate 100mbit delay 20ms queue 100ms");
    let mut world = World::over(link, "diskrot", &small("disk-a"), &small("disk-b"));
    let _echo = Service::start(&world.lab.server().unwrap(), 5003, echo);
    let _files = deep_files(&world);
    let cold = fetch_deep(&world, 0);
    fetch_deep(&world, 1);
    until("the files to be on both disks", || {
        let used = Side::BOTH.map(|side| reduction_figure(&world, side, "/disk/used_bytes"));
        let all_bytes = DEEP_BYTES.iter().sum::<usize>() as u64;
        used.iter().all(|&bytes| bytes >= all_bytes)
    });
    world.signal(Side::A, Signal::KILL);
    let disk = world.lab.gateway_config_path(Side::A);
    let disk = disk.with_file_name("disk-a");
    let peer = std::fs::read_dir(disk).unwrap().next().unwrap().unwrap();
    rot(&peer.path().join("received"));
    start_again(&mut world, &[Side::A], 5003);
    wait_warm(&world);
    let again = fetch_deep(&world, 0);
    let missed = reduction_figure(&world, Side::A, "/missed");
    println!("{cold:?}, then {again:?} with {missed} records said again");
    assert!(missed > 0, "nothing is tested");
    assert!(again < 6 * cold, "{again:?} instead of {cold:?}");
}

#[test]
fn a_file_that_was_sent_before_anybody_asked_for_it_costs_little() {
    let world = World::with("warm", ON, ON);
    let _files = files(&world, 5000);
    let path = std::env::temp_dir().join(format!("fh-warm-{}", std::process::id()));
    std::fs::write(&path, content(77, FILE_BYTES)).unwrap();
    let warm = |more: &str| world.ask(Side::B, &format!("cache warm {} {more}", path.display()));
    until("the gateways to agree on a log", || {
        warm("").status.success()
    });
    let again = fetch(&world, 5000);
    assert!(again < FILE_BYTES as u64 / 50, "{again}");
    // Without waiting for it; the second time costs little, too.
    let before = wire_bytes(&world);
    let told = warm("--detach --json").stdout;
    let flow = serde_json::from_slice::<serde_json::Value>(&told).unwrap()["flow"].clone();
    until("it to be sent", || {
        let flows = world.flows(Side::B);
        let list = flows["flows"].as_array().unwrap();
        list.iter().all(|known| known["id"] != flow)
    });
    assert!(wire_bytes(&world) - before < FILE_BYTES as u64 / 50);
    std::fs::remove_file(&path).unwrap();
    let gone = warm("");
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("fh-warm"));
}

/// Over a slow link a gateway tells seldom what it has read; who is told that a file was sent may count on it nevertheless.
#[test]
fn a_file_that_was_sent_is_known_as_soon_as_that_is_said() {
    const BYTES: usize = 400_000;
    let link = Some("rate 1mbit delay 10ms queue 200ms");
    let world = World::over(link, "warmslow", ON, ON);
    let right = content(80, BYTES);
    let path = file("slow", &right);
    let _service = Service::start(&world.lab.server().unwrap(), 5000, move |mut stream, _| {
        let _ = stream.write_all(&right);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let warm = |more: &str| world.ask(Side::B, &format!("cache warm {} {more}", path.display()));
    until("the gateways to agree on a log", || {
        warm("--detach").status.success()
    });
    until("it to be sent", || {
        world.warmings(Side::B)[0]["end"] == "sent"
    });
    let before = wire_bytes(&world);
    let (len, sum, result) = read_all(&mut world.connect(v4(5000)));
    result.unwrap();
    assert_eq!((len, sum), (BYTES, digest(&content(80, BYTES))));
    let crossed = wire_bytes(&world) - before;
    assert!(crossed < BYTES as u64 / 10, "{crossed}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_sent_was_not_sent() {
    let link = Some("rate 20mbit delay 10ms queue 100ms");
    let world = World::over(link, "warmcut", ON, ON);
    let path = file("cut", &content(78, 1000));
    let warm = |path: &str| world.ask(Side::B, &format!("cache warm {path}"));
    let shown = path.display().to_string();
    until("the gateways to agree on a log", || {
        warm(&shown).status.success()
    });
    std::fs::write(&path, content(79, 20 << 20)).unwrap();
    let cut = std::fs::File::options().write(true).open(&path).unwrap();
    let cutting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        cut.set_len(1 << 20).unwrap();
    });
    let told = warm(&shown);
    cutting.join().unwrap();
    assert_eq!(told.status.code(), Some(1));
    let page = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(page.contains("became shorter while it was read"), "{page}");
    until("the flow to be gone", || {
        let of = |side| world.flows(side)["flows"].as_array().unwrap().len();
        Side::BOTH.map(of) == [0, 0]
    });
    let endless = warm("/proc/kmsg");
    assert_eq!(endless.status.code(), Some(1));
    let error = String::from_utf8_lossy(&endless.stderr).into_owned();
    assert!(error.contains("/proc/kmsg: has no length"), "{error}");
    std::fs::remove_file(&path).unwrap();
}

/// A file of this name with these bytes, and its path.
fn file(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("fh-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_file_that_both_sites_have_is_remembered_without_being_sent() {
    let world = World::with("copies", ON, ON);
    let _files = files(&world, 5000);
    let right = content(77, FILE_BYTES);
    let mut other = right.clone();
    other[(1 << 20) + 5] ^= 1;
    let sent = file("sent", &right);
    let [same, similar] = [("same", &right), ("similar", &other)].map(|(n, b)| file(n, b));
    let copy = |path: &std::path::Path| {
        let told = world.told(Side::A, &format!("cache warm {} --copy", path.display()));
        assert!(told.contains("3.0 MiB of 3.0 MiB read: ready"), "{told}");
    };
    let warm = || world.ask(Side::B, &format!("cache warm {} --json", sent.display()));
    let warmed = || {
        let before = wire_bytes(&world);
        let told = warm();
        assert!(told.status.success());
        let status: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let of = |name: &str| status[name].as_u64().unwrap();
        let copied = (of("copied_bytes"), of("repeated_bytes"));
        (wire_bytes(&world) - before, copied)
    };
    let forget = || {
        let epoch = || reduction_figure(&world, Side::B, "/epoch");
        let before = epoch();
        world.told(Side::A, "cache clear");
        until("the log to begin anew", || epoch() > before);
    };
    until("the gateways to agree on a log", || warm().status.success());
    // Of the far site's copy one segment in three is another.
    copy(&similar);
    forget();
    let (bytes, copied) = warmed();
    assert_eq!(copied, (2 << 20, 0));
    assert!((1 << 20..FILE_BYTES as u64 / 2).contains(&bytes), "{bytes}");
    let again = fetch(&world, 5000);
    assert!(again < FILE_BYTES as u64 / 50, "{again}");
    // All of it is the same; then the copy changes without notice.
    copy(&same);
    forget();
    let (bytes, copied) = warmed();
    assert_eq!(copied, (FILE_BYTES as u64, 0));
    assert!(bytes < FILE_BYTES as u64 / 50, "{bytes}");
    assert!(fetch(&world, 5000) < FILE_BYTES as u64 / 50);
    std::fs::write(&same, content(1, FILE_BYTES)).unwrap();
    forget();
    let (bytes, copied) = warmed();
    assert!(
        bytes > FILE_BYTES as u64,
        "nothing of it was right, so it was asked for: {bytes}"
    );
    assert_eq!(copied, (FILE_BYTES as u64, FILE_BYTES as u64));
    assert_known(&world, 5000);
    for path in [sent, same, similar] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn transfers_in_both_directions_end_whole() {
    let world = World::with("reducewhole", ON, ON);
    let transfers =
        [(5001, Way::Down), (5002, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    for transfer in transfers {
        transfer.wait_moved(4 << 20);
        transfer.finish_whole();
    }
}
