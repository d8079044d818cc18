//! How many of so many datagrams are lost at most, except with a small chance.
//!
//! Losses come as a chain of two states gives them (Gilbert 1960): after a datagram that arrived
//! the next one is lost with one probability, after a lost one with another. Mean loss and mean
//! length of a burst determine both; where they are independent the two are the same.

use super::WINDOW_DATAGRAMS_MAX;

/// Chances that are told apart.
pub const LEVELS: usize = 5;
/// Chances that more are lost than a burst of datagrams has repairs for, from what is best to what
/// is just worth it: of a hundred requests all but one should not wait.
pub const ODDS: [f64; LEVELS] = [0.002, 0.0026, 0.0034, 0.0045, 0.006];

/// With each of [`ODDS`], more than so many of `datagrams` next to each other are lost.
pub fn most_lost(datagrams: usize, loss: f64, burst: f64) -> [usize; LEVELS] {
    let datagrams = datagrams.min(WINDOW_DATAGRAMS_MAX);
    // Chances that so many have been lost and the next one arrives, or does not.
    let mut arrives = [0.0; WINDOW_DATAGRAMS_MAX + 1];
    let mut is_lost = [0.0; WINDOW_DATAGRAMS_MAX + 1];
    (arrives[0], is_lost[0]) = (1.0 - loss, loss);
    // Independent losses follow each other, too.
    let leave = 1.0 / burst.max(1.0 / (1.0 - loss));
    let enter = leave * loss / (1.0 - loss);
    for _ in 0..datagrams {
        let mut one_less = 0.0;
        for (arrives, is_lost) in arrives.iter_mut().zip(is_lost.iter_mut()) {
            let (arrived, lost) = (*arrives, std::mem::replace(&mut one_less, *is_lost));
            *arrives = arrived * (1.0 - enter) + lost * leave;
            *is_lost = arrived * enter + lost * (1.0 - leave);
        }
    }
    let mut most = [datagrams; LEVELS];
    let mut more_are_lost = 1.0;
    for (count, (arrives, is_lost)) in arrives.iter().zip(&is_lost).enumerate() {
        more_are_lost -= arrives + is_lost;
        for (most, odds) in most.iter_mut().zip(ODDS) {
            if more_are_lost <= odds {
                *most = (*most).min(count);
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chance that more than `most` of `count` are lost, if losses are independent.
    fn binomial_tail(count: i32, loss: f64, most: usize) -> f64 {
        let mut chance = (1.0 - loss).powi(count);
        let mut tail = 1.0;
        for lost in 0..=most {
            tail -= chance;
            let left = f64::from(count) - lost as f64;
            chance *= left / (lost as f64 + 1.0) * loss / (1.0 - loss);
        }
        tail
    }

    #[test]
    fn independent_losses_are_those_of_the_binomial_distribution() {
        for (count, loss) in [(7, 0.005), (7, 0.05), (46, 0.01), (46, 0.05), (64, 0.2)] {
            for (most, odds) in most_lost(count, loss, 1.0).into_iter().zip(ODDS) {
                assert!(binomial_tail(count as i32, loss, most) <= odds + 1e-9);
                assert!(most == 0 || binomial_tail(count as i32, loss, most - 1) > odds - 1e-9);
            }
        }
    }

    #[test]
    fn bursts_are_of_the_length_told() {
        // One burst in ten thousand datagrams, and it ends with one chance in three: of those
        // that begin within the fifty more than n are left after n more.
        let (loss, burst) = (0.003, 3.0);
        let [most, ..] = most_lost(50, loss, burst);
        let hit = loss + 49.0 * loss / burst;
        let expected = (ODDS[0] / hit).ln() / (2.0_f64 / 3.0).ln();
        assert!((most as f64 - expected).abs() < 1.5, "{most}, {expected}");
    }

    #[test]
    fn no_more_are_lost_than_there_are() {
        assert_eq!(most_lost(0, 0.01, 1.0), [0; LEVELS]);
        assert_eq!(most_lost(5, 0.25, 8.0), [5; LEVELS]);
        assert_eq!(most_lost(3, 0.0, 1.0), [0; LEVELS]);
        assert!(most_lost(1000, 0.25, 8.0)[0] <= WINDOW_DATAGRAMS_MAX);
    }
}
