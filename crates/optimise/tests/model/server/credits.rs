//! What the server grants, and reads of SMB2 that take their time: they grant when they are answered.

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb2::header::{Command, FLAG_ASYNC, Header, Scope};
use farhaul_optimise::smb::smb2::open::{CreateRequest, OPLOCK_BATCH};
use farhaul_optimise::smb::smb2::transfer::{ErrorResponse, STATUS_PENDING};

use super::folder::wide;
use super::{FLAG_RESPONSE, Server};

const STATUS_CANCELLED: u32 = 0xc000_0120;
/// Announced requests have other numbers than messages.
const HELD_ID: u64 = 1 << 32;

/// The answer to a read: when, to what, its status and its body.
pub type LateRead = (u64, Header, u32, Vec<u8>);

impl Server {
    pub(super) fn take_ids(&mut self, header: &Header) {
        let charge = header.ids_taken();
        for id in header.message_id..header.message_id + charge {
            assert!(
                id < self.granted,
                "id {id} was never granted ({})",
                self.granted
            );
            assert!(self.used.insert(id), "id {id} is used twice");
        }
        self.used_ids += charge;
    }

    pub(super) fn grant(&mut self, header: &Header) -> u16 {
        let later = self.terms.credits_later;
        let later = later.filter(|(at, _)| *at <= self.now_ns);
        let credits_max = later.map_or(self.terms.credits_max, |(_, credits_max)| credits_max);
        let held = self.granted - self.used_ids;
        let granted = u64::from(header.credits).min(credits_max.saturating_sub(held));
        let granted = granted.max(u64::from(held == 0));
        self.granted += granted;
        granted as u16
    }

    pub(super) fn grant_at_once(&mut self, header: &Header) -> u16 {
        match self.is_late(header) {
            true => 0,
            false => self.grant(header),
        }
    }

    fn is_late(&self, header: &Header) -> bool {
        header.command == Command::Read && self.terms.read_ns > 0
    }

    /// Answers at once, in two steps, or later.
    pub(super) fn finish(
        &mut self,
        header: &Header,
        status: u32,
        credits: u16,
        flags: u32,
        body: Vec<u8>,
    ) {
        match header.command {
            Command::Create if self.terms.opens_late => {
                self.say_late(header, status, credits, &body)
            }
            _ if self.is_late(header) => self.read_late(header, status, body),
            _ => self.say(header, status, credits, flags, &body),
        }
    }

    /// Whether an open must wait for an oplock; none that asks for no oplock does here.
    pub(super) fn holds(&self, message: &[u8]) -> bool {
        let create = CreateRequest::parse(message).unwrap();
        let is_held = |name: &str| wide(name).as_bytes() == create.name;
        create.oplock == OPLOCK_BATCH && self.terms.held_file.is_some_and(is_held)
    }

    /// Announces it, with its credits.
    pub(super) fn hold(&mut self, header: &Header, credits: u16) {
        let mut body = Vec::new();
        ErrorResponse::default().emit(&mut body);
        let scope = Scope::Async {
            id: HELD_ID + header.message_id,
        };
        let announced = Header { scope, ..*header };
        let flags = FLAG_RESPONSE | FLAG_ASYNC;
        self.say(&announced, STATUS_PENDING, credits, flags, &body);
        self.held_opens.push(announced);
    }

    /// What is to be cancelled is named as it was announced (MS-SMB2 3.3.5.16).
    pub(super) fn cancel(&mut self, cancel: &Header) {
        let mut held = self.held_opens.iter();
        let at = held.position(|held| held.scope == cancel.scope);
        let Some(held) = at.map(|at| self.held_opens.remove(at)) else {
            return;
        };
        assert_eq!(held.message_id, cancel.message_id);
        let mut body = Vec::new();
        ErrorResponse::default().emit(&mut body);
        let flags = FLAG_RESPONSE | FLAG_ASYNC;
        self.say(&held, STATUS_CANCELLED, 0, flags, &body);
    }

    /// Makes one packet of what was said since.
    pub(super) fn compound(&mut self, said_bytes: usize) {
        let mut packets = Packets::of_server();
        packets.push(&self.output.split_off(said_bytes));
        let mut joined: Vec<u8> = Vec::new();
        let mut last = 0;
        while let Some(piece) = packets.poll().unwrap() {
            match piece {
                Piece::Rest(more) => joined.extend_from_slice(&more),
                Piece::Message(bytes) | Piece::Beginning(bytes) => {
                    joined.resize(joined.len().next_multiple_of(8), 0);
                    let next = ((joined.len() - last) as u32).to_le_bytes();
                    if !joined.is_empty() {
                        joined[last + 20..last + 24].copy_from_slice(&next);
                    }
                    last = joined.len();
                    joined.extend_from_slice(&bytes[PREFIX_BYTES..]);
                }
                Piece::Service(_) => panic!("no message"),
            }
        }
        self.longest_bytes = self.longest_bytes.max(joined.len());
        self.output.extend_from_slice(&packet(&joined));
    }

    fn read_late(&mut self, header: &Header, status: u32, body: Vec<u8>) {
        let at_ns = self.now_ns + self.terms.read_ns;
        self.late_reads.push_back((at_ns, *header, status, body));
    }

    pub(super) fn answer_late_reads(&mut self) {
        while self
            .late_reads
            .front()
            .is_some_and(|(at, ..)| *at <= self.now_ns)
        {
            let (_, header, status, body) = self.late_reads.pop_front().unwrap();
            let credits = self.grant(&header);
            self.say(&header, status, credits, FLAG_RESPONSE, &body);
        }
    }
}
