//! Namespaces and sandboxes on the real kernel. Needs root, and fails without.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use farhaul_lab::netns::{Namespace, connect};
use farhaul_lab::process::ProcessId;
use farhaul_lab::sandbox::{self, Sandbox, State};

fn name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

fn namespaces_named(part: &str) -> BTreeSet<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.contains(part))
        .map(str::to_owned)
        .collect()
}

/// Two namespaces with a cable between them: 10.77.0.1 and 10.77.0.2.
fn pair(sandbox: &mut Sandbox) -> (Namespace, Namespace) {
    let left = sandbox.add_namespace("left").unwrap();
    let right = sandbox.add_namespace("right").unwrap();
    connect((&left, "eth0"), (&right, "eth0")).unwrap();
    left.ip("address add 10.77.0.1/24 dev eth0\nlink set eth0 up")
        .unwrap();
    right
        .ip("address add 10.77.0.2/24 dev eth0\nlink set eth0 up")
        .unwrap();
    (left, right)
}

#[test]
fn closures_run_inside_and_their_sockets_meet() {
    let mut sandbox = Sandbox::create(&name("within")).unwrap();
    let (left, right) = pair(&mut sandbox);
    let listener = right
        .within(|| TcpListener::bind("10.77.0.2:80").unwrap())
        .unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        write!(stream, "hello {}", peer.ip()).unwrap();
    });
    let client = left.spawn_within(|| {
        let mut text = String::new();
        let mut stream = TcpStream::connect("10.77.0.2:80").unwrap();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(client.join().unwrap().unwrap(), "hello 10.77.0.1");
    server.join().unwrap();
    // Our own thread never left: the address exists only inside.
    assert!(UdpSocket::bind("10.77.0.1:0").is_err());
}

#[test]
fn programs_run_inside_and_say_why_they_fail() {
    let mut sandbox = Sandbox::create(&name("exec")).unwrap();
    let (left, _right) = pair(&mut sandbox);
    let shown = left
        .exec(&["ip", "-br", "address", "show", "dev", "eth0"])
        .unwrap();
    assert!(shown.contains("10.77.0.1/24"), "{shown}");
    let seen = left.exec(&["ls", "/sys/class/net"]).unwrap();
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["eth0", "lo"]);
    let error = left
        .exec(&["ip", "link", "show", "dev", "wan9"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("wan9") && error.contains("does not exist"),
        "{error}"
    );
    left.set(&[("ipv4/ip_forward", "1")]).unwrap();
    assert_eq!(
        left.exec(&["cat", "/proc/sys/net/ipv4/ip_forward"])
            .unwrap(),
        "1\n"
    );
    assert!(left.set(&[("ipv4/no_such_setting", "1")]).is_err());
}

#[test]
fn a_panic_inside_goes_on_outside() {
    let mut sandbox = Sandbox::create(&name("panic")).unwrap();
    let inside = sandbox.add_namespace("only").unwrap();
    let caught = std::panic::catch_unwind(|| inside.within(|| panic!("from inside")));
    assert_eq!(
        *caught.unwrap_err().downcast::<&str>().unwrap(),
        "from inside"
    );
}

#[test]
fn dropping_leaves_nothing_behind() {
    let name = name("drop");
    let mut sandbox = Sandbox::create(&name).unwrap();
    let (left, right) = pair(&mut sandbox);
    let recorded = sandbox.start("sleeper", &left, &["sleep", "600"]).unwrap();
    // One that nobody recorded, as a forgotten `farhaul lab exec` would be.
    let mut stray = right.command("sleep").arg("600").spawn().unwrap();
    let stray_id = ProcessId::of(stray.id().cast_signed()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(recorded.is_alive() && stray_id.is_alive());
    assert_eq!(namespaces_named(&name).len(), 2);
    let folder = sandbox.folder();
    drop(sandbox);
    assert!(!recorded.is_alive() && !stray_id.is_alive());
    stray.wait().unwrap();
    assert_eq!(namespaces_named(&name), BTreeSet::new());
    assert!(!folder.exists());
    assert!(!sandbox::list().unwrap().contains(&name));
}

#[test]
fn a_second_one_of_the_same_name_is_refused_and_harms_nothing() {
    let name = name("twice");
    let mut first = Sandbox::create(&name).unwrap();
    first.add_namespace("only").unwrap();
    let error = Sandbox::create(&name).unwrap_err().to_string();
    assert!(error.contains("already up (process"), "{error}");
    assert_eq!(namespaces_named(&name).len(), 1);
}

#[test]
fn a_kept_one_stays_until_it_is_torn_down() {
    let name = name("kept");
    let mut first = Sandbox::create(&name).unwrap();
    let only = first.add_namespace("only").unwrap();
    let process = first.start("sleeper", &only, &["sleep", "600"]).unwrap();
    first.keep().unwrap();
    sandbox::sweep().unwrap();
    assert!(process.is_alive());
    drop(Sandbox::open(&name).unwrap());
    assert!(process.is_alive());
    let again = Sandbox::open(&name).unwrap();
    assert_eq!(again.namespace("only").unwrap(), only);
    assert!(
        again
            .namespace("other")
            .unwrap_err()
            .to_string()
            .contains("it has only")
    );
    again.tear_down().unwrap();
    assert!(!process.is_alive());
    assert_eq!(namespaces_named(&name), BTreeSet::new());
}

/// Rewrites a sandbox's state as if its owner had crashed, and forgets it.
fn crash(sandbox: Sandbox) {
    let mut state: State = sandbox.state().clone();
    let mut gone = Command::new("true").spawn().unwrap();
    state.owner = ProcessId::of(gone.id().cast_signed()).map(|mut owner| {
        owner.start_ticks += 1;
        owner
    });
    gone.wait().unwrap();
    let path = sandbox.folder().join("state.json");
    std::fs::write(path, serde_json::to_vec(&state).unwrap()).unwrap();
    std::mem::forget(sandbox);
}

#[test]
fn what_a_crash_left_is_removed_and_nothing_else() {
    let crashed_name = name("crashed");
    let mut crashed = Sandbox::create(&crashed_name).unwrap();
    let (left, right) = pair(&mut crashed);
    let process = crashed.start("sleeper", &left, &["sleep", "600"]).unwrap();
    // Someone else's namespace took the name of one of ours after it had gone.
    // (Made first, since the kernel may give a freed identity out again.)
    let mut foreign = Command::new("unshare")
        .args(["--net", "sleep", "600"])
        .spawn()
        .unwrap();
    let foreign_id = ProcessId::of(foreign.id().cast_signed()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    right.delete().unwrap();
    let attached = Command::new("ip")
        .args(["netns", "attach", right.name(), &foreign.id().to_string()])
        .status()
        .unwrap();
    assert!(attached.success());
    crash(crashed);

    drop(Sandbox::create(&name("next")).unwrap());

    assert!(
        !process.is_alive(),
        "a process of the crashed run still runs"
    );
    assert!(!left.exists());
    assert!(right.exists(), "a foreign namespace was removed");
    assert!(foreign_id.is_alive(), "a foreign process was ended");
    assert!(!sandbox::list().unwrap().contains(&crashed_name));
    foreign.kill().unwrap();
    foreign.wait().unwrap();
    right.delete().unwrap();
}

#[test]
fn a_foreign_namespace_of_our_name_is_not_taken_over() {
    let name = name("foreign");
    let foreign = Namespace::named(format!("fh-{name}-client"));
    foreign.create().unwrap();
    let mut sandbox = Sandbox::create(&name).unwrap();
    let error = sandbox.add_namespace("client").unwrap_err().to_string();
    assert!(error.contains("not made by the lab"), "{error}");
    drop(sandbox);
    assert!(foreign.exists());
    foreign.delete().unwrap();
}

#[test]
fn sweeping_while_labs_are_torn_down_harms_nothing() {
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                drop(Sandbox::create(&name(&format!("going{round}"))).unwrap());
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            sandbox::sweep().unwrap();
        }
    });
}

#[test]
fn names_that_could_escape_the_folder_are_refused() {
    for bad in ["", "..", "a/b", "-x", "Lab", &"x".repeat(33)] {
        let error = Sandbox::create(bad).unwrap_err().to_string();
        assert!(error.contains("cannot be a lab name"), "{error}");
        assert!(Sandbox::open(bad).is_err());
    }
}
