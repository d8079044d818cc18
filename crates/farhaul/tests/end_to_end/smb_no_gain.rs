//! Gateways with nothing but a cable between them: nothing is accelerated, and both status and the list of flows say why.

use std::net::TcpStream;

use farhaul_lab::Side;
use farhaul_lab::demo::servers::{SMB_PORT, start_files};
use serde_json::Value;

use crate::apps::content;
use crate::smb::{FILE_BYTES, Site, done};
use crate::world::{World, until, v4};

/// What a cable carries, so that nobody has to find out first.
const FAST: &str = "[[peer]]\nlink = 'rate 1gbit delay 0ms'\nowned = true";
const REASON: &str = "no-gain";

fn site(test: &str) -> Site {
    let mut world = World::with(test, FAST, FAST);
    let folders = start_files(&mut world.lab, "read only = yes").unwrap();
    Site { world, folders }
}

/// What a gateway says of a flow.
fn flow_of(site: &Site, side: Side, stream: &TcpStream) -> Value {
    let client = stream.local_addr().unwrap();
    let mut flow = None;
    until("the flow", || {
        flow = site.world.flow_of(side, client);
        flow.is_some()
    });
    flow.unwrap()
}

/// What the gateways have recognised, read ahead and answered.
fn counted(site: &Site) -> [u64; 3] {
    [
        site.world.metric(Side::A, "farhaul_flows_recognised_total"),
        site.counted(Side::A, "reads_answered"),
        site.counted(Side::B, "ahead_bytes"),
    ]
}

/// A busy machine's round trips are longer for a moment, and each flow is decided when it begins: one is waited for that began in
/// between.
#[test]
fn over_a_cable_nothing_is_accelerated_and_why_is_said() {
    let site = site("smbcable");
    until("status to say so, before anything was sent", || {
        site.world.told(Side::A, "status").contains("(no-gain)")
    });
    let mut opened = None;
    until("a flow that goes the cheap way", || {
        let stream = site.world.connect(v4(SMB_PORT));
        let is_cheap = flow_of(&site, Side::A, &stream)["opaque_reason"] == REASON;
        opened = is_cheap.then_some(stream);
        is_cheap
    });
    let stream = opened.unwrap();
    let flow = flow_of(&site, Side::A, &stream);
    // There was nothing to be had: it has all that its rule asks for.
    assert_eq!(flow["state"], "optimised", "{flow}");
    assert_eq!(flow["reason"], "optimised", "{flow}");
    let listed = site.world.told(Side::A, "flows");
    assert!(listed.contains(REASON), "{listed}");
    let bytes = content(121, FILE_BYTES);
    site.offer("a.bin", &bytes);
    until("a file that passes as it is", || {
        let before = counted(&site);
        done(&mut site.smbget("a.bin"));
        assert!(site.fetched("a.bin") == bytes, "not the file");
        counted(&site) == before
    });
}
