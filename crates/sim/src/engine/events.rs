//! What happens when: a heap keyed by time and, for equal times, by the order
//! in which events were made. Nothing else decides, so a run repeats.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The queue is full: the simulated world makes more events than memory is
/// granted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {events_max} events wait at the same time")]
pub struct TooManyEvents {
    /// The bound that was met.
    pub events_max: usize,
}

#[derive(Debug, Clone)]
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Events in the order of their time; those of one time in the order of their
/// making.
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    made: u64,
    taken: u64,
    waiting_max: usize,
    events_max: usize,
}

impl<E> EventQueue<E> {
    /// An empty queue that never holds more than `events_max`.
    pub fn new(events_max: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            made: 0,
            taken: 0,
            waiting_max: 0,
            events_max,
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`TooManyEvents`] when the queue is full; the event is dropped.
    pub fn push(&mut self, at_ns: u64, event: E) -> Result<(), TooManyEvents> {
        if self.heap.len() >= self.events_max {
            return Err(TooManyEvents {
                events_max: self.events_max,
            });
        }
        let number = self.made;
        self.made += 1;
        self.heap.push(Reverse(Entry {
            at_ns,
            number,
            event,
        }));
        self.waiting_max = self.waiting_max.max(self.heap.len());
        Ok(())
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse(entry) = self.heap.pop()?;
        self.taken += 1;
        Some((entry.at_ns, entry.event))
    }

    /// When the next event is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }

    /// Events taken out so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Most events that ever waited at once.
    pub fn waiting_max(&self) -> usize {
        self.waiting_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_their_making() {
        let mut queue = EventQueue::new(10);
        for (at_ns, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'e'), (5, 'd')] {
            queue.push(at_ns, event).unwrap();
        }
        let order: Vec<(u64, char)> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(3, 'a'), (5, 'b'), (5, 'c'), (5, 'd'), (9, 'e')]);
        assert_eq!((queue.taken(), queue.waiting_max()), (5, 5));
    }

    #[test]
    fn invariant_5_the_queue_is_bounded() {
        let mut queue = EventQueue::new(2);
        queue.push(1, ()).unwrap();
        queue.push(1, ()).unwrap();
        assert_eq!(queue.push(1, ()), Err(TooManyEvents { events_max: 2 }));
        queue.pop().unwrap();
        queue.push(1, ()).unwrap();
    }
}
