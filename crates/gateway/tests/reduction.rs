//! Reduction through two tunnels' ends in one process, over loopback: records, the talk about them, and tunnels that come and go.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod harm;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::config::meaning::Tunnel;
use farhaul_gateway::keys::{PrivateKey, PublicKey};
use farhaul_gateway::quic::Endpoint;
use farhaul_gateway::reduction::{self, Disk, Store};
use farhaul_gateway::session::{FlowHandle, Incoming, Session, SessionEnd, SessionParts};
use farhaul_tunnel::{
    Class, Correction, FEATURE_LEVELS, FEATURE_REDUCTION, Hello, Limits, OpenRequest,
    PROTOCOL_VERSIONS, PathSettings, Payload, ResetCode, Side, Target,
};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(300);
const MEMORY_BYTES: u64 = 64 << 20;
const FILE_BYTES: usize = 1 << 20;
/// Times that files are harmed.
const HARMS: u64 = 24;

struct Site {
    endpoint: Endpoint,
    key: PublicKey,
    store: Arc<Store>,
    instance: u128,
    /// The feature, or 0.
    levels: u64,
}

fn config() -> Tunnel {
    Tunnel {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        resume_max: Duration::from_secs(30),
        keep_alive: Duration::from_millis(500),
        dead_after: Duration::from_secs(10),
        open_timeout: Duration::from_secs(10),
        drain: Duration::from_secs(1),
        flows_max: 1000,
    }
}

impl Site {
    fn new(instance: u128) -> Self {
        let key = PrivateKey::generate().unwrap();
        Self {
            key: key.public(),
            endpoint: Endpoint::bind(&config(), key).unwrap(),
            store: Store::new(MEMORY_BYTES),
            instance,
            levels: FEATURE_LEVELS,
        }
    }

    async fn start(&self, connection: noq::Connection, side: Side) -> End {
        let (session, incoming) = Session::start(SessionParts {
            peer: format!("{side:?}"),
            connection,
            side,
            hello: Hello {
                versions: PROTOCOL_VERSIONS,
                instance: self.instance,
                site: "test".to_owned(),
                features: FEATURE_REDUCTION | self.levels,
            },
            limits: Limits::default(),
            mark: Arc::default(),
            path: PathSettings::default(),
            keep_alive: config().keep_alive,
            aliases: None,
            nudge: self.endpoint.nudge(),
            pauses: self.endpoint.pauses.clone(),
        });
        End { session, incoming }
    }
}

struct End {
    session: Arc<Session>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
}

/// Two sites, and the tunnel they have at present.
struct Pair {
    sites: [Site; 2],
    a: Arc<Session>,
    flows: mpsc::UnboundedReceiver<FlowHandle>,
}

impl Pair {
    async fn new() -> Self {
        let sites = [Site::new(1), Site::new(2)];
        sites[1].endpoint.pinned.replace([sites[0].key]);
        let (a, flows) = connect(&sites).await;
        Self { sites, a, flows }
    }

    async fn connect_again(&mut self) {
        self.a.close(SessionEnd::Closed);
        (self.a, self.flows) = connect(&self.sites).await;
    }

    /// A file to the far site and back; what the records of the way there came to.
    async fn exchange(&mut self, file: &Bytes) -> u64 {
        self.exchange_as(file, request()).await
    }

    async fn exchange_as(&mut self, file: &Bytes, request: OpenRequest) -> u64 {
        let figures = || self.sites[0].store.figures();
        let before = figures();
        let near = self.a.open(request).unwrap();
        let far = self.flows.recv().await.unwrap();
        let (far, near) = tokio::join!(turn_about(far), ask(near, file.clone()));
        far.unwrap();
        assert!(near.unwrap() == *file, "a wrong byte");
        let after = figures();
        assert_eq!(after.input_bytes - before.input_bytes, file.len() as u64);
        after.records_bytes - before.records_bytes
    }

    /// A site starts again: what is in its memory is gone, what is on disk is not.
    async fn restart(&mut self, site: usize) {
        self.stop(site).await;
        self.start(site);
    }

    async fn stop(&mut self, site: usize) {
        let old = std::mem::replace(&mut self.sites[site].store, Store::new(0));
        tokio::task::spawn_blocking(move || old.stop())
            .await
            .unwrap();
    }

    fn start(&mut self, site: usize) {
        self.sites[site].store = Store::with_disk(MEMORY_BYTES, Some(self.disk(site)));
    }

    /// With little memory and a large disk.
    async fn start_small(&mut self, site: usize) {
        self.stop(site).await;
        let disk = Disk {
            size_bytes: 16 * MEMORY_BYTES,
            ..self.disk(site)
        };
        self.sites[site].store = Store::with_disk(MEMORY_BYTES / 2, Some(disk));
    }

    /// What is not held yet pins so little memory soon, and what finds no room is not remembered: lets the peer tell.
    async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// These files left the memory; next to nothing of them is sent again.
    async fn assert_on_disk(&mut self, seeds: std::ops::Range<u64>) {
        let mut costs = Vec::new();
        for seed in seeds {
            costs.push(self.exchange(&file(2 * seed)).await);
            self.rest().await;
        }
        let all_bytes = costs.len() as u64 * FILE_BYTES as u64;
        assert!(costs.iter().sum::<u64>() < all_bytes / 4, "{costs:?}");
    }

    fn disk(&self, site: usize) -> Disk {
        let instance = self.sites[site].instance;
        let path = std::env::temp_dir().join(format!("fh-disk-{}-{instance}", std::process::id()));
        Disk {
            path,
            size_bytes: MEMORY_BYTES,
            // However slow this machine is.
            read_within: PATIENCE,
        }
    }

    /// A new tunnel; waits until both sites have begun anew and read back what they had of both directions.
    async fn connect_warm(&mut self) {
        let figures = |site: &Site| site.store.figures();
        let before: Vec<u32> = self.sites.iter().map(|site| figures(site).begun).collect();
        self.connect_again().await;
        for (site, before) in self.sites.iter().zip(before) {
            // A little of the file may be known without being kept: small records are sent as they are.
            let enough_bytes = 2 * FILE_BYTES as u64 / 50 * 49;
            while figures(site).begun == before || figures(site).warmed_bytes < enough_bytes {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let warmed = || self.sites.each_ref().map(|site| figures(site).warmed_bytes);
        let mut before = [0; 2];
        while before != warmed() {
            before = warmed();
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    }

    /// Waits until a log has begun in each direction, the first of these stores.
    async fn begin(&self) {
        let begun = |site: &Site| site.store.figures().begun > 0;
        while !self.sites.iter().all(begun) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Exchanges until the file is known at the other end.
    async fn assert_known(&mut self, file: &Bytes) {
        while self.exchange(file).await > file.len() as u64 / 100 {}
    }
}

async fn connect(sites: &[Site; 2]) -> (Arc<Session>, mpsc::UnboundedReceiver<FlowHandle>) {
    let address = sites[1].endpoint.local_address().unwrap();
    let dialled = sites[0].endpoint.dial(address, sites[1].key, PATIENCE);
    let answered = async {
        let incoming = sites[1].endpoint.accept().await.unwrap();
        Endpoint::admit(incoming, PATIENCE).await
    };
    let (dialled, answered) = tokio::join!(dialled, answered);
    let a = sites[0].start(dialled.unwrap(), Side::Dialer).await;
    let b = sites[1].start(answered.unwrap().0, Side::Acceptor).await;
    for (end, site, side) in [
        (&a, &sites[0], Side::Dialer),
        (&b, &sites[1], Side::Acceptor),
    ] {
        let negotiated = end.session.greeted().await.unwrap();
        assert_ne!(negotiated.features & FEATURE_REDUCTION, 0);
        end.session.reduce(&site.store, side);
    }
    let (accepted, flows) = mpsc::unbounded_channel();
    tokio::spawn(serve(b, accepted));
    (a.session, flows)
}

async fn serve(mut end: End, accepted: mpsc::UnboundedSender<FlowHandle>) {
    while let Some(incoming) = end.incoming.recv().await {
        match incoming.request.payload {
            Payload::Channel => end.session.serve_channel(incoming),
            _ => drop(accepted.send(incoming.accept(&end.session))),
        }
    }
}

fn request() -> OpenRequest {
    request_at(None)
}

fn request_at(level: Option<i8>) -> OpenRequest {
    OpenRequest {
        client: SocketAddr::from(([10, 1, 0, 2], 40_000)),
        target: Target::Address(SocketAddr::from(([10, 2, 0, 2], 80))),
        keep_client_address: true,
        class: Class::Auto,
        dscp: 0,
        correction: Correction::Auto,
        items: false,
        payload: Payload::Records {
            eliminated: true,
            compressed: true,
            level,
        },
    }
}

/// Sends a file and reads what comes back.
async fn ask(flow: FlowHandle, file: Bytes) -> Result<Vec<u8>, ResetCode> {
    let (mut out, mut back) = reduction::of(&flow);
    let send = async {
        for start in (0..file.len()).step_by(50_000) {
            let part = file.slice(start..file.len().min(start + 50_000));
            out.send(&flow, part).await?;
        }
        flow.finish();
        Ok(out)
    };
    let receive = async {
        let mut all = Vec::new();
        while let Some(bytes) = back.next(&flow).await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    };
    let (out, all) = tokio::try_join!(send, receive)?;
    out.settle();
    Ok(all)
}

/// Returns what comes.
async fn turn_about(flow: FlowHandle) -> Result<(), ResetCode> {
    let (mut out, mut back) = reduction::of(&flow);
    while let Some(bytes) = back.next(&flow).await? {
        out.send(&flow, bytes).await?;
    }
    flow.finish();
    out.settle();
    Ok(())
}

fn file(seed: u64) -> Bytes {
    let mut state = seed | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..FILE_BYTES).map(|_| next()).collect()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("hangs")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_costs_little_also_in_the_next_tunnel() {
    within(async {
        let mut pair = Pair::new().await;
        let file = file(1);
        assert!(pair.exchange(&file).await > FILE_BYTES as u64);
        pair.assert_known(&file).await;
        pair.connect_again().await;
        pair.assert_known(&file).await;
        let figures = pair.sites[0].store.figures();
        assert_eq!((figures.begun, figures.asked), (1, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_is_asked_for_is_kept_to_in_both_directions() {
    within(async {
        let mut pair = Pair::new().await;
        let levels = |pair: &Pair| pair.sites.each_ref().map(|site| site.store.figures().level);
        assert_eq!(levels(&pair), [None, None]);
        pair.exchange_as(&file(1), request_at(Some(19))).await;
        assert_eq!(levels(&pair), [Some(19), Some(19)]);
        // Noise, as the files are, is not compressed by who may choose.
        pair.exchange(&file(2)).await;
        assert_eq!(levels(&pair), [Some(0), Some(0)]);
        // An older peer hears nothing of it.
        pair.sites[1].levels = 0;
        pair.connect_again().await;
        pair.exchange_as(&file(4), request_at(Some(-3))).await;
        assert_eq!(levels(&pair), [Some(-3), Some(0)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_lost_its_memory_begins_anew() {
    within(async {
        let mut pair = Pair::new().await;
        let file = file(2);
        pair.exchange(&file).await;
        pair.assert_known(&file).await;
        for lost in [1, 0] {
            pair.sites[lost].store = Store::new(MEMORY_BYTES);
            pair.connect_again().await;
            assert!(pair.exchange(&file).await > FILE_BYTES as u64);
            pair.assert_known(&file).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_cleared_under_way_costs_repeats_and_no_byte() {
    within(async {
        let mut pair = Pair::new().await;
        let file = file(3);
        pair.exchange(&file).await;
        pair.assert_known(&file).await;
        for _ in 0..5 {
            let reduction = pair.a.reduction().unwrap().clone();
            let clear = async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                reduction.clear();
            };
            tokio::join!(pair.exchange(&file), clear);
        }
        pair.assert_known(&file).await;
        assert!(pair.sites[0].store.figures().begun >= 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_writes_pass_as_they_are() {
    within(async {
        let mut pair = Pair::new().await;
        let records_bytes = pair.exchange(&Bytes::from_static(b"x")).await;
        assert_eq!(records_bytes, 5, "a length, a kind and the byte");
    })
    .await;
}

/// A flow that is cut in the middle leaves the others and what is known as they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_is_cut_harms_nobody() {
    within(async {
        let mut pair = Pair::new().await;
        let file = file(4);
        let near = pair.a.open(request()).unwrap();
        let far = pair.flows.recv().await.unwrap();
        let (mut out, _back) = reduction::of(&near);
        // Less than the peer takes of a flow that nobody reads.
        out.send(&near, file.slice(..500_000)).await.unwrap();
        far.reset(ResetCode::Application);
        drop((out, far, near));
        pair.exchange(&file).await;
        pair.assert_known(&file).await;
    })
    .await;
}

/// Either site starts again, then both: what passed before is known at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_starts_again_knows_what_it_had_on_disk() {
    within(async {
        let mut pair = Pair::new().await;
        (pair.sites[0].instance, pair.sites[1].instance) = (11, 12);
        for site in [0, 1] {
            pair.restart(site).await;
        }
        pair.connect_again().await;
        let file = file(5);
        pair.exchange(&file).await;
        pair.assert_known(&file).await;
        for restarted in [&[0usize] as &[usize], &[1], &[0, 1]] {
            for &site in restarted {
                pair.restart(site).await;
            }
            pair.connect_warm().await;
            let cost = pair.exchange(&file).await;
            println!("{restarted:?}: {cost} bytes for {FILE_BYTES}");
            assert!(cost < FILE_BYTES as u64 / 50, "{restarted:?}: {cost}");
        }
        let figures = pair.sites[0].store.figures();
        let disk = figures.disk.unwrap();
        assert_eq!((figures.asked, disk.bad_blocks, disk.failed), (0, 0, 0));
        assert_eq!(disk.problem, None);
        // A site whose disk is cleared begins anew, and nobody waits for what is gone.
        pair.sites[1].store.forget();
        let store = pair.sites[1].store.clone();
        tokio::task::spawn_blocking(move || store.clear_disk())
            .await
            .unwrap()
            .unwrap();
        pair.restart(1).await;
        pair.connect_again().await;
        assert!(pair.exchange(&file).await > FILE_BYTES as u64);
        pair.assert_known(&file).await;
        for site in [0, 1] {
            pair.stop(site).await;
            std::fs::remove_dir_all(pair.disk(site).path).unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_counted_until_it_is_durable() {
    within(async {
        let mut pair = Pair::new().await;
        (pair.sites[0].instance, pair.sites[1].instance) = (41, 42);
        for site in [0, 1] {
            pair.restart(site).await;
        }
        pair.connect_again().await;
        // What passes before the two have agreed on a log is in none.
        pair.begin().await;
        pair.exchange(&file(9)).await;
        let store = pair.sites[0].store.clone();
        pair.stop(0).await;
        let disk = store.figures().disk.unwrap();
        assert!(disk.synced >= 2, "of both directions: {disk:?}");
        assert_eq!((disk.unsynced, disk.is_syncing), (0, false));
        pair.stop(1).await;
        for site in [0, 1] {
            std::fs::remove_dir_all(pair.disk(site).path).unwrap();
        }
    })
    .await;
}

/// Memory for a dozen files and a disk for all: what has left the memory is read back when it comes again, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_memory_is_read_back_from_disk() {
    const FILES: u64 = 40;
    within(async {
        let mut pair = Pair::new().await;
        for site in [0, 1] {
            pair.sites[site].instance = 31 + site as u64 as u128;
            pair.start_small(site).await;
        }
        pair.connect_again().await;
        for seed in 0..FILES {
            pair.exchange(&file(2 * seed)).await;
            pair.rest().await;
            pair.assert_known(&file(2 * seed)).await;
            pair.rest().await;
        }
        let figures = |pair: &Pair| pair.sites.each_ref().map(|site| site.store.figures());
        let saved = |pair: &Pair| figures(pair).map(|figures| figures.disk.unwrap().saved_bytes);
        let mut before = [0; 2];
        while before != saved(&pair) {
            before = saved(&pair);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(
            before[0] >= FILES * FILE_BYTES as u64 / 50 * 49,
            "{before:?}"
        );
        pair.assert_on_disk(0..8).await;
        let asked = pair.sites[0].store.figures().asked;
        assert_eq!(asked, 0, "nothing was referred to in vain");
        for site in [0, 1] {
            pair.start_small(site).await;
        }
        pair.connect_warm().await;
        pair.assert_on_disk(8..16).await;
        for site in [0, 1] {
            std::fs::remove_dir_all(pair.disk(site).path).unwrap();
        }
    })
    .await;
}

/// Both gateways stop, something happens to their files, and they start again: what passes is right, whatever they believe to know. When
/// nothing more happens they are warm again.
#[tokio::test(flavor = "multi_thread")]
async fn invariant_6_stores_whose_files_were_harmed_cost_time_and_never_a_wrong_byte() {
    within(async {
        let mut pair = Pair::new().await;
        (pair.sites[0].instance, pair.sites[1].instance) = (21, 22);
        for site in [0, 1] {
            pair.restart(site).await;
        }
        pair.connect_again().await;
        let file = file(6);
        let mut dice = harm::Dice(6);
        let folders = [0, 1].map(|site| pair.disk(site).path);
        let copies = [0, 1].map(|site| folders[site].with_extension("old"));
        for round in 0..HARMS {
            pair.exchange(&file).await;
            for site in [0, 1] {
                pair.stop(site).await;
            }
            for _ in 0..1 + dice.below(3) {
                let site = dice.below(2) as usize;
                let (own, other) = (&folders[site], &folders[1 - site]);
                let what = harm::harm(own, other, &copies[site], &mut dice);
                println!("{round}: {what}");
            }
            if round % 5 == 2 {
                for (folder, copy) in folders.iter().zip(&copies) {
                    harm::copy(folder, copy);
                }
            }
            for site in [0, 1] {
                pair.start(site);
            }
            pair.connect_again().await;
        }
        pair.assert_known(&file).await;
        for site in [0, 1] {
            pair.restart(site).await;
        }
        pair.connect_warm().await;
        let cost = pair.exchange(&file).await;
        assert!(cost < FILE_BYTES as u64 / 50, "{cost}");
        for folder in folders.iter().chain(&copies) {
            std::fs::remove_dir_all(folder).unwrap();
        }
    })
    .await;
}
