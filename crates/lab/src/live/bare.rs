//! The pair with nothing between its gateways but a cable: what their processors carry.

use crate::deployment::Lab;
use crate::error::LabError;
use crate::measurement::{Op, Row};
use crate::topology::{Side, wan_interface};

/// Of what the kernel's own connection carries on the same cable.
const OF_KERNEL_MIN: f64 = 0.9;

/// A cable, shaped by the kernel or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bare {
    rate_mbit: Option<u32>,
}

impl Bare {
    /// Nothing is far away: windows are open at once.
    pub(super) const WARM_UP_S: u64 = 3;

    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Some(1000), None]
            .into_iter()
            .map(|rate_mbit| Self { rate_mbit })
    }

    /// Short and stable: `cable 1000M`.
    pub(super) fn name(self) -> String {
        match self.rate_mbit {
            Some(rate) => format!("cable {rate}M"),
            None => "cable unshaped".to_owned(),
        }
    }

    /// TCP payload of full-size Ethernet frames; without a shaper there is no bound but the machine.
    pub(super) fn limit_mbit(self) -> Option<f64> {
        self.rate_mbit.map(|rate| f64::from(rate) * 1448.0 / 1514.0)
    }

    /// A token bucket in front of each gateway, with a queue of 20 ms.
    pub(super) fn shape(self, lab: &Lab) -> Result<(), LabError> {
        let Some(rate) = self.rate_mbit else {
            return Ok(());
        };
        let wan = lab.namespace("wan")?;
        for side in Side::BOTH {
            let interface = wan_interface(side);
            let words = format!(
                "tc qdisc add dev {interface} root tbf rate {rate}mbit burst 256kb latency 20ms"
            );
            wan.exec(&words.split_whitespace().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Where the rate is that of the cable and not of the machine, the pair is to carry nearly all.
    pub(super) fn verdict(self, mbit: f64, best_mbit: f64) -> Row {
        let ratio = mbit / best_mbit;
        let row = Row::of(&self.name(), "farhaul", "of_better_kernel", "x", ratio);
        match self.rate_mbit {
            Some(_) => row.target(Op::AtLeast, OF_KERNEL_MIN),
            None => row,
        }
    }

    /// What a gateway's process has used for what passed, its share of the kernel's work included.
    pub(super) fn cpu(self, side: Side, used_s: f64, gbit: f64) -> Row {
        let metric = match side {
            Side::A => "cpu_near",
            Side::B => "cpu_far",
        };
        Row::of(&self.name(), "farhaul", metric, "s/Gbit", used_s / gbit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_is_held_to_the_kernel_where_the_cable_has_a_rate() {
        let [shaped, unshaped] = Bare::all().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(shaped.verdict(850.0, 950.0).ok, Some(false));
        assert_eq!(shaped.verdict(900.0, 950.0).ok, Some(true));
        assert_eq!(unshaped.verdict(1.0, 950.0).ok, None);
        assert!((shaped.limit_mbit().unwrap() - 956.4).abs() < 0.1);
    }
}
