//! What a gateway remembers for a peer, in both directions, from tunnel to tunnel: the encoder and its log, and the copy of the
//! peer's log. A log has a number drawn at random for this process, and an epoch that changes whenever it begins anew.

use farhaul_reduce::{Decoder, Encoder, Settings};
use ring::rand::{SecureRandom, SystemRandom};

use super::held::Held;
use super::message::Message;
use super::record::mark_of;

/// A log smaller than this is none, bytes.
pub(super) const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// Of the memory for one direction, what is the log's in percent; the rest is for index and extents.
const LOG_PERCENT: u64 = 80;

/// A number nobody can foresee. Without randomness the gateway has no keys either, so it does not get here.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn settings(memory_bytes: u64, key: u64) -> Settings {
    let log_bytes = usize::try_from(memory_bytes / 100 * LOG_PERCENT).unwrap_or(usize::MAX >> 1);
    Settings {
        seed: random(),
        hash_key: key,
        ..Settings::of_memory(log_bytes)
    }
}

/// Our log of what was sent to the peer.
pub(super) struct EncoderHalf {
    /// What it may take, bytes.
    memory_bytes: u64,
    /// What this and the peer's copy take each, bytes.
    agreed_bytes: u64,
    log: u128,
    pub(super) epoch: u32,
    key: u64,
    encoder: Option<Encoder>,
    /// The tunnel whose peer holds the log.
    owner: Option<u64>,
    /// Input and references of earlier epochs.
    before: (u64, u64),
}

impl EncoderHalf {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            agreed_bytes: 0,
            log: u128::from(random()) << 64 | u128::from(random() | 1),
            epoch: 0,
            key: 0,
            encoder: None,
            owner: None,
            before: (0, 0),
        }
    }

    /// The encoder, for the tunnel whose peer holds the log.
    pub(super) fn of(&mut self, tunnel: u64) -> Option<&mut Encoder> {
        let is_owner = self.owner == Some(tunnel);
        self.encoder.as_mut().filter(|_| is_owner)
    }

    /// Bytes that may be under way: what the other end does not hold is kept.
    pub(super) fn unheld_bytes_max(&self) -> u64 {
        self.agreed_bytes / 4
    }

    /// The peer says what it has: the log goes on, or begins anew. `None` if there is none.
    pub(super) fn attach(
        &mut self,
        tunnel: u64,
        has: (u128, u32),
        held: u64,
        peer_bytes: u64,
    ) -> Option<Message> {
        let agreed_bytes = self.memory_bytes.min(peer_bytes);
        self.owner = Some(tunnel);
        let same = has == (self.log, self.epoch) && agreed_bytes == self.agreed_bytes;
        self.agreed_bytes = agreed_bytes;
        let Some(encoder) = self.encoder.as_mut().filter(|_| same) else {
            return self.restart();
        };
        // What was under way when the last tunnel ended may never have come.
        let end = encoder.position();
        let held = held.min(end);
        encoder.forget(held, end - held);
        encoder.handle_held(end);
        Some(self.announcement(end))
    }

    /// Begins a new epoch, with nothing in it.
    pub(super) fn restart(&mut self) -> Option<Message> {
        let stats = self.encoder.take().map(|encoder| encoder.stats());
        let stats = stats.unwrap_or_default();
        self.before.0 += stats.input_bytes;
        self.before.1 += stats.known_bytes + stats.run_bytes;
        if self.agreed_bytes < MEMORY_BYTES_MIN || self.owner.is_none() {
            return None;
        }
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.key = random();
        self.encoder = Some(Encoder::new(settings(self.agreed_bytes, self.key)));
        Some(self.announcement(0))
    }

    fn announcement(&self, start: u64) -> Message {
        Message::Log {
            memory_bytes: self.agreed_bytes,
            log: self.log,
            epoch: self.epoch,
            start,
            key: self.key,
        }
    }

    /// Input, and how much of it was known, since this process began.
    pub(super) fn counts(&self) -> (u64, u64) {
        let stats = self.encoder.as_ref().map(Encoder::stats);
        let stats = stats.unwrap_or_default();
        let known_bytes = stats.known_bytes + stats.run_bytes;
        (
            self.before.0 + stats.input_bytes,
            self.before.1 + known_bytes,
        )
    }

    /// Bytes of the log's memory, and of its index.
    pub(super) fn sizes(&self) -> (u64, u64) {
        let Some(encoder) = &self.encoder else {
            return (0, 0);
        };
        let (stats, log_bytes) = (encoder.stats(), self.agreed_bytes / 100 * LOG_PERCENT);
        let kept_bytes = stats.literal_bytes.saturating_sub(stats.unkept_bytes);
        (kept_bytes.min(log_bytes), stats.index_bytes)
    }
}

/// Our copy of the peer's log.
pub(super) struct DecoderHalf {
    memory_bytes: u64,
    log: u128,
    epoch: u32,
    decoder: Option<Decoder>,
    pub(super) held: Held,
    /// For frames that refer to nothing.
    literals: Decoder,
}

impl DecoderHalf {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            log: 0,
            epoch: 0,
            decoder: None,
            held: Held::default(),
            literals: Decoder::new(Settings::of_memory(0)),
        }
    }

    /// What a new tunnel's peer is told.
    pub(super) fn state(&self) -> Message {
        let is_there = self.decoder.is_some();
        Message::Have {
            memory_bytes: self.memory_bytes,
            log: if is_there { self.log } else { 0 },
            epoch: if is_there { self.epoch } else { 0 },
            held: self.held.position(),
        }
    }

    /// The peer's log goes on at `start`, or begins anew.
    pub(super) fn follow(&mut self, log: u128, epoch: u32, start: u64, key: u64, bytes: u64) {
        let is_same = (log, epoch) == (self.log, self.epoch) && self.decoder.is_some();
        if is_same {
            // Records may have overtaken this.
            self.held.raise(start);
        } else {
            self.held = Held::new(start);
            let memory_bytes = bytes.min(self.memory_bytes);
            (self.log, self.epoch) = (log, epoch);
            self.decoder = Some(Decoder::new(settings(memory_bytes, key)));
        }
    }

    /// Drops the copy; frames that refer to it are missing from now on.
    pub(super) fn forget(&mut self) {
        self.decoder = None;
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The decoder for records of this mark: `Err(true)` if the log is still to come, `Err(false)` if it is gone.
    pub(super) fn of(&mut self, mark: u8) -> Result<&mut Decoder, bool> {
        let ahead = (i32::from(mark) - i32::from(mark_of(self.epoch))).rem_euclid(250);
        let is_new = self.epoch == 0 || (1..=125).contains(&ahead);
        match self.decoder.as_mut().filter(|_| ahead == 0) {
            Some(decoder) if !is_new => Ok(decoder),
            _ => Err(is_new),
        }
    }

    pub(super) fn literals(&mut self) -> &mut Decoder {
        &mut self.literals
    }
}
