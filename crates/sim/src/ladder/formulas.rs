//! Formulas from the literature. None of them looks at the simulator.

/// Mean waiting time in an M/D/1 queue (Pollaczek and Khinchine): `load` of
/// the server's time is used, each customer takes `service_s`.
pub fn md1_wait_s(load: f64, service_s: f64) -> f64 {
    load * service_s / (2.0 * (1.0 - load))
}

/// A window of `segments` per round trip.
pub fn window_bit_per_s(segments: u64, mss_bytes: u64, rtt_s: f64) -> f64 {
    (segments * mss_bytes * 8) as f64 / rtt_s
}

/// Round trips of slow start for so many segments when the window doubles in
/// each, beginning at `initial`.
pub fn slow_start_rounds(segments: u64, initial: u64) -> u32 {
    let (mut sent, mut window, mut rounds) = (0, initial, 0);
    while sent < segments {
        sent += window;
        window *= 2;
        rounds += 1;
    }
    rounds
}

/// Mathis, Semke, Mahdavi, Ott 1997: the square-root law. `acked` segments are
/// acknowledged by one acknowledgement.
pub fn mathis_bit_per_s(mss_bytes: u64, rtt_s: f64, loss: f64, acked: f64) -> f64 {
    (mss_bytes * 8) as f64 / rtt_s * (1.5 / acked / loss).sqrt()
}

/// Padhye, Firoiu, Towsley, Kurose 1998, equation 32: with time-outs, without
/// a limit by the window.
pub fn pftk_bit_per_s(mss_bytes: u64, rtt_s: f64, loss: f64, acked: f64, rto_s: f64) -> f64 {
    let by_recovery = rtt_s * (2.0 * acked * loss / 3.0).sqrt();
    let timeout_share = (3.0 * (3.0 * acked * loss / 8.0).sqrt()).min(1.0);
    let by_timeout = rto_s * timeout_share * loss * (1.0 + 32.0 * loss * loss);
    (mss_bytes * 8) as f64 / (by_recovery + by_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_give_the_numbers_of_the_textbooks() {
        assert!((md1_wait_s(0.8, 1.0) - 2.0).abs() < 1e-12);
        assert_eq!(slow_start_rounds(1, 1), 1);
        assert_eq!(slow_start_rounds(7, 1), 3);
        assert_eq!(slow_start_rounds(8, 1), 4);
        assert_eq!(slow_start_rounds(31, 10), 3);
        // 22 whole segments of 1460 bytes in 380 ms.
        assert!((window_bit_per_s(22, 1460, 0.38) - 676_210.5).abs() < 0.1);
        // The square root: four times the loss, half the rate.
        let ratio = mathis_bit_per_s(1460, 0.1, 0.01, 1.0) / mathis_bit_per_s(1460, 0.1, 0.04, 1.0);
        assert!((ratio - 2.0).abs() < 1e-12);
        assert!(pftk_bit_per_s(1460, 0.1, 0.01, 1.0, 0.3) < mathis_bit_per_s(1460, 0.1, 0.01, 1.0));
    }
}
