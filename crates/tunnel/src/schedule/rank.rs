//! The order between classes, and how QUIC is told of it.

use crate::flow::Class;

/// Where a frame stands: a class that is not `auto`, the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Control,
    Interactive,
    Bulk,
    Background,
}

/// Frames of one class between two with the same priority. When their count starts anew, newer
/// frames go before older ones for one round trip, which costs nothing but delay.
const AGES: u64 = (1 << 30) - 1;

impl Rank {
    pub(crate) const ALL: [Rank; 4] = [
        Rank::Control,
        Rank::Interactive,
        Rank::Bulk,
        Rank::Background,
    ];

    /// The rank of a class; `auto` begins as interactive.
    pub(crate) fn of(class: Class) -> Rank {
        match class {
            Class::Control => Rank::Control,
            Class::Auto | Class::Interactive => Rank::Interactive,
            Class::Bulk => Rank::Bulk,
            Class::Background => Rank::Background,
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Rank::Control => Class::Control,
            Rank::Interactive => Class::Interactive,
            Rank::Bulk => Class::Bulk,
            Rank::Background => Class::Background,
        }
    }

    /// Whether its frames need not wait for room behind other data.
    pub(crate) fn is_urgent(self) -> bool {
        self <= Rank::Interactive
    }

    /// The priority of a QUIC stream, higher first: by class, then by age, so that what was lost
    /// is repeated before anything new of its class, and after anything of a higher one.
    pub(crate) fn priority(self, age: u64) -> i32 {
        let first = match self {
            Rank::Control => i32::MAX - 1, // below control frames
            Rank::Interactive => (1 << 30) - 1,
            Rank::Bulk => -1,
            Rank::Background => -(1 << 30) - 1,
        };
        first - i32::try_from(age % AGES).unwrap_or(0)
    }
}

/// One `T` for each class.
#[derive(Debug, Default)]
pub(crate) struct PerRank<T> {
    control: T,
    interactive: T,
    bulk: T,
    background: T,
}

impl<T> PerRank<T> {
    pub(crate) fn get(&self, rank: Rank) -> &T {
        match rank {
            Rank::Control => &self.control,
            Rank::Interactive => &self.interactive,
            Rank::Bulk => &self.bulk,
            Rank::Background => &self.background,
        }
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> &mut T {
        match rank {
            Rank::Control => &mut self.control,
            Rank::Interactive => &mut self.interactive,
            Rank::Bulk => &mut self.bulk,
            Rank::Background => &mut self.background,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_of_classes_do_not_overlap_and_fall_with_age() {
        for pair in Rank::ALL.windows(2) {
            assert!(pair[0].priority(AGES - 1) > pair[1].priority(0), "{pair:?}");
        }
        for rank in Rank::ALL {
            assert!(rank.priority(7) > rank.priority(8));
            assert_eq!(rank.priority(AGES), rank.priority(0));
        }
        assert!(
            Rank::Control.priority(0) < i32::MAX,
            "control frames are above"
        );
    }

    #[test]
    fn only_control_and_interactive_are_urgent() {
        let urgent = Rank::ALL.map(Rank::is_urgent);
        assert_eq!(urgent, [true, true, false, false]);
        assert_eq!(Rank::of(Class::Auto), Rank::Interactive);
        assert!(Rank::ALL.iter().all(|rank| Rank::of(rank.class()) == *rank));
    }
}
