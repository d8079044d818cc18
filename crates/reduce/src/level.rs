//! Which level of compression: the one that moves the most input per second.
//!
//! A level moves what the slower of two allows: the processors at its speed, or the link at its ratio. Speed and ratio of the levels
//! are measured in the process, on literals only. What was never tried is estimated from its neighbours; the owner tries one frame
//! in [`TRIAL_EVERY`] at [`Levels::trial`], so estimates become measurements. A new level must be a tenth better than the old one.
//!
//! Where the link, at that level, carries more than an encoder looks through, the encoder looks at fewer positions
//! ([`Levels::sampling`]).

use crate::codec::Codec;
use crate::sampler::Sampling;

/// One frame in this many is compressed at a neighbouring level, to learn what that would do.
pub const TRIAL_EVERY: u64 = 32;
/// How much better a level must be to replace another.
const GAIN_MIN: f64 = 1.10;
/// Below this ratio compression is not worth its time, whatever the link.
const RATIO_MIN: f64 = 1.05;
/// Weight of a new sample.
const NEWS: f64 = 0.1;
/// Speed of doing nothing, bytes per second.
const NULL_SPEED: f64 = 20e9;

/// What one encoder looks through of what is new, bytes per second (`docs/results/reduce.md`).
const NEW_SPEED: f64 = 0.9e9;

/// Levels, and what they do to ordinary text before anything is known better: bytes per second of one core, ratio.
const PRIOR: [(Codec, f64, f64); 12] = [
    (Codec::Null, NULL_SPEED, 1.0),
    (Codec::Zstd(-7), 1.3e9, 1.7),
    (Codec::Zstd(-5), 1.1e9, 1.9),
    (Codec::Zstd(-3), 0.90e9, 2.1),
    (Codec::Zstd(-1), 0.70e9, 2.4),
    (Codec::Zstd(1), 0.50e9, 3.0),
    (Codec::Zstd(2), 0.38e9, 3.1),
    (Codec::Zstd(3), 0.25e9, 3.3),
    (Codec::Zstd(4), 0.18e9, 3.35),
    (Codec::Zstd(5), 0.11e9, 3.5),
    (Codec::Zstd(7), 0.065e9, 3.65),
    (Codec::Zstd(9), 0.045e9, 3.75),
];

/// What is known of one level.
#[derive(Debug, Clone, Copy)]
struct Known {
    codec: Codec,
    speed: f64,
    ratio: f64,
    is_measured: bool,
}

/// Chooses the level of one direction to one peer.
#[derive(Debug, Clone)]
pub struct Levels {
    known: Vec<Known>,
    current: usize,
    sampling: Sampling,
    pinned: Option<Codec>,
    trials: u64,
}

impl Levels {
    /// `pinned` is a rule's word that overrides everything.
    pub fn new(pinned: Option<Codec>) -> Self {
        let known = PRIOR.map(|(codec, speed, ratio)| Known {
            codec,
            speed,
            ratio,
            is_measured: false,
        });
        Self {
            known: known.to_vec(),
            current: 5,
            sampling: Sampling::Dense,
            pinned,
            trials: 0,
        }
    }

    /// The codec for the next frame.
    pub fn codec(&self) -> Codec {
        self.pinned.unwrap_or_else(|| {
            self.known
                .get(self.current)
                .map_or(Codec::Null, |known| known.codec)
        })
    }

    /// What the encoder should look at: fewer positions where it is what the flow waits for.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Every codec there is to choose from.
    pub fn all(&self) -> Vec<Codec> {
        self.known.iter().map(|known| known.codec).collect()
    }

    /// The codec for the next frame, now and then one beside the best.
    pub fn trial(&mut self) -> Codec {
        self.trials += 1;
        if self.pinned.is_some() || !self.trials.is_multiple_of(TRIAL_EVERY) {
            return self.codec();
        }
        let is_up = (self.trials / TRIAL_EVERY).is_multiple_of(2);
        let neighbour = if is_up {
            self.current + 1
        } else {
            self.current.saturating_sub(1)
        };
        self.known
            .get(neighbour)
            .map_or(self.codec(), |known| known.codec)
    }

    /// A frame's literals were compressed: from so many bytes to so many, in so much processor time.
    pub fn handle_sample(&mut self, codec: Codec, from_bytes: usize, to_bytes: usize, cpu_ns: u64) {
        let nth = self.known.iter().position(|known| known.codec == codec);
        if codec == Codec::Null || from_bytes < 4096 || to_bytes == 0 || cpu_ns == 0 {
            return;
        }
        let Some(known) = nth.and_then(|nth| self.known.get_mut(nth)) else {
            return;
        };
        let ratio = from_bytes as f64 / to_bytes as f64;
        let speed = from_bytes as f64 * 1e9 / cpu_ns as f64;
        let news = if known.is_measured { NEWS } else { 1.0 };
        // Other levels move along: the content has changed, or the machine is busier.
        let (ratio_was, speed_was) = (known.ratio, known.speed);
        known.ratio += (ratio - ratio_was) * news;
        known.speed += (speed - speed_was) * news;
        known.is_measured = true;
        let (ratio_by, speed_by) = (
            (known.ratio - 1.0) / (ratio_was - 1.0).max(0.001),
            known.speed / speed_was,
        );
        for other in self
            .known
            .iter_mut()
            .filter(|other| other.codec != codec && other.codec != Codec::Null)
        {
            let share = if other.is_measured { 0.5 } else { 1.0 };
            other.ratio =
                1.0 + (other.ratio - 1.0) * (1.0 + (ratio_by - 1.0) * share).clamp(0.0, 20.0);
            other.speed *= (1.0 + (speed_by - 1.0) * share).clamp(0.05, 20.0);
        }
    }

    /// Chooses anew: so many cores, a link of so many bytes per second for this direction.
    pub fn choose(&mut self, cores: f64, link_bytes_s: f64) -> Codec {
        let moved = |known: &Known| {
            let is_worth_it = known.codec == Codec::Null || known.ratio >= RATIO_MIN;
            let moved = (cores * known.speed).min(link_bytes_s * known.ratio);
            if is_worth_it { moved } else { 0.0 }
        };
        let now = self.known.get(self.current).map_or(0.0, moved);
        // Of equals the first, which costs the processor least.
        let mut best = (self.current, now * GAIN_MIN);
        for (nth, known) in self.known.iter().enumerate() {
            if moved(known) > best.1 {
                best = (nth, moved(known));
            }
        }
        self.current = best.0;
        self.sampling = self.sampling_for(link_bytes_s);
        self.codec()
    }

    /// By what the link would carry at the present level; with some distance between there and back.
    fn sampling_for(&self, link_bytes_s: f64) -> Sampling {
        let codec = self.codec();
        let known = self.known.iter().find(|known| known.codec == codec);
        let carried = link_bytes_s * known.map_or(1.0, |known| known.ratio);
        let bound = match self.sampling {
            Sampling::Dense => NEW_SPEED * GAIN_MIN,
            Sampling::Sparse => NEW_SPEED / GAIN_MIN,
        };
        if carried > bound {
            Sampling::Sparse
        } else {
            Sampling::Dense
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(mbit_s: f64, change: impl Fn(&mut Levels)) -> Codec {
        let mut levels = Levels::new(None);
        change(&mut levels);
        for _ in 0..10 {
            levels.choose(1.0, mbit_s * 1e6 / 8.0);
        }
        levels.codec()
    }

    #[test]
    fn slower_links_get_higher_levels() {
        let by_rate: Vec<Codec> = [1.5, 45.0, 155.0, 1000.0, 4000.0, 20_000.0]
            .map(|mbit_s| chosen(mbit_s, |_| ()))
            .to_vec();
        assert!(
            by_rate.windows(2).all(|pair| pair[0] >= pair[1]),
            "{by_rate:?}"
        );
        assert!(by_rate[0] >= Codec::Zstd(5), "{by_rate:?}");
        assert_eq!(by_rate[5], Codec::Null);
    }

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let noise = |levels: &mut Levels| {
            for _ in 0..50 {
                let codec = levels.trial();
                levels.handle_sample(codec, 100_000, 99_900, 30_000);
            }
        };
        assert_eq!(chosen(45.0, noise), Codec::Null);
    }

    #[test]
    fn a_rule_pins() {
        let mut levels = Levels::new(Some(Codec::Zstd(7)));
        levels.choose(1.0, 1e12);
        assert!((0..100).all(|_| levels.trial() == Codec::Zstd(7)));
    }

    #[test]
    fn only_a_fast_link_gets_fewer_samples() {
        let of_link = |mbit_s: f64| {
            let mut levels = Levels::new(None);
            for _ in 0..10 {
                levels.choose(1.0, mbit_s * 1e6 / 8.0);
            }
            levels.sampling()
        };
        for mbit_s in [1.5, 45.0, 155.0, 1000.0, 2500.0] {
            assert_eq!(of_link(mbit_s), Sampling::Dense, "{mbit_s}");
        }
        assert_eq!(of_link(10_000.0), Sampling::Sparse);
    }

    #[test]
    fn what_a_rule_leaves_uncompressed_on_a_slow_link_is_still_looked_at_closely() {
        let mut levels = Levels::new(Some(Codec::Null));
        levels.choose(1.0, 155e6 / 8.0);
        assert_eq!(levels.sampling(), Sampling::Dense);
        levels.choose(1.0, 10e9 / 8.0);
        assert_eq!(levels.sampling(), Sampling::Sparse);
    }

    #[test]
    fn a_small_gain_changes_nothing() {
        let mut levels = Levels::new(None);
        levels.choose(1.0, 45e6 / 8.0);
        let before = levels.codec();
        for step in 0..100 {
            levels.choose(1.0, 45e6 / 8.0 * (1.0 + 0.04 * f64::from(step % 2)));
            assert_eq!(levels.codec(), before);
        }
    }
}
