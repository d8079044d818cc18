//! The study's own figures of CIFS: what it printed, by link, delay, loss and configuration.

/// Tables 10 and 11. `docs/reference/README.md` has the source.
const THROUGHPUT: &str = include_str!("../../../../docs/reference/wx2006_throughput.csv");
/// Table 16.
const LOSS: &str = include_str!("../../../../docs/reference/wx2006_loss.csv");

/// A cell of the study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Printed {
    rate_mbit: f64,
    delay_ms: f64,
    loss: f64,
    config: &'static str,
    pub(super) kib_per_s: f64,
}

/// Every figure of CIFS. What it could not transfer at all is 0.
pub(super) fn printed() -> Vec<Printed> {
    let throughput = THROUGHPUT.lines().filter_map(throughput_line);
    let loss = LOSS.lines().filter_map(loss_line);
    throughput.chain(loss).flatten().collect()
}

/// What it printed for such a cell.
pub(super) fn find(
    printed: &[Printed],
    (rate_mbit, delay_ms, loss): (f64, f64, f64),
    config: &str,
) -> Option<f64> {
    let is_near = |one: f64, other: f64| (one - other).abs() < 1e-6;
    let is_it = |cell: &&Printed| {
        is_near(cell.rate_mbit, rate_mbit)
            && is_near(cell.delay_ms, delay_ms)
            && is_near(cell.loss, loss)
            && cell.config == config
    };
    printed.iter().find(is_it).map(|cell| cell.kib_per_s)
}

/// What it printed for a link of this rate without loss: delay and value, in ascending order.
pub(super) fn by_delay(printed: &[Printed], rate_mbit: f64, config: &str) -> Vec<(f64, f64)> {
    let is_it = |cell: &&Printed| {
        cell.loss == 0.0 && (cell.rate_mbit - rate_mbit).abs() < 1e-6 && cell.config == config
    };
    let cells = printed.iter().filter(is_it);
    cells.map(|cell| (cell.delay_ms, cell.kib_per_s)).collect()
}

/// `table,protocol,link_mbit,one_way_delay_ms,baseline_kBps,tcp_kBps,afa_kBps,exchange_kBps`.
fn throughput_line(line: &'static str) -> Option<Vec<Printed>> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, "cifs", rate, delay, baseline, tcp, afa, ..] = fields.as_slice() else {
        return None;
    };
    let (rate_mbit, delay_ms) = (rate.parse().ok()?, delay.parse().ok()?);
    let cells = [("B", baseline), ("T", tcp), ("A", afa)];
    let cells = cells.into_iter().filter_map(|(config, value)| {
        Some(Printed {
            rate_mbit,
            delay_ms,
            loss: 0.0,
            config,
            kib_per_s: value.parse().ok()?,
        })
    });
    Some(cells.collect())
}

/// `table,protocol,link_mbit,one_way_delay_ms,accelerated,loss,no_fec_kBps,fec_kBps`.
fn loss_line(line: &'static str) -> Option<Vec<Printed>> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, "cifs", rate, delay, "no", loss, without, with] = fields.as_slice() else {
        return None;
    };
    let (rate_mbit, delay_ms) = (rate.parse().ok()?, delay.parse().ok()?);
    let loss = loss.parse().ok()?;
    let cells = [("B", without), ("F", with)];
    let cells = cells.into_iter().filter_map(|(config, value)| {
        Some(Printed {
            rate_mbit,
            delay_ms,
            loss,
            config,
            kib_per_s: value.parse().ok()?,
        })
    });
    Some(cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_tables() {
        let printed = printed();
        assert_eq!(printed.len(), 8 * 3 + 5 * 2);
        let found = |place, config| find(&printed, place, config);
        assert_eq!(found((51.84, 250.0, 0.0), "B"), Some(52.3));
        assert_eq!(found((1.544, 250.0, 0.0), "A"), Some(62.0));
        assert_eq!(found((51.84, 0.0, 0.001), "F"), Some(4418.0));
        assert_eq!(found((51.84, 0.0, 0.1), "B"), Some(0.0));
        assert_eq!(found((51.84, 7.0, 0.0), "B"), None);
        assert_eq!(found((51.84, 0.0, 0.0), "F"), None);
        let delays = by_delay(&printed, 1.544, "T");
        assert_eq!(
            delays,
            [(0.0, 76.5), (30.0, 67.8), (100.0, 54.6), (250.0, 34.2)]
        );
    }
}
