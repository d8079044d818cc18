//! Requests from published laws: pages of a main object and embedded ones, all
//! of one host, hosts by popularity.

use serde::{Deserialize, Serialize};

use super::{Host, REPLY_BYTES_MAX, Request, Workload};
use crate::engine::{NS_PER_S, Stream, nanoseconds};

/// Draws outside the bounds are drawn again, so often.
const DRAWS_MAX: u32 = 1000;
/// A page's embedded objects: Pareto 1.1 from 2, at most 55, less 2 (3GPP2
/// C.R1002; mean 5.64 before it is cut to whole objects).
const EMBEDDED_SHAPE: f64 = 1.1;
const EMBEDDED_SCALE: f64 = 2.0;
const EMBEDDED_MAX: f64 = 55.0;

/// A lognormal law, cut off at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeLaw {
    /// Half of all draws are below.
    pub median_bytes: f64,
    /// Deviation of the logarithm.
    pub sigma: f64,
    /// Least.
    pub min_bytes: u64,
    /// Most.
    pub max_bytes: u64,
}

impl SizeLaw {
    /// From mean and standard deviation of the law without its cuts, as they
    /// are often published.
    pub fn of_mean(mean_bytes: f64, deviation_bytes: f64, min_bytes: u64, max_bytes: u64) -> Self {
        let ratio = deviation_bytes / mean_bytes;
        let variance = libm::log(1.0 + ratio * ratio);
        Self {
            median_bytes: mean_bytes / libm::exp(variance / 2.0),
            sigma: libm::sqrt(variance),
            min_bytes,
            max_bytes,
        }
    }

    fn draw(&self, stream: &mut Stream) -> u64 {
        let mu = libm::log(self.median_bytes);
        for _ in 0..DRAWS_MAX {
            let bytes = stream.lognormal(mu, self.sigma) as u64;
            if (self.min_bytes..=self.max_bytes).contains(&bytes) {
                return bytes;
            }
        }
        self.min_bytes
    }
}

/// A value and how often it is taken, relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// The value.
    pub value: u64,
    /// Its weight.
    pub weight: f64,
}

/// What to generate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Servers there are.
    pub hosts: u32,
    /// Popularity of the nth host is n to the power of minus this.
    pub popularity_exponent: f64,
    /// Length of every request.
    pub request_bytes: u32,
    /// A page's first object.
    pub main: SizeLaw,
    /// Its other objects.
    pub embedded: SizeLaw,
    /// Mean time between the requests of a page.
    pub gap_s: f64,
    /// Mean time that the far network takes for a reply.
    pub far_mean_s: f64,
    /// Deviation of that time's logarithm.
    pub far_sigma: f64,
    /// Servers' buffers.
    pub windows: Vec<Weighted>,
    /// Servers' maximum segment sizes.
    pub segment_sizes: Vec<Weighted>,
}

/// Most servers.
const HOSTS_MAX: u32 = 1_000_000;

impl Generator {
    /// Says which value is impossible, and why.
    ///
    /// # Errors
    /// The key and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        let bounds = |law: &SizeLaw| {
            law.min_bytes <= law.max_bytes && law.min_bytes <= law.median_bytes as u64
        };
        let is_lawful = |law: &SizeLaw| {
            positive(law.median_bytes)
                && not_negative(law.sigma)
                && bounds(law)
                && law.median_bytes <= law.max_bytes as f64
                && law.max_bytes <= REPLY_BYTES_MAX
        };
        let weights = |choices: &[Weighted]| {
            let are_fine = choices
                .iter()
                .all(|choice| not_negative(choice.weight) && choice.value > 0);
            are_fine && positive(choices.iter().map(|choice| choice.weight).sum())
        };
        let wrong = |key, why: &str| Err((key, why.to_owned()));
        match () {
            () if !(1..=HOSTS_MAX).contains(&self.hosts) => {
                wrong("hosts", "must be 1 to 1,000,000")
            }
            () if !not_negative(self.popularity_exponent) => {
                wrong("popularity_exponent", "must not be negative")
            }
            () if self.request_bytes == 0 => {
                wrong("request_bytes", "a request has at least one byte")
            }
            () if !is_lawful(&self.main) => wrong(
                "main",
                "needs 0 < min <= median <= max <= 16 GiB and no negative sigma",
            ),
            () if !is_lawful(&self.embedded) => wrong(
                "embedded",
                "needs 0 < min <= median <= max <= 16 GiB and no negative sigma",
            ),
            () if !not_negative(self.gap_s) => wrong("gap_s", "must not be negative"),
            () if !positive(self.far_mean_s) => wrong("far_mean_s", "must be above 0"),
            () if !not_negative(self.far_sigma) => wrong("far_sigma", "must not be negative"),
            () if !weights(&self.windows) => wrong(
                "windows",
                "needs values above 0 and weights that are not all 0",
            ),
            () if !weights(&self.segment_sizes) => wrong(
                "segment_sizes",
                "needs values above 0 and weights that are not all 0",
            ),
            () => Ok(()),
        }
    }

    /// The servers, the same for every trace of a seed.
    pub fn hosts(&self, seed: u64) -> Vec<Host> {
        let mut stream = Stream::new(seed, "hosts", 0);
        let mut pick = |choices: &[Weighted]| pick(choices, &mut stream);
        (0..self.hosts)
            .map(|number| Host {
                name: format!("host{number}.example"),
                window_bytes: pick(&self.windows),
                mss_bytes: u32::try_from(pick(&self.segment_sizes)).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// One trace: pages at random times, as many as make the load. Requests
    /// of a page that would come after the end come at the beginning.
    pub fn trace(&self, seed: u64, number: u64, duration_ns: u64, load_bit_per_s: f64) -> Workload {
        let mut stream = Stream::new(seed, "trace", number);
        let popularity = Popularity::new(self.hosts, self.popularity_exponent);
        let wanted_bytes = load_bit_per_s / 8.0 * crate::engine::seconds(duration_ns);
        let mut workload = Workload {
            hosts: self.hosts(seed),
            requests: Vec::new(),
            duration_ns,
        };
        let (mut made_bytes, mut client) = (0u64, 0);
        while (made_bytes as f64) < wanted_bytes {
            let start_ns = stream.below(duration_ns);
            let host = popularity.draw(&mut stream);
            for request in self.page(&mut stream, start_ns, client, host) {
                made_bytes += request.reply_bytes;
                workload.requests.push(Request {
                    at_ns: request.at_ns % duration_ns.max(1),
                    ..request
                });
            }
            client += 1;
        }
        workload.sort();
        workload
    }

    fn page(&self, stream: &mut Stream, start_ns: u64, client: u32, host: u32) -> Vec<Request> {
        let embedded = stream
            .pareto(EMBEDDED_SHAPE, EMBEDDED_SCALE)
            .min(EMBEDDED_MAX);
        let embedded = (embedded - EMBEDDED_SCALE) as u32;
        let far_mu = libm::log(self.far_mean_s) - self.far_sigma * self.far_sigma / 2.0;
        let mut at_ns = start_ns;
        (0..=embedded)
            .map(|number| {
                let law = if number == 0 {
                    &self.main
                } else {
                    &self.embedded
                };
                if number > 0 {
                    at_ns += nanoseconds(stream.exponential(self.gap_s));
                }
                Request {
                    at_ns,
                    client,
                    host,
                    request_bytes: self.request_bytes,
                    reply_bytes: law.draw(stream),
                    far_ns: nanoseconds(stream.lognormal(far_mu, self.far_sigma))
                        .min(60 * NS_PER_S),
                }
            })
            .collect()
    }
}

/// Zipf's law by its table of cumulated weights.
struct Popularity(Vec<f64>);

impl Popularity {
    fn new(hosts: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulated = (1..=hosts.max(1)).map(|rank| {
            sum += libm::pow(f64::from(rank), -exponent);
            sum
        });
        Self(cumulated.collect())
    }

    fn draw(&self, stream: &mut Stream) -> u32 {
        let at = stream.fraction() * self.0.last().copied().unwrap_or(0.0);
        let rank = self.0.partition_point(|sum| *sum <= at);
        u32::try_from(rank.min(self.0.len().saturating_sub(1))).unwrap_or(0)
    }
}

fn pick(choices: &[Weighted], stream: &mut Stream) -> u64 {
    let total: f64 = choices.iter().map(|choice| choice.weight).sum();
    let mut at = stream.fraction() * total;
    for choice in choices {
        if at < choice.weight {
            return choice.value;
        }
        at -= choice.weight;
    }
    choices.last().map_or(0, |choice| choice.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 3GPP HTTP model as ns-3 has it.
    fn generator() -> Generator {
        Generator {
            hosts: 100,
            popularity_exponent: 0.8,
            request_bytes: 328,
            main: SizeLaw::of_mean(10_710.0, 25_032.0, 100, 2_000_000),
            embedded: SizeLaw::of_mean(7_758.0, 126_168.0, 50, 2_000_000),
            gap_s: 0.5,
            far_mean_s: 1.0,
            far_sigma: 1.0,
            windows: vec![
                Weighted {
                    value: 8760,
                    weight: 1.0,
                },
                Weighted {
                    value: 32_767,
                    weight: 3.0,
                },
            ],
            segment_sizes: vec![Weighted {
                value: 1460,
                weight: 1.0,
            }],
        }
    }

    #[test]
    fn a_trace_has_the_load_asked_for_and_the_laws_their_shape() {
        let workload = generator().trace(1, 0, 600 * NS_PER_S, 2e6);
        assert!((workload.load_bit_per_s() / 2e6 - 1.0).abs() < 0.03);
        let requests = &workload.requests;
        assert!(
            requests
                .windows(2)
                .all(|pair| pair[0].at_ns <= pair[1].at_ns)
        );
        assert!(
            requests
                .iter()
                .all(|request| request.at_ns < workload.duration_ns)
        );
        let pages = requests.iter().map(|request| request.client).max().unwrap() + 1;
        let embedded = requests.len() as f64 / f64::from(pages) - 1.0;
        // Mean 5.64, less the nearly half that whole objects lose.
        assert!((embedded - 5.2).abs() < 0.5, "{embedded}");
        let far_s: f64 = requests
            .iter()
            .map(|request| request.far_ns as f64 / 1e9)
            .sum();
        assert!((far_s / requests.len() as f64 - 1.0).abs() < 0.1);
        let of_host = |host| {
            requests
                .iter()
                .filter(|request| request.host == host)
                .count() as f64
        };
        assert!(
            of_host(0) > 3.0 * of_host(9),
            "the first host is far more popular than the tenth"
        );
    }

    #[test]
    fn seeds_and_numbers_make_traces() {
        let trace = |seed, number| generator().trace(seed, number, 10 * NS_PER_S, 1e6);
        assert_eq!(trace(1, 0), trace(1, 0));
        assert_ne!(trace(1, 0).requests, trace(1, 1).requests);
        assert_eq!(trace(1, 0).hosts, trace(1, 1).hosts);
        assert_ne!(trace(1, 0).hosts, trace(2, 0).hosts);
    }
}
