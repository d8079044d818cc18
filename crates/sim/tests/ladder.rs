//! Every rung of the ladder of validation holds.
#![allow(clippy::unwrap_used)]

use farhaul_sim::ladder::rungs;

#[test]
fn simulation_agrees_with_what_a_pencil_computes() {
    let all = rungs();
    let broken: Vec<String> = all
        .iter()
        .filter(|rung| !rung.holds())
        .map(|rung| {
            let (expected, simulated) = (rung.expected, rung.simulated);
            format!(
                "{}: {simulated} instead of {expected} ({:.1} %)",
                rung.name,
                rung.error() * 100.0
            )
        })
        .collect();
    assert!(
        all.len() > 25 && broken.is_empty(),
        "\n{}",
        broken.join("\n")
    );
}
