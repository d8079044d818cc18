//! What the gateways say of the copy: whether the protocol was accelerated, if not, why, and what was read ahead in vain.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::deployment::Lab;
use crate::topology::Side;

const PATIENCE: Duration = Duration::from_secs(5);
/// Counts flows that were recognised and not accelerated, by reason.
const NOT_OPTIMISED: &str = "farhaul_flows_not_optimised_total{";

/// Optimiser's counters and reasons; `null` where there is nothing to be asked.
pub(super) fn of(lab: &Lab) -> Value {
    let Ok(status) = lab.gateway_status(Side::A) else {
        return Value::Null;
    };
    let metrics = metrics(&lab.gateway_socket(Side::A)).unwrap_or_default();
    let mut reasons = reasons(&metrics);
    let optimiser = &status["peers"][0]["optimiser"];
    if optimiser["no_gain"] == true {
        reasons.push("no-gain".to_owned());
    }
    let far = lab.gateway_status(Side::B).unwrap_or_default();
    // Reads ahead are made, and counted, next to the server.
    let far = &far["peers"][0]["optimiser"];
    json!({
        "reads_made": far["reads_made"],
        "ahead_bytes": far["ahead_bytes"],
        "wasted_bytes": far["wasted_bytes"],
        "reads_answered": optimiser["reads_answered"],
        "reads_forwarded": optimiser["reads_forwarded"],
        "writes_answered": optimiser["writes_answered"],
        "not_accelerated": reasons,
    })
}

fn metrics(socket: &Path) -> std::io::Result<String> {
    let mut socket = UnixStream::connect(socket)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

fn reasons(metrics: &str) -> Vec<String> {
    let counted = metrics.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix(NOT_OPTIMISED)?.split_once("} ")?;
        let reason = labels.split("reason=\"").nth(1)?.split('"').next()?;
        (count != "0").then(|| reason.to_owned())
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_that_were_counted() {
        let metrics = "# TYPE farhaul_flows_not_optimised_total counter\n\
            farhaul_flows_not_optimised_total{peer=\"gwb\",reason=\"smb-signed\"} 0\n\
            farhaul_flows_not_optimised_total{peer=\"gwb\",reason=\"smb-dialect\"} 1\n";
        assert_eq!(reasons(metrics), ["smb-dialect"]);
        assert!(reasons("").is_empty());
    }
}
