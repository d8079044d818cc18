//! Connections by number: a number is used again, but never means the same.

/// Which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    index: u32,
    life: u32,
}

impl ConnectionId {
    /// Its place among the connections open now; used again after its end.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// A number no other connection has.
    pub fn number(self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.index)
    }
}

#[derive(Debug, Clone)]
struct Slot<V> {
    life: u32,
    value: Option<V>,
}

/// Values with ids that go stale when the value is removed.
#[derive(Debug, Clone)]
pub(super) struct Slots<V> {
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<V> Slots<V> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, value: V) -> ConnectionId {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.value = Some(value);
            let life = slot.life;
            return ConnectionId { index, life };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot {
            life: 0,
            value: Some(value),
        });
        ConnectionId { index, life: 0 }
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&V> {
        let slot = self.slots.get(id.index())?;
        slot.value.as_ref().filter(|_| slot.life == id.life)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut V> {
        let slot = self.slots.get_mut(id.index())?;
        slot.value.as_mut().filter(|_| slot.life == id.life)
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        if let Some(slot) = self.slots.get_mut(id.index())
            && slot.life == id.life
            && slot.value.take().is_some()
        {
            slot.life += 1;
            self.free.push(id.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_used_again_means_another() {
        let mut slots = Slots::default();
        let first = slots.insert('a');
        slots.remove(first);
        slots.remove(first);
        let second = slots.insert('b');
        assert_eq!((first.index(), second.index()), (0, 0));
        assert_ne!(first.number(), second.number());
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&'b')));
        assert_eq!(slots.len(), 1);
    }
}
