//! The points of a plan: every combination of what its sweep lists.

use std::collections::BTreeMap;

use farhaul_link::LinkProfile;
use serde::{Deserialize, Serialize};

use super::PlanError;
use super::written::{POINTS_MAX, Written};
use crate::http::Http;
use crate::tcp::Profile;

/// Names of architectures in plans.
pub(super) const DIRECT: &str = "direct";
pub(super) const PROXIES: &str = "proxies";
pub(super) const PAIR: &str = "pair";
pub(super) const PAIR_TOLD: &str = "pair-told";
const ARCHITECTURES: [&str; 4] = [DIRECT, PROXIES, PAIR, PAIR_TOLD];

/// One run of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place among the plan's points.
    pub number: u32,
    /// Name of a link of the plan.
    pub link: String,
    /// What stands at its far end.
    pub architecture: String,
    /// Version of HTTP, as [`Http`] names it.
    pub http: String,
    /// Name of a TCP.
    pub tcp: String,
    /// Connections between proxies; 0 where there are none.
    pub pool: u32,
    /// Presented load asked for.
    pub load_mbit: f64,
    /// Seed of the workload and of everything else.
    pub seed: u64,
}

impl Point {
    /// The point without its seed, for people and for grouping.
    pub fn config(&self) -> String {
        let pool = if self.pool > 0 {
            format!(" x{}", self.pool)
        } else {
            String::new()
        };
        format!(
            "{}{pool} {} HTTP/{} {}",
            self.architecture, self.link, self.http, self.tcp
        )
    }
}

pub(super) fn points(
    written: &Written,
    links: &BTreeMap<String, LinkProfile>,
    profiles: &BTreeMap<String, Profile>,
) -> Result<Vec<Point>, PlanError> {
    let sweep = &written.sweep;
    known("sweep.link", &sweep.link, links.keys().map(String::as_str))?;
    known(
        "sweep.architecture",
        &sweep.architecture,
        ARCHITECTURES.into_iter(),
    )?;
    known(
        "sweep.http",
        &sweep.http,
        Http::NAMED.iter().map(|(name, _)| *name),
    )?;
    known("sweep.tcp", &sweep.tcp, profiles.keys().map(String::as_str))?;
    check_numbers(written)?;
    let mut points = Vec::new();
    for (link, architecture) in pairs(&sweep.link, &sweep.architecture) {
        for (http, tcp) in pairs(&sweep.http, &sweep.tcp) {
            for pool in pools(architecture, &sweep.pool) {
                for load_mbit in &sweep.load_mbit {
                    for seed in sweep.seed.from..=sweep.seed.to {
                        points.push(Point {
                            number: u32::try_from(points.len()).unwrap_or(u32::MAX),
                            link: link.clone(),
                            architecture: architecture.clone(),
                            http: http.clone(),
                            tcp: tcp.clone(),
                            pool,
                            load_mbit: *load_mbit,
                            seed,
                        });
                    }
                }
            }
        }
    }
    Ok(points)
}

fn pairs<'a>(
    first: &'a [String],
    second: &'a [String],
) -> impl Iterator<Item = (&'a String, &'a String)> {
    first
        .iter()
        .flat_map(move |one| second.iter().map(move |other| (one, other)))
}

/// The size of a pool means nothing where there is none.
fn pools(architecture: &str, pools: &[u32]) -> Vec<u32> {
    if architecture == PROXIES {
        pools.to_vec()
    } else {
        vec![0]
    }
}

fn known<'a>(
    key: &str,
    names: &[String],
    all: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), PlanError> {
    if names.is_empty() {
        return Err(PlanError::value(
            key,
            "is empty: there would be nothing to run",
        ));
    }
    match names
        .iter()
        .find(|name| !all.clone().any(|other| other == *name))
    {
        Some(unknown) => {
            let all: Vec<&str> = all.collect();
            Err(PlanError::value(
                key,
                format!("there is no `{unknown}`; there are {}", all.join(", ")),
            ))
        }
        None => Ok(()),
    }
}

fn check_numbers(written: &Written) -> Result<(), PlanError> {
    let sweep = &written.sweep;
    if sweep.load_mbit.is_empty()
        || sweep
            .load_mbit
            .iter()
            .any(|load| !(*load > 0.0 && *load <= 1e5))
    {
        return Err(PlanError::value(
            "sweep.load_mbit",
            "must be loads above 0, at most 100,000 Mbit/s",
        ));
    }
    if sweep.pool.is_empty()
        || sweep
            .pool
            .iter()
            .any(|count| *count == 0 || *count > 10_000)
    {
        return Err(PlanError::value(
            "sweep.pool",
            "must be 1 to 10,000 connections",
        ));
    }
    if sweep.seed.from > sweep.seed.to {
        return Err(PlanError::value(
            "sweep.seed",
            "`from` lies above `to`: there would be nothing to run",
        ));
    }
    let seeds = usize::try_from(sweep.seed.to - sweep.seed.from)
        .unwrap_or(usize::MAX)
        .saturating_add(1);
    let count = [
        sweep.link.len(),
        sweep.architecture.len(),
        sweep.http.len(),
        sweep.tcp.len(),
        sweep.pool.len(),
        sweep.load_mbit.len(),
        seeds,
    ]
    .into_iter()
    .fold(1usize, usize::saturating_mul);
    if count > POINTS_MAX {
        return Err(PlanError::value(
            "sweep",
            format!("makes {count} points, more than {POINTS_MAX}"),
        ));
    }
    Ok(())
}
