//! Requests that change an open file otherwise than by writing to it, and packets of several requests.

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb1::header::{TRANSACTION2, emit_block};
use farhaul_optimise::smb::smb2::header::{Command, FLAG_RELATED, HEADER_BYTES};
use farhaul_optimise::smb::smb2::open::{CloseRequest, FileId};

use super::Client;
use super::folder::ask_all;

/// TRANS2_SET_FILE_INFORMATION, and of its levels SMB_SET_FILE_END_OF_FILE_INFO (MS-CIFS 2.2.2.3.4).
const SET_FILE_INFORMATION: u16 = 8;
const LEVEL_END_OF_FILE: u16 = 0x104;
/// FileEndOfFileInformation (MS-FSCC 2.4.14) of SMB2_0_INFO_FILE.
const INFO_END_OF_FILE: [u8; 2] = [1, 20];

impl Client {
    pub(super) fn set_end(&mut self, bytes: u64, behind: Option<Command>) {
        let file = self.file.unwrap();
        match (self.cifs, behind) {
            (Some(_), _) => self.cifs_set_end(file.volatile as u16, bytes),
            (None, None) => self.send(Command::SetInfo, None, |message| {
                emit_set_end(file, bytes, message);
            }),
            (None, Some(first)) => self.compound(|client| {
                client.send(first, None, |message| match first {
                    Command::Flush => emit_flush(file, message),
                    _ => ask_all(file).emit(message),
                });
                client.send(Command::SetInfo, None, |message| {
                    emit_set_end(FileId::RELATED, bytes, message);
                });
                let file = FileId::RELATED;
                let close = CloseRequest { flags: 0, file };
                client.send(Command::Close, None, |message| close.emit(message));
            }),
        }
    }

    /// MS-CIFS 2.2.4.46.1, 2.2.6.9.1.
    fn cifs_set_end(&mut self, file: u16, bytes: u64) {
        // 32 of the header, word count, 15 words, byte count, and both parts begin at multiples of four.
        let (parameters_at, data_at) = (68_u16, 76_u16);
        let counts = [
            6_u16,
            8,
            2,
            0,
            0,
            0,
            0,
            0,
            0,
            6,
            parameters_at,
            8,
            data_at,
            1,
        ];
        let words = counts.into_iter().chain([SET_FILE_INFORMATION]);
        let words: Vec<u8> = words.flat_map(u16::to_le_bytes).collect();
        let parameters = [file, LEVEL_END_OF_FILE, 0].map(u16::to_le_bytes).concat();
        let data = bytes.to_le_bytes();
        let content = [&[0; 3][..], &parameters, &[0; 2], &data].concat();
        self.cifs_send(Command::SetInfo, TRANSACTION2, |message| {
            emit_block(&words, &content, message);
        });
    }

    /// Makes one packet of what is asked: whatever is behind the first is related to it (MS-SMB2 3.2.4.1.4).
    pub(super) fn compound(&mut self, ask: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.output);
        ask(self);
        let mut packets = Packets::default();
        packets.push(&std::mem::replace(&mut self.output, before));
        let mut asked = Vec::new();
        while let Some(Piece::Message(whole)) = packets.poll().unwrap() {
            asked.push(whole[PREFIX_BYTES..].to_vec());
        }
        let last = asked.len() - 1;
        for (nth, message) in asked.iter_mut().enumerate() {
            if nth > 0 {
                message[16] |= FLAG_RELATED as u8;
            }
            if nth < last {
                message.resize(message.len().next_multiple_of(8), 0);
                let next = (message.len() as u32).to_le_bytes();
                message[20..24].copy_from_slice(&next);
            }
        }
        self.output.extend_from_slice(&packet(&asked.concat()));
    }
}

/// MS-SMB2 2.2.39.
fn emit_set_end(file: FileId, bytes: u64, message: &mut Vec<u8>) {
    const BODY_BYTES: u16 = 32;
    message.extend((BODY_BYTES + 1).to_le_bytes());
    message.extend(INFO_END_OF_FILE);
    message.extend(8_u32.to_le_bytes());
    message.extend((HEADER_BYTES as u16 + BODY_BYTES).to_le_bytes());
    message.extend([0; 6]);
    message.extend(file.persistent.to_le_bytes());
    message.extend(file.volatile.to_le_bytes());
    message.extend(bytes.to_le_bytes());
}

/// MS-SMB2 2.2.17.
fn emit_flush(file: FileId, message: &mut Vec<u8>) {
    message.extend(24_u16.to_le_bytes());
    message.extend([0; 6]);
    message.extend(file.persistent.to_le_bytes());
    message.extend(file.volatile.to_le_bytes());
}
