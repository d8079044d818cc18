//! Profiles as text: read, printed, refused.

use farhaul_link::{
    DirectionProfile, Distribution, Framing, LinkProfile, Loss, Policer, Probability, QueueLimit,
    Rate, Reorder, TIME_MAX_NS, profiles,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn parse(text: &str) -> LinkProfile {
    LinkProfile::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn percent(value: f64) -> Probability {
    Probability::from_percent(value).expect("a percentage")
}

#[test]
fn a_name_and_netem_words() {
    let link = parse("oc1 delay 100ms 10ms loss 1%");
    assert_eq!(link.name, Some("oc1"));
    assert_eq!(link.forward, link.backward);
    assert_eq!(link.forward.rate, Rate::from_bit_per_s(51_840_000));
    assert_eq!(
        (link.forward.delay_ns, link.forward.jitter_ns),
        (100 * MS, 10 * MS)
    );
    assert_eq!(link.forward.loss, Loss::Bernoulli(percent(1.0)));
    assert_eq!(link.rtt_ns(), 200 * MS);
}

#[test]
fn every_setting_is_read() {
    let one = parse(
        "rate 10mbit framing atm delay 20ms 2ms distribution pareto loss gemodel 1% 20% 90% 0.1% \
         duplicate 0.5% corrupt 0.25% reorder 3% 4ms policer 5mbit 30kb queue 64kib mtu 1400 in-flight 1000",
    )
    .forward;
    assert_eq!(
        one,
        DirectionProfile {
            rate: Rate::from_bit_per_s(10_000_000),
            framing: Framing::Atm,
            delay_ns: 20 * MS,
            jitter_ns: 2 * MS,
            distribution: Distribution::Pareto,
            loss: Loss::GilbertElliott {
                to_bad: percent(1.0),
                to_good: percent(20.0),
                loss_bad: percent(90.0),
                loss_good: percent(0.1),
            },
            duplicate: percent(0.5),
            corrupt: percent(0.25),
            reorder: Reorder::HoldBack {
                share: percent(3.0),
                extra_ns: 4 * MS
            },
            policer: Some(Policer {
                rate: Rate::from_bit_per_s(5_000_000).expect("a rate"),
                burst_bytes: 30_000,
            }),
            queue: QueueLimit::Bytes(65_536),
            mtu_bytes: Some(1400),
            in_flight_packets_max: 1000,
        }
    );
}

#[test]
fn netem_spellings() {
    assert_eq!(parse("loss random 1%"), parse("loss 1%"));
    assert_eq!(parse("limit 50"), parse("queue 50p"));
    assert_eq!(parse("rate 1mbit 24"), parse("rate 1mbit framing 24"));
    assert_eq!(
        parse("rate 1mbit -14 48 5"),
        parse("rate 1mbit framing -14 48 5")
    );
    assert_eq!(
        parse("  RATE\t1Mbit\n delay 5MS "),
        parse("rate 1mbit delay 5ms")
    );
    assert_eq!(parse("ds3"), parse("t3"));
    assert_eq!(parse("OC-3"), parse("oc3"));
    let gemodel = |text: &str| parse(text).forward.loss;
    assert_eq!(
        gemodel("loss gemodel 1%"),
        gemodel("loss gemodel 1% 99% 100% 0%")
    );
    assert!((gemodel("loss bursts 2% 8").mean() - 0.02).abs() < 1e-6);
}

#[test]
fn directions_can_differ() {
    let link = parse("delay 10ms forward rate 1mbit loss 1% backward rate 8mbit delay 30ms");
    assert_eq!(link.forward, parse("delay 10ms rate 1mbit loss 1%").forward);
    assert_eq!(link.backward, parse("delay 30ms rate 8mbit").forward);
    let link = parse("forward t1 delay 5ms backward satellite-geo");
    assert_eq!(link.forward, parse("t1 delay 5ms").forward);
    assert_eq!(link.backward, parse("satellite-geo").backward);
    let one_sided = parse("backward loss 5%");
    assert_eq!(one_sided.forward, DirectionProfile::default());
}

#[test]
fn a_round_trip_is_halved() {
    let link = parse("rtt 25ms");
    assert_eq!(
        (link.forward.delay_ns, link.backward.delay_ns),
        (12_500_000, 12_500_000)
    );
    assert_eq!(parse("rtt 3ns").rtt_ns(), 3);
}

#[test]
fn a_running_link_is_changed_in_part() {
    let link = parse("oc1 delay 100ms loss 1%");
    let changed = link.changed("loss none forward rate 1mbit").unwrap();
    assert_eq!(changed.backward, parse("oc1 delay 100ms").backward);
    assert_eq!(changed.forward, parse("rate 1mbit delay 100ms").forward);
    assert_eq!(link.changed("t1").unwrap(), parse("t1"));
}

#[test]
fn mistakes_are_named() {
    for (text, word, part) in [
        ("", "", "empty"),
        ("   ", "", "empty"),
        ("dely 100ms", "dely", "did you mean `delay`"),
        ("oc2", "oc2", "did you mean `oc1`"),
        (
            "satelite-geo",
            "satelite-geo",
            "did you mean `satellite-geo`",
        ),
        ("blergh", "blergh", "profiles are unlimited, ds0"),
        ("loss 101%", "101%", "more than 100%"),
        ("loss -1%", "-1%", "negative"),
        ("loss nan%", "nan%", "not a number"),
        ("loss 1", "1", "write 1%"),
        ("loss 1% 25%", "25%", "correlation"),
        ("loss 0.00000001%", "0.00000001%", "too small"),
        ("loss", "loss", "needs a percentage"),
        ("loss delay 5ms", "loss", "needs a percentage"),
        ("loss state 1%", "state", "four-state"),
        ("loss bursts 60% 1", "1", "at least one packet"),
        ("loss bursts 1% 0.5", "0.5", "at least one packet"),
        ("delay 100", "100", "no unit"),
        ("delay 100mz", "100mz", "did you mean `ms`"),
        ("delay 10ms 5ms 25%", "25%", "correlation"),
        ("delay 2000000h", "2000000h", "unknown unit"),
        ("delay 3601s", "3601s", "longer than one hour"),
        (
            "delay 99999999999999999999s",
            "99999999999999999999s",
            "too large",
        ),
        ("distribution norml", "norml", "did you mean `normal`"),
        ("rate 0", "0", "zero carries nothing"),
        ("rate 0mbit", "0mbit", "zero carries nothing"),
        ("rate 11tbit", "11tbit", "more than 10tbit"),
        ("rate 10mbps", "10mbps", "write mbit"),
        ("rate inf", "inf", "not a number"),
        ("rate 10mbit 40000", "40000", "overhead"),
        ("gigabit delay 3000s", "3000s", "in flight"),
        ("delay 10ms oc1", "oc1", "comes first"),
        (
            "forward delay 10ms backward rtt 20ms",
            "rtt",
            "two directions",
        ),
        ("queue 5parsecs", "5parsecs", "unknown unit"),
        ("queue none", "none", "not a number"),
        ("mtu 20", "20", "between 68 and 65535"),
        ("mtu -3", "-3", "negative"),
        ("queue -5kb", "-5kb", "negative"),
        ("mtu 1e3", "1e3", "whole number"),
        ("framing hdcl", "hdcl", "did you mean `hdlc`"),
        ("reorder 10% 50%", "50%", "correlation"),
        ("in-flight 5000000000", "5000000000", "more than"),
    ] {
        let error = LinkProfile::parse(text).unwrap_err();
        assert_eq!(error.word(), word, "{text}");
        assert!(error.to_string().contains(part), "{text}: {error}");
        assert_eq!(&text[error.span()], word, "{text}");
    }
}

#[test]
fn every_named_profile_is_sound_and_says_its_source() {
    let mut names = Vec::new();
    for named in profiles() {
        assert_eq!(parse(named.name), named.link());
        assert_eq!(named.link().to_string(), named.name);
        assert!(named.forward.validate().is_ok() && named.backward.validate().is_ok());
        assert!(
            named.source.len() > 5 && !named.about.is_empty(),
            "{}",
            named.name
        );
        names.push(named.name);
        names.extend(named.aliases);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is given twice");
}

/// `docs/reference/link-profiles.md` is written from the table; run with
/// `UPDATE_REFERENCE=1` after a change.
#[test]
fn the_reference_page_is_fresh() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/link-profiles.md"
    );
    let page = reference_page();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == page,
        "stale: run this test once with UPDATE_REFERENCE=1"
    );
}

fn reference_page() -> String {
    let mut page = String::from(
        "# Named link profiles\n\n\
         Written from the table in `crates/link/src/named.rs`. A name comes first in a profile, settings may follow:\n\
         `oc1 delay 100ms loss 1%`. Rates count Ethernet frames without preamble and FCS; delays are one way. Forward is\n\
         from the user's site, backward towards it. What is not in a line is ideal: no delay, no loss, a queue of 100 ms\n\
         (but at least 50 full-size frames).\n\n\
         | name | also | what it is | settings | source |\n|---|---|---|---|---|\n",
    );
    for named in profiles() {
        // Without its name a profile prints all its settings.
        let settings = LinkProfile {
            name: None,
            ..named.link()
        };
        page += &format!(
            "| `{}` | {} | {} | `{settings}` | {} |\n",
            named.name,
            named
                .aliases
                .iter()
                .map(|alias| format!("`{alias}`"))
                .collect::<Vec<_>>()
                .join(", "),
            named.about,
            named.source,
        );
    }
    page
}

fn share() -> impl Strategy<Value = Probability> {
    prop_oneof![
        (1..=1_000_000_000u32).prop_map(|ppb| Probability::from_ppb(ppb).expect("at most 100 %")),
        (1..=100u32).prop_map(|percent| Probability::from_ppb(percent * 10_000_000).expect("at most 100 %")),
    ]
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        share().prop_map(Loss::Bernoulli),
        (share(), share(), share(), share()).prop_map(|(to_bad, to_good, loss_bad, loss_good)| {
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_bad,
                loss_good,
            }
        }),
    ]
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::Ethernet),
        Just(Framing::Wire),
        Just(Framing::Ip),
        Just(Framing::Hdlc),
        Just(Framing::Atm),
        any::<(i16, u16, u16)>().prop_map(|(overhead_bytes, cell_bytes, cell_overhead_bytes)| {
            Framing::Custom {
                overhead_bytes,
                cell_bytes,
                cell_overhead_bytes,
            }
        }),
    ]
}

fn queue() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        Just(QueueLimit::Auto),
        any::<u64>().prop_map(QueueLimit::Bytes),
        any::<u64>().prop_map(QueueLimit::Packets),
        any::<u64>().prop_map(QueueLimit::TimeNs),
    ]
}

fn reorder() -> impl Strategy<Value = Reorder> {
    prop_oneof![
        Just(Reorder::Never),
        Just(Reorder::Jitter),
        share().prop_map(Reorder::Leap),
        (share(), 0..=TIME_MAX_NS)
            .prop_map(|(share, extra_ns)| Reorder::HoldBack { share, extra_ns }),
    ]
}

fn policer() -> impl Strategy<Value = Option<Policer>> {
    let rate = (1..=1_000_000_000u64).prop_map(|r| Rate::from_bit_per_s(r).expect("a rate"));
    let policer =
        (rate, any::<u64>()).prop_map(|(rate, burst_bytes)| Policer { rate, burst_bytes });
    prop::option::of(policer)
}

fn direction() -> impl Strategy<Value = DirectionProfile> {
    let rate = prop::option::of(
        (1..=1_000_000_000u64).prop_map(|r| Rate::from_bit_per_s(r).expect("a rate")),
    );
    let shape = prop_oneof![
        Just(Distribution::Uniform),
        Just(Distribution::Normal),
        Just(Distribution::Pareto)
    ];
    let mtu = prop::option::of(68..=65_535u32);
    (
        (
            rate,
            framing(),
            0..=TIME_MAX_NS,
            0..=1_000 * MS,
            shape,
            loss(),
        ),
        (share(), share(), reorder(), policer(), queue(), mtu, any::<u32>()),
    )
        .prop_map(
            |((rate, framing, delay_ns, jitter_ns, distribution, loss), rest)| {
                let (duplicate, corrupt, reorder, policer, queue, mtu_bytes, in_flight_packets_max) =
                    rest;
                DirectionProfile {
                    rate,
                    framing,
                    delay_ns,
                    jitter_ns,
                    distribution,
                    loss,
                    duplicate,
                    corrupt,
                    reorder,
                    policer,
                    queue,
                    mtu_bytes,
                    in_flight_packets_max,
                }
            },
        )
        .prop_filter("can be emulated", |direction| direction.validate().is_ok())
}

fn link() -> impl Strategy<Value = LinkProfile> {
    let name = prop::option::of(prop::sample::select(profiles()).prop_map(|named| named.name));
    prop_oneof![
        (name.clone(), direction(), direction()).prop_map(|(name, forward, backward)| {
            LinkProfile {
                name,
                forward,
                backward,
            }
        }),
        (name, direction()).prop_map(|(name, both)| LinkProfile {
            name,
            forward: both.clone(),
            backward: both
        }),
    ]
}

/// Words that make texts which nearly are profiles.
fn nearly() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "rate",
            "delay",
            "rtt",
            "jitter",
            "distribution",
            "normal",
            "loss",
            "gemodel",
            "bursts",
            "duplicate",
            "corrupt",
            "reorder",
            "policer",
            "queue",
            "limit",
            "mtu",
            "framing",
            "atm",
            "in-flight",
            "forward",
            "backward",
            "oc1",
            "3g",
            "none",
            "unlimited",
        ])
        .prop_map(str::to_owned),
        "[-+]?[0-9]{0,22}(\\.[0-9]{0,3})?(ms|s|us|%|mbit|kb|p|é|)",
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn printing_and_reading_gives_the_same(link in link()) {
        let text = link.to_string();
        prop_assert_eq!(LinkProfile::parse(&text), Ok(link), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        if let Err(error) = LinkProfile::parse(&text) {
            prop_assert_eq!(&text[error.span()], error.word());
        }
    }

    #[test]
    fn near_profiles_parse_or_are_refused_with_their_word(text in nearly()) {
        match LinkProfile::parse(&text) {
            Ok(link) => prop_assert_eq!(LinkProfile::parse(&link.to_string()), Ok(link)),
            Err(error) => {
                prop_assert_eq!(&text[error.span()], error.word());
                prop_assert!(!error.message().is_empty());
            }
        }
    }
}
