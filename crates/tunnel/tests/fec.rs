//! Forward error correction: any k lost datagrams come back from k repairs' worth of rows, in
//! whatever order things arrive, and nothing that arrives does harm.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

use farhaul_tunnel::fec::*;
use proptest::prelude::*;

/// A datagram of noise: its end is as unpredictable as an authentication tag.
fn datagram(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bytes as u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()[5]
    };
    (0..bytes).map(|_| next()).collect()
}

fn datagrams(sizes: &[usize]) -> Vec<Vec<u8>> {
    let numbered = sizes.iter().enumerate();
    numbered
        .map(|(number, bytes)| datagram(number as u64, *bytes))
        .collect()
}

fn rows(datagram: &[u8]) -> usize {
    datagram.len().div_ceil(ROW_BYTES)
}

fn over_the_wire(repair: &Repair) -> Repair {
    let mut message = Vec::new();
    repair.write(7, &mut message);
    assert!(is_fec(&message));
    let header = Header::read(&message).unwrap();
    assert_eq!((header.channel, header.is_report()), (7, Ok(false)));
    Repair::read(header.fields).unwrap()
}

fn push_all(encoder: &mut Encoder, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        encoder.push(datagram);
    }
}

fn drain(decoder: &mut Decoder) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| decoder.poll_recovered()).collect()
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX,
        Just(DATAGRAM_BYTES_MAX),
        Just(ROW_BYTES),
        Just(ROW_BYTES + 1),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any lost ones of a window come back as soon as there are as many repairs as lost rows, and
    /// not before: the code is as good as there can be.
    #[test]
    fn any_k_lost_come_back_from_k_repairs(
        sizes in prop::collection::vec(size(), 1..=WINDOW_DATAGRAMS_MAX),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 1..=16),
        skipped in 0u16..300,
    ) {
        let sent = datagrams(&sizes);
        let lost: Vec<usize> = lost.iter().map(|index| index.index(sent.len())).collect();
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        // Numbers of repairs start anywhere in their circle.
        encoder.push(&sent[0]);
        for _ in 0..skipped {
            encoder.repair(1);
        }
        let mut encoder_rest = sent.iter().skip(1);
        for (index, datagram) in sent.iter().enumerate() {
            if index > 0 {
                encoder.push(encoder_rest.next().unwrap());
            }
            if !lost.contains(&index) {
                decoder.handle_datagram(datagram);
            }
        }
        let mut missing: Vec<Vec<u8>> = sent
            .iter()
            .enumerate()
            .filter(|(index, _)| lost.contains(index))
            .map(|(_, datagram)| datagram.clone())
            .collect();
        let needed: usize = missing.iter().map(|datagram| rows(datagram)).sum();
        for _ in 1..needed {
            decoder.handle_repair(&over_the_wire(&encoder.repair(sent.len()).unwrap()));
        }
        prop_assert!(decoder.poll_recovered().is_none());
        decoder.handle_repair(&over_the_wire(&encoder.repair(sent.len()).unwrap()));
        let mut recovered = drain(&mut decoder);
        recovered.sort();
        missing.sort();
        prop_assert_eq!(recovered, missing);
        prop_assert_eq!(decoder.waiting(), 0);
    }

    /// A long stream with loss, reordering and duplication of datagrams and repairs: whatever is
    /// recovered was sent, nothing is recovered twice, and little loss leaves nothing behind.
    #[test]
    fn a_sliding_window_over_a_long_stream(
        seed in any::<u64>(),
        loss in 0u8..30,
        sizes in prop::collection::vec(size(), 1..40),
        window in 2usize..=WINDOW_DATAGRAMS_MAX,
    ) {
        let mut state = seed | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut late: Vec<Vec<u8>> = Vec::new();
        let (mut lost, mut recovered) = (Vec::new(), Vec::new());
        let mut all_sent = std::collections::BTreeSet::new();
        let count = 700;
        for number in 0..count {
            let size = sizes[number as usize % sizes.len()];
            let sent = datagram(number, size);
            encoder.push(&sent);
            all_sent.insert(sent.clone());
            match random(100) {
                draw if draw < u64::from(loss) => lost.push(sent),
                draw if draw < u64::from(loss) + 5 => late.push(sent),
                draw if draw < u64::from(loss) + 8 => {
                    decoder.handle_datagram(&sent);
                    decoder.handle_datagram(&sent);
                }
                _ => decoder.handle_datagram(&sent),
            }
            if random(4) == 0 {
                late.drain(..).for_each(|datagram| decoder.handle_datagram(&datagram));
            }
            // As many rows of repairs as of datagrams, a tenth of them lost.
            for _ in 0..2 {
                let repair = encoder.repair(window).unwrap();
                if random(10) > 0 {
                    decoder.handle_repair(&over_the_wire(&repair));
                }
            }
            recovered.extend(drain(&mut decoder));
            prop_assert!(decoder.waiting() <= EQUATIONS_MAX);
        }
        let tally = decoder.tally();
        prop_assert_eq!(tally.wrong, 0);
        prop_assert_eq!(tally.recovered as usize, recovered.len());
        let all: std::collections::BTreeSet<_> = recovered.iter().collect();
        prop_assert_eq!(all.len(), recovered.len());
        for datagram in &recovered {
            prop_assert!(all_sent.contains(datagram));
        }
        // A window that spans many repairs leaves none behind but perhaps the last ones.
        let is_ample = window >= 16 && loss <= 10;
        let settled = if is_ample { lost.len().saturating_sub(4) } else { 0 };
        for datagram in lost.iter().take(settled) {
            prop_assert!(all.contains(datagram), "{} of {} recovered", all.len(), lost.len());
        }
        prop_assert!((count * 9 / 10..=count).contains(&tally.named));
    }

    #[test]
    fn invariant_6_garbage_is_refused_or_harmless(
        bytes in prop::collection::vec(any::<u8>(), 0..1600),
        known in prop::collection::vec(size(), 0..20),
    ) {
        let mut decoder = Decoder::default();
        for datagram in datagrams(&known) {
            decoder.handle_datagram(&datagram);
        }
        decoder.handle_datagram(&bytes);
        if let Ok(header) = Header::read(&bytes) {
            let _ = Report::read(header.fields);
            if let Ok(repair) = Repair::read(header.fields) {
                decoder.handle_repair(&repair);
            }
        }
        if let Ok(repair) = Repair::read(&bytes) {
            decoder.handle_repair(&repair);
        }
        // Nothing that was made of garbage bears a name.
        prop_assert!(drain(&mut decoder).is_empty());
    }

    /// Well-formed repairs full of lies: the work and the memory stay bounded.
    #[test]
    fn invariant_5_lies_stay_within_bounds(
        lies in prop::collection::vec(
            (0u8..=0x7f, any::<u16>(), prop::collection::vec(any::<u32>(), 1..=64), 1usize..=ROW_BYTES),
            1..200,
        ),
    ) {
        let mut decoder = Decoder::default();
        for (x, first, names, sum) in lies {
            let mut fields = vec![x];
            fields.extend(first.to_be_bytes());
            fields.push(names.len() as u8);
            for name in names {
                let length = DATAGRAM_BYTES_MIN as u16 + (name % 1000) as u16;
                fields.extend(name.to_be_bytes());
                fields.extend(length.to_be_bytes());
            }
            fields.extend(datagram(u64::from(x), sum));
            decoder.handle_repair(&Repair::read(&fields).unwrap());
            prop_assert!(decoder.waiting() <= EQUATIONS_MAX);
        }
    }

    #[test]
    fn reports_survive_the_wire(counters in any::<[u32; 7]>(), protects in any::<bool>(), extra in 0usize..9) {
        let [sequence, named, missing, runs, recovered, late, repairs] = counters;
        let report = Report { sequence, protects, named, missing, runs, recovered, late, repairs };
        let mut message = Vec::new();
        report.write(9, &mut message);
        message.resize(message.len() + extra, 0xee);
        let header = Header::read(&message).unwrap();
        prop_assert_eq!((header.channel, header.is_report()), (9, Ok(true)));
        prop_assert_eq!(Report::read(header.fields), Ok(report));
    }
}

#[test]
fn numbers_wrap_around() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for number in 0..200_000u64 {
        let sent = datagram(number, 40);
        encoder.push(&sent);
        if number % 10 != 3 {
            decoder.handle_datagram(&sent);
        }
        if number % 10 == 9 {
            decoder.handle_repair(&over_the_wire(&encoder.repair(10).unwrap()));
            assert_eq!(drain(&mut decoder), [datagram(number - 6, 40)]);
        }
    }
    let tally = decoder.tally();
    assert_eq!(
        (tally.named, tally.missing, tally.runs),
        (200_000, 20_000, 20_000)
    );
}

#[test]
fn a_datagram_that_leaves_the_window_is_not_covered_any_more() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let sent = datagrams(&[500; WINDOW_DATAGRAMS_MAX + 1]);
    for (index, datagram) in sent.iter().enumerate() {
        encoder.push(datagram);
        if index > 0 {
            decoder.handle_datagram(datagram);
        }
    }
    let repair = encoder.repair(usize::MAX).unwrap();
    decoder.handle_repair(&over_the_wire(&repair));
    assert_eq!(decoder.tally().named, WINDOW_DATAGRAMS_MAX as u64);
    assert_eq!(decoder.tally().needless, 1);
    assert_eq!(encoder.datagrams(), WINDOW_DATAGRAMS_MAX);
}

#[test]
fn a_repair_that_overtakes_its_datagrams_waits_for_them() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let sent = datagrams(&[300, 1472, 800]);
    push_all(&mut encoder, &sent);
    decoder.handle_repair(&over_the_wire(&encoder.repair(3).unwrap()));
    decoder.handle_repair(&over_the_wire(&encoder.repair(3).unwrap()));
    assert!(drain(&mut decoder).is_empty());
    decoder.handle_datagram(&sent[0]);
    decoder.handle_datagram(&sent[2]);
    assert_eq!(drain(&mut decoder), [sent[1].clone()]);
    assert_eq!(decoder.tally().late, 0);
    decoder.handle_datagram(&sent[1]);
    assert_eq!((decoder.tally().recovered, decoder.tally().late), (1, 1));
}

#[test]
fn small_datagrams_make_small_repairs() {
    let mut encoder = Encoder::default();
    push_all(&mut encoder, &datagrams(&[60, 90, 30]));
    let mut message = Vec::new();
    encoder.repair(3).unwrap().write(1, &mut message);
    assert!(
        message.len() <= HEADER_BYTES + 4 + 3 * 6 + 90,
        "{}",
        message.len()
    );
}

#[test]
fn the_largest_repair_fits_the_smallest_path() {
    let mut encoder = Encoder::default();
    let sent = datagrams(&[DATAGRAM_BYTES_MAX; WINDOW_DATAGRAMS_MAX]);
    push_all(&mut encoder, &sent);
    let mut message = Vec::new();
    encoder.repair(usize::MAX).unwrap().write(1, &mut message);
    assert!(message.len() <= 1200, "{}", message.len()); // RFC 9000 section 14
}

#[test]
fn datagrams_without_a_tag_or_too_long_are_not_covered() {
    let mut encoder = Encoder::default();
    for bytes in [
        0,
        1,
        DATAGRAM_BYTES_MIN - 1,
        DATAGRAM_BYTES_MAX + 1,
        2047,
        2048 + 100,
        65_000,
    ] {
        assert_eq!(encoder.push(&datagram(1, bytes)), 0);
    }
    assert_eq!(encoder.datagrams(), 0);
    assert_eq!(encoder.repair(1), None);
    assert_eq!(encoder.push(&datagram(1, DATAGRAM_BYTES_MAX)), 2);
    assert_eq!(encoder.push(&datagram(1, ROW_BYTES)), 1);
}

/// A sum that is not that of the datagrams it names: what is put together bears another name.
#[test]
fn a_wrong_sum_gives_nothing() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let sent = datagrams(&[100, 100]);
    push_all(&mut encoder, &sent);
    decoder.handle_datagram(&sent[0]);
    let mut message = Vec::new();
    encoder.repair(2).unwrap().write(1, &mut message);
    *message.last_mut().unwrap() ^= 1;
    let fields = Header::read(&message).unwrap().fields;
    decoder.handle_repair(&Repair::read(fields).unwrap());
    assert!(drain(&mut decoder).is_empty());
    assert_eq!((decoder.tally().recovered, decoder.tally().wrong), (0, 1));
}

#[test]
fn a_decoder_that_rested_goes_on() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let sent = datagrams(&[100, 200, 300]);
    push_all(&mut encoder, &sent);
    decoder.handle_datagram(&sent[0]);
    decoder.rest();
    decoder.handle_datagram(&sent[1]);
    decoder.handle_repair(&encoder.repair(2).unwrap());
    assert_eq!(drain(&mut decoder), [sent[2].clone()]);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// invariant 10: wire bytes change only with another type of message or another feature bit.
#[test]
fn invariant_10_messages_are_these_bytes() {
    let mut encoder = Encoder::default();
    encoder.repair(1);
    let first: Vec<u8> = (0..20).collect();
    let second: Vec<u8> = (100..117).collect();
    encoder.push(&first);
    encoder.push(&second);
    let mut message = Vec::new();
    encoder.repair(2).unwrap().write(0x0102_0304, &mut message);
    Header::seal(&mut message, &[0xaa; 32]);
    assert_eq!(hex(&message), GOLDEN_REPAIR.replace(' ', ""));
    let report = Report {
        sequence: 1,
        protects: true,
        named: 2,
        missing: 3,
        runs: 4,
        recovered: 5,
        late: 6,
        repairs: 7,
    };
    report.write(0x0102_0304, &mut message);
    Header::seal(&mut message, &[0xbb; 8]);
    assert_eq!(hex(&message), GOLDEN_REPORT.replace(' ', ""));
}

/// Type, channel, tag, x, first, count, two names, sum.
const GOLDEN_REPAIR: &str = "0c 01020304 aaaaaaaaaaaaaaaa 00 0000 02 10111213 0014 71727374 0011 \
     08b261dbbb01d268b10bd862c07aa91367b69b80";
const GOLDEN_REPORT: &str = "0d 01020304 bbbbbbbbbbbbbbbb 00000001 01 \
     00000002 00000003 00000004 00000005 00000006 00000007";
