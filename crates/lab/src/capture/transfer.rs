//! How a file was copied, read from a capture at the client's side.
//!
//! The time of a copy from the server is the study's: from the request for its first byte to the last TCP
//! acknowledgement of its last block. A copy to the server takes from the first byte of its first block to the answer to
//! the CLOSE, before which the client cannot know that its bytes are safe.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;

use super::bytes_before;
use super::message::{self, Kind, Smb};
use super::pcap::packets;
use super::segment::{ACK, SYN, Seen, Segment, seen};
use super::stream::{Assembler, Framer};

/// A time with the file's bytes that moved in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) bytes: u64,
}

impl Span {
    pub(crate) fn seconds(self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// What one connection of a client did.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Transfer {
    /// First request for a first byte, last acknowledgement of data.
    pub(crate) read: Option<Span>,
    /// First byte of a first block, answer to the last CLOSE after a block.
    pub(crate) written: Option<Span>,
    /// First CREATE, last answer to a CLOSE.
    pub(crate) session: Option<Span>,
    /// Requests of the client, of all kinds.
    pub(crate) requests: u64,
    /// READ requests of the client.
    pub(crate) read_requests: u64,
    /// Largest window that the client advertised after its SYN.
    pub(crate) window_bytes_max: u64,
    /// Payload that passed more than once.
    pub(crate) repeated_bytes: u64,
    /// Messages that are no SMB that can be read: encrypted ones.
    pub(crate) unread_messages: u64,
    /// What client and server have agreed to speak.
    pub(crate) dialect: Option<&'static str>,
    /// When the first byte of an answer to READ with data passed, and that of a WRITE.
    pub(crate) first_read_ns: Option<u64>,
    pub(crate) first_write_ns: Option<u64>,
}

/// What a capture at the client's side shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    /// The connection that moved most data.
    pub(crate) transfer: Transfer,
    /// Bytes of frames that belong to the copy, and of others.
    pub(crate) own_bytes: u64,
    pub(crate) foreign_bytes: u64,
    /// Times and lengths of frames from the server, and of those from the client.
    pub(crate) to_client: Vec<(u64, u64)>,
    pub(crate) to_server: Vec<(u64, u64)>,
    /// The first of all connections' first reads and writes.
    pub(crate) first_read_ns: Option<u64>,
    pub(crate) first_write_ns: Option<u64>,
}

impl Shown {
    /// Bytes of frames that came from the server before this.
    pub(crate) fn to_client_before(&self, time_ns: u64) -> u64 {
        bytes_before(&self.to_client, time_ns)
    }

    /// Bytes of frames that came from the client before this.
    pub(crate) fn to_server_before(&self, time_ns: u64) -> u64 {
        bytes_before(&self.to_server, time_ns)
    }
}

/// Reads a capture file; `None` where it is none.
pub(crate) fn shown(file: &[u8], client: Ipv4Addr, server: (Ipv4Addr, u16)) -> Option<Shown> {
    let mut connections: HashMap<u16, Connection> = HashMap::new();
    let (mut own_bytes, mut foreign_bytes) = (0, 0);
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    for packet in packets(file)? {
        let length = packet.length as u64;
        match seen(packet.bytes) {
            Seen::Tcp(segment) if segment.destination == server && segment.source.0 == client => {
                own_bytes += length;
                to_server.push((packet.time_ns, length));
                let connection = connections.entry(segment.source.1).or_default();
                connection.client_said(packet.time_ns, &segment);
            }
            Seen::Tcp(segment) if segment.source == server && segment.destination.0 == client => {
                own_bytes += length;
                to_client.push((packet.time_ns, length));
                let connection = connections.entry(segment.destination.1).or_default();
                connection.server_said(packet.time_ns, &segment);
            }
            _ => foreign_bytes += length,
        }
    }
    let moved = |transfer: &Transfer| {
        let bytes = |span: Option<Span>| span.map_or(0, |span| span.bytes);
        bytes(transfer.read) + bytes(transfer.written)
    };
    let transfers = connections.into_values().map(Connection::end);
    let transfers: Vec<Transfer> = transfers.collect();
    let first = |of: fn(&Transfer) -> Option<u64>| transfers.iter().filter_map(of).min();
    Some(Shown {
        first_read_ns: first(|transfer| transfer.first_read_ns),
        first_write_ns: first(|transfer| transfer.first_write_ns),
        transfer: transfers.into_iter().max_by_key(moved).unwrap_or_default(),
        own_bytes,
        foreign_bytes,
        to_client,
        to_server,
    })
}

#[derive(Debug, Default)]
struct Connection {
    up: (Assembler, Framer),
    down: (Assembler, Framer),
    scale: Option<u8>,
    /// Offsets of READ requests by their id.
    asked: HashMap<u64, u64>,
    /// READ answers with data, by where they end in the direction of the client.
    unacknowledged: VecDeque<(u64, u64)>,
    /// Offsets that have been answered: what is asked for again counts once.
    answered: BTreeSet<(u64, u64)>,
    /// Sizes of WRITE requests by their id.
    sent: HashMap<u64, u64>,
    files_read: u64,
    transfer: Transfer,
}

impl Connection {
    fn client_said(&mut self, now_ns: u64, segment: &Segment<'_>) {
        if segment.flags & SYN != 0 {
            self.up.0.begin(segment.sequence);
            self.scale = segment.window_scale;
            return;
        }
        let window = u64::from(segment.window) << self.scale.unwrap_or(0).min(14);
        self.transfer.window_bytes_max = self.transfer.window_bytes_max.max(window);
        if segment.flags & ACK != 0 {
            self.acknowledged(now_ns, segment.acknowledgment);
        }
        let mut requests = Vec::new();
        let (assembler, framer) = &mut self.up;
        assembler.take(segment.sequence, segment.payload, |bytes| {
            framer.take(now_ns, bytes, |message| {
                requests.push((message.begun_ns, message::read(message.head)));
            });
        });
        for (begun_ns, request) in requests {
            self.request(begun_ns, request);
        }
    }

    fn server_said(&mut self, now_ns: u64, segment: &Segment<'_>) {
        if segment.flags & SYN != 0 {
            self.down.0.begin(segment.sequence);
            // Both have to offer it (RFC 7323 2.2).
            self.scale = self.scale.filter(|_| segment.window_scale.is_some());
            return;
        }
        let mut answers = Vec::new();
        let (assembler, framer) = &mut self.down;
        assembler.take(segment.sequence, segment.payload, |bytes| {
            framer.take(now_ns, bytes, |message| {
                answers.push((message.times(), message.end, message::read(message.head)));
            });
        });
        for (times, end, answer) in answers {
            self.answer(times, end, answer);
        }
    }

    fn request(&mut self, begun_ns: u64, request: Option<Smb>) {
        let Some(request) = request.filter(|request| !request.is_answer) else {
            self.transfer.unread_messages += 1;
            return;
        };
        self.transfer.requests += 1;
        match request.kind {
            Kind::Create => {
                begin(&mut self.transfer.session, begun_ns);
            }
            Kind::Read => {
                self.transfer.read_requests += 1;
                if request.offset == 0 {
                    begin(&mut self.transfer.read, begun_ns);
                    self.files_read += 1;
                }
                self.asked.insert(request.id, request.offset);
            }
            Kind::Write => {
                if request.offset == 0 {
                    begin(&mut self.transfer.written, begun_ns);
                }
                self.transfer.first_write_ns.get_or_insert(begun_ns);
                self.sent.insert(request.id, request.data_bytes);
            }
            Kind::Close | Kind::Other => {}
        }
    }

    fn answer(&mut self, (begun_ns, ended_ns): (u64, u64), end: u64, answer: Option<Smb>) {
        /// MS-ERREF 2.3.1: the answer is to come.
        const STATUS_PENDING: u32 = 0x103;
        let Some(answer) = answer.filter(|answer| answer.is_answer) else {
            self.transfer.unread_messages += 1;
            return;
        };
        if answer.status == STATUS_PENDING {
            return;
        }
        // The last one counts: a first may leave it to a second.
        self.transfer.dialect = answer.dialect.or(self.transfer.dialect);
        match answer.kind {
            Kind::Read if answer.status == 0 && answer.data_bytes > 0 => {
                self.transfer.first_read_ns.get_or_insert(begun_ns);
                let offset = self.asked.remove(&answer.id);
                let place = offset.map(|offset| (self.files_read, offset));
                if place.is_some_and(|place| self.answered.insert(place)) {
                    self.unacknowledged.push_back((end, answer.data_bytes));
                }
            }
            Kind::Write if answer.status == 0 => {
                let bytes = self.sent.remove(&answer.id).unwrap_or(0);
                add(&mut self.transfer.written, ended_ns, bytes);
            }
            Kind::Close => {
                add(&mut self.transfer.session, ended_ns, 0);
                if let Some(written) = &mut self.transfer.written {
                    written.end_ns = ended_ns;
                }
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, now_ns: u64, number: u32) {
        let Some(place) = self.down.0.place(number) else {
            return;
        };
        while let Some((end, bytes)) = self.unacknowledged.front().copied() {
            if end > place {
                break;
            }
            self.unacknowledged.pop_front();
            add(&mut self.transfer.read, now_ns, bytes);
        }
    }

    fn end(mut self) -> Transfer {
        self.transfer.repeated_bytes = self.up.0.repeated_bytes + self.down.0.repeated_bytes;
        self.transfer
    }
}

fn begin(span: &mut Option<Span>, start_ns: u64) {
    span.get_or_insert(Span {
        start_ns,
        end_ns: start_ns,
        bytes: 0,
    });
}

fn add(span: &mut Option<Span>, end_ns: u64, bytes: u64) {
    if let Some(span) = span {
        span.end_ns = span.end_ns.max(end_ns);
        span.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::pcap::tests::file;
    use super::super::segment::tests::frame;
    use super::*;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 2, 0, 2), 445);
    const MS: u64 = 1_000_000;

    /// A conversation that is written down as a capture, a millisecond a frame.
    struct Talk {
        frames: Vec<(u64, Vec<u8>)>,
        now_ns: u64,
        /// Next sequence numbers of client and server.
        next: [u32; 2],
    }

    impl Talk {
        fn new() -> Self {
            let mut talk = Self {
                frames: Vec::new(),
                now_ns: 1_000 * MS,
                next: [u32::MAX - 10, 5_000],
            };
            for who in [0, 1] {
                talk.frame(who, SYN, Some(3), b"");
                talk.next[who] = talk.next[who].wrapping_add(1);
            }
            talk
        }

        fn frame(&mut self, who: usize, flags: u8, window_scale: Option<u8>, payload: &[u8]) {
            let ends = [(CLIENT, 40_000), SERVER];
            let segment = Segment {
                source: ends[who],
                destination: ends[1 - who],
                sequence: self.next[who],
                acknowledgment: self.next[1 - who],
                flags,
                window: 1_000,
                window_scale,
                payload,
            };
            self.frames.push((self.now_ns, frame(&segment)));
            self.now_ns += MS;
        }

        /// In segments of 1448 bytes.
        fn say(&mut self, who: usize, message: &[u8]) {
            let mut whole = (message.len() as u32).to_be_bytes().to_vec();
            whole.extend_from_slice(message);
            for part in whole.chunks(1448) {
                self.frame(who, ACK, None, part);
                self.next[who] = self.next[who].wrapping_add(part.len() as u32);
            }
        }

        fn shown(&self) -> Shown {
            shown(&file(&self.frames), CLIENT, SERVER).unwrap()
        }
    }

    fn smb2(command: u16, is_answer: bool, id: u64, body: &[u8]) -> Vec<u8> {
        let mut message = b"\xfeSMB".to_vec();
        message.resize(64, 0);
        message[12..14].copy_from_slice(&command.to_le_bytes());
        message[16] = u8::from(is_answer);
        message[24..32].copy_from_slice(&id.to_le_bytes());
        message.extend_from_slice(body);
        message
    }

    fn smb2_transfer(bytes: u32, offset: u64, data: usize) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(bytes.to_le_bytes());
        body.extend(offset.to_le_bytes());
        body.resize(48 + data, 0);
        body
    }

    fn smb1(command: u8, is_answer: bool, id: u16, words: &[u8], data: usize) -> Vec<u8> {
        let mut message = b"\xffSMB".to_vec();
        message.resize(32, 0);
        message[4] = command;
        message[9] = if is_answer { 0x80 } else { 0 };
        message[30..32].copy_from_slice(&id.to_le_bytes());
        message.push(words.len() as u8 / 2);
        message.extend_from_slice(words);
        message.resize(message.len() + 2 + data, 0);
        message
    }

    #[test]
    fn a_copy_takes_from_the_first_request_to_the_last_acknowledgement() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(5, false, 1, &[0; 56]));
        talk.say(1, &smb2(5, true, 1, &[0; 88]));
        let start_ns = talk.now_ns;
        for (id, offset) in [(2, 0), (3, 60_000)] {
            talk.say(0, &smb2(8, false, id, &smb2_transfer(60_000, offset, 0)));
            talk.say(1, &smb2(8, true, id, &smb2_transfer(60_000, 0, 60_000)));
        }
        let end_ns = talk.now_ns;
        // It acknowledges with its next request.
        talk.say(0, &smb2(6, false, 4, &[0; 24]));
        talk.say(1, &smb2(6, true, 4, &[0; 60]));
        let shown = talk.shown();
        let transfer = &shown.transfer;
        let expected = Span {
            start_ns,
            end_ns,
            bytes: 120_000,
        };
        assert_eq!(transfer.read, Some(expected));
        assert_eq!((transfer.requests, transfer.read_requests), (4, 2));
        assert_eq!(transfer.window_bytes_max, 8_000);
        assert_eq!((transfer.repeated_bytes, shown.foreign_bytes), (0, 0));
        let session = transfer.session.unwrap();
        assert_eq!(
            (session.start_ns, session.end_ns),
            (1_002 * MS, end_ns + MS)
        );
        assert!(shown.to_client_before(start_ns) < 400);
        assert!(shown.to_client_before(end_ns) > 120_000);
        assert!(shown.to_server_before(end_ns) < 1_000);
        let both = shown.to_client_before(u64::MAX) + shown.to_server_before(u64::MAX);
        assert_eq!(both, shown.own_bytes);
    }

    #[test]
    fn what_was_not_acknowledged_does_not_count() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(8, false, 2, &smb2_transfer(60_000, 0, 0)));
        talk.say(1, &smb2(8, true, 2, &smb2_transfer(60_000, 0, 60_000)));
        assert_eq!(talk.shown().transfer.read.unwrap().bytes, 0);
        talk.frame(0, ACK, None, b"");
        assert_eq!(talk.shown().transfer.read.unwrap().bytes, 60_000);
    }

    #[test]
    fn a_packet_that_came_late_is_waited_for_and_one_that_came_twice_counted() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(8, false, 2, &smb2_transfer(60_000, 0, 0)));
        let first = talk.frames.len();
        talk.say(1, &smb2(8, true, 2, &smb2_transfer(60_000, 0, 60_000)));
        let lost = talk.frames[first + 3].1.clone();
        talk.frames[first + 3].1 = talk.frames[first + 4].1.clone();
        talk.frames.push((talk.now_ns, lost));
        talk.now_ns += MS;
        talk.frame(0, ACK, None, b"");
        let transfer = talk.shown().transfer;
        assert_eq!(transfer.read.unwrap().bytes, 60_000);
        assert_eq!(transfer.repeated_bytes, 1448);
    }

    #[test]
    fn a_file_that_is_written_is_safe_when_it_is_closed() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(5, false, 1, &[0; 56]));
        talk.say(1, &smb2(5, true, 1, &[0; 88]));
        let start_ns = talk.now_ns;
        talk.say(0, &smb2(9, false, 2, &smb2_transfer(30_000, 0, 30_000)));
        talk.say(1, &smb2(9, true, 2, &[0; 16]));
        talk.say(0, &smb2(6, false, 3, &[0; 24]));
        let end_ns = talk.now_ns;
        talk.say(1, &smb2(6, true, 3, &[0; 60]));
        let expected = Span {
            start_ns,
            end_ns,
            bytes: 30_000,
        };
        assert_eq!(talk.shown().transfer.written, Some(expected));
        assert_eq!(talk.shown().transfer.read, None);
    }

    #[test]
    fn the_old_dialect_is_read_as_well() {
        let mut talk = Talk::new();
        let start_ns = talk.now_ns;
        for (id, offset) in [(2, 0_u32), (3, 61_440)] {
            let mut words = vec![0; 24];
            words[6..10].copy_from_slice(&offset.to_le_bytes());
            talk.say(0, &smb1(0x2e, false, id, &words, 0));
            let mut words = vec![0; 24];
            words[10..12].copy_from_slice(&61_440_u16.to_le_bytes());
            talk.say(1, &smb1(0x2e, true, id, &words, 61_440));
        }
        let end_ns = talk.now_ns;
        talk.frame(0, ACK, None, b"");
        let expected = Span {
            start_ns,
            end_ns,
            bytes: 122_880,
        };
        assert_eq!(talk.shown().transfer.read, Some(expected));
    }

    #[test]
    fn the_first_bytes_of_a_file_are_those_of_its_data() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(5, false, 1, &[0; 56]));
        talk.say(1, &smb2(5, true, 1, &[0; 88]));
        talk.say(0, &smb2(8, false, 2, &smb2_transfer(60_000, 0, 0)));
        // An answer without data, such as an error, is none of it.
        talk.say(1, &smb2(8, true, 2, &[0; 9]));
        assert_eq!(talk.shown().first_read_ns, None);
        let read_ns = talk.now_ns;
        for id in [3, 4] {
            talk.say(1, &smb2(8, true, id, &smb2_transfer(60_000, 0, 60_000)));
        }
        let write_ns = talk.now_ns;
        for id in [5, 6] {
            talk.say(0, &smb2(9, false, id, &smb2_transfer(3_000, 0, 3_000)));
        }
        let shown = talk.shown();
        let found = (shown.first_read_ns, shown.first_write_ns);
        assert_eq!(found, (Some(read_ns), Some(write_ns)));
    }

    #[test]
    fn the_dialect_is_what_the_server_chose_last() {
        let negotiated = |revision: u16| {
            let mut body = vec![0; 64];
            body[4..6].copy_from_slice(&revision.to_le_bytes());
            smb2(0, true, 0, &body)
        };
        let found = |answers: &[Vec<u8>]| {
            let mut talk = Talk::new();
            answers.iter().for_each(|answer| talk.say(1, answer));
            talk.shown().transfer.dialect
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[negotiated(0x0210)]), Some("2.1"));
        let several = [negotiated(0x02ff), negotiated(0x0311)];
        assert_eq!(found(&several), Some("3.1.1"));
        assert_eq!(found(&several[..1]), None, "it is not agreed yet");
        let old = smb1(0x72, true, 1, &[0; 34], 0);
        assert_eq!(found(&[old]), Some("NT LM 0.12"));
        let older = smb1(0x72, true, 1, &[0; 26], 0);
        assert_eq!(found(&[older]), None);
    }

    #[test]
    fn others_on_the_wire_are_counted_apart() {
        let mut talk = Talk::new();
        talk.say(0, &smb2(8, false, 2, &smb2_transfer(60_000, 0, 0)));
        let own = talk.shown();
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        talk.frames.push((talk.now_ns, arp));
        let shown = talk.shown();
        assert_eq!((shown.own_bytes, shown.foreign_bytes), (own.own_bytes, 60));
    }
}
