//! Bytes that are no SMB, or not quite: nothing panics, and what can still go opaque passes whole and in order.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use bytes::Bytes;
use farhaul_optimise::{Half, Output, Settings};
use model::client::{Client, Manners, Step};
use model::server::{Server, Terms};
use model::world::World;
use source::{Noise, damage, noise};

const MS: u64 = 1_000_000;

fn settings() -> Settings {
    Settings::of_link(6_480_000, 60 * MS)
}

/// A client and a server with a pair of halves between them, in SMB2 or SMB1.
fn spoken(is_cifs: bool) -> World {
    let open = Step::Open {
        name: "f".to_owned(),
        share: 7,
        oplock: if is_cifs { 9 } else { 0 },
    };
    let read = Step::ReadAll {
        block: 4096,
        outstanding: 2,
    };
    let write = Step::Write {
        offset: 100,
        bytes: vec![1; 3000],
    };
    let steps = vec![open, read, write, Step::Close];
    let terms = Terms {
        is_cifs,
        ..Terms::default()
    };
    let mut server = Server::new(terms);
    server.files.insert("f".to_owned(), vec![noise(1, 40_000)]);
    let manners = Manners {
        asks: 8,
        begins_in_cifs: is_cifs,
        ..Manners::default()
    };
    let client = Client::new(manners, steps);
    let mut world = World::new(client, server, Some(settings()), (6_480_000, 60 * MS));
    world.fed = Some(Vec::new());
    world.run();
    world
}

/// What those two say.
fn conversation(is_cifs: bool) -> Vec<(usize, Vec<u8>)> {
    spoken(is_cifs).tape
}

/// Two halves, and what left them on the outside.
struct Pair {
    halves: [Half; 2],
    /// At the client, at the server.
    delivered: [Vec<u8>; 2],
    is_cut: bool,
}

impl Pair {
    fn new() -> Self {
        Self {
            halves: [Half::near(settings()), Half::far(settings())],
            delivered: [Vec::new(), Vec::new()],
            is_cut: false,
        }
    }

    fn say(&mut self, now_ns: u64, half: usize, bytes: &[u8]) {
        self.halves[half].handle_local(now_ns, Bytes::copy_from_slice(bytes));
        while self.drain(now_ns, 0) | self.drain(now_ns, 1) {}
    }

    fn drain(&mut self, now_ns: u64, half: usize) -> bool {
        let mut has_moved = false;
        loop {
            match self.halves[half].poll_output() {
                Output::Local(bytes) => self.delivered[half].extend_from_slice(&bytes),
                Output::Peer(bytes) => self.halves[1 - half].handle_peer(now_ns, bytes),
                Output::Cut(_) => self.is_cut = true,
                Output::Event(_) | Output::LocalEnd | Output::PeerEnd => (),
                Output::Timeout(_) | Output::Idle => return has_moved,
            }
            has_moved = true;
        }
    }

    /// Both sides talk, each in its turn and in pieces of any size.
    fn talk(&mut self, noise: &mut Noise, said: &[(usize, Vec<u8>)]) {
        let mut now_ns = 0;
        for (half, bytes) in said {
            let mut rest = bytes.as_slice();
            while !self.is_cut && !rest.is_empty() {
                let length = (1 + noise.below(3000) as usize).min(rest.len());
                let (piece, behind) = rest.split_at(length);
                rest = behind;
                now_ns += MS;
                self.say(now_ns, *half, piece);
            }
        }
    }
}

#[test]
fn invariant_6_damaged_messages_do_not_panic() {
    for is_cifs in [false, true] {
        let (cut, opaque, ahead) = damage_many(&conversation(is_cifs));
        assert!(
            cut > 20 && opaque > 20 && ahead > 20,
            "{is_cifs}: {cut} {opaque} {ahead}"
        );
    }
}

/// How many conversations were cut, went opaque, and were read ahead.
fn damage_many(whole: &[(usize, Vec<u8>)]) -> (u32, u32, u32) {
    let (mut cut, mut opaque, mut ahead) = (0, 0, 0);
    for seed in 0..600 {
        let mut noise = Noise::new(seed);
        let mut damaged = whole.to_vec();
        for _ in 0..=noise.below(4) {
            let nth = noise.below(damaged.len() as u64) as usize;
            // A message's head is worth more attention than what it carries.
            let length = damaged[nth].1.len().min(200);
            let behind = damaged[nth].1.split_off(length);
            damage(&mut noise, &mut damaged[nth].1);
            damaged[nth].1.extend(behind);
        }
        let mut pair = Pair::new();
        pair.talk(&mut noise, &damaged);
        cut += u32::from(pair.is_cut);
        opaque += u32::from(!pair.is_cut && pair.halves[1].reason().is_some());
        ahead += u32::from(pair.halves[1].stats().reads_made > 0);
    }
    (cut, opaque, ahead)
}

/// Until reading ahead has begun everything can still pass as it came, whatever it is.
#[test]
fn invariant_3_what_is_no_smb_passes_whole_and_in_order() {
    // NEGOTIATE and SESSION_SETUP, asked and answered: nothing is altered before a session stands.
    let greetings = [false, true].map(|is_cifs| -> Vec<_> {
        let said = conversation(is_cifs).into_iter();
        said.take(3).collect()
    });
    for seed in 0..600 {
        let mut noise = Noise::new(seed);
        let greeting = &greetings[noise.below(2) as usize];
        let mut said = greeting[..noise.below(4) as usize].to_vec();
        for nth in 0..noise.below(6) {
            let length = 1 + noise.below(5000) as usize;
            said.push((
                noise.below(2) as usize,
                self::noise(seed * 10 + nth, length),
            ));
        }
        let mut pair = Pair::new();
        pair.talk(&mut noise, &said);
        pair.halves[0].handle_local_end();
        pair.halves[1].handle_local_end();
        while pair.drain(0, 0) | pair.drain(0, 1) {}
        assert!(!pair.is_cut, "seed {seed}");
        for side in [0, 1] {
            let of_side = said.iter().filter(|(half, _)| *half == side);
            let expected: Vec<u8> = of_side.flat_map(|(_, bytes)| bytes.clone()).collect();
            assert!(
                pair.delivered[1 - side] == expected,
                "seed {seed}: said by {side}"
            );
        }
    }
}

/// A half alone, whose other half is not what it should be.
fn alone(half: usize, heard: &[(usize, bool, Vec<u8>)]) -> (bool, u64, u64) {
    let mut half = match half {
        0 => Half::near(settings()),
        _ => Half::far(settings()),
    };
    let (mut in_bytes, mut out_bytes, mut is_cut, mut now_ns) = (0, 0, false, 0);
    for (_, is_peer, bytes) in heard {
        now_ns += MS;
        in_bytes += bytes.len() as u64;
        match is_peer {
            true => half.handle_peer(now_ns, Bytes::copy_from_slice(bytes)),
            false => half.handle_local(now_ns, Bytes::copy_from_slice(bytes)),
        }
        loop {
            match half.poll_output() {
                Output::Local(bytes) | Output::Peer(bytes) => out_bytes += bytes.len() as u64,
                Output::Cut(_) => is_cut = true,
                Output::Event(_) | Output::LocalEnd | Output::PeerEnd => (),
                Output::Timeout(_) | Output::Idle => break,
            }
        }
        assert!(half.held_bytes() as u64 <= in_bytes, "more than there was");
        if is_cut {
            break;
        }
    }
    (is_cut, in_bytes, out_bytes)
}

#[test]
fn invariant_6_halves_bear_whatever_their_other_half_says() {
    for (is_cifs, half) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let fed = spoken(is_cifs).fed.unwrap();
        let heard: Vec<_> = fed.into_iter().filter(|(of, ..)| *of == half).collect();
        let (is_cut, ..) = alone(half, &heard);
        assert!(!is_cut, "what was never changed");
        let mut cut = 0;
        for seed in 0..600 {
            let mut noise = Noise::new(seed);
            let mut changed = heard.clone();
            for _ in 0..=noise.below(4) {
                let nth = noise.below(changed.len() as u64) as usize;
                let length = changed[nth].2.len().min(200);
                let behind = changed[nth].2.split_off(length);
                damage(&mut noise, &mut changed[nth].2);
                changed[nth].2.extend(behind);
            }
            // Said again, or never.
            let nth = noise.below(changed.len() as u64) as usize;
            match noise.below(4) {
                0 => changed.insert(nth, changed[nth].clone()),
                1 => drop(changed.remove(nth)),
                _ => (),
            }
            let (is_cut, in_bytes, out_bytes) = alone(half, &changed);
            cut += u32::from(is_cut);
            assert!(
                out_bytes < 4 * in_bytes + 100_000,
                "{in_bytes}: {out_bytes}"
            );
        }
        assert!((20..600).contains(&cut), "{is_cifs} {half}: {cut}");
    }
}
