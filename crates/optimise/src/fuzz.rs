//! Where fuzzers come in: what must hold for any bytes from a client, from a server or from the other half. The tests below do it
//! with true messages that were changed; `tests/hostile.rs` does it with whole conversations.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failure is what is looked for

use bytes::Bytes;

use crate::smb::message::Message;
use crate::smb::netbios::{Packets, Piece};
use crate::smb::smb1::header::{Block, blocks, first_block};
use crate::smb::smb1::{
    connect as old_connect, header as old_header, open as old_open, transfer as old_transfer,
};
use crate::smb::smb2::breaks::Break;
use crate::smb::smb2::header::messages;
use crate::smb::smb2::{connect, header, open, query, transfer};

/// No true message is longer; what is longer is cut at fields of 16 bits when it is written again.
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// What can be read is written, read again, and is the same. Evaluates to how many that were.
macro_rules! again {
    ($source:expr, $head:expr, $reread:expr, $($kind:ty),+) => {{
        let mut read = 0;
        $(if let Ok(value) = <$kind>::parse($source) {
            let mut written = $head.to_vec();
            value.emit(&mut written);
            assert_eq!(<$kind>::parse(&$reread(&written)), Ok(value));
            read += 1;
        })+
        read
    }};
}

/// A packet of SMB2 messages. How many things could be read out of it.
pub fn modern(packet: &[u8]) -> usize {
    let places = messages(packet).unwrap_or_default();
    let of_place = |(start, end): (usize, usize)| modern_message(&packet[start..end]);
    places.into_iter().map(of_place).sum()
}

fn modern_message(message: &[u8]) -> usize {
    let head = header::Header::parse(message).expect("there is one in each place");
    let mut written = Vec::new();
    head.emit(&mut written);
    assert_eq!(header::Header::parse(&written), Ok(head));
    if message.len() > MESSAGE_BYTES_MAX {
        return 0;
    }
    modern_opens(message, &written)
        + again!(
            message,
            written,
            as_it_is,
            connect::SessionSetupRequest,
            connect::SessionSetupResponse,
            connect::TreeConnectRequest,
            connect::TreeConnectResponse,
            open::CloseRequest,
            open::CloseResponse,
            open::CreateResponse,
            transfer::ReadRequest,
            transfer::ReadResponse<'_>,
            transfer::WriteRequest<'_>,
            transfer::WriteResponse,
            query::QueryDirectoryRequest,
            query::QueryInfoRequest,
            query::QueryResponse<'_>,
            Break
        )
        + listings(message)
}

/// An answer as each kind of listing: whatever it tells, the names are no longer than it is. How many kinds it could be.
fn listings(message: &[u8]) -> usize {
    let answer = query::QueryResponse::parse(message);
    let data = answer.map_or(&[][..], |answer| answer.data);
    let told = (1..=64).map(|class| query::entries(class, data));
    told.filter(|entries| {
        let names_bytes: usize = entries.iter().map(|entry| entry.name.len()).sum();
        assert!(names_bytes <= data.len(), "piled up");
        !entries.is_empty()
    })
    .count()
}

/// Those that are aligned within their packet.
fn modern_opens(message: &[u8], head: &[u8]) -> usize {
    let mut read = 0;
    let mut written = head.to_vec();
    if let Ok(create) = open::CreateRequest::parse(message) {
        let lengths = create
            .contexts
            .iter()
            .map(|it| it.name.len() + it.data.len());
        assert!(lengths.sum::<usize>() <= 2 * message.len(), "piled up");
        create.emit(0, &mut written);
        assert_eq!(open::CreateRequest::parse(&written), Ok(create));
        read += 1;
    }
    written.truncate(head.len());
    if let Ok(negotiate) = connect::NegotiateRequest::parse(message) {
        negotiate.emit(0, &mut written);
        assert_eq!(connect::NegotiateRequest::parse(&written), Ok(negotiate));
        read += 1;
    }
    written.truncate(head.len());
    if let Ok(negotiated) = connect::NegotiateResponse::parse(message) {
        negotiated.emit(0, &mut written);
        assert_eq!(connect::NegotiateResponse::parse(&written), Ok(negotiated));
        read += 1;
    }
    read
}

/// A message of SMB1. How many things could be read out of it.
pub fn old(message: &[u8]) -> usize {
    let Ok(head) = old_header::Header::parse(message) else {
        return 0;
    };
    let mut written = Vec::new();
    head.emit(&mut written);
    // Two bytes of it are reserved.
    assert_eq!(old_header::Header::parse(&written), Ok(head));
    let blocks = blocks(message).unwrap_or_default();
    blocks
        .iter()
        .map(|block| old_block(message, block, &written))
        .sum()
}

fn old_block(message: &[u8], block: &Block<'_>, head: &[u8]) -> usize {
    // What they point to lies in the message.
    if let Ok(Ok(data)) = old_transfer::ReadHead::parse(block).map(|read| read.data(message)) {
        assert!(data.len() <= message.len());
    }
    if let Ok(Ok(data)) = old_transfer::WriteHead::parse(block).map(|write| write.data(message)) {
        assert!(data.len() <= message.len());
    }
    again!(
        block,
        head,
        block_of,
        old_connect::NegotiateRequest,
        old_connect::NegotiateResponse,
        old_connect::SessionSetupRequest,
        old_open::NtCreateRequest,
        old_open::NtCreateResponse,
        old_open::CloseRequest,
        old_open::FlushRequest,
        old_open::LockingRequest,
        old_transfer::ReadRequest,
        old_transfer::WriteResponse
    )
}

fn as_it_is(written: &[u8]) -> &[u8] {
    written
}

fn block_of(written: &[u8]) -> Block<'_> {
    first_block(written).expect("it was written")
}

/// A message of one half to the other. Whether it is one.
pub fn between_halves(payload: &[u8]) -> bool {
    let read = Message::decode(&Bytes::copy_from_slice(payload));
    if let Ok(message) = &read {
        assert_eq!(Message::decode(&message.encode().into()), read);
    }
    read.is_ok()
}

/// A stream of packets that comes `cut` by `cut`: what is handed over and what is held are the stream. How many packets that was.
pub fn stream(stream: &[u8], cut: usize) -> usize {
    let mut packets = Packets::default();
    let (mut seen, mut count) = (Vec::new(), 0);
    'all: for part in stream.chunks(cut.max(1)) {
        packets.push(part);
        loop {
            match packets.poll() {
                Ok(Some(piece)) => {
                    count += usize::from(!matches!(piece, Piece::Rest(_)));
                    let (Piece::Message(bytes)
                    | Piece::Beginning(bytes)
                    | Piece::Rest(bytes)
                    | Piece::Service(bytes)) = piece;
                    seen.extend_from_slice(&bytes);
                }
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
    }
    seen.extend_from_slice(&packets.take_held());
    assert!(stream.starts_with(&seen), "other bytes, or another order");
    count
}

#[cfg(test)]
#[path = "../tests/source/mod.rs"]
mod source;

#[cfg(test)]
mod tests {
    use super::source::{Noise, damage};
    use super::*;
    use crate::smb::netbios::packet;

    fn emitted(body: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut message = Vec::new();
        header::Header::request(header::Command::Create, 4, 5, 6).emit(&mut message);
        body(&mut message);
        message
    }

    /// True messages of SMB2, before there is a session.
    fn greetings() -> Vec<Vec<u8>> {
        let context = connect::NegotiateContext {
            kind: 1,
            data: vec![1; 38],
        };
        let negotiate = connect::NegotiateRequest {
            security_mode: 1,
            capabilities: 4,
            client: [9; 16],
            dialects: vec![0x0202, 0x0210, 0x0311],
            contexts: vec![context.clone(), context.clone()],
        };
        let negotiated = connect::NegotiateResponse {
            security_mode: 1,
            dialect: 0x0311,
            server: [8; 16],
            capabilities: 4,
            transact_bytes_max: 1 << 20,
            read_bytes_max: 1 << 20,
            write_bytes_max: 1 << 20,
            time: 7,
            started: 8,
            token: vec![3; 20],
            contexts: vec![context],
        };
        let (flags, token) = (0, vec![7; 30]);
        let setup = connect::SessionSetupResponse { flags, token };
        vec![
            emitted(|out| negotiate.emit(0, out)),
            emitted(|out| negotiated.emit(0, out)),
            emitted(|out| setup.emit(out)),
        ]
    }

    /// And of files.
    fn modern_bodies() -> Vec<Vec<u8>> {
        let file = open::FileId {
            persistent: 1,
            volatile: 2,
        };
        let lease = open::Lease {
            key: [5; 16],
            state: 7,
            flags: 0,
            parent: Some(([6; 16], 3)),
        };
        let durable = open::CreateContext {
            name: b"DHnQ".to_vec(),
            data: vec![0; 16],
        };
        let create = open::CreateRequest {
            oplock: 9,
            impersonation: 2,
            access: 3,
            attributes: 0,
            share: 7,
            disposition: 1,
            options: 0x40,
            name: b"a\0b\0".to_vec(),
            contexts: vec![lease.context(), durable],
        };
        let created = open::CreateResponse {
            oplock: 9,
            flags: 0,
            action: 1,
            facts: open::FileFacts::default(),
            file,
            contexts: create.contexts.clone(),
        };
        let write = transfer::WriteRequest {
            offset: 7,
            file,
            channel: 0,
            remaining: 0,
            flags: 0,
            data: &[4; 60],
        };
        let (remaining, data) = (0, &[4; 60][..]);
        let read = transfer::ReadResponse { remaining, data };
        let mut all = greetings();
        all.push(emitted(|out| create.emit(0, out)));
        all.push(emitted(|out| created.emit(out)));
        all.push(emitted(|out| write.emit(out)));
        all.push(emitted(|out| read.emit(out)));
        all.extend(listed_bodies(file));
        all
    }

    /// And of folders.
    fn listed_bodies(file: open::FileId) -> Vec<Vec<u8>> {
        let directory = query::QueryDirectoryRequest {
            class: query::CLASS_ID_BOTH,
            flags: 0,
            file,
            pattern: vec![b'*', 0],
            output_bytes_max: 65_536,
        };
        let info = query::QueryInfoRequest {
            kind: query::INFO_FILE,
            class: 18,
            output_bytes_max: 4096,
            input_bytes: 0,
            file,
        };
        let named = |letter: u8| query::Entry {
            name: [letter, 0].repeat(20),
            size_bytes: 9,
            attributes: 0x20,
        };
        let data = query::listing(&[named(b'a'), named(b'b'), named(b'c')]);
        vec![
            emitted(|out| directory.emit(out)),
            emitted(|out| info.emit(out)),
            emitted(|out| query::QueryResponse { data: &data }.emit(out)),
        ]
    }

    /// Those in one packet.
    fn compounded() -> Vec<u8> {
        let mut bodies = modern_bodies();
        let last = bodies.len() - 1;
        for body in &mut bodies[..last] {
            body.resize(body.len().next_multiple_of(8), 0);
            let next = (body.len() as u32).to_le_bytes();
            body[20..24].copy_from_slice(&next);
        }
        bodies.concat()
    }

    /// True messages of SMB1; the last is a chain of two.
    fn old_messages() -> Vec<Vec<u8>> {
        let (chain, words) = (old_header::chain_end(), [0; 64]);
        let emit = |command: u8, body: &dyn Fn(&mut Vec<u8>)| {
            let mut message = Vec::new();
            let head = [&old_header::MARK[..], &[command], &[0; 27]].concat();
            let head = old_header::Header::parse(&head).unwrap();
            head.emit(&mut message);
            body(&mut message);
            message
        };
        let chained = |count: usize| [&chain[..], &words[..2 * count - 4]].concat();
        // Where the second block is.
        let linked = [
            &[old_header::READ_ANDX, 0, 32 + 3 + 48 + 4, 0][..],
            &words[..44],
        ]
        .concat();
        vec![
            emit(0x72, &|out| {
                let dialects = vec![b"LANMAN1.0".to_vec(), b"NT LM 0.12".to_vec()];
                old_connect::NegotiateRequest { dialects }.emit(out);
            }),
            emit(0x72, &|out| {
                old_header::emit_block(&words[..34], &[7; 20], out)
            }),
            emit(0x73, &|out| {
                old_header::emit_block(&chained(12), &[7; 50], out)
            }),
            emit(0x24, &|out| {
                old_header::emit_block(&chained(8), &[1; 20], out)
            }),
            emit(0x2f, &|out| {
                old_transfer::emit_write_request(5, 1 << 33, 0, &[3; 90], out)
            }),
            emit(0x2e, &|out| old_transfer::emit_read_response(&[3; 90], out)),
            emit(0xa2, &|out| old_header::emit_block(&chained(34), &[], out)),
            emit(0xa2, &|out| {
                old_header::emit_block(&linked, b"name", out);
                let (file, offset, length) = (5, 1 << 33, 61_440);
                let (length_min, remaining) = (0, 0);
                old_transfer::ReadRequest {
                    file,
                    offset,
                    length,
                    length_min,
                    remaining,
                }
                .emit(out);
            }),
        ]
    }

    #[test]
    fn true_messages_are_read() {
        assert!(modern(&compounded()) >= 7, "{}", modern(&compounded()));
        let read: Vec<usize> = old_messages().iter().map(|message| old(message)).collect();
        assert!(read.iter().sum::<usize>() >= 8, "{read:?}");
    }

    #[test]
    fn invariant_6_changed_messages_are_read_or_refused() {
        let mut noise = Noise::new(1);
        let (bodies, together, olds) = (modern_bodies(), compounded(), old_messages());
        let mut read = [0; 3];
        for nth in 0..30_000 {
            let sources = [
                &bodies[nth % bodies.len()],
                &together,
                &olds[nth % olds.len()],
            ];
            for (which, source) in sources.into_iter().enumerate() {
                let mut changed = source.clone();
                for _ in 0..=noise.below(4) {
                    damage(&mut noise, &mut changed);
                }
                read[which] += match which {
                    2 => old(&changed),
                    _ => modern(&changed),
                };
            }
        }
        println!("{read:?} could be read");
        assert!(read.iter().all(|read| *read > 5000), "{read:?}");
    }

    #[test]
    fn invariant_6_changed_messages_between_halves_are_read_or_refused() {
        let file = open::FileId {
            persistent: 1,
            volatile: 2,
        };
        let bytes = Bytes::from_static(b"bytes");
        let all = [
            Message::Data {
                run: 1,
                offset: 2,
                bytes,
            },
            Message::Writable {
                session: 1,
                tree: 2,
                file,
            },
            Message::Behind {
                is_paid: true,
                id: 3,
                file,
            },
            Message::Want { run: 1, upto: 2 },
            Message::Fence { number: 1 },
        ];
        let mut noise = Noise::new(2);
        let mut read = 0;
        for nth in 0..50_000 {
            let mut changed = all[nth % all.len()].encode();
            damage(&mut noise, &mut changed);
            // Any kind with any fields.
            if let Some(kind) = changed.first_mut().filter(|_| noise.below(3) == 0) {
                *kind = noise.below(24) as u8;
            }
            read += usize::from(between_halves(&changed));
        }
        assert!((5000..45_000).contains(&read), "{read}");
    }

    #[test]
    fn invariant_6_changed_streams_are_cut_into_packets_or_refused() {
        let long = vec![0; 300 << 10];
        let bodies = modern_bodies();
        let mut whole: Vec<u8> = bodies.iter().flat_map(|body| packet(body)).collect();
        whole.extend_from_slice(&[0x85, 0, 0, 0]);
        whole.extend_from_slice(&packet(&long));
        whole.extend(bodies.iter().flat_map(|body| packet(body)));
        assert_eq!(stream(&whole, 4096), 2 * bodies.len() + 2);
        let mut noise = Noise::new(3);
        for _ in 0..300 {
            let mut changed = whole.clone();
            let tail = changed.split_off(noise.below(3000) as usize + 1);
            damage(&mut noise, &mut changed);
            changed.extend(tail);
            let cut = 1 + noise.below(40_000) as usize;
            stream(&changed, cut);
        }
    }
}
