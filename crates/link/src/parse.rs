//! Reads profiles: netem's words and units, profile names first.
//!
//! ```text
//! profile   = [name] setting* ["forward" [name] setting*] ["backward" [name] setting*]
//! setting   = "rate" RATE | "unlimited"      [OVERHEAD [CELL [CELL-OVERHEAD]]]
//!           | "delay" TIME [JITTER]          one way
//!           | "rtt" TIME                     both ways together, half each
//!           | "jitter" TIME
//!           | "distribution" uniform | normal | pareto
//!           | "loss" PERCENT | none
//!           | "loss" "gemodel" P R [1-H [1-K]]
//!           | "loss" "bursts" MEAN LENGTH    the same chain by its effects
//!           | "duplicate" PERCENT   | "corrupt" PERCENT
//!           | "reorder" PERCENT [HOLD] | jitter | none
//!           | "policer" RATE SIZE | none     tokens per second, burst
//!           | "queue" SIZE | PACKETS | TIME | auto       | "limit" PACKETS
//!           | "mtu" BYTES | none
//!           | "framing" ethernet | wire | ip | hdlc | atm | OVERHEAD [CELL [CELL-OVERHEAD]]
//!           | "in-flight" PACKETS
//! ```

use std::str::FromStr;

use crate::delay::Distribution;
use crate::error::ProfileError;
use crate::framing::Framing;
use crate::loss::Loss;
use crate::named;
use crate::policer::Policer;
use crate::probability::Probability;
use crate::profile::{DirectionProfile, LinkProfile, TIME_MAX_NS};
use crate::queue::QueueLimit;
use crate::rate::Rate;
use crate::reorder::Reorder;
use crate::suggest;
use crate::units::{self, Quantity};

/// Words that start a setting or a section, in the order they are explained.
const SETTINGS: [&str; 17] = [
    "rate",
    "delay",
    "rtt",
    "jitter",
    "distribution",
    "loss",
    "duplicate",
    "corrupt",
    "reorder",
    "policer",
    "queue",
    "limit",
    "mtu",
    "framing",
    "in-flight",
    "forward",
    "backward",
];

/// Smallest MTU accepted: every IPv4 link carries 68 bytes (RFC 791).
const MTU_MIN_BYTES: u64 = 68;
/// Largest MTU accepted: the longest IP packet.
const MTU_MAX_BYTES: u64 = 65_535;

impl LinkProfile {
    /// Reads a profile such as `oc1 delay 100ms 10ms loss 1%`. What is not
    /// mentioned is ideal: no limit, no delay, no loss.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        Self::default().changed(text)
    }

    /// This profile with the settings of `text` in place of its own; those
    /// that `text` does not mention stay. A profile name replaces them all.
    pub fn changed(&self, text: &str) -> Result<Self, ProfileError> {
        Parser::new(text).run(self.clone())
    }
}

impl FromStr for LinkProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// One setting as read, to be applied to one direction or both.
#[derive(Debug, Clone, Copy)]
enum Setting {
    Rate(Option<Rate>),
    Framing(Framing),
    Delay { delay_ns: u64, jitter_ns: u64 },
    Jitter(u64),
    Distribution(Distribution),
    Loss(Loss),
    Duplicate(Probability),
    Corrupt(Probability),
    Reorder(Reorder),
    Policer(Option<Policer>),
    Queue(QueueLimit),
    Mtu(Option<u32>),
    InFlight(u32),
}

impl Setting {
    fn apply(self, direction: &mut DirectionProfile) {
        match self {
            Self::Rate(rate) => direction.rate = rate,
            Self::Framing(framing) => direction.framing = framing,
            Self::Delay {
                delay_ns,
                jitter_ns,
            } => {
                direction.delay_ns = delay_ns;
                direction.jitter_ns = jitter_ns;
            }
            Self::Jitter(ns) => direction.jitter_ns = ns,
            Self::Distribution(distribution) => direction.distribution = distribution,
            Self::Loss(loss) => direction.loss = loss,
            Self::Duplicate(share) => direction.duplicate = share,
            Self::Corrupt(share) => direction.corrupt = share,
            Self::Reorder(reorder) => direction.reorder = reorder,
            Self::Policer(policer) => direction.policer = policer,
            Self::Queue(queue) => direction.queue = queue,
            Self::Mtu(mtu) => direction.mtu_bytes = mtu,
            Self::InFlight(packets) => direction.in_flight_packets_max = packets,
        }
    }
}

/// Which directions the next settings are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Both,
    Forward,
    Backward,
}

/// A word and where it stands.
#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    offset: usize,
}

impl Word<'_> {
    fn error(self, message: impl Into<String>) -> ProfileError {
        ProfileError::new(self.text, self.offset, message)
    }

    fn is(self, other: &str) -> bool {
        self.text.eq_ignore_ascii_case(other)
    }
}

struct Parser<'a> {
    text: &'a str,
    /// What has not been read yet, as an offset into `text`.
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn run(mut self, mut link: LinkProfile) -> Result<LinkProfile, ProfileError> {
        let mut section = Section::Both;
        let mut may_name = true;
        while let Some(word) = self.next() {
            let named = named::find(word.text).filter(|_| !is_setting(word));
            match named {
                Some(named) if may_name => {
                    start_from(&mut link, section, named);
                    may_name = false;
                    continue;
                }
                Some(_) => {
                    return Err(word.error("a profile name comes first, before any setting"));
                }
                None => {}
            }
            if word.is("forward") || word.is("backward") {
                section = if word.is("forward") {
                    Section::Forward
                } else {
                    Section::Backward
                };
                may_name = true;
                continue;
            }
            may_name = false;
            if word.is("rtt") {
                self.rtt(word, section, &mut link)?;
                continue;
            }
            for setting in self.setting(word)?.into_iter().flatten() {
                apply(setting, section, &mut link);
            }
        }
        let Some(last) = self.last() else {
            return Err(ProfileError::new(
                "",
                0,
                "empty: write a profile name or settings, such as `oc1 delay 100ms loss 1%`",
            ));
        };
        for (name, direction) in [("forward", &link.forward), ("backward", &link.backward)] {
            direction
                .validate()
                .map_err(|why| last.error(format!("{name}: {why}")))?;
        }
        Ok(link)
    }

    /// One setting; a rate may bring its framing with it.
    fn setting(&mut self, word: Word<'a>) -> Result<[Option<Setting>; 2], ProfileError> {
        let one = match word.text.to_ascii_lowercase().as_str() {
            "rate" => return self.rate(word),
            "delay" => self.delay(word)?,
            "jitter" => Setting::Jitter(self.time(word)?),
            "distribution" => self.distribution(word)?,
            "loss" => self.loss(word)?,
            "duplicate" => Setting::Duplicate(self.share(word)?),
            "corrupt" => Setting::Corrupt(self.share(word)?),
            "reorder" => self.reorder(word)?,
            "policer" => self.policer(word)?,
            "queue" => self.queue(word)?,
            "limit" => Setting::Queue(QueueLimit::Packets(self.count(word, u64::MAX)?)),
            "mtu" => self.mtu(word)?,
            "framing" => self.framing(word)?,
            "in-flight" => Setting::InFlight(self.count(word, u64::from(u32::MAX))? as u32),
            _ => return Err(unknown(word)),
        };
        Ok([Some(one), None])
    }

    fn rate(&mut self, word: Word<'a>) -> Result<[Option<Setting>; 2], ProfileError> {
        let value = self.value(word, "a rate such as 51.84mbit, or `unlimited`")?;
        if value.is("unlimited") {
            return Ok([Some(Setting::Rate(None)), None]);
        }
        let bits = units::bit_per_s(value.text).map_err(|why| value.error(why))?;
        let rate = Rate::from_bit_per_s(bits).ok_or_else(|| {
            value.error(if bits == 0 {
                "a rate of zero carries nothing: write `loss 100%` for a link that is down"
            } else {
                "more than 10tbit: write `unlimited`"
            })
        })?;
        let framing = match self.next_number() {
            Some(overhead) => Some(self.custom_framing(overhead)?),
            None => None,
        };
        Ok([
            Some(Setting::Rate(Some(rate))),
            framing.map(Setting::Framing),
        ])
    }

    fn delay(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let delay_ns = self.time(word)?;
        let jitter_ns = match self.next_number() {
            Some(value) => time_of(value)?,
            None => 0,
        };
        self.refuse_correlation("independent jitter")?;
        Ok(Setting::Delay {
            delay_ns,
            jitter_ns,
        })
    }

    fn rtt(
        &mut self,
        word: Word<'a>,
        section: Section,
        link: &mut LinkProfile,
    ) -> Result<(), ProfileError> {
        if section != Section::Both {
            return Err(word.error(
                "a round trip has two directions: write it before `forward` and `backward`, or write `delay` for one way",
            ));
        }
        let rtt_ns = self.time(word)?;
        let half_ns = rtt_ns / 2;
        let delay = |delay_ns| Setting::Delay {
            delay_ns,
            jitter_ns: 0,
        };
        delay(rtt_ns - half_ns).apply(&mut link.forward);
        delay(half_ns).apply(&mut link.backward);
        Ok(())
    }

    fn distribution(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let names = || Distribution::NAMED.iter().map(|(name, _)| *name);
        let value = self.value(word, "uniform, normal or pareto")?;
        Distribution::NAMED
            .iter()
            .find(|(name, _)| value.is(name))
            .map(|(_, distribution)| Setting::Distribution(*distribution))
            .ok_or_else(|| value.error(one_of("distribution", value.text, names())))
    }

    fn loss(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let value = self.value(word, "a percentage, `gemodel`, `bursts` or `none`")?;
        let loss = match value.text.to_ascii_lowercase().as_str() {
            "none" => Loss::None,
            "random" => bernoulli(self.share(value)?),
            "gemodel" => self.gemodel(value)?,
            "bursts" => self.bursts(value)?,
            "state" => {
                return Err(value.error(
                    "netem's four-state model is not offered: write `loss gemodel` or `loss bursts`",
                ));
            }
            _ => bernoulli(share_of(value)?),
        };
        if matches!(loss, Loss::None | Loss::Bernoulli(_)) {
            self.refuse_correlation("bursts of loss: write `loss bursts MEAN LENGTH`")?;
        }
        Ok(Setting::Loss(loss))
    }

    /// netem's order and defaults: p, r = 1 - p, 1-h = 100 %, 1-k = 0 %.
    fn gemodel(&mut self, word: Word<'a>) -> Result<Loss, ProfileError> {
        let to_bad = self.share(word)?;
        let mut next_share = |default: Probability| match self.next_number() {
            Some(value) => share_of(value),
            None => Ok(default),
        };
        Ok(Loss::GilbertElliott {
            to_bad,
            to_good: next_share(to_bad.complement())?,
            loss_bad: next_share(Probability::ONE)?,
            loss_good: next_share(Probability::ZERO)?,
        })
    }

    fn bursts(&mut self, word: Word<'a>) -> Result<Loss, ProfileError> {
        let mean = self.share(word)?;
        let value = self.value(word, "the mean length of a burst in packets, such as 5")?;
        let length = units::plain(value.text).map_err(|why| value.error(why))?;
        if mean == Probability::ZERO {
            return Ok(Loss::None);
        }
        Loss::bursts(mean, length).ok_or_else(|| {
            value.error(format!(
                "no bursts of {length} packets lose {mean}: a burst has at least one packet, and a packet must get through between two"
            ))
        })
    }

    fn reorder(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let value = self.value(word, "a percentage, `jitter` or `none`")?;
        if value.is("none") {
            return Ok(Setting::Reorder(Reorder::Never));
        }
        if value.is("jitter") {
            return Ok(Setting::Reorder(Reorder::Jitter));
        }
        let share = share_of(value)?;
        self.refuse_correlation("reordering")?;
        let reorder = match self.next_number() {
            _ if share == Probability::ZERO => Reorder::Never,
            Some(hold) => {
                let extra_ns = time_of(hold)?;
                Reorder::HoldBack { share, extra_ns }
            }
            None => Reorder::Leap(share),
        };
        Ok(Setting::Reorder(reorder))
    }

    fn policer(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let value = self.value(word, "a rate and a burst such as `20mbit 64kb`, or `none`")?;
        if value.is("none") {
            return Ok(Setting::Policer(None));
        }
        let bits = units::bit_per_s(value.text).map_err(|why| value.error(why))?;
        let rate = Rate::from_bit_per_s(bits);
        let rate = rate.ok_or_else(|| value.error("expected a rate from 1bit to 10tbit"))?;
        let burst = self.value(value, "the burst that may pass at once, such as 64kb")?;
        let Ok(Quantity::Bytes(burst_bytes)) = units::queue(burst.text) else {
            return Err(burst.error("expected a size such as 64kb"));
        };
        Ok(Setting::Policer(Some(Policer { rate, burst_bytes })))
    }

    fn queue(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let value = self.value(word, "a size, packets or a time such as 64kb, 50p or 100ms")?;
        if value.is("auto") {
            return Ok(Setting::Queue(QueueLimit::Auto));
        }
        match units::queue(value.text).map_err(|why| value.error(why))? {
            Quantity::Bytes(bytes) => Ok(Setting::Queue(QueueLimit::Bytes(bytes))),
            Quantity::Packets(packets) => Ok(Setting::Queue(QueueLimit::Packets(packets))),
            Quantity::Ns(ns) => Ok(Setting::Queue(QueueLimit::TimeNs(ns))),
            Quantity::BitPerS(_) => Err(value.error("a queue has no rate")),
        }
    }

    fn mtu(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let value = self.value(word, "a number of bytes such as 1500, or `none`")?;
        if value.is("none") {
            return Ok(Setting::Mtu(None));
        }
        let bytes = whole(value)?;
        if !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&bytes) {
            return Err(value.error(format!(
                "an MTU lies between {MTU_MIN_BYTES} and {MTU_MAX_BYTES} bytes"
            )));
        }
        Ok(Setting::Mtu(u32::try_from(bytes).ok()))
    }

    fn framing(&mut self, word: Word<'a>) -> Result<Setting, ProfileError> {
        let names = || Framing::NAMED.iter().map(|(name, _)| *name);
        let value = self.value(word, "ethernet, wire, ip, hdlc, atm or numbers")?;
        if units::looks_like_number(value.text) {
            return self.custom_framing(value).map(Setting::Framing);
        }
        Framing::NAMED
            .iter()
            .find(|(name, _)| value.is(name))
            .map(|(_, framing)| Setting::Framing(*framing))
            .ok_or_else(|| value.error(one_of("framing", value.text, names())))
    }

    /// netem's numbers after a rate: overhead, cell, overhead of a cell.
    fn custom_framing(&mut self, overhead: Word<'a>) -> Result<Framing, ProfileError> {
        let overhead_bytes = overhead.text.parse().map_err(|_| {
            overhead.error("expected the overhead of a packet in bytes, from -32768 to 32767")
        })?;
        let mut next_u16 = || match self.next_number() {
            Some(value) => value
                .text
                .parse()
                .map_err(|_| value.error("expected the bytes of a cell, from 0 to 65535")),
            None => Ok(0),
        };
        Ok(Framing::Custom {
            overhead_bytes,
            cell_bytes: next_u16()?,
            cell_overhead_bytes: next_u16()?,
        })
    }

    fn time(&mut self, word: Word<'a>) -> Result<u64, ProfileError> {
        let value = self.value(word, "a time such as 100ms")?;
        time_of(value)
    }

    fn share(&mut self, word: Word<'a>) -> Result<Probability, ProfileError> {
        share_of(self.value(word, "a percentage such as 1%")?)
    }

    fn count(&mut self, word: Word<'a>, max: u64) -> Result<u64, ProfileError> {
        let value = self.value(word, "a number of packets")?;
        match whole(value)? {
            count if count <= max => Ok(count),
            _ => Err(value.error(format!("more than {max} packets"))),
        }
    }

    fn refuse_correlation(&mut self, instead: &str) -> Result<(), ProfileError> {
        match self.peek() {
            Some(next) if units::looks_like_number(next.text) && next.text.ends_with('%') => {
                Err(next.error(format!(
                    "netem's correlation is not offered; there is {instead}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The word after `word`, which needs one.
    fn value(&mut self, word: Word<'a>, expected: &str) -> Result<Word<'a>, ProfileError> {
        match self.peek() {
            Some(value) if !is_setting(value) || value.is("jitter") => {
                self.next();
                Ok(value)
            }
            _ => Err(word.error(format!("needs {expected} after it"))),
        }
    }

    fn next_number(&mut self) -> Option<Word<'a>> {
        let word = self
            .peek()
            .filter(|word| units::looks_like_number(word.text))?;
        // A name such as `3g` can follow nothing that takes a number.
        self.next();
        Some(word)
    }

    fn peek(&self) -> Option<Word<'a>> {
        let rest = self.text.get(self.at..)?;
        let trimmed = rest.trim_start();
        let offset = self.at + (rest.len() - trimmed.len());
        let text = trimmed.split_whitespace().next()?;
        Some(Word { text, offset })
    }

    /// The last word read.
    fn last(&self) -> Option<Word<'a>> {
        let text = self.text.get(..self.at)?.split_whitespace().next_back()?;
        Some(Word {
            text,
            offset: self.at - text.len(),
        })
    }

    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.at = word.offset + word.text.len();
        Some(word)
    }
}

fn start_from(link: &mut LinkProfile, section: Section, named: &named::NamedProfile) {
    match section {
        Section::Both => *link = named.link(),
        Section::Forward => link.forward = named.forward.clone(),
        Section::Backward => link.backward = named.backward.clone(),
    }
}

fn apply(setting: Setting, section: Section, link: &mut LinkProfile) {
    if section != Section::Backward {
        setting.apply(&mut link.forward);
    }
    if section != Section::Forward {
        setting.apply(&mut link.backward);
    }
}

fn is_setting(word: Word<'_>) -> bool {
    SETTINGS.iter().any(|setting| word.is(setting))
}

fn bernoulli(share: Probability) -> Loss {
    if share == Probability::ZERO {
        Loss::None
    } else {
        Loss::Bernoulli(share)
    }
}

fn share_of(value: Word<'_>) -> Result<Probability, ProfileError> {
    let ppb = units::percent_ppb(value.text).map_err(|why| value.error(why))?;
    u32::try_from(ppb)
        .ok()
        .and_then(Probability::from_ppb)
        .ok_or_else(|| value.error("more than 100%"))
}

fn time_of(value: Word<'_>) -> Result<u64, ProfileError> {
    match units::time_ns(value.text) {
        Ok(ns) if ns <= TIME_MAX_NS => Ok(ns),
        Ok(_) => Err(value.error("longer than one hour")),
        Err(why) => Err(value.error(why)),
    }
}

fn whole(value: Word<'_>) -> Result<u64, ProfileError> {
    units::whole(value.text).map_err(|why| value.error(why))
}

fn one_of(what: &str, word: &str, names: impl Iterator<Item = &'static str> + Clone) -> String {
    let all = names.clone().collect::<Vec<_>>().join(", ");
    match suggest::closest(word, names) {
        Some(close) => format!("unknown {what}, did you mean `{close}`? There are {all}"),
        None => format!("unknown {what}; there are {all}"),
    }
}

fn unknown(word: Word<'_>) -> ProfileError {
    let names = named::profiles()
        .iter()
        .flat_map(|named| std::iter::once(named.name).chain(named.aliases.iter().copied()));
    let lower = word.text.to_ascii_lowercase();
    match suggest::closest(&lower, SETTINGS.into_iter().chain(names)) {
        Some(close) => word.error(format!(
            "neither a profile nor a setting, did you mean `{close}`?"
        )),
        None => word.error(format!(
            "neither a profile nor a setting; settings are {}; profiles are {}",
            SETTINGS.join(", "),
            named::profiles()
                .iter()
                .map(|named| named.name)
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}
