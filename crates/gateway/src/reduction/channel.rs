//! The flow on which two gateways talk of their records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use farhaul_reduce::{Codec, Plain};
use farhaul_tunnel::ResetCode;
use tokio::time::{Instant, MissedTickBehavior};

use super::Reduction;
use super::effort::{LONG_BYTES_MIN, apart};
use super::message::{Message, Messages};
use super::pace::{Pace, news_every};
use super::record::LITERAL_BYTES_MAX;
use super::tunnels::Talking;
use super::words::Again;
use crate::lock::lock;
use crate::session::{FlowHandle, SessionEnd};

/// How often flows are looked for that hold up the others.
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// A peer that was heard this lately could have told of what it holds.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// Messages are written in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

enum Failure {
    Flow,
    Peer(String),
}

impl From<ResetCode> for Failure {
    fn from(_: ResetCode) -> Self {
        Self::Flow
    }
}

/// Talks until the tunnel ends. A peer that says what cannot be ends it.
pub(crate) async fn serve(reduction: Arc<Reduction>, flow: FlowHandle) {
    // What is on disk is told and compared before anything else.
    reduction.store.opened().await;
    let _talking = Talking::begin(&reduction.store, reduction.tunnel);
    // In this order when both wake at one instant, as they do in virtual time, where a run shall be the same each time.
    let failure = tokio::select! {
        biased;
        failure = listen(&reduction, &flow) => failure,
        failure = speak(&reduction, &flow) => failure,
    };
    let what = match failure {
        Err(Failure::Peer(what)) => what,
        _ if flow.session().is_over() => return,
        // Without it nothing is acknowledged any more.
        _ => "the talk about reduction has ended".to_owned(),
    };
    flow.session().close(SessionEnd::Protocol(what));
}

async fn listen(reduction: &Reduction, flow: &FlowHandle) -> Result<(), Failure> {
    let mut messages = Messages::default();
    while let Some(bytes) = flow.read(PIECE_BYTES).await? {
        messages.push(&bytes);
        while let Some(message) = messages.next().map_err(|e| Failure::Peer(e.to_string()))? {
            hear(reduction, &message)?;
        }
        reduction.heard.send_replace(());
        reduction.talk.notify_one();
    }
    Ok(())
}

fn hear(reduction: &Reduction, message: &Message) -> Result<(), Failure> {
    if let Message::Again { frame, .. } = message {
        let received_bytes = &reduction.store.counts.received_bytes;
        received_bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
    }
    if matches!(
        message,
        Message::Log { .. } | Message::Seeds { .. } | Message::Again { .. } | Message::Skip { .. }
    ) {
        let mut receiving = lock(&reduction.receiving);
        let heard = receiving.handle(&mut lock(&reduction.store.decoder), message);
        return match heard {
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::Peer("impossible words about reduction".to_owned())),
        };
    }
    let mut sending = lock(&reduction.sending);
    let missed = sending.missed;
    sending.handle(&mut lock(&reduction.store.encoder), message);
    let asked = sending.missed - missed;
    reduction
        .store
        .counts
        .asked
        .fetch_add(asked, Ordering::Relaxed);
    match sending.is_flooded() {
        true => Err(Failure::Peer("too many words about reduction".to_owned())),
        false => Ok(()),
    }
}

async fn speak(reduction: &Reduction, flow: &FlowHandle) -> Result<(), Failure> {
    let mut out = BytesMut::new();
    begin(reduction, &mut out);
    write(flow, &mut out).await?;
    let started = Instant::now();
    let mut review = tokio::time::interval(REVIEW_EVERY);
    review.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut news_at, mut again_at) = (started, started);
    let mut heir_of = None;
    loop {
        let newer = lock(&reduction.store.tunnels).heir_of(reduction.tunnel);
        if newer != heir_of {
            // The log goes on in this one.
            heir_of = newer;
            begin(reduction, &mut out);
            write(flow, &mut out).await?;
        }
        let has_news = has_news(reduction);
        let has_again = lock(&reduction.sending).has_again();
        tokio::select! {
            // In one order, too, and the review first: news without end shall not keep it waiting.
            biased;
            _ = review.tick() => {
                let now_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let is_heard = flow.session().silence() < HEARD_WITHIN;
                lock(&reduction.sending).review(&mut lock(&reduction.store.encoder), now_ns, is_heard);
            }
            () = reduction.talk.notified() => {}
            () = reduction.store.news.notified() => {}
            () = tokio::time::sleep_until(news_at), if has_news => {}
            () = tokio::time::sleep_until(again_at), if has_again => {}
        }
        say(reduction, &mut out);
        write(flow, &mut out).await?;
        if Instant::now() >= again_at {
            let wait = say_again(reduction, flow).await?;
            again_at = Instant::now() + wait;
        }
        let is_due = Instant::now() >= news_at;
        if is_due {
            news_at = Instant::now() + news_every(flow.session().rate_bytes_s());
        }
        gather(reduction, is_due, &mut out);
        write(flow, &mut out).await?;
    }
}

/// What is on disk, and what is held.
fn begin(reduction: &Reduction, out: &mut BytesMut) {
    let mut receiving = lock(&reduction.receiving);
    let half = lock(&reduction.store.decoder);
    receiving.begin(&half);
    half.stored().iter().for_each(|message| message.put(out));
    half.state().put(out);
}

fn has_news(reduction: &Reduction) -> bool {
    let receiving = lock(&reduction.receiving);
    receiving.has_news(&lock(&reduction.store.decoder))
}

/// Writes all of it, waiting for room.
async fn write(flow: &FlowHandle, out: &mut BytesMut) -> Result<(), ResetCode> {
    while !out.is_empty() {
        let piece = out.split_to(out.len().min(PIECE_BYTES));
        flow.write(piece.freeze()).await?;
    }
    Ok(())
}

/// What we ask for, and what we hold: in this order, for what is asked for counts as held.
fn gather(reduction: &Reduction, with_news: bool, out: &mut BytesMut) {
    let mut receiving = lock(&reduction.receiving);
    while let Some(message) = receiving.poll_message() {
        message.put(out);
    }
    if with_news {
        let news = receiving.take_news(&lock(&reduction.store.decoder));
        news.iter().for_each(|message| message.put(out));
    }
}

/// What the encoder has to say that must not wait.
fn say(reduction: &Reduction, out: &mut BytesMut) {
    let mut sending = lock(&reduction.sending);
    while let Some(message) = sending.poll_message() {
        message.put(out);
    }
}

/// Says some of what was asked for; how long the rest is to wait.
async fn say_again(reduction: &Reduction, flow: &FlowHandle) -> Result<Duration, ResetCode> {
    if !lock(&reduction.sending).has_again() {
        return Ok(Duration::ZERO);
    }
    let session = flow.session();
    let (rate_bytes_s, others_wait) = (session.rate_bytes_s(), session.is_link_wanted());
    let pace = Pace::at(rate_bytes_s, others_wait, session.unsent_bytes());
    if let Some(wait) = pace.hold(LITERAL_BYTES_MAX) {
        return Ok(wait);
    }
    let Some((mut out, wait)) = next_again(reduction, pace).await else {
        return Ok(Duration::ZERO);
    };
    write(flow, &mut out).await?;
    Ok(wait)
}

/// What of it is said next at such a pace, and how long the rest is to wait then.
async fn next_again(reduction: &Reduction, pace: Pace) -> Option<(BytesMut, Duration)> {
    let part_bytes = pace.part_bytes(LITERAL_BYTES_MAX);
    let again = lock(&reduction.sending).poll_again(part_bytes)?;
    let mut out = BytesMut::new();
    match again.bytes.len() >= LONG_BYTES_MIN {
        true => apart(|| put_again(reduction, &again, &mut out)).await,
        false => put_again(reduction, &again, &mut out),
    }
    let wait = pace.wait(out.len());
    Some((out, wait))
}

/// Of a record, or a part of one.
fn put_again(reduction: &Reduction, again: &Again, out: &mut BytesMut) {
    let plain = Plain::literal(again.flow, &again.bytes, 0);
    let mut frame = Vec::new();
    reduction.with_compressor(|compressor| plain.seal(Codec::Zstd(1), compressor, &mut frame));
    let message = Message::Again {
        flow: again.flow,
        record: again.record,
        is_last: again.is_last,
        frame: frame.into(),
    };
    message.put(out);
    reduction.store.counts.add_sent(out.len());
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::reduction::Store;
    use crate::reduction::message::Why;

    /// A tunnel whose peer has asked for every record of these bytes again.
    fn asked_for(batch: &Bytes) -> Arc<Reduction> {
        let reduction = Reduction::new(Store::new(32 << 20), false);
        let mut sending = lock(&reduction.sending);
        let mut half = lock(&reduction.store.encoder);
        let have = Message::Have {
            memory_bytes: 16 << 20,
            log: 0,
            epoch: 0,
            held: 0,
        };
        sending.handle(&mut half, &have);
        let drafts = sending.encode(&mut half, 1, 0, batch).unwrap();
        for record in 0..drafts.len() as u64 {
            let missing = Message::Missing {
                flow: 1,
                record,
                why: Why::Absent,
                position: 0,
                bytes: 0,
            };
            sending.handle(&mut half, &missing);
        }
        drop((sending, half));
        reduction
    }

    #[tokio::test]
    async fn a_batch_that_is_said_again_holds_nobody_up_and_leaves_half_of_the_link() {
        const T1_BYTES_S: u64 = 193_000;
        let mut state = 1u64;
        let batch: Bytes = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(500 << 10)
        .collect();
        let reduction = asked_for(&batch);
        let (mut said_bytes, mut took) = (0, Duration::ZERO);
        let pace = Pace::at(T1_BYTES_S, true, 0);
        while let Some((out, wait)) = next_again(&reduction, pace).await {
            let keeps_s = out.len() as f64 / T1_BYTES_S as f64;
            assert!(keeps_s < 0.03, "{keeps_s} s");
            said_bytes += out.len();
            took += wait;
        }
        assert!(said_bytes >= batch.len());
        let share = said_bytes as f64 / T1_BYTES_S as f64 / took.as_secs_f64();
        assert!(share < 0.51, "{share}");
    }
}
