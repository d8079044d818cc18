//! What keeps a gateway from starting is said in words, and nothing is left.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Output;
use std::sync::Arc;

use farhaul_lab::Side;
use farhaul_lab::gateways::GatewayOverrides;
use rustix::process::Signal;

use crate::apps::{Service, assert_echo, echo};
use crate::world::{FARHAUL, Shared, World, until, v4};

static NETWORK: Shared = Shared::new();

/// Keys and usable configurations, and nothing that runs.
fn network() -> Arc<World> {
    NETWORK.get(|| {
        let world = World::bare(None, "start");
        let overrides = GatewayOverrides::default();
        world.lab.write_gateway_files(&overrides).unwrap();
        world
    })
}

/// A configuration of its own beside the lab's, changed by `change`.
fn variant(world: &World, name: &str, change: impl FnOnce(String) -> String) -> String {
    let folder = world.lab.sandbox().folder();
    let text = fs::read_to_string(world.lab.gateway_config_path(Side::A)).unwrap();
    let socket = world.lab.gateway_socket(Side::A);
    let own_socket = folder.join(format!("{name}.sock"));
    let text = text.replace(socket.to_str().unwrap(), own_socket.to_str().unwrap());
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, change(text)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a gateway that cannot start, in front of `farhaul` the words `before`.
fn refused(world: &World, side: Side, before: &[&str], config: &str) -> String {
    let mut words = before.to_vec();
    words.extend([FARHAUL, "gateway", "--config", config]);
    let mut command = world.gateway(side).command("timeout");
    let output: Output = command.arg("30").args(words).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    let socket = config.replace(".toml", ".sock");
    assert!(!fs::exists(socket).unwrap(), "its admin socket is left");
    error
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let world = network();
    let config = variant(&world, "typo", |text| {
        text.replace("[intercept]\n", "[intercept]\ninterface = 'lan0'\n")
    });
    let error = refused(&world, Side::A, &[], &config);
    let text = fs::read_to_string(&config).unwrap();
    let line = 1 + text
        .lines()
        .position(|line| line.starts_with("interface ="))
        .unwrap();
    assert!(error.contains(&format!("{config}:{line}:1")), "{error}");
    assert!(
        error.contains("interfaces"),
        "the word that was meant: {error}"
    );
}

#[test]
fn memory_that_is_not_to_be_had_is_named() {
    let world = network();
    let with = |name: &str, size: &str| {
        let store = format!("[store]\nmemory = '{size}'\n[intercept]\n");
        variant(world.as_ref(), name, |text| {
            text.replace("[intercept]\n", &store)
        })
    };
    let absurd = refused(&world, Side::A, &[], &with("absurd", "8000000 TiB"));
    assert!(
        absurd.contains("store.memory: `8000000 TiB` is more"),
        "{absurd}"
    );
    let large = refused(&world, Side::A, &[], &with("large", "100 TiB"));
    assert!(
        large.contains("100 TiB is more than this machine has ("),
        "{large}"
    );
    // Less than the machine has, and more than the process may have.
    let limited = ["sh", "-c", "ulimit -v 700000; exec \"$@\"", "sh"];
    let limited = refused(&world, Side::A, &limited, &with("limited", "750 MiB"));
    assert!(
        limited.contains("refuses this process 750 MiB"),
        "{limited}"
    );
}

#[test]
fn a_key_file_others_can_read_is_refused() {
    let world = network();
    let open = world.lab.sandbox().folder().join("open.key");
    let private = world.lab.sandbox().folder().join("gateway-a.key");
    fs::copy(&private, &open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    let config = variant(&world, "openkey", |text| {
        text.replace(private.to_str().unwrap(), open.to_str().unwrap())
    });
    let error = refused(&world, Side::A, &[], &config);
    assert!(
        error.contains("open.key") && error.contains("chmod 600"),
        "{error}"
    );
    fs::remove_file(&open).unwrap();
    let error = refused(&world, Side::A, &[], &config);
    assert!(error.contains("open.key"), "{error}");
    fs::write(&open, "not a key\n").unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o600)).unwrap();
    let error = refused(&world, Side::A, &[], &config);
    assert!(error.contains("open.key"), "{error}");
}

#[test]
fn a_udp_port_in_use_is_named() {
    let world = network();
    let _taken = world
        .gateway(Side::A)
        .within(|| UdpSocket::bind("[::]:4500").unwrap())
        .unwrap();
    let config = variant(&world, "udp", |text| {
        format!("{text}\n[tunnel]\nlisten = '[::]:4500'\n")
    });
    let error = refused(&world, Side::A, &[], &config);
    assert!(
        error.contains("4500") && error.contains("tunnel.listen"),
        "{error}"
    );
}

#[test]
fn a_tcp_port_in_use_is_named() {
    let world = network();
    let taken = || std::net::TcpListener::bind("10.1.0.1:1080").unwrap();
    let _taken = world.gateway(Side::A).within(taken).unwrap();
    let config = variant(&world, "tcp", |text| {
        format!("{text}\n[[listen]]\nsocks = '10.1.0.1:1080'\n")
    });
    let error = refused(&world, Side::A, &[], &config);
    assert!(
        error.contains("10.1.0.1:1080") && error.contains("listen.socks"),
        "{error}"
    );
}

#[test]
fn an_admin_socket_in_use_is_named_and_kept() {
    let world = network();
    let config = variant(&world, "admin", |text| text);
    let path = config.replace(".toml", ".sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut command = world.gateway(Side::A).command(FARHAUL);
    let output = command
        .args(["gateway", "--config", &config])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains(&path) && error.contains("another gateway"),
        "{error}"
    );
    assert!(fs::exists(&path).unwrap(), "it removed the other's socket");
    drop(listener);
    fs::remove_file(&path).unwrap();
}

#[test]
fn an_unknown_interface_is_named_with_those_there_are() {
    let world = network();
    let config = variant(&world, "interface", |text| text.replace("lan0", "lna0"));
    let error = refused(&world, Side::A, &[], &config);
    assert!(
        error.contains("`lna0`") && error.contains("lan0"),
        "{error}"
    );
}

#[test]
fn a_missing_capability_is_named_with_its_remedy() {
    let world = network();
    // All a gateway needs but the right to change the network; root otherwise,
    // so that neither key nor folder stand in the way.
    let config = variant(&world, "caps", |text| text);
    let without = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
    ];
    let error = refused(&world, Side::A, &without, &config);
    assert!(
        error.contains("CAP_NET_ADMIN") && error.contains("AmbientCapabilities"),
        "{error}"
    );
}

#[test]
fn an_unprivileged_user_may_run_explicit_listeners_and_no_more() {
    let world = network();
    let folder = world.lab.sandbox().folder().join("nobody");
    fs::create_dir_all(&folder).unwrap();
    let key = folder.join("own.key");
    fs::copy(world.lab.sandbox().folder().join("gateway-a.key"), &key).unwrap();
    for path in [&folder, &key] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let transparent = variant(&world, "nobody", |text| {
        let lab_key = world.lab.sandbox().folder().join("gateway-a.key");
        let socket = world.lab.sandbox().folder().join("nobody.sock");
        text.replace(lab_key.to_str().unwrap(), key.to_str().unwrap())
            .replace(
                socket.to_str().unwrap(),
                folder.join("nobody.sock").to_str().unwrap(),
            )
    });
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let error = refused(&world, Side::A, &nobody, &transparent);
    assert!(error.contains("CAP_NET_ADMIN"), "{error}");
    // In explicit mode, with its own address towards servers, it needs nothing.
    let text = fs::read_to_string(&transparent).unwrap();
    let explicit = text.replace(
        "mode = \"transparent\"",
        "mode = \"explicit\"\nclient_address = \"gateway\"",
    ) + "\n[[listen]]\nsocks = '10.1.0.1:1081'\n";
    fs::write(&transparent, explicit).unwrap();
    let mut command = world.gateway(Side::A).command("setpriv");
    let mut gateway = Running(
        command
            .args(&nobody[1..])
            .args([FARHAUL, "gateway", "--config", &transparent])
            .spawn()
            .unwrap(),
    );
    until("its listener", || {
        world.try_connect("10.1.0.1:1081".parse().unwrap()).is_ok()
    });
    gateway.stop();
}

#[test]
fn invariant_5_no_more_flows_are_taken_than_there_are_descriptors_for() {
    let mut world = World::bare(None, "descriptors");
    let overrides = GatewayOverrides::default();
    world.lab.write_gateway_files(&overrides).unwrap();
    world.lab.gateway_start(Side::B).unwrap();
    let config = world.lab.gateway_config_path(Side::A);
    let mut command = world.gateway(Side::A).command("prlimit");
    let mut gateway = Running(
        command
            .args(["--nofile=96:96", FARHAUL, "gateway", "--config"])
            .arg(config)
            .spawn()
            .unwrap(),
    );
    until("the pair to be up", || {
        world.ask(Side::A, "status").status.success() && world.peer_state(Side::A) == "up"
    });
    let warned = world.status(Side::A)["recent"].to_string();
    assert!(
        warned.contains("suffice for 32 flows") && warned.contains("LimitNOFILE"),
        "{warned}"
    );
    let _service = Service::start(&world.lab.server().unwrap(), 3302, echo);
    let mut streams: Vec<_> = (0..40).map(|_| world.connect(v4(3302))).collect();
    let tunnelled = streams
        .iter()
        .filter(|stream| world.is_tunnelled(stream))
        .count();
    assert_eq!(tunnelled, 32);
    for stream in &mut streams {
        assert_echo(stream, b"whichever way it goes");
    }
    world.assert_direct(&streams[39], "overload");
    drop(streams);
    until("room again", || {
        world.is_tunnelled(&world.connect(v4(3302)))
    });
    gateway.stop();
}

/// A process that ends with its handle.
pub struct Running(pub std::process::Child);

impl Running {
    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        until("it to end", || self.0.try_wait().unwrap().is_some());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn failures_leave_nothing_behind() {
    let world = World::bare(None, "leaves");
    let overrides = GatewayOverrides::default();
    world.lab.write_gateway_files(&overrides).unwrap();
    let pristine = world.residue(Side::A);
    assert!(pristine.is_empty(), "{pristine}");
    // The latest moment to fail: everything stands but the rules, whose
    // routing table is taken by somebody else.
    let gateway = world.gateway(Side::A);
    gateway
        .ip("route add blackhole 192.0.2.0/24 table 250")
        .unwrap();
    let config = variant(&world, "late", |text| text);
    let error = refused(&world, Side::A, &[], &config);
    assert!(
        error.contains("table 250") && error.contains("intercept.table"),
        "{error}"
    );
    let theirs = gateway
        .exec(&["ip", "route", "show", "table", "250"])
        .unwrap();
    assert!(
        theirs.contains("192.0.2.0/24"),
        "somebody else's route is gone"
    );
    gateway
        .ip("route delete blackhole 192.0.2.0/24 table 250")
        .unwrap();
    until("nothing to be left", || world.residue(Side::A).is_empty());
}

#[test]
fn two_gateways_of_different_numbers_share_a_machine() {
    let mut world = World::bare(None, "two");
    world.pair("", "");
    // A second one beside A, for destinations A knows nothing of.
    let config = variant(&world, "second", |text| {
        text.replace(
            "[intercept]\n",
            "[intercept]\nmark = 0x0fb00000\ntable = 260\nqueue = 260\n",
        )
        .replace("10.2.0.0/24", "10.6.0.0/24")
    });
    let key = world.lab.sandbox().folder().join("second.key");
    let output = std::process::Command::new(FARHAUL)
        .arg("keygen")
        .arg(&key)
        .output();
    assert!(output.unwrap().status.success());
    let text = fs::read_to_string(&config).unwrap();
    let first_key = world.lab.sandbox().folder().join("gateway-a.key");
    fs::write(
        &config,
        text.replace(first_key.to_str().unwrap(), key.to_str().unwrap()),
    )
    .unwrap();
    let mut second = Running(
        world
            .gateway(Side::A)
            .command(FARHAUL)
            .args(["gateway", "--config", &config])
            .spawn()
            .unwrap(),
    );
    let socket = config.replace(".toml", ".sock");
    until("the second one's admin socket", || {
        fs::exists(&socket).unwrap()
    });
    let _service = Service::start(&world.lab.server().unwrap(), 3301, echo);
    let mut stream = world.connect(v4(3301));
    assert!(world.is_tunnelled(&stream));
    assert_echo(&mut stream, b"both run");
    until("both to intercept", || {
        let tables = world.gateway(Side::A).exec(&["nft", "list", "tables"]);
        let tables = tables.unwrap();
        tables.contains("farhaul_250") && tables.contains("farhaul_260")
    });
    assert_echo(&mut world.connect(v4(3301)), b"beside the other");
    second.stop();
    let residue = world.residue(Side::A);
    assert!(
        residue.contains("farhaul_250") && !residue.contains("260"),
        "{residue}"
    );
    assert_echo(&mut stream, b"one runs");
    assert!(world.is_tunnelled(&world.connect(v4(3301))));
}
