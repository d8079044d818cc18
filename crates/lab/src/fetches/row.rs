//! What is fetched how: the rows of F5's brief, its figures beside them.

use crate::measurement::{Op, Row};

/// A link of the brief. It says round trips.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// As the brief names it.
    pub name: &'static str,
    rate_mbit: u32,
    rtt_ms: u32,
}

/// `docs/reference/f5_wom.csv`: both links lose 1 % of the packets.
pub const LINKS: [Link; 2] = [
    Link {
        name: "T3",
        rate_mbit: 45,
        rtt_ms: 100,
    },
    Link {
        name: "OC3",
        rate_mbit: 155,
        rtt_ms: 40,
    },
];

impl Link {
    /// As `farhaul link` takes it.
    pub(super) fn words(&self) -> String {
        let Self {
            rate_mbit, rtt_ms, ..
        } = self;
        format!(
            "rate {rate_mbit}mbit delay {}ms loss 1% queue 100ms",
            rtt_ms / 2
        )
    }

    /// What it carries in so long.
    pub(super) fn bytes_in(&self, seconds: u64) -> u64 {
        u64::from(self.rate_mbit) * 1_000_000 / 8 * seconds
    }

    /// TCP payload of full-size Ethernet frames, less what is lost.
    pub(super) fn limit_mbit(&self) -> f64 {
        f64::from(self.rate_mbit) * 1448.0 / 1514.0 * 0.99
    }
}

/// How a file is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// curl from nginx.
    Http,
    /// curl from vsftpd.
    Ftp,
    /// smbclient from Samba.
    Cifs,
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::Http, Self::Ftp, Self::Cifs];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ftp => "ftp",
            Self::Cifs => "cifs",
        }
    }
}

/// What stands between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nothing but the link.
    Direct,
    /// Gateways that carry the bytes as they are.
    Transport,
    /// Gateways that compress.
    Compression,
    /// Gateways that eliminate what repeats, and compress; nothing is known yet.
    First,
    /// The same file again.
    Second,
    /// A later version of it.
    Edited,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Transport => "transport",
            Self::Compression => "compression",
            Self::First => "dedup, first pass",
            Self::Second => "dedup, second pass",
            Self::Edited => "dedup, edited image",
        }
    }

    /// The level's words of a gateway's configuration; `None` without gateways.
    pub(super) fn configuration(self, memory_bytes: u64) -> Option<String> {
        let store = format!("[store]\nmemory = '{memory_bytes} B'\n");
        match self {
            Self::Direct => None,
            Self::Transport => Some(String::new()),
            Self::Compression => Some(store + "[[rule]]\nreduction = 'off'\n"),
            Self::First | Self::Second | Self::Edited => Some(store),
        }
    }

    /// F5's speed-up and effective rate in Mbit/s, where the brief has them.
    pub(super) fn published(self, protocol: Protocol, link: &Link) -> (Option<f64>, Option<f64>) {
        let is_t3 = link.name == "T3";
        let pick = |t3: (f64, f64), oc3: (f64, f64)| if is_t3 { t3 } else { oc3 };
        let (speed_up, mbit) = match (protocol, self) {
            (Protocol::Http, Self::Transport) => pick((16.0, 75.0), (4.0, 185.0)),
            (Protocol::Http, Self::Compression) => pick((42.0, 0.0), (8.0, 0.0)),
            (Protocol::Http, Self::Second) => pick((190.0, 344.0), (16.0, 343.0)),
            (Protocol::Ftp, Self::Transport) => pick((25.0, 75.0), (24.0, 181.0)),
            (Protocol::Ftp, Self::Compression) => pick((62.0, 0.0), (60.0, 0.0)),
            (Protocol::Ftp, Self::Second) => pick((240.0, 291.0), (100.0, 304.0)),
            (Protocol::Cifs, Self::Transport) => pick((1.18, 38.0), (1.56, 67.0)),
            (Protocol::Cifs, Self::Compression) => pick((48.65, 0.0), (37.35, 0.0)),
            (Protocol::Cifs, Self::Second) => pick((55.19, 43.0), (38.85, 70.0)),
            _ => (0.0, 0.0),
        };
        let known = |value: f64| (value > 0.0).then_some(value);
        (known(speed_up), known(mbit))
    }
}

/// UDP payload that the gateways have sent to each other: records and their framing, repairs, acknowledgements, what they say
/// of records, and whatever of the client's protocol crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireBytes {
    /// By the client's gateway.
    pub(super) near: u64,
    /// By the server's.
    pub(super) far: u64,
}

impl WireBytes {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            near: self.near.saturating_sub(before.near),
            far: self.far.saturating_sub(before.far),
        }
    }

    pub(super) fn both(self) -> u64 {
        self.near + self.far
    }
}

/// One fetch that came to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fetched {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// What the gateways sent on the link for it.
    pub(super) wire_bytes: Option<WireBytes>,
    /// Processor time of both gateways.
    pub(super) cpu_seconds: Option<f64>,
}

impl Fetched {
    pub(super) fn mbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds / 1e6
    }

    /// Seconds of processor time for 1e9 bytes.
    pub(super) fn cpu_seconds_per_gb(&self) -> Option<f64> {
        Some(self.cpu_seconds? * 1e9 / self.bytes as f64)
    }
}

/// F5's second pass over HTTP, ten times (Mbit/s).
const TEN_TIMES_F5_MBIT: f64 = 3440.0;
/// Of a fetch over the bare LAN.
const LAN_SHARE: f64 = 0.5;
/// What an identical gigabyte may cost on the link, both ways, bytes.
const AGAIN_BYTES_PER_BYTE: f64 = 1e-3;

/// The rows of one fetch. `direct` and `lan` are rates in Mbit/s.
pub(super) fn rows(
    (link, protocol, level): (&Link, Protocol, Level),
    fetched: Fetched,
    direct: Option<f64>,
    lan: Option<f64>,
) -> Vec<Row> {
    let scenario = format!("{}/{}", link.name, protocol.word());
    let (config, mbit) = (level.word(), fetched.mbit_per_s());
    let (speed_up, published_mbit) = level.published(protocol, link);
    let of = |metric: &str, unit: &str, value: f64| Row::of(&scenario, config, metric, unit, value);
    let mut rate = of("effective", "Mbit/s", mbit)
        .limit(link.limit_mbit())
        .detail("bytes", fetched.bytes)
        .detail("seconds", fetched.seconds)
        .detail("published", published_mbit);
    if let (Level::Second, Protocol::Http, Some(lan)) = (level, protocol, lan) {
        rate = rate.target(Op::AtLeast, (LAN_SHARE * lan).min(TEN_TIMES_F5_MBIT));
    }
    let mut rows = vec![rate];
    if let Some(direct) = direct.filter(|_| level != Level::Direct) {
        rows.push(of("speed_up", "x", mbit / direct).detail("published", speed_up));
    }
    if let Some(lan) = lan {
        rows.push(of("of_lan", "", mbit / lan));
    }
    if let Some(cpu) = fetched.cpu_seconds_per_gb() {
        rows.push(of("gateways_cpu", "s/GB", cpu));
    }
    if let Some(wire_bytes) = fetched.wire_bytes {
        let share = wire_bytes.both() as f64 / fetched.bytes as f64;
        let row = of("wire_share", "", share)
            .detail("wire_bytes", wire_bytes.both())
            .detail("client_gateway_bytes", wire_bytes.near)
            .detail("server_gateway_bytes", wire_bytes.far);
        rows.push(match level {
            Level::Second => row.target(Op::AtMost, AGAIN_BYTES_PER_BYTE),
            _ => row,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_briefs_figures_stand_beside_ours() {
        let csv = include_str!("../../../../docs/reference/f5_wom.csv");
        let levels = [
            ("tcp", Level::Transport),
            ("compression", Level::Compression),
            ("dedup+compression", Level::Second),
            ("dedup+compression second pass", Level::Second),
        ];
        let mut seen = 0;
        for line in csv.lines().skip(1) {
            let cells: Vec<_> = line.split(',').collect();
            let [
                protocol,
                link,
                mbit,
                rtt_ms,
                loss,
                what,
                speed_up,
                low,
                high,
            ] = cells[..]
            else {
                panic!("{line}");
            };
            let Some(protocol) = Protocol::ALL.into_iter().find(|p| p.word() == protocol) else {
                continue;
            };
            let link = LINKS.iter().find(|known| known.name == link).unwrap();
            let words = [link.rate_mbit.to_string(), link.rtt_ms.to_string()];
            assert_eq!([mbit, rtt_ms, loss], [&words[0], &words[1], "0.01"]);
            let (_, level) = levels.iter().find(|(name, _)| *name == what).unwrap();
            let effective = [high, low].into_iter().find_map(|text| text.parse().ok());
            let published = level.published(protocol, link);
            assert_eq!(published, (speed_up.parse().ok(), effective), "{line}");
            seen += 1;
        }
        assert_eq!(seen, 18);
    }

    #[test]
    fn links_are_words_of_the_emulator() {
        for link in LINKS {
            let profile = link.words().parse::<farhaul_link::LinkProfile>();
            assert!(profile.is_ok(), "{}", link.words());
        }
        assert_eq!(
            LINKS[0].words(),
            "rate 45mbit delay 50ms loss 1% queue 100ms"
        );
    }

    #[test]
    fn the_second_pass_over_http_is_held_to_the_lan_and_to_the_brief() {
        let fetched = Fetched {
            seconds: 10.0,
            bytes: 2_000_000_000,
            wire_bytes: Some(WireBytes {
                near: 500_000,
                far: 1_500_000,
            }),
            cpu_seconds: Some(3.0),
        };
        let of = |level| {
            rows(
                (&LINKS[0], Protocol::Http, level),
                fetched,
                Some(16.0),
                Some(4000.0),
            )
        };
        let second = of(Level::Second);
        let targets: Vec<_> = second.iter().map(|row| (row.target, row.ok)).collect();
        let expected = [
            (Some(2000.0), Some(false)),
            (None, None),
            (None, None),
            (None, None),
            (Some(1e-3), Some(true)),
        ];
        assert_eq!(targets, expected);
        assert_eq!(second[1].value, Some(100.0));
        assert_eq!(second[3].value, Some(1.5));
        // What the client's gateway sends counts as well: half a megabyte more would be too much.
        let wire = &second[4].detail;
        let details = ["wire_bytes", "client_gateway_bytes", "server_gateway_bytes"];
        let details = details.map(|name| wire[name].as_u64());
        assert_eq!(details, [2_000_000, 500_000, 1_500_000].map(Some));
        assert!(of(Level::First).iter().all(|row| row.target.is_none()));
        assert_eq!(of(Level::Direct).len(), 4, "no speed-up over itself");
    }
}
