//! From an application to the peer: a flow's bytes become records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use farhaul_reduce::{Codec, Levels, Plain};
use farhaul_tunnel::{FEATURE_ECHOES, ResetCode};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, timeout, timeout_at};

use crate::lock::lock;
use crate::reduction::Reduction;
use crate::reduction::effort::{LONG_BYTES_MIN, apart};
use crate::reduction::halves::Look;
use crate::reduction::record::{
    BARE_BYTES_MAX, CopyPlace, Draft, Record, copied, echoed, framed, literals,
};
use crate::session::FlowHandle;

/// Bytes that become records together: what the link carries in this time, as long as it is not known to be less.
const BATCH_MS: u64 = 20;
const BATCH_BYTES_MIN: usize = 16 << 10;
const BATCH_BYTES_MAX: usize = 512 << 10;
/// While the link's rate is not known.
const BATCH_BYTES_FIRST: usize = 64 << 10;
/// The link's rate, while it is not known, bytes per second.
const RATE_BYTES_S_ASSUMED: u64 = 10_000_000;
/// Weight of a batch in the share that is left of a flow's bytes.
const SHARE_NEWS: f64 = 0.25;
/// A record with less that is new need not name what the peer has sent.
const ECHO_BYTES_MIN: usize = 1024;
/// And of what is new in one, what that may take: it is not compressed.
const ECHO_SHARE: usize = 8;
/// However little is left, a batch is no more than so many times what the link carries.
const SHARE_MIN: f64 = 1e-3;

/// What a flow takes at once, of whose bytes this share is left, on a link of this rate that so many use.
fn batch_bytes(rate_bytes_s: u64, sharers: f64, share: f64) -> usize {
    let link_bytes = (rate_bytes_s * BATCH_MS / 1000) as f64;
    let batch_bytes = link_bytes / sharers.sqrt() / share.max(SHARE_MIN);
    (batch_bytes as usize).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
}

/// Makes records of a flow's bytes.
pub struct Writer {
    reduction: Arc<Reduction>,
    flow: u64,
    records: u64,
    eliminated: bool,
    /// The peer knows what it has sent itself.
    has_echoes: bool,
    levels: Levels,
    /// What is left of this flow's bytes lately.
    share: f64,
    is_settled: bool,
}

impl Writer {
    pub(super) fn new(
        reduction: &Arc<Reduction>,
        flow: &FlowHandle,
        eliminated: bool,
        pinned: Option<Codec>,
    ) -> Self {
        Self {
            reduction: reduction.clone(),
            flow: flow.id().0,
            records: 0,
            eliminated,
            has_echoes: eliminated && flow.session().features() & FEATURE_ECHOES != 0,
            levels: Levels::new(pinned),
            share: 1.0,
            is_settled: false,
        }
    }

    /// See [`super::Outbound::repeated_bytes`].
    pub(super) fn repeated_bytes(&self) -> u64 {
        lock(&self.reduction.sending).repeated_bytes(self.flow)
    }

    /// See [`super::Outbound::all_read`].
    pub(super) async fn all_read(&self, within: Duration) {
        let mut heard = self.reduction.heard.subscribe();
        let is_unread = || lock(&self.reduction.sending).is_unread(self.flow);
        // The sender lives as long as we do.
        let said = async { while is_unread() && heard.changed().await.is_ok() {} };
        let _ = timeout(within, said).await;
    }

    /// Both directions have ended well.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
        let mut sending = lock(&self.reduction.sending);
        sending.finish(&mut lock(&self.reduction.store.encoder), self.flow);
    }

    /// No longer than the link is busy with it: a record can be read only when it is whole. Of several flows each takes longer, so
    /// they make smaller ones; not as much smaller as there are flows, for small ones compress less. It is what a flow has in
    /// memory as well.
    pub(super) fn batch_bytes(&self, flow: &FlowHandle) -> usize {
        let rate_bytes_s = flow.session().rate_bytes_s();
        if rate_bytes_s == 0 {
            return BATCH_BYTES_FIRST;
        }
        batch_bytes(rate_bytes_s, flow.session().sharers(), self.share)
    }

    pub(super) async fn send(&mut self, flow: &FlowHandle, batch: Bytes) -> Result<(), ResetCode> {
        if batch.is_empty() {
            return Ok(());
        }
        self.count_input(batch.len());
        let drafts = self.drafts(&batch).await;
        let sent_bytes = self.write(flow, drafts, None, &batch).await?;
        self.share += (sent_bytes as f64 / batch.len() as f64 - self.share) * SHARE_NEWS;
        Ok(())
    }

    pub(super) async fn send_copied(
        &mut self,
        flow: &FlowHandle,
        batch: Bytes,
        place: CopyPlace,
    ) -> Result<(), ResetCode> {
        self.count_input(batch.len());
        let drafts = self.drafts(&batch).await;
        self.write(flow, drafts, Some(place), &batch).await?;
        Ok(())
    }

    /// Makes records of a batch and sends them; how many bytes they are.
    async fn write(
        &mut self,
        flow: &FlowHandle,
        drafts: Vec<Draft>,
        copy: Option<CopyPlace>,
        batch: &Bytes,
    ) -> Result<usize, ResetCode> {
        self.records += drafts.len() as u64;
        let mut sent_bytes = 0;
        let is_long =
            self.levels.upcoming() != Codec::Null && payload_bytes(&drafts) >= LONG_BYTES_MIN;
        let records = match is_long {
            true => apart(|| self.seal(flow, drafts, copy, batch)).await,
            false => self.seal(flow, drafts, copy, batch),
        };
        for record in records {
            sent_bytes += record.len();
            self.reduction.store.counts.add_sent(record.len());
            flow.write(record).await?;
        }
        Ok(sent_bytes)
    }

    /// Before anything is made of it, or a flow that is cut meanwhile has more that was compared than bytes.
    fn count_input(&self, bytes: usize) {
        let input_bytes = &self.reduction.store.counts.input_bytes;
        input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    async fn drafts(&mut self, batch: &Bytes) -> Vec<Draft> {
        if batch.len() <= BARE_BYTES_MAX {
            return vec![Draft::Bare(batch.clone())];
        }
        if self.eliminated {
            self.room().await;
            self.recall(batch).await;
            let mut sending = lock(&self.reduction.sending);
            let mut half = lock(&self.reduction.store.encoder);
            sending.set_sampling(&mut half, self.levels.sampling());
            let drafts = sending.encode(&mut half, self.flow, self.records, batch);
            if let Some(drafts) = drafts {
                return drafts;
            }
        }
        literals(self.flow, batch)
    }

    /// Waits until what left the memory and may come again is read back.
    async fn recall(&self, batch: &[u8]) {
        let Some(read_within) = self.reduction.store.read_within else {
            return;
        };
        let deadline = Instant::now() + read_within;
        self.read_back(Look::Anchors, batch, deadline).await;
        self.read_back(Look::Samples(self.flow), batch, deadline)
            .await;
    }

    async fn read_back(&self, look: Look, batch: &[u8], deadline: Instant) {
        let store = &self.reduction.store;
        let mut recalled = store.recalled.subscribe();
        let pending = {
            let sending = lock(&self.reduction.sending);
            sending.look(&mut lock(&store.encoder), look, batch)
        };
        if pending.is_empty() {
            return;
        }
        store.wake_disk();
        while lock(&store.encoder).is_reading(&pending)
            && timeout_at(deadline, recalled.changed()).await.is_ok()
        {}
    }

    /// Waits until the peer has read enough of what this flow sent.
    async fn room(&self) {
        let mut heard = self.reduction.heard.subscribe();
        // The sender lives as long as we do.
        while self.must_wait() && heard.changed().await.is_ok() {}
    }

    fn must_wait(&self) -> bool {
        let sending = lock(&self.reduction.sending);
        sending.must_wait(&lock(&self.reduction.store.encoder), self.flow)
    }

    /// The records as they are written. Of what the peer has a copy of, only what it cannot know.
    fn seal(
        &mut self,
        flow: &FlowHandle,
        drafts: Vec<Draft>,
        mut copy: Option<CopyPlace>,
        batch: &Bytes,
    ) -> Vec<Bytes> {
        let (mut records, mut spent) = (Vec::new(), Vec::new());
        let mut rest = batch.clone();
        for draft in drafts {
            match draft {
                Draft::Bare(bytes) => records.push(Record::Bare(bytes).bytes()),
                Draft::Frame(plain, mark) => {
                    let input = rest.split_to(plain.length.min(rest.len()));
                    records.push(self.record(flow, (&plain, mark), &input, copy));
                    if let Some(place) = &mut copy {
                        place.offset += plain.length as u32;
                    }
                    spent.push(plain);
                }
            }
        }
        if self.eliminated && !spent.is_empty() {
            let sending = lock(&self.reduction.sending);
            sending.recycle(&mut lock(&self.reduction.store.encoder), spent);
        }
        records
    }

    fn record(
        &mut self,
        flow: &FlowHandle,
        (plain, mark): (&Plain, Option<u8>),
        input: &[u8],
        copy: Option<CopyPlace>,
    ) -> Bytes {
        if let Some((mark, place)) = mark.zip(copy) {
            return without_literals(mark, place, plain);
        }
        let echo = self.echo(mark, plain, input);
        echo.unwrap_or_else(|| framed(mark, |out| self.compress(flow, plain, out)))
    }

    /// The record of a frame whose bytes the peer has sent itself. To look for them takes as long as to look for what was sent,
    /// and keeps who reads waiting, so it is done only where it may be of use.
    fn echo(&self, mark: Option<u8>, plain: &Plain, input: &[u8]) -> Option<Bytes> {
        let mark = mark.filter(|_| self.has_echoes)?;
        let new_bytes = plain.payload.len().saturating_sub(plain.token_bytes);
        if new_bytes < ECHO_BYTES_MIN {
            return None;
        }
        let most_bytes = (new_bytes / ECHO_SHARE).checked_sub(plain.token_bytes)?;
        if !lock(&self.reduction.sending).may_echo() {
            return None;
        }
        let parts = lock(&self.reduction.store.decoder).echoed(input, most_bytes)?;
        let mut frame = Vec::new();
        plain.seal_bare(&mut frame);
        Some(echoed(mark, &parts, &frame))
    }

    /// Appends the frame, compressed as it is worth.
    fn compress(&mut self, flow: &FlowHandle, plain: &Plain, out: &mut Vec<u8>) {
        let codec = self.levels.trial();
        let start = out.len();
        let before_ns = cpu_ns();
        self.reduction
            .with_compressor(|compressor| plain.seal(codec, compressor, out));
        let took_ns = cpu_ns().saturating_sub(before_ns);
        let (new_bytes, packed_bytes) = (plain.payload.len(), out.len() - start);
        self.levels
            .handle_sample(codec, new_bytes, packed_bytes, took_ns);
        let rate_bytes_s = match flow.session().rate_bytes_s() {
            0 => RATE_BYTES_S_ASSUMED,
            known => known,
        };
        let level = self.levels.choose(1.0, rate_bytes_s as f64);
        let counts = &self.reduction.store.counts;
        counts.add_packed(new_bytes, packed_bytes, level);
    }
}

/// What is to be compressed.
fn payload_bytes(drafts: &[Draft]) -> usize {
    let of_draft = |draft: &Draft| match draft {
        Draft::Bare(_) => 0,
        Draft::Frame(plain, _) => plain.payload.len(),
    };
    drafts.iter().map(of_draft).sum()
}

fn without_literals(mark: u8, place: CopyPlace, plain: &Plain) -> Bytes {
    let mut frame = Vec::new();
    plain.seal_bare(&mut frame);
    copied(mark, place, &frame)
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_settled {
            let mut sending = lock(&self.reduction.sending);
            sending.abandon(&mut lock(&self.reduction.store.encoder), self.flow);
            self.reduction.talk.notify_one();
        }
    }
}

/// Processor time of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::Store;

    /// The log of what the peer sends is busy, and nothing in it would be of use.
    #[test]
    fn what_cannot_be_named_is_not_looked_for() {
        let reduction = Reduction::new(Store::new(16 << 20), true);
        let writer = |has_echoes| Writer {
            reduction: reduction.clone(),
            flow: 1,
            records: 0,
            eliminated: true,
            has_echoes,
            levels: Levels::new(None),
            share: 1.0,
            is_settled: false,
        };
        let busy = lock(&reduction.store.decoder);
        let (say, said) = std::sync::mpsc::channel();
        for (mark, has_echoes, left_out) in
            [(None, true, 0), (Some(1), false, 0), (Some(1), true, 9)]
        {
            lock(&reduction.sending).left_out = left_out;
            let (writer, say) = (writer(has_echoes), say.clone());
            std::thread::spawn(move || {
                let plain = Plain::literal(1, &[7; 9000], 0);
                say.send(writer.echo(mark, &plain, &[7; 9000]).is_none())
            });
            let is_none = said.recv_timeout(Duration::from_secs(20));
            assert_eq!(is_none, Ok(true), "{mark:?} {has_echoes} {left_out}");
        }
        assert_eq!(lock(&reduction.sending).left_out, 8);
        drop(busy);
    }

    #[test]
    fn flows_that_share_a_link_make_smaller_records() {
        let of = |sharers| batch_bytes(12_500_000, sharers, 1.0);
        assert_eq!(of(1.0), 250_000);
        assert_eq!(of(25.0), 50_000);
        assert_eq!(of(1e4), BATCH_BYTES_MIN);
        // As little is left of what is known, more of it goes at once.
        assert_eq!(batch_bytes(12_500_000, 25.0, 0.01), BATCH_BYTES_MAX);
    }
}
