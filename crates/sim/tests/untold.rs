//! A pair that has to find the rate of a satellite link under requests serves them as fast as one
//! that was told it. Requests leave pauses: what a pause or a lump of acknowledgements leaves of a
//! measurement once made seven of thirty such days slow.
#![allow(clippy::unwrap_used)]

use farhaul_sim::plan::{self, Plan};

/// Seeds of the days that were slow, and their load.
const DAYS: [(u32, u64); 4] = [(5, 120), (5, 123), (5, 126), (25, 104)];

fn mean_s(architecture: &str, load_mbit: u32, seed: u64) -> f64 {
    let read = |name: &str| {
        let path = format!("{}/../../plans/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    };
    let text = format!(
        "like = \"waikato-today.toml\"\nname = \"untold\"\n[sweep]\nlink = [\"SS\"]\n\
         architecture = [\"{architecture}\"]\nhttp = [\"1.1\"]\nload_mbit = [{load_mbit}]\n\
         seed = {{ from = {seed}, to = {seed} }}\n"
    );
    let plan = Plan::parse(&text, &read).unwrap();
    let result = plan::run(&plan, plan.points().first().unwrap());
    assert_eq!((result.unanswered, &result.error), (0, &None));
    result.mean_s.unwrap()
}

#[test]
fn requests_find_the_rate_of_a_satellite_link() {
    for (load_mbit, seed) in DAYS {
        let [untold, told] = ["pair", "pair-told"].map(|pair| mean_s(pair, load_mbit, seed));
        assert!(
            untold < 1.1 * told,
            "{load_mbit} Mbit/s, seed {seed}: {untold:.2} s, told {told:.2} s"
        );
    }
}
