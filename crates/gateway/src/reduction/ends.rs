//! The two directions of a flow as its task sees them: bytes in, records out, and the reverse.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_reduce::{Codec, Levels, Plain, place_of};
use farhaul_tunnel::{FEATURE_ECHOES, Payload, ResetCode};
use rustix::time::{ClockId, clock_gettime};

use tokio::time::{Instant, MissedTickBehavior, timeout_at};

use super::Reduction;
use super::effort::{LONG_BYTES_MIN, apart};
use super::halves::Look;
use super::receiving::Read;
use super::record::{
    BARE_BYTES_MAX, CopyPlace, Draft, Record, Records, copied, echoed, framed, literals,
};
use crate::copies::Copies;
use crate::lock::lock;
use crate::session::FlowHandle;

/// Read from a flow at once.
const READ_BYTES: usize = 64 << 10;
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
/// A record that refers to what is on disk waits so long, then it is asked for again.
const AWAY_MAX: Duration = Duration::from_secs(2);
/// A record waits so long for the word of its log, then it is asked for again. On a slow link much may be said before that word.
const EARLY_MAX: Duration = Duration::from_secs(30);
/// For what was asked for a record waits so many seconds in which the tunnel is up and nothing comes of what was asked for before.
/// Then it never will, and the flow is reset.
const AGAIN_MAX_S: u32 = 60;
/// A record refers to fewer segments on disk, or it is asked for again.
const RECALLS_MAX: u32 = 32;
/// A record with less that is new need not name what the peer has sent.
const ECHO_BYTES_MIN: usize = 1024;
/// And of what is new in one, what that may take: it is not compressed.
const ECHO_SHARE: usize = 8;
/// However little is left, a batch is no more than so many times what the link carries.
const SHARE_MIN: f64 = 1e-3;

/// From an application to the peer.
pub enum Outbound {
    /// As the bytes are.
    Plain,
    /// In records.
    Records(Box<Writer>),
}

/// From the peer to an application.
pub enum Inbound {
    /// As the bytes are.
    Plain,
    /// In records.
    Records(Box<Reader>),
}

/// Both directions of a flow, by what was agreed when it was opened.
pub fn of(flow: &FlowHandle) -> (Outbound, Inbound) {
    let kind = match flow.payload() {
        Payload::Records {
            eliminated,
            compressed: false,
            ..
        } => Some((eliminated, Some(Codec::Null))),
        Payload::Records {
            eliminated, level, ..
        } => Some((eliminated, level.map(Codec::Zstd))),
        Payload::Warming => Some((true, None)),
        Payload::Plain | Payload::Channel | Payload::Measuring => None,
    };
    match (kind, flow.session().reduction()) {
        (Some((eliminated, pinned)), Some(reduction)) => {
            let writer = Writer {
                reduction: reduction.clone(),
                flow: flow.id().0,
                records: 0,
                eliminated,
                has_echoes: eliminated && flow.session().features() & FEATURE_ECHOES != 0,
                levels: Levels::new(pinned),
                share: 1.0,
                is_settled: false,
            };
            let reader = Reader {
                reduction: reduction.clone(),
                flow: flow.id().0,
                records: Records::default(),
                number: 0,
                copies: None,
                is_over: false,
            };
            (
                Outbound::Records(Box::new(writer)),
                Inbound::Records(Box::new(reader)),
            )
        }
        _ => (Outbound::Plain, Inbound::Plain),
    }
}

impl Outbound {
    /// How much to read from the application at once, when the flow has `room_bytes`.
    pub fn batch_bytes(&self, flow: &FlowHandle, room_bytes: usize) -> usize {
        match self {
            Self::Plain => room_bytes.min(READ_BYTES),
            Self::Records(writer) => writer.batch_bytes(flow),
        }
    }

    /// Sends bytes, waiting for room.
    pub async fn send(&mut self, flow: &FlowHandle, bytes: Bytes) -> Result<(), ResetCode> {
        match self {
            Self::Plain => flow.write(bytes).await,
            Self::Records(writer) => writer.send(flow, bytes).await,
        }
    }

    /// Sends bytes that the peer has in a copy of its own: everything but them, where there is a log.
    pub(crate) async fn send_copied(
        &mut self,
        flow: &FlowHandle,
        bytes: Bytes,
        place: CopyPlace,
    ) -> Result<(), ResetCode> {
        match self {
            Self::Plain => flow.write(bytes).await,
            Self::Records(writer) => writer.send_copied(flow, bytes, place).await,
        }
    }

    /// Both directions have ended well.
    pub fn settle(self) {
        if let Self::Records(mut writer) = self {
            writer.is_settled = true;
            let mut sending = lock(&writer.reduction.sending);
            sending.finish(&mut lock(&writer.reduction.store.encoder), writer.flow);
        }
    }
}

impl Inbound {
    /// The peer may leave out what is in these.
    pub(crate) fn use_copies(&mut self, copies: Arc<Mutex<Copies>>) {
        if let Self::Records(reader) = self {
            reader.copies = Some(copies);
        }
    }

    /// The next bytes in order; `None` is the peer's clean end.
    pub async fn next(&mut self, flow: &FlowHandle) -> Result<Option<Bytes>, ResetCode> {
        match self {
            Self::Plain => flow.read(READ_BYTES).await,
            Self::Records(reader) => reader.next(flow).await,
        }
    }
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
    /// No longer than the link is busy with it: a record can be read only when it is whole.
    fn batch_bytes(&self, flow: &FlowHandle) -> usize {
        let rate_bytes_s = flow.session().rate_bytes_s();
        if rate_bytes_s == 0 {
            return BATCH_BYTES_FIRST;
        }
        let link_bytes = rate_bytes_s * BATCH_MS / 1000;
        let batch_bytes = link_bytes as f64 / self.share.max(SHARE_MIN);
        (batch_bytes as usize).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
    }

    async fn send(&mut self, flow: &FlowHandle, batch: Bytes) -> Result<(), ResetCode> {
        if batch.is_empty() {
            return Ok(());
        }
        self.count_input(batch.len());
        let drafts = self.drafts(&batch).await;
        let sent_bytes = self.write(flow, drafts, None, &batch).await?;
        self.share += (sent_bytes as f64 / batch.len() as f64 - self.share) * SHARE_NEWS;
        Ok(())
    }

    async fn send_copied(
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

/// Reads a flow's records.
pub struct Reader {
    reduction: Arc<Reduction>,
    flow: u64,
    records: Records,
    number: u64,
    /// What the peer may leave out.
    copies: Option<Arc<Mutex<Copies>>>,
    is_over: bool,
}

impl Reader {
    async fn next(&mut self, flow: &FlowHandle) -> Result<Option<Bytes>, ResetCode> {
        loop {
            let record = self.records.next().map_err(|_| ResetCode::Protocol)?;
            if let Some(record) = record {
                let bytes = self.resolve(flow, &record).await?;
                self.number += 1;
                let counts = &self.reduction.store.counts;
                counts
                    .output_bytes
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                return Ok(Some(bytes));
            }
            match flow.read(READ_BYTES).await? {
                Some(bytes) => {
                    let counts = &self.reduction.store.counts;
                    counts
                        .received_bytes
                        .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.records.push(&bytes);
                }
                None if self.records.is_empty() => {
                    self.is_over = true;
                    return Ok(None);
                }
                // An end inside a record is none.
                None => return Err(ResetCode::Protocol),
            }
        }
    }

    /// The bytes a record stands for. Waits for what is missing.
    async fn resolve(&self, flow: &FlowHandle, record: &Record) -> Result<Bytes, ResetCode> {
        if let Record::Bare(bytes) = record {
            return Ok(bytes.clone());
        }
        let copy = self.copy_of(record).await?;
        let mut heard = self.reduction.heard.subscribe();
        let mut recalled = self.reduction.store.recalled.subscribe();
        let (mut recalls, deadline) = (0, Instant::now() + AWAY_MAX);
        let early_until = Instant::now() + EARLY_MAX;
        loop {
            let may_wait = recalls < RECALLS_MAX && Instant::now() < deadline;
            match self.read(record, &copy, may_wait)? {
                Read::Bytes(bytes) => return Ok(bytes),
                Read::Asked => break,
                Read::Early => match timeout_at(early_until, heard.changed()).await {
                    Ok(changed) => changed.map_err(|_| ResetCode::TunnelLost)?,
                    Err(_) => {
                        self.give_up(record)?;
                        break;
                    }
                },
                Read::Away(segment) => {
                    recalls += 1;
                    let store = &self.reduction.store;
                    store.wake_disk();
                    while lock(&store.decoder).is_reading(segment)
                        && timeout_at(deadline, recalled.changed()).await.is_ok()
                    {
                    }
                }
            }
        }
        self.reduction
            .store
            .counts
            .missed
            .fetch_add(1, Ordering::Relaxed);
        self.again(|| flow.session().is_lively()).await
    }

    /// What was asked for, when it has come.
    async fn again(&self, is_up: impl Fn() -> bool) -> Result<Bytes, ResetCode> {
        let mut heard = self.reduction.heard.subscribe();
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.reset();
        let (mut before, mut waited_s) = (None, 0);
        while waited_s < AGAIN_MAX_S {
            let (again, progress) = {
                let mut receiving = lock(&self.reduction.receiving);
                let progress = receiving.progress(self.flow);
                (receiving.take_again(self.flow), progress)
            };
            if let Some(bytes) = again {
                return Ok(bytes);
            }
            if progress != before {
                (before, waited_s) = (progress, 0);
            }
            tokio::select! {
                changed = heard.changed() => changed.map_err(|_| ResetCode::TunnelLost)?,
                _ = seconds.tick() => waited_s += u32::from(is_up()),
            }
        }
        Err(ResetCode::IdleTimeout)
    }

    /// What our copy has of a record's bytes; nothing where it cannot be read, and then it is asked for.
    async fn copy_of(&self, record: &Record) -> Result<Vec<u8>, ResetCode> {
        if let Record::Echo(_, parts, _) = record {
            let whole = lock(&self.reduction.store.encoder).whole(parts);
            return Ok(whole.unwrap_or_default());
        }
        let Record::Copy(_, place, frame) = record else {
            return Ok(Vec::new());
        };
        let copies = self.copies.as_ref().ok_or(ResetCode::Protocol)?;
        let (_, length) = place_of(frame).map_err(|_| ResetCode::Protocol)?;
        let Some(stretch) = lock(copies).find(place, length) else {
            return Ok(Vec::new());
        };
        let read = tokio::task::spawn_blocking(move || stretch.read()).await;
        Ok(read.ok().and_then(Result::ok).unwrap_or_default())
    }

    fn read(&self, record: &Record, copy: &[u8], may_wait: bool) -> Result<Read, ResetCode> {
        let mut receiving = lock(&self.reduction.receiving);
        let mut half = lock(&self.reduction.store.decoder);
        let number = (self.flow, self.number);
        let read = match record {
            Record::Copy(mark, _, frame) | Record::Echo(mark, _, frame) => {
                receiving.read_copied(&mut half, number, (*mark, frame, copy), may_wait)
            }
            other => receiving.read(&mut half, number, other, may_wait),
        };
        self.reduction.talk.notify_one();
        read.map_err(|_| ResetCode::Protocol)
    }

    fn give_up(&self, record: &Record) -> Result<(), ResetCode> {
        let number = (self.flow, self.number);
        let given_up = lock(&self.reduction.receiving).give_up(number, record);
        self.reduction.talk.notify_one();
        given_up.map_err(|_| ResetCode::Protocol)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.reduction.receiving).leave(self.flow, self.is_over);
        self.reduction.talk.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::Store;
    use crate::reduction::message::Message;
    use crate::reduction::record::framed;

    /// A reader that has asked for a record.
    fn asking(reduction: &Arc<Reduction>, flow: u64) -> Reader {
        let plain = Plain::literal(flow, &[1; 100], 0);
        let mut records = Records::default();
        records.push(&framed(Some(1), |out| {
            reduction.with_compressor(|compressor| plain.seal(Codec::Null, compressor, out));
        }));
        let record = records.next().unwrap().unwrap();
        let given_up = lock(&reduction.receiving).give_up((flow, 0), &record);
        given_up.unwrap();
        Reader {
            reduction: reduction.clone(),
            flow,
            records,
            number: 0,
            copies: None,
            is_over: false,
        }
    }

    /// So many bytes of a record are said again.
    fn answer(reduction: &Reduction, flow: u64, bytes: usize, is_last: bool) {
        let plain = Plain::literal(flow, &vec![1; bytes], 0);
        let mut frame = Vec::new();
        reduction.with_compressor(|compressor| plain.seal(Codec::Null, compressor, &mut frame));
        let again = Message::Again {
            flow,
            record: 0,
            is_last,
            frame: frame.into(),
        };
        let mut half = lock(&reduction.store.decoder);
        let heard = lock(&reduction.receiving).handle(&mut half, &again);
        heard.unwrap();
        reduction.heard.send_replace(());
    }

    async fn seconds(count: u64) {
        tokio::time::sleep(Duration::from_secs(count)).await;
    }

    /// The peer goes on to talk, but says nothing of what it was asked for.
    #[tokio::test(start_paused = true)]
    async fn invariant_4_a_record_that_is_not_said_again_is_not_waited_for_without_end() {
        let reduction = Reduction::new(Store::new(0), true);
        let reader = asking(&reduction, 1);
        let started = Instant::now();
        let talk = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                reduction.heard.send_replace(());
            }
        };
        let again = tokio::select! {
            again = reader.again(|| true) => again,
            () = talk => unreachable!("it goes on"),
            () = seconds(600) => panic!("it waits without end"),
        };
        assert_eq!(again, Err(ResetCode::IdleTimeout));
        assert_eq!(started.elapsed().as_secs(), u64::from(AGAIN_MAX_S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_waited_for_while_the_link_is_down_or_something_comes() {
        let reduction = Reduction::new(Store::new(0), true);
        let first = asking(&reduction, 1);
        let reader = asking(&reduction, 2);
        let started = Instant::now();
        let is_up = || started.elapsed() > Duration::from_secs(3600);
        let answers = async {
            seconds(3650).await;
            answer(&reduction, 1, 10, false);
            seconds(50).await;
            answer(&reduction, 1, 90, true);
            seconds(50).await;
            answer(&reduction, 2, 100, true);
        };
        let (again, ()) = tokio::join!(reader.again(is_up), answers);
        assert_eq!(again.unwrap().len(), 100);
        assert_eq!(first.again(|| true).await.unwrap().len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_not_waited_for_when_later_ones_have_come() {
        let reduction = Reduction::new(Store::new(0), true);
        let reader = asking(&reduction, 1);
        let others = async {
            for flow in 2.. {
                let _other = asking(&reduction, flow);
                answer(&reduction, flow, 100, true);
                seconds(20).await;
            }
        };
        let again = tokio::select! {
            again = reader.again(|| true) => again,
            () = others => unreachable!("they go on"),
            () = seconds(600) => panic!("it waits without end"),
        };
        assert_eq!(again, Err(ResetCode::IdleTimeout));
    }

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
}
