//! What a box on the way changes of a stream's handshake: the client always
//! connects, and the server keeps the SYN as it came.

use crate::probe::observe::StreamPair;
use crate::probe::report::Observations;
use crate::probe::tcp_test::TcpPlan;

/// Each once, whichever test showed it.
pub(super) fn notes(seen: &Observations) -> Vec<String> {
    let tests = [&seen.tcp_up, &seen.tcp_down].into_iter().flatten();
    let streams = tests.flat_map(|loaded| {
        let ways = [&loaded.test.up, &loaded.test.down].into_iter().flatten();
        let first = ways.filter_map(|way| way.streams.first());
        first.map(|pair| (&loaded.test.plan, pair))
    });
    let mut notes = Vec::new();
    for (plan, pair) in streams {
        notes.extend(mark(seen, plan, pair));
        notes.extend(congestion_notification(seen, pair));
    }
    notes.sort();
    notes.dedup();
    notes
}

/// The DSCP of the first packet, where the datagrams' do not tell already.
fn mark(seen: &Observations, plan: &TcpPlan, pair: &StreamPair) -> Option<String> {
    let syn = pair.receiver.settings.syn.or(pair.sender.settings.syn)?;
    let (sent, arrived) = (plan.tos >> 2, syn.tos >> 2);
    let is_known = seen.path.as_ref().is_some_and(|path| {
        let of_datagrams = path.up_rewritten.iter();
        let mut dscps = of_datagrams.map(|mark| (mark.sent >> 2, mark.arrived >> 2));
        dscps.any(|pair| pair == (sent, arrived))
    });
    (sent != arrived && !is_known).then(|| {
        format!("a box on the way changes the DSCP of TCP's first packet up from {sent} to {arrived}, not that of datagrams")
    })
}

/// RFC 3168 6.1.1: asked for in the SYN, agreed on in its answer.
fn congestion_notification(seen: &Observations, pair: &StreamPair) -> Option<String> {
    let syn = pair.receiver.settings.syn.or(pair.sender.settings.syn)?;
    let client = match pair.sender.goes_up {
        true => &pair.sender,
        false => &pair.receiver,
    };
    let (ours, theirs) = (seen.client_host.as_ref()?, seen.server_host.as_ref()?);
    // Linux: 0 never, 1 asks and agrees, 2 agrees only; later ones ask, too.
    let asks = ours.ecn.is_some_and(|ecn| ecn != 0 && ecn != 2);
    let agrees = theirs.ecn.is_some_and(|ecn| ecn != 0);
    let told = "explicit congestion notification (net.ipv4.tcp_ecn)";
    match (asks, syn.asks_ecn, client.settings.at_start.uses_ecn()) {
        (true, false, _) => Some(format!(
            "the client asks for {told}, and its SYN arrives without: a box on the way clears it, or drops SYNs that ask"
        )),
        (true, true, false) if agrees => Some(format!(
            "client and server have {told} on, and the SYN asks for it, but its answer arrives without: a box on the way clears it"
        )),
        _ => None,
    }
}
