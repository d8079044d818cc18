//! Named profiles, each number with its source.
//!
//! The same table, for readers, is in `docs/reference/link-profiles.md`;
//! a test keeps the two equal. Forward is from the user's site.

use crate::profile::{DirectionProfile, LinkProfile};
use crate::queue::QueueLimit;
use crate::rate::Rate;

/// A circuit with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProfile {
    /// The name a user types.
    pub name: &'static str,
    /// Other spellings of it.
    pub aliases: &'static [&'static str],
    /// What it is.
    pub about: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
    /// From the user's site.
    pub forward: DirectionProfile,
    /// Towards the user's site.
    pub backward: DirectionProfile,
}

impl NamedProfile {
    /// The profile as a value.
    pub fn link(&self) -> LinkProfile {
        LinkProfile {
            name: Some(self.name),
            forward: self.forward.clone(),
            backward: self.backward.clone(),
        }
    }

    const fn symmetric(
        name: &'static str,
        aliases: &'static [&'static str],
        about: &'static str,
        source: &'static str,
        direction: DirectionProfile,
    ) -> Self {
        // A constant, so that the table costs nothing at start; `clone` is
        // not const, hence the fields one by one.
        let copy = circuit(direction.rate, direction.delay_ns, direction.queue);
        Self {
            name,
            aliases,
            about,
            source,
            forward: direction,
            backward: copy,
        }
    }

    /// Up and down rates in bit/s, round trip in ms, half of it each way.
    const fn access(
        name: &'static str,
        aliases: &'static [&'static str],
        about: &'static str,
        source: &'static str,
        (up, down, rtt_ms): (u64, u64, u64),
    ) -> Self {
        let delay_ns = rtt_ms * MS / 2;
        let forward = circuit(Some(Rate::constant(up)), delay_ns, QueueLimit::Auto);
        let backward = circuit(Some(Rate::constant(down)), delay_ns, QueueLimit::Auto);
        Self {
            name,
            aliases,
            about,
            source,
            forward,
            backward,
        }
    }
}

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

const fn circuit(rate: Option<Rate>, delay_ns: u64, queue: QueueLimit) -> DirectionProfile {
    let mut direction = DirectionProfile::UNLIMITED;
    direction.rate = rate;
    direction.delay_ns = delay_ns;
    direction.queue = queue;
    direction
}

const fn line(bit_per_s: u64) -> DirectionProfile {
    circuit(Some(Rate::constant(bit_per_s)), 0, QueueLimit::Auto)
}

const fn path(bit_per_s: u64, delay_ns: u64) -> DirectionProfile {
    circuit(Some(Rate::constant(bit_per_s)), delay_ns, QueueLimit::Auto)
}

/// Share lost by the F5 brief's links.
const fn with_one_percent_loss(mut named: NamedProfile) -> NamedProfile {
    if let Some(one_percent) = crate::Probability::from_ppb(10_000_000) {
        named.forward.loss = crate::Loss::Bernoulli(one_percent);
        named.backward.loss = crate::Loss::Bernoulli(one_percent);
    }
    named
}

static PROFILES: [NamedProfile; 31] = [
    NamedProfile::symmetric(
        "unlimited",
        &[],
        "an ideal wire",
        "definition",
        DirectionProfile::UNLIMITED,
    ),
    NamedProfile::symmetric(
        "ds0",
        &["ds-0"],
        "one telephone channel",
        "ITU-T G.702: 64 kbit/s",
        line(64_000),
    ),
    NamedProfile::symmetric(
        "t1",
        &["ds1", "t-1", "ds-1"],
        "North American leased line",
        "ANSI T1.107, ITU-T G.702: 1.544 Mbit/s",
        line(1_544_000),
    ),
    NamedProfile::symmetric(
        "e1",
        &["e-1"],
        "European leased line",
        "ITU-T G.702, G.703: 2.048 Mbit/s",
        line(2_048_000),
    ),
    NamedProfile::symmetric(
        "e3",
        &["e-3"],
        "European trunk",
        "ITU-T G.702, G.703: 34.368 Mbit/s",
        line(34_368_000),
    ),
    NamedProfile::symmetric(
        "t3",
        &["ds3", "t-3", "ds-3"],
        "North American trunk",
        "ANSI T1.107, ITU-T G.702: 44.736 Mbit/s (the F5 brief rounds it to 45)",
        line(44_736_000),
    ),
    NamedProfile::symmetric(
        "oc1",
        &["oc-1", "sts1"],
        "SONET OC-1",
        "ANSI T1.105: 51.84 Mbit/s",
        line(51_840_000),
    ),
    NamedProfile::symmetric(
        "oc3",
        &["oc-3", "stm1", "stm-1"],
        "SONET OC-3, SDH STM-1",
        "ANSI T1.105, ITU-T G.707: 155.52 Mbit/s",
        line(155_520_000),
    ),
    NamedProfile::symmetric(
        "oc12",
        &["oc-12", "stm4", "stm-4"],
        "SONET OC-12, SDH STM-4",
        "ANSI T1.105, ITU-T G.707: 622.08 Mbit/s",
        line(622_080_000),
    ),
    NamedProfile::symmetric(
        "oc48",
        &["oc-48", "stm16", "stm-16"],
        "SONET OC-48, SDH STM-16",
        "ANSI T1.105, ITU-T G.707: 2488.32 Mbit/s",
        line(2_488_320_000),
    ),
    NamedProfile::symmetric(
        "ethernet",
        &["10base-t"],
        "10 Mbit/s Ethernet",
        "IEEE 802.3 (10BASE-T)",
        line(10_000_000),
    ),
    NamedProfile::symmetric(
        "fast-ethernet",
        &["100base-t"],
        "100 Mbit/s Ethernet",
        "IEEE 802.3 (100BASE-TX)",
        line(100_000_000),
    ),
    NamedProfile::symmetric(
        "gigabit",
        &["1000base-t", "gige"],
        "1 Gbit/s Ethernet",
        "IEEE 802.3 (1000BASE-T)",
        line(1_000_000_000),
    ),
    NamedProfile::symmetric(
        "ten-gigabit",
        &["10gbase-t", "10gige"],
        "10 Gbit/s Ethernet",
        "IEEE 802.3 (10GBASE-R)",
        line(10_000_000_000),
    ),
    NamedProfile::symmetric(
        "lan",
        &[],
        "hosts on one switch",
        "IEEE 802.3 (1000BASE-T) for the rate; University of Amsterdam 2006, table 20, for the round trip of 0.44 ms",
        path(1_000_000_000, 220 * US),
    ),
    NamedProfile::symmetric(
        "continental",
        &["short-wan"],
        "a short WAN path, any rate",
        concat!(
            "van Helmond, Smeets, University of Amsterdam 2006",
            ", table 6: 30 ms one way"
        ),
        circuit(None, 30 * MS, QueueLimit::Auto),
    ),
    NamedProfile::symmetric(
        "intercontinental",
        &["long-wan"],
        "a long WAN path, any rate",
        concat!(
            "van Helmond, Smeets, University of Amsterdam 2006",
            ", table 6: 100 ms one way"
        ),
        circuit(None, 100 * MS, QueueLimit::Auto),
    ),
    NamedProfile::symmetric(
        "wx-extreme",
        &[],
        "the WX study's longest path, any rate",
        concat!(
            "van Helmond, Smeets, University of Amsterdam 2006",
            ", table 6: 250 ms one way"
        ),
        circuit(None, 250 * MS, QueueLimit::Auto),
    ),
    NamedProfile::symmetric(
        "transatlantic",
        &[],
        "New York to London",
        "Verizon service level agreement: round trip of 90 ms at most; rate of an OC-3",
        path(155_520_000, 45 * MS),
    ),
    NamedProfile::symmetric(
        "satellite-geo",
        &["geo", "satellite"],
        "one hop over a geostationary satellite",
        "RFC 2488, section 2: 279.0 ms one way at the edge of the view; rate of an E3, as Waikato's",
        path(34_368_000, 279 * MS),
    ),
    NamedProfile::access(
        "leo",
        &["satellite-leo", "starlink"],
        "low-orbit satellite access",
        "Michel, Trevisan, Giordano, Bonaventure, A First Look at Starlink Performance, IMC 2022: medians of 178 Mbit/s down, 17 Mbit/s up, round trip 50 ms",
        (17_000_000, 178_000_000, 50),
    ),
    NamedProfile::access(
        "lte-edge",
        &["slow-4g"],
        "the slowest quarter of 4G",
        "Google Lighthouse, docs/throttling.md: 1.6 Mbit/s down, 750 kbit/s up, round trip 150 ms",
        (750_000, 1_600_000, 150),
    ),
    NamedProfile::access(
        "3g",
        &["umts"],
        "third-generation mobile",
        "WebPageTest, connectivity.ini.sample, 3G: 1.6 Mbit/s down, 768 kbit/s up, round trip 300 ms",
        (768_000, 1_600_000, 300),
    ),
    NamedProfile::access(
        "edge",
        &["2.5g"],
        "GSM EDGE",
        "WebPageTest, connectivity.ini.sample, Edge: 240 kbit/s down, 200 kbit/s up, round trip 840 ms",
        (200_000, 240_000, 840),
    ),
    NamedProfile::access(
        "dsl",
        &["adsl"],
        "telephone line with ADSL",
        "WebPageTest, connectivity.ini.sample, DSL: 1.5 Mbit/s down, 384 kbit/s up, round trip 50 ms",
        (384_000, 1_500_000, 50),
    ),
    NamedProfile::access(
        "cable",
        &["docsis"],
        "television cable",
        "WebPageTest, connectivity.ini.sample, Cable: 5 Mbit/s down, 1 Mbit/s up, round trip 28 ms",
        (1_000_000, 5_000_000, 28),
    ),
    NamedProfile::access(
        "dialup",
        &["modem", "v90"],
        "56k modem",
        "WebPageTest, connectivity.ini.sample, Dial: 49 kbit/s down, 30 kbit/s up, round trip 120 ms",
        (30_000, 49_000, 120),
    ),
    with_one_percent_loss(NamedProfile::access(
        "f5-t3",
        &[],
        "the F5 brief's slower link",
        "F5, BIG-IP WAN Optimization Module Performance: 45 Mbit/s, round trip 100 ms, loss 1 %",
        (45_000_000, 45_000_000, 100),
    )),
    with_one_percent_loss(NamedProfile::access(
        "f5-oc3",
        &[],
        "the F5 brief's faster link",
        "F5, BIG-IP WAN Optimization Module Performance: 155 Mbit/s, round trip 40 ms, loss 1 %",
        (155_000_000, 155_000_000, 40),
    )),
    NamedProfile::symmetric(
        "waikato-satellite",
        &[],
        "New Zealand to the USA by satellite",
        "University of Waikato, table 1: E3, 320 ms one way, buffer of 256000 bytes",
        circuit(
            Some(Rate::constant(34_368_000)),
            320 * MS,
            QueueLimit::Bytes(256_000),
        ),
    ),
    NamedProfile::symmetric(
        "waikato-terrestrial",
        &[],
        "New Zealand to the USA by cable",
        "University of Waikato, table 1: E3, 60 ms one way, buffer of 256000 bytes",
        circuit(
            Some(Rate::constant(34_368_000)),
            60 * MS,
            QueueLimit::Bytes(256_000),
        ),
    ),
];

/// Every named profile.
pub fn profiles() -> &'static [NamedProfile] {
    &PROFILES
}

/// The profile of that name or alias, in any case.
pub(crate) fn find(word: &str) -> Option<&'static NamedProfile> {
    PROFILES.iter().find(|named| {
        let mut names = std::iter::once(&named.name).chain(named.aliases);
        names.any(|name| name.eq_ignore_ascii_case(word))
    })
}
