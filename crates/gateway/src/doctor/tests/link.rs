//! What the tunnel is told of the circuit, and what was measured.

use super::*;
use crate::admin::status::{MeasuredStatus, MeasuredWay};

#[test]
fn what_the_tunnel_is_told_of_the_circuit() {
    let unmeasured = with_gateway("link hq", |_, _| {});
    assert_eq!(unmeasured.verdict, Verdict::Ok);
    assert!(unmeasured.evidence.contains("farhaul probe peer hq"));
    let way = |bit_per_s| {
        Some(MeasuredWay {
            bit_per_s,
            ..MeasuredWay::default()
        })
    };
    let measured = MeasuredStatus {
        there: way(48e6),
        back: way(47e6),
        rtt_ms: Some(200.0),
        proposal: Some("rate 48mbit delay 100ms".to_owned()),
        ..MeasuredStatus::default()
    };
    let line = "link = \"rate 48mbit delay 100ms\"";
    let untold = with_gateway("link hq", |status, _| {
        status.peers[0].measured = Some(measured.clone());
    });
    assert_eq!(untold.verdict, Verdict::Ok);
    assert!(untold.evidence.contains(line), "{untold:?}");
    for (told, verdict) in [
        ("oc1 delay 100ms", Verdict::Ok),
        ("rate 100mbit", Verdict::Warn),
        ("rate 10mbit", Verdict::Warn),
    ] {
        let text = configuration().replace(
            "address = \"hq.example:4433\"",
            &format!("address = \"hq.example:4433\"\nlink = \"{told}\""),
        );
        let mut status = running();
        status.peers[0].measured = Some(measured.clone());
        let report = examine(&subject(&text, Some(status)), &Paper::healthy());
        let found = check(&report, "link hq");
        assert_eq!(found.verdict, verdict, "{found:?}");
        let remedy = found.remedy.unwrap_or_default();
        assert_eq!(remedy.contains(line), verdict == Verdict::Warn, "{remedy}");
    }
}
