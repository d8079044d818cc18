//! What ends reading ahead and early answers, in every dialect. The other part of both far halves.

use super::effect::Effect;
use super::files::OpenFile;
use super::lent::Lent;
use super::message::Message;
use super::reading::Reading;
use super::smb2::open::{FileId, OPLOCK_NONE};
use super::writing::Writing;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// What a far half does ahead of the client, and what protects it.
pub struct Guarded<'a> {
    /// Reads.
    pub reading: &'a mut Reading,
    /// Writes that the near half answers.
    pub writing: &'a mut Writing,
    /// Oplocks held in the client's place.
    pub lent: &'a mut Lent,
}

impl Guarded<'_> {
    /// What a message of the client's does to files.
    pub fn handle_effect(&mut self, effect: Effect, out: &mut Outbox, stats: &mut Stats) {
        if effect == Effect::Everything {
            self.writing.withdraw_all(out);
        }
        let reading = &mut *self.reading;
        let is_spared = |id, file: &OpenFile| effect.spares(id, file.protection.firmness());
        reading.end_runs(|id, file| !is_spared(id, file), out, stats);
        if let Effect::Closes(id) = effect {
            reading.forget(id);
            self.lent.handle_closing(id);
            self.writing.forbid(id);
        } else {
            reading.changes = reading.changes.wrapping_add(1);
        }
    }

    /// The server wants an oplock back, for which somebody waits. Whether it is owed at once.
    pub fn handle_recalled(
        &mut self,
        file: FileId,
        now_ns: u64,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        self.reading.end_runs(|id, _| id == file, out, stats);
        self.reading.files.handle_oplock(file, OPLOCK_NONE);
        self.writing.withdraw(file, out);
        // What it was told to drop it may not have dropped yet.
        let open = self.reading.files.get(file);
        let was_told = open.is_some_and(|file| file.was_told);
        let is_held = was_told || self.writing.is_busy(file);
        self.lent.handle_recalled(file, is_held, now_ns, out)
    }

    /// Nothing more is done ahead of the client; messages go on being translated.
    pub fn stop(&mut self, reason: Reason, out: &mut Outbox, stats: &mut Stats) {
        self.reading.is_quiet = true;
        self.writing.forbid_all();
        self.reading.end_runs(|_, _| true, out, stats);
        out.message(Message::Quiet { reason }.encode());
        out.gave_up(reason);
    }
}
