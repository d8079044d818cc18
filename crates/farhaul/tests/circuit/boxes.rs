//! Boxes on the way that rewrite what passes, each of them real: rules of a router,
//! and links that are narrower than the hosts'.

use serde_json::{Value, json};

use crate::{Circuit, SERVER, faults, findings, notes};

const SERVER6: &str = "fdfa:0:2::2";

/// In the router of the client's site: of datagrams, another mark each way; of a
/// connection's first packet its mark and its ECN flags, its MSS and three options.
const TABLE: &str = "table inet box {
    chain first {
        ip dscp set cs1
        tcp flags set syn
        tcp option maxseg size set 1200
        reset tcp option sack-perm
        reset tcp option window
        reset tcp option timestamp
    }
    chain change {
        type filter hook forward priority 0;
        oifname wan0 meta l4proto udp ip dscp ef ip dscp set cs0
        iifname wan0 meta l4proto udp ip dscp af11 ip dscp set cs0
        oifname wan0 tcp flags & (syn | ack) == syn jump first
    }
}";

#[test]
fn what_boxes_on_the_way_change_is_named() {
    // It holds 180 KB: windows without scaling are too small for it.
    let circuit = Circuit::up("boxes", "rate 25mbit delay 30ms");
    circuit.set("client", &[("ipv4/tcp_ecn", "1")]);
    a_mark_that_is_asked_for_arrives(&circuit);
    circuit.rules(TABLE);
    narrow(&circuit);
    let report = circuit.examined_with(&["--time", "1"]);
    marks_of_datagrams_are_named(&report);
    changes_of_the_first_packet_are_named(&report);
    a_removed_window_scale_is_the_boxs_fault(&report);
    a_narrow_link_that_says_so_is_no_black_hole(&report);
}

/// Before anything is changed: 46 of the DSCP, as the server saw the first packet.
/// And its MSS, which the client's kernel counts without the 12 bytes of timestamps.
fn a_mark_that_is_asked_for_arrives(circuit: &Circuit) {
    for (server, headers) in [(SERVER, 40), (SERVER6, 60)] {
        let report = circuit.report(&["tcp", server, "--time", "0.2", "--dscp", "46"]);
        let stream = &report["observations"]["tcp"][0]["up"]["streams"][0];
        let syn = &stream["receiver"]["settings"]["syn"];
        let seen = (&syn["tos"], &syn["asks_ecn"]);
        assert_eq!(seen, (&json!(0xb8), &json!(true)), "{server}");
        let client = &stream["sender"]["settings"]["at_start"];
        let mss = (&syn["mss_bytes"], &client["advertised_mss_bytes"]);
        let told = 1500 - headers;
        assert_eq!(mss, (&json!(told), &json!(told - 12)), "{server}");
    }
}

/// Packets of more than 1400 bytes get an ICMP message from either router.
fn narrow(circuit: &Circuit) {
    for router in ["gwa", "gwb"] {
        let router = circuit.lab.namespace(router).unwrap();
        router.ip("link set wan0 mtu 1400").unwrap();
    }
}

fn is_noted(report: &Value, begin: &str, end: &str) {
    let is_it = |note: &&str| note.starts_with(begin) && note.ends_with(end);
    assert!(
        notes(report).iter().any(is_it),
        "{begin}...{end}: {:#?}",
        notes(report)
    );
}

fn marks_of_datagrams_are_named(report: &Value) {
    let path = &report["observations"]["path"];
    let became = |sent: u8| json!([{ "sent": sent, "arrived": 0 }]);
    assert_eq!(path["up_rewritten"], became(0xb8));
    assert_eq!(path["down_rewritten"], became(0x28));
    let (up, down) = (
        "type of service 0xb8 arrives up as 0x00",
        "type of service 0x28 arrives down as 0x00",
    );
    is_noted(report, up, "(DSCP 46 -> 0, ECN 0 -> 0)");
    is_noted(report, down, "(DSCP 10 -> 0, ECN 0 -> 0)");
}

fn changes_of_the_first_packet_are_named(report: &Value) {
    let mark = "a box on the way changes the DSCP of TCP's first packet up from 0 to 8";
    is_noted(report, mark, ", not that of datagrams");
    let asked = "the client asks for explicit congestion notification";
    is_noted(
        report,
        asked,
        "a box on the way clears it, or drops SYNs that ask",
    );
    // From what the client's host has learnt of the narrow link.
    let mss = "a box on the way lowers the MSS from 1360 to 1200 bytes";
    is_noted(report, mss, "");
    for way in ["up", "down"] {
        for (option, number) in [("selective acknowledgements", 4), ("timestamps", 8)] {
            let missing =
                format!("{option} were not agreed on {way}, though both hosts have them on");
            is_noted(
                report,
                &missing,
                &format!(": a box on the way removes TCP option {number}"),
            );
        }
    }
}

fn a_removed_window_scale_is_the_boxs_fault(report: &Value) {
    for way in ["up", "down"] {
        let is_it =
            |finding: &&Value| finding["fault"] == "window_scaling" && finding["direction"] == way;
        let named: Vec<_> = findings(report).iter().filter(is_it).collect();
        let [finding] = named[..] else {
            panic!("{way}: {}", report["verdict"]);
        };
        let why = "both hosts have window scaling on, and the option was not agreed on: a box on the way removes it";
        assert_eq!(finding["evidence"][0], why);
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(
            remedy.contains("strips TCP option 3") && !remedy.contains("sysctl"),
            "{remedy}"
        );
    }
}

fn a_narrow_link_that_says_so_is_no_black_hole(report: &Value) {
    let path = &report["observations"]["path"];
    assert_eq!(path["interface_mtu_bytes"], 1500);
    assert_eq!(
        (&path["up_mtu_bytes"], &path["down_mtu_bytes"]),
        (&json!(1400), &json!(1400))
    );
    assert_eq!(path["told_too_long"], true);
    assert!(
        !faults(report).contains(&"mtu_black_hole"),
        "{}",
        report["verdict"]
    );
}
