//! Error correction over the real stack, in virtual time: what it recovers,
//! what it leaves alone, and with whom it is not spoken.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod virtual_time;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::quic::fec::{CorrectionState, Figures};
use farhaul_gateway::session::Session;
use farhaul_tunnel::{Class, Correction, FEATURE_FEC};
use tokio::time::{Instant, sleep};
use virtual_time::cell::Cell;
use virtual_time::clock;
use virtual_time::network::{Network, Way};
use virtual_time::services::{self, ANSWER};
use virtual_time::tunnel::{Pair, Tunnel};

const ONE_WAY_MS: f64 = 50.0;
const ANSWER_BYTES: u32 = 10_000;

fn cell(loss: &str) -> Cell {
    Cell::new("", format!("rate 20mbit delay 50ms queue 100ms {loss}"))
}

fn run<S>(loss: &str, scenario: impl FnOnce(Arc<Network>) -> S) -> S::Output
where
    S: Future + Send + 'static,
    S::Output: Send + 'static,
{
    let limit = Duration::from_secs(600);
    let done = clock::run(cell(loss).link, 7, limit, |network| {
        let work = scenario(network);
        async move { Ok(work.await) }
    });
    done.unwrap()
}

async fn tunnel(network: &Arc<Network>, features: [u64; 2]) -> Tunnel {
    let pair = Pair::offering(features, network, 1, 0, None, 7).unwrap();
    pair.dial().await.unwrap()
}

/// Asks for so many answers, one after the other; how long each took, sorted.
async fn ask(session: &Arc<Session>, count: usize, correction: Correction) -> Vec<f64> {
    let mut took_ms = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        let mut request = services::request(ANSWER, number as u16, Class::Auto);
        request.correction = correction;
        let flow = session.open(request).unwrap();
        let asked = Bytes::copy_from_slice(&ANSWER_BYTES.to_be_bytes());
        flow.write(asked).await.unwrap();
        flow.finish();
        let mut bytes = 0;
        while let Some(more) = flow.read(1 << 16).await.unwrap() {
            bytes += more.len();
        }
        assert_eq!(bytes, ANSWER_BYTES as usize);
        took_ms.push(start.elapsed().as_secs_f64() * 1e3);
        sleep(Duration::from_millis(50)).await;
    }
    took_ms.sort_by(f64::total_cmp);
    took_ms
}

/// Answers of the near side, with some bulk first: loss is learnt from it.
async fn answers(network: Arc<Network>, correction: Correction) -> (Vec<f64>, u64, u64) {
    let tunnel = tunnel(&network, [FEATURE_FEC; 2]).await;
    tunnel.bulk(Way::Forward, 40_000, Some(6_000_000)).unwrap();
    sleep(Duration::from_secs(20)).await;
    let took_ms = ask(&tunnel.far.session, 400, correction).await;
    let near = tunnel.near.session.stats().correction.unwrap();
    let far = tunnel.far.session.stats().correction.unwrap();
    (took_ms, near.repairs, far.recovered)
}

/// With 2 % loss, one answer in seven loses a datagram.
#[test]
fn lost_answers_are_recovered_without_a_round_trip() {
    let (with, repairs, recovered) = run("loss 2%", |network| answers(network, Correction::Auto));
    let (without, none, _) = run("loss 2%", |network| answers(network, Correction::Off));
    let p95 = |times: &[f64]| times[times.len() * 95 / 100];
    assert!(p95(&without) > 4.0 * ONE_WAY_MS, "{}", p95(&without));
    assert!(p95(&with) < 3.0 * ONE_WAY_MS, "{}", p95(&with));
    assert!(repairs > 400, "{repairs} repairs");
    assert!(recovered > 40, "{recovered} recovered");
    assert!(
        none < repairs / 4,
        "{none} repairs of what is not protected"
    );
}

#[test]
fn nothing_is_sent_where_nothing_is_lost() {
    let (_, repairs, recovered) = run("", |network| answers(network, Correction::Auto));
    assert_eq!((repairs, recovered), (0, 0));
}

/// Bulk, and half a minute in which the link is down; then what is known of losses.
async fn cut(network: Arc<Network>, loss: &str) -> Figures {
    let tunnel = tunnel(&network, [FEATURE_FEC; 2]).await;
    tunnel.bulk(Way::Forward, 40_000, None).unwrap();
    sleep(Duration::from_secs(20)).await;
    network.change(&cell("loss 100%").link);
    sleep(Duration::from_secs(30)).await;
    network.change(&cell(loss).link);
    sleep(Duration::from_secs(10)).await;
    tunnel.near.session.stats().correction.unwrap()
}

#[test]
fn what_is_lost_while_the_link_is_down_is_no_loss() {
    let figures = run("", |network| async move { cut(network, "").await });
    assert_eq!(figures.state, CorrectionState::Off);
    assert!(figures.loss < 1e-4, "{}", figures.loss);
    let figures = run("", |network| async move { cut(network, "loss 2%").await });
    assert_eq!(figures.state, CorrectionState::On);
    assert!((0.005..0.03).contains(&figures.loss), "{}", figures.loss);
}

/// An older gateway sends and gets what it always did.
#[test]
fn a_peer_that_did_not_offer_it_gets_plain_quic() {
    for features in [[FEATURE_FEC, 0], [0, FEATURE_FEC]] {
        run("loss 2%", move |network| async move {
            let strange = Arc::new(AtomicUsize::new(0));
            for way in [Way::Forward, Way::Backward] {
                let strange = strange.clone();
                let count = move |datagram: &virtual_time::network::Datagram| {
                    let is_quic = datagram
                        .contents
                        .first()
                        .is_some_and(|first| first & 0x40 != 0);
                    strange.fetch_add(usize::from(!is_quic), Ordering::Relaxed);
                    false
                };
                network.lose(way, Box::new(count));
            }
            let tunnel = tunnel(&network, features).await;
            ask(&tunnel.far.session, 100, Correction::Off).await;
            ask(&tunnel.near.session, 100, Correction::On).await;
            for end in [&tunnel.near, &tunnel.far] {
                assert_eq!(end.session.stats().correction, None);
            }
            // RFC 9287 would hide what is QUIC and what is not.
            assert_eq!(strange.load(Ordering::Relaxed), 0);
        });
    }
}

/// Repairs that are changed, cut or sent again on the way harm nothing.
#[test]
fn repairs_that_were_meddled_with_harm_nothing() {
    run("loss 2% corrupt 2% duplicate 2%", |network| async move {
        let tunnel = tunnel(&network, [FEATURE_FEC; 2]).await;
        tunnel.bulk(Way::Forward, 40_000, Some(3_000_000)).unwrap();
        sleep(Duration::from_secs(20)).await;
        ask(&tunnel.far.session, 100, Correction::On).await;
        assert!(tunnel.far.session.stats().correction.unwrap().recovered > 0);
        assert!(!tunnel.near.session.is_over());
    });
}
