//! What the server grants, and reads of SMB2 that take their time: they grant when they are answered.

use farhaul_optimise::smb::smb2::header::{Command, Header};

use super::{FLAG_RESPONSE, Server};

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
