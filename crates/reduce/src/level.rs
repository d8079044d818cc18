//! Which level of compression: the one that moves the most input per second.
//!
//! A level moves what the slower of two allows: the processors at its speed, or the link at its ratio. Both are measured in the
//! process, on literals only, as two factors each: what the present content and machine do to every level, which follows frame by
//! frame, and what is a level's own, which is learned slowly. So one frame tells of all levels, and content that turns from text to
//! noise and back is met at once. The owner tries one frame in [`TRIAL_EVERY`] at [`Levels::trial`]. How good the rule is beside the
//! best fixed level: `docs/results/reduce.md`.
//!
//! Where the link, at that level, carries more than an encoder looks through, the encoder looks at fewer positions
//! ([`Levels::sampling`]).

use crate::codec::Codec;
use crate::sampler::Sampling;

/// One frame in this many is compressed at a neighbouring level, to learn what that would do.
pub const TRIAL_EVERY: u64 = 32;
/// The same while nothing is compressed: only that shows when content is back that shrinks.
const NULL_TRIAL_EVERY: u64 = 8;
/// How much better a level must be to replace another.
const GAIN_MIN: f64 = 1.02;
/// Below this ratio compression is not worth its time, whatever the link.
const RATIO_MIN: f64 = 1.05;
/// Weight of a new sample in what is common to all levels: content changes from frame to frame.
const COMMON_NEWS: f64 = 0.3;
/// The same in what is a level's own.
const OWN_NEWS: f64 = 0.03;
/// A level's own figures are within this factor of what is typical.
const OWN_MAX: f64 = 3.0;
/// Speed of doing nothing, bytes per second.
const NULL_SPEED: f64 = 20e9;

/// The place of doing nothing among the levels.
const NULL: usize = 0;
/// The place of the level a flow begins with.
const FIRST: usize = 5;
/// Of what shrinks less, nothing is learned about the levels.
const SHRINKS_MIN: f64 = 0.1;

/// Content that shrinks more than ordinary one by a larger factor says nothing of what comes next: a record of zeros shrinks a
/// thousandfold, and behind it all may be known, so that nothing tells otherwise for long.
const SHRINKS_BELIEVED: f64 = 2.0;
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

/// What is known of one level, for ordinary content.
#[derive(Debug, Clone, Copy)]
struct Known {
    codec: Codec,
    /// Time for a byte, s.
    byte_s: f64,
    /// Ratio, less one.
    gain: f64,
}

impl Known {
    /// For content that shrinks by so much more than ordinary one.
    fn ratio(&self, shrinks: f64) -> f64 {
        1.0 + self.gain * shrinks
    }
}

/// Chooses the level of one direction to one peer.
#[derive(Debug, Clone)]
pub struct Levels {
    known: Vec<Known>,
    /// By how much present content takes longer, and shrinks more, than ordinary one, at any level.
    slowness: f64,
    shrinks: f64,
    is_measured: bool,
    current: usize,
    /// The last level at which something was compressed.
    compressing: usize,
    sampling: Sampling,
    pinned: Option<Codec>,
    trials: u64,
    /// The processors wait for the link at the level that was used last.
    is_link_slow: bool,
}

impl Levels {
    /// `pinned` is a rule's word that overrides everything.
    pub fn new(pinned: Option<Codec>) -> Self {
        let known = PRIOR.map(|(codec, speed, ratio)| Known {
            codec,
            byte_s: 1.0 / speed,
            gain: ratio - 1.0,
        });
        Self {
            known: known.to_vec(),
            slowness: 1.0,
            shrinks: 1.0,
            is_measured: false,
            current: FIRST,
            compressing: FIRST,
            sampling: Sampling::Dense,
            pinned,
            trials: 0,
            is_link_slow: true,
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
        let codec = self.upcoming();
        self.trials += 1;
        codec
    }

    /// What [`Levels::trial`] will say next.
    pub fn upcoming(&self) -> Codec {
        let trials = self.trials + 1;
        let every = match self.current {
            NULL => NULL_TRIAL_EVERY,
            _ => TRIAL_EVERY,
        };
        if self.pinned.is_some() || !trials.is_multiple_of(every) {
            return self.codec();
        }
        let is_up = (trials / every).is_multiple_of(2);
        let neighbour = match self.current {
            NULL if self.is_link_slow => self.compressing,
            NULL => NULL + 1,
            now if is_up => now + 1,
            now => (now - 1).max(NULL + 1),
        };
        self.known
            .get(neighbour)
            .map_or(self.codec(), |known| known.codec)
    }

    /// A frame's literals were compressed: from so many bytes to so many, in so much processor time.
    pub fn handle_sample(&mut self, codec: Codec, from_bytes: usize, to_bytes: usize, cpu_ns: u64) {
        if codec == Codec::Null || from_bytes < 4096 || to_bytes == 0 || cpu_ns == 0 {
            return;
        }
        let Some(nth) = self.known.iter().position(|known| known.codec == codec) else {
            return;
        };
        let (Some(known), Some((_, speed, ratio))) = (self.known.get_mut(nth), PRIOR.get(nth))
        else {
            return;
        };
        let gain = (from_bytes as f64 / to_bytes as f64 - 1.0).max(0.0);
        let byte_s = cpu_ns as f64 / 1e9 / from_bytes as f64;
        let (shrinks, slowness) = (gain / known.gain, byte_s / known.byte_s);
        let news = if self.is_measured { COMMON_NEWS } else { 1.0 };
        self.is_measured = true;
        self.shrinks += (shrinks - self.shrinks) * news;
        self.slowness += (slowness - self.slowness) * news;
        // What is left is the level's own.
        let own = |left: f64| 1.0 + (left.clamp(0.5, 2.0) - 1.0) * OWN_NEWS;
        if self.shrinks > SHRINKS_MIN {
            let typical = ratio - 1.0;
            known.gain = (known.gain * own(shrinks / self.shrinks))
                .clamp(typical / OWN_MAX, typical * OWN_MAX);
        }
        known.byte_s = (known.byte_s * own(slowness / self.slowness))
            .clamp(1.0 / speed / OWN_MAX, OWN_MAX / speed);
        self.put_in_order(nth);
    }

    /// As a rule a higher level does not shrink less, and is not faster: what was learned of one tells of those beyond it. Without
    /// this, chance in what is seen seldom decides between levels that are nearly alike.
    fn put_in_order(&mut self, nth: usize) {
        let Some(now) = self.known.get(nth).copied() else {
            return;
        };
        for (other, known) in self.known.iter_mut().enumerate().skip(NULL + 1) {
            if other < nth {
                known.gain = known.gain.min(now.gain);
                known.byte_s = known.byte_s.min(now.byte_s);
            } else {
                known.gain = known.gain.max(now.gain);
                known.byte_s = known.byte_s.max(now.byte_s);
            }
        }
    }

    fn speed(&self, known: &Known) -> f64 {
        match known.codec {
            Codec::Null => NULL_SPEED,
            Codec::Zstd(_) => 1.0 / (known.byte_s * self.slowness).max(1e-12),
        }
    }

    /// Chooses anew: so many cores, a link of so many bytes per second for this direction.
    pub fn choose(&mut self, cores: f64, link_bytes_s: f64) -> Codec {
        let moved = |known: &Known| {
            let ratio = known.ratio(self.shrinks);
            let is_worth_it = known.codec == Codec::Null || ratio >= RATIO_MIN;
            let moved = (cores * self.speed(known)).min(link_bytes_s * ratio);
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
        if self.current != NULL {
            self.compressing = self.current;
        }
        let compressing = self.known.get(self.compressing);
        self.is_link_slow =
            compressing.is_some_and(|known| cores * self.speed(known) > link_bytes_s);
        self.sampling = self.sampling_for(link_bytes_s);
        self.codec()
    }

    /// By what the link would carry at the present level; with some distance between there and back.
    fn sampling_for(&self, link_bytes_s: f64) -> Sampling {
        let codec = self.codec();
        let known = self.known.iter().find(|known| known.codec == codec);
        let shrinks = self.shrinks.min(SHRINKS_BELIEVED);
        let carried = link_bytes_s * known.map_or(1.0, |known| known.ratio(shrinks));
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
    fn a_record_of_zeros_does_not_make_a_slow_link_fast() {
        let mut levels = Levels::new(None);
        levels.handle_sample(levels.codec(), 64 << 10, 30, 20_000);
        levels.choose(1.0, 45e6 / 8.0);
        assert_eq!(levels.sampling(), Sampling::Dense);
    }

    #[test]
    fn what_a_rule_leaves_uncompressed_on_a_slow_link_is_still_looked_at_closely() {
        let mut levels = Levels::new(Some(Codec::Null));
        levels.choose(1.0, 155e6 / 8.0);
        assert_eq!(levels.sampling(), Sampling::Dense);
        levels.choose(1.0, 10e9 / 8.0);
        assert_eq!(levels.sampling(), Sampling::Sparse);
    }

    /// Frames until something is compressed again, of content that shrinks by `gain` of what is typical at every level.
    fn frames_until(levels: &mut Levels, gain: f64, is_reached: impl Fn(Codec) -> bool) -> usize {
        let frame = |levels: &mut Levels| {
            let codec = levels.trial();
            let place = PRIOR.iter().find(|(known, ..)| *known == codec).unwrap();
            let ratio = 1.0 + (place.2 - 1.0) * gain;
            let cpu_ns = 200_000.0 / place.1 * 1e9;
            levels.handle_sample(codec, 200_000, (200_000.0 / ratio) as usize, cpu_ns as u64);
            levels.choose(1.0, 45e6 / 8.0)
        };
        (0..1000).take_while(|_| !is_reached(frame(levels))).count()
    }

    #[test]
    fn content_that_changes_is_met_at_once() {
        let mut levels = Levels::new(None);
        let is_high = |codec| codec >= Codec::Zstd(7);
        assert!(frames_until(&mut levels, 1.0, is_high) < 40);
        let is_null = |codec| codec == Codec::Null;
        assert!(frames_until(&mut levels, 0.0, is_null) < 20, "to noise");
        assert!(
            frames_until(&mut levels, 0.0, |_| false) == 1000,
            "a long time"
        );
        assert!(frames_until(&mut levels, 1.0, is_high) < 20, "and back");
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
