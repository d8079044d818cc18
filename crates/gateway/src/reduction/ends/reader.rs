//! From the peer to an application: records become a flow's bytes again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_reduce::place_of;
use farhaul_tunnel::ResetCode;
use tokio::time::{Instant, MissedTickBehavior, timeout_at};

use super::READ_BYTES;
use crate::copies::Copies;
use crate::lock::lock;
use crate::reduction::Reduction;
use crate::reduction::receiving::Read;
use crate::reduction::record::{Record, Records};
use crate::session::FlowHandle;

/// A record that refers to what is on disk waits so long, then it is asked for again.
const AWAY_MAX: Duration = Duration::from_secs(2);
/// A record waits so long for the word of its log, then it is asked for again. On a slow link much may be said before that word.
const EARLY_MAX: Duration = Duration::from_secs(30);
/// For what was asked for a record waits so many seconds in which the tunnel is up and nothing comes of what was asked for before.
/// Then it never will, and the flow is reset.
const AGAIN_MAX_S: u32 = 60;
/// A record refers to fewer segments on disk, or it is asked for again.
const RECALLS_MAX: u32 = 32;

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
    pub(super) fn new(reduction: &Arc<Reduction>, flow: &FlowHandle) -> Self {
        Self {
            reduction: reduction.clone(),
            flow: flow.id().0,
            records: Records::default(),
            number: 0,
            copies: None,
            is_over: false,
        }
    }

    pub(super) fn use_copies(&mut self, copies: Arc<Mutex<Copies>>) {
        self.copies = Some(copies);
    }

    pub(super) async fn next(&mut self, flow: &FlowHandle) -> Result<Option<Bytes>, ResetCode> {
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
    use farhaul_reduce::{Codec, Plain};

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
}
