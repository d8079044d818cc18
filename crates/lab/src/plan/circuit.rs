//! The link of a cell, and the most that any protocol could get out of it.

use farhaul_link::{LinkProfile, Loss, QueueLimit};

/// TCP payload of a full-size frame: MTU 1500 less headers and the time stamp option.
const PAYLOAD_BYTES: f64 = 1448.0;
/// That frame as the link counts it, without preamble and FCS.
const FRAME_BYTES: f64 = 1514.0;

/// A link, the same in both directions.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    /// Rate in bits per second.
    pub rate_bit_per_s: u64,
    /// Mean delay, one way.
    pub delay_ms: f64,
    /// Variation of the delay.
    pub jitter_ms: f64,
    /// Share of packets lost on the wire.
    pub loss: f64,
    /// Its queue, where one was asked for.
    pub queue: Option<String>,
    /// The link in the words of `farhaul link`.
    pub words: String,
    rtt_min_s: f64,
}

impl Circuit {
    /// From the words of `farhaul link`.
    pub fn parse(words: &str) -> Result<Self, String> {
        let profile = LinkProfile::parse(words).map_err(|error| error.to_string())?;
        let [there, back] = [&profile.forward, &profile.backward];
        if there != back {
            return Err("both directions must be alike".to_owned());
        }
        let rate = back
            .rate
            .ok_or("a rate is needed: no limit follows without it")?;
        let loss = match back.loss {
            Loss::None => 0.0,
            Loss::Bernoulli(probability) => probability.fraction(),
            Loss::GilbertElliott { .. } => return Err("only independent loss".to_owned()),
        };
        Ok(Self {
            rate_bit_per_s: rate.bit_per_s(),
            delay_ms: back.delay_ns as f64 / 1e6,
            jitter_ms: back.jitter_ns as f64 / 1e6,
            loss,
            queue: (back.queue != QueueLimit::Auto).then(|| back.queue.to_string()),
            words: words.to_owned(),
            rtt_min_s: 2.0 * back.delay_min_ns() as f64 / 1e9,
        })
    }

    /// Rate in Mbit/s.
    pub fn rate_mbit(&self) -> f64 {
        self.rate_bit_per_s as f64 / 1e6
    }

    /// Short stable name: `51.84M/100ms/1%`, and its queue where one was asked for.
    pub fn name(&self) -> String {
        let mut name = format!("{}M/{}ms", digits(self.rate_mbit()), digits(self.delay_ms));
        if self.jitter_ms > 0.0 {
            name += &format!("±{}", digits(self.jitter_ms));
        }
        if self.loss > 0.0 {
            name += &format!("/{}%", percent(self.loss));
        }
        match &self.queue {
            Some(queue) => name + &format!(" queue {queue}"),
            None => name,
        }
    }

    /// TCP payload that fits through, without the packets that are lost.
    pub fn payload_byte_per_s(&self) -> f64 {
        self.rate_bit_per_s as f64 / 8.0 * PAYLOAD_BYTES / FRAME_BYTES
    }

    /// The least round trip.
    pub fn rtt_s(&self) -> f64 {
        self.rtt_min_s
    }

    /// The least time in which so many bytes can be asked for and arrive.
    pub fn least_s(&self, bytes: u64) -> f64 {
        self.rtt_min_s + bytes as f64 / self.payload_byte_per_s()
    }

    /// What that is in bytes per second. Nothing is faster, whatever it does.
    pub fn limit_byte_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / self.least_s(bytes)
    }
}

/// A share in percent, as one writes it in a plan: links know billionths.
pub(crate) fn percent(share: f64) -> String {
    trimmed(&format!("{:.7}", share * 100.0)).to_owned()
}

/// Without needless digits.
fn digits(value: f64) -> String {
    trimmed(&format!("{value:.4}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    number.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_links_of_the_study() {
        // Rate, one-way delay, MiB, KiB/s: by hand from 1448 of 1514 bytes.
        for (words, mebibytes, expected) in [
            ("rate 1.544mbit delay 0ms", 10, 180.3),
            ("rate 1.544mbit delay 250ms", 10, 178.7),
            ("rate 51.84mbit delay 0ms", 100, 6052.3),
            ("rate 51.84mbit delay 30ms", 100, 6030.9),
            ("rate 51.84mbit delay 100ms", 100, 5981.6),
            ("rate 51.84mbit delay 250ms", 100, 5878.7),
        ] {
            let circuit = Circuit::parse(words).unwrap();
            let limit = circuit.limit_byte_per_s(mebibytes << 20) / 1024.0;
            assert!((limit - expected).abs() < 0.2, "{words}: {limit}");
        }
    }

    #[test]
    fn names_are_short_and_tell_circuits_apart() {
        for (words, expected) in [
            ("rate 1.544mbit delay 0ms", "1.544M/0ms"),
            ("rate 51.84mbit delay 100ms loss 0.1%", "51.84M/100ms/0.1%"),
            (
                "rate 51.84mbit delay 100ms loss 0.0000001%",
                "51.84M/100ms/0.0000001%",
            ),
            ("rate 10mbit delay 30ms jitter 5ms", "10M/30ms±5"),
            ("rate 10mbit delay 30ms queue auto", "10M/30ms"),
            (
                "rate 10mbit delay 30ms loss 7% queue 200ms",
                "10M/30ms/7% queue 200ms",
            ),
            ("rate 10mbit delay 30ms queue 64kb", "10M/30ms queue 64000b"),
        ] {
            assert_eq!(Circuit::parse(words).unwrap().name(), expected);
        }
    }

    #[test]
    fn jitter_makes_the_least_round_trip_shorter() {
        let circuit = Circuit::parse("rate 10mbit delay 30ms jitter 5ms").unwrap();
        assert!((circuit.rtt_s() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn what_has_no_limit_is_refused() {
        for words in [
            "delay 10ms",
            "rate 1mbit loss bursts 1% 3",
            "rate 1mbit forward delay 10ms",
            "rate 3 parsecs",
        ] {
            assert!(Circuit::parse(words).is_err(), "{words}");
        }
    }
}
