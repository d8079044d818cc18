//! What the two halves of an SMB connection tell each other, in MESSAGE items.
//!
//! | byte | message | fields | meaning |
//! |---|---|---|---|
//! | 1 | AHEAD | run 4, changes 4, firm 1, session 8, tree 4, file 16, from 8, to 8 | far: I read this file from here to there; when I decided that, I had seen so many of the client's changes |
//! | 2 | MORE | run 4, to 8 | far: and on to there |
//! | 3 | DATA | run 4, offset 8, bytes | far: this is what I read |
//! | 4 | END | run 4, offset 8 | far: the server says that the file ends here, or before |
//! | 5 | DROP | run 4 | far: forget this run. Nothing of it will follow |
//! | 6 | YOURS | packet | far: answer this request yourself, out of a run; I have not passed it on |
//! | 7 | QUIET | reason 1 | far: from here on nothing is read ahead |
//! | 8 | FENCE | number 4 | far: say when you have done all the above |
//! | 9 | WRITABLE | session 8, tree 4, file 16 | far: answer the writes of this file yourself |
//! | 10 | UNWRITABLE | file 16 | far: no longer |
//! | 11 | ROOM | credits 4, bytes 4, given 8 | far: so many credits more for that; so much of it is done; so many credits the client was given since the connection began |
//! | 12 | OFFER | changes 4, length 4, request, answer | far: this CREATE was answered so, when I had seen so many of the client's changes; answer it yourself if the client asks it, and say so |
//! | 13 | TOLD | length 4, request, answer | far: what I asked of an offered file, and the answer |
//! | 14 | FORGET | file 16 | far: answer nothing of this file any more but reads |
//! | 16 | USED | run 4, upto 8 | near: the client has been given what lies before |
//! | 17 | REFUSED | run 4 | near: this run came too late |
//! | 18 | WANT | run 4, upto 8 | near: a client waits for more of this run than was announced |
//! | 19 | STOP | reason 1 | near: read nothing ahead from here on |
//! | 20 | FENCED | number 4 | near: I have |
//! | 21 | BEHIND | paid 1, id 8, file 16 | near: I answer the write with this id, which follows, myself; paid 1: with credits of ROOM, 0: with none |
//! | 22 | TAKEN | file 16 | near: the client has been given this offered file |
//! | 23 | RELEASED | file 16 | near: it will not be |
//! | 24 | SHUT | file 16 | near: I answer the CLOSE of this file, which follows, myself |
//!
//! Integers are big-endian. `to` of all ones: to the end of the file. `firm`: which changes through the
//! same connection cannot concern it: 0 any may, 2 not those of other files that are open, 1 nor files that are opened and emptied by that.

use bytes::{Buf, BufMut, Bytes};

use super::files::Firmness;
use super::smb2::open::FileId;
use crate::reason::Reason;

/// To the end of the file.
pub const TO_END: u64 = u64::MAX;

const AHEAD: u8 = 1;
const MORE: u8 = 2;
const DATA: u8 = 3;
const END: u8 = 4;
const DROP: u8 = 5;
const YOURS: u8 = 6;
const QUIET: u8 = 7;
const FENCE: u8 = 8;
const WRITABLE: u8 = 9;
const UNWRITABLE: u8 = 10;
const ROOM: u8 = 11;
const OFFER: u8 = 12;
const TOLD: u8 = 13;
const FORGET: u8 = 14;
const USED: u8 = 16;
const REFUSED: u8 = 17;
const WANT: u8 = 18;
const STOP: u8 = 19;
const FENCED: u8 = 20;
const BEHIND: u8 = 21;
const TAKEN: u8 = 22;
const RELEASED: u8 = 23;
const SHUT: u8 = 24;

/// The beginning of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Its number.
    pub run: u32,
    /// Of the client's changes that the far half had seen.
    pub changes: u32,
    /// Which changes cannot concern it.
    pub firmness: Firmness,
    /// The session that may be answered.
    pub session: u64,
    /// The tree that may be answered.
    pub tree: u32,
    /// Which file.
    pub file: FileId,
    /// First byte.
    pub from: u64,
    /// Behind the last byte.
    pub to: u64,
}

/// What makes up ROOM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// For writes that the near half answers.
    pub credits: u32,
    /// Of those, done.
    pub bytes: u32,
    /// All credits that the client was given, except for what the near half answered.
    pub given: u64,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the table of the module
pub enum Message {
    Ahead(Ahead),
    More {
        run: u32,
        to: u64,
    },
    Data {
        run: u32,
        offset: u64,
        bytes: Bytes,
    },
    End {
        run: u32,
        offset: u64,
    },
    Drop {
        run: u32,
    },
    Yours {
        packet: Bytes,
    },
    Quiet {
        reason: Reason,
    },
    Used {
        run: u32,
        upto: u64,
    },
    Refused {
        run: u32,
    },
    Want {
        run: u32,
        upto: u64,
    },
    Stop {
        reason: Reason,
    },
    Fence {
        number: u32,
    },
    Fenced {
        number: u32,
    },
    Writable {
        session: u64,
        tree: u32,
        file: FileId,
    },
    Unwritable {
        file: FileId,
    },
    Room(Room),
    Behind {
        is_paid: bool,
        id: u64,
        file: FileId,
    },
    Offer {
        changes: u32,
        asked: Bytes,
        answer: Bytes,
    },
    Told {
        asked: Bytes,
        answer: Bytes,
    },
    Forget {
        file: FileId,
    },
    Taken {
        file: FileId,
    },
    Released {
        file: FileId,
    },
    Shut {
        file: FileId,
    },
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAMessage;

impl Message {
    /// As the payload of an item.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut output = Vec::new();
        match self {
            Self::Ahead(ahead) => ahead.encode(&mut output),
            Self::More { run, to } => numbered(MORE, *run, Some(*to), &mut output),
            Self::Data { run, offset, bytes } => {
                output.reserve(13 + bytes.len());
                numbered(DATA, *run, Some(*offset), &mut output);
                output.extend_from_slice(bytes);
            }
            Self::End { run, offset } => numbered(END, *run, Some(*offset), &mut output),
            Self::Drop { run } => numbered(DROP, *run, None, &mut output),
            Self::Yours { packet } => {
                output.put_u8(YOURS);
                output.extend_from_slice(packet);
            }
            Self::Quiet { reason } => output.extend([QUIET, reason.to_wire()]),
            Self::Used { run, upto } => numbered(USED, *run, Some(*upto), &mut output),
            Self::Want { run, upto } => numbered(WANT, *run, Some(*upto), &mut output),
            Self::Refused { run } => numbered(REFUSED, *run, None, &mut output),
            Self::Stop { reason } => output.extend([STOP, reason.to_wire()]),
            Self::Fence { number } => numbered(FENCE, *number, None, &mut output),
            Self::Fenced { number } => numbered(FENCED, *number, None, &mut output),
            Self::Offer { changes, .. } => {
                numbered(OFFER, *changes, None, &mut output);
                self.encode_about_offers(&mut output);
            }
            Self::Told { .. } => {
                output.put_u8(TOLD);
                self.encode_about_offers(&mut output);
            }
            Self::Forget { file } => about_file(FORGET, *file, &mut output),
            Self::Taken { file } => about_file(TAKEN, *file, &mut output),
            Self::Released { file } => about_file(RELEASED, *file, &mut output),
            Self::Shut { file } => about_file(SHUT, *file, &mut output),
            about_writes => about_writes.encode_about_writes(&mut output),
        }
        output
    }

    fn encode_about_offers(&self, output: &mut Vec<u8>) {
        if let Self::Offer { asked, answer, .. } | Self::Told { asked, answer } = self {
            // Messages of SMB2 are shorter.
            output.put_u32(asked.len() as u32);
            output.extend_from_slice(asked);
            output.extend_from_slice(answer);
        }
    }

    fn encode_about_writes(&self, output: &mut Vec<u8>) {
        match self {
            Self::Writable {
                session,
                tree,
                file,
            } => {
                output.put_u8(WRITABLE);
                output.put_u64(*session);
                output.put_u32(*tree);
                put_file(output, *file);
            }
            Self::Unwritable { file } => about_file(UNWRITABLE, *file, output),
            Self::Room(room) => {
                output.put_u8(ROOM);
                output.put_u32(room.credits);
                output.put_u32(room.bytes);
                output.put_u64(room.given);
            }
            Self::Behind { is_paid, id, file } => {
                output.put_u8(BEHIND);
                output.put_u8((*is_paid).into());
                output.put_u64(*id);
                put_file(output, *file);
            }
            _ => (),
        }
    }

    /// Reads the payload of an item.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(payload: &Bytes) -> Result<Self, NotAMessage> {
        let mut fields = payload.clone();
        let kind = fields.try_get_u8().map_err(|_| NotAMessage)?;
        let message = match kind {
            AHEAD => Self::Ahead(Ahead::decode(&mut fields).ok_or(NotAMessage)?),
            YOURS => Self::Yours {
                packet: fields.split_to(fields.len()),
            },
            QUIET | STOP => {
                let reason = Reason::from_wire(fields.try_get_u8().map_err(|_| NotAMessage)?);
                match kind {
                    QUIET => Self::Quiet { reason },
                    _ => Self::Stop { reason },
                }
            }
            WRITABLE | UNWRITABLE | ROOM | BEHIND => {
                Self::decode_about_writes(kind, &mut fields).ok_or(NotAMessage)?
            }
            OFFER | TOLD | FORGET | TAKEN | RELEASED | SHUT => {
                Self::decode_about_offers(kind, &mut fields).ok_or(NotAMessage)?
            }
            kind => Self::decode_numbered(kind, &mut fields)?,
        };
        match fields.is_empty() {
            true => Ok(message),
            false => Err(NotAMessage),
        }
    }

    fn decode_about_offers(kind: u8, fields: &mut Bytes) -> Option<Self> {
        let changes = match kind {
            OFFER => fields.try_get_u32().ok()?,
            _ => 0,
        };
        if kind != OFFER && kind != TOLD {
            let file = get_file(fields)?;
            return Some(match kind {
                FORGET => Self::Forget { file },
                TAKEN => Self::Taken { file },
                RELEASED => Self::Released { file },
                _ => Self::Shut { file },
            });
        }
        let length = usize::try_from(fields.try_get_u32().ok()?).ok()?;
        if length > fields.len() {
            return None;
        }
        let asked = fields.split_to(length);
        let answer = fields.split_to(fields.len());
        Some(match kind {
            OFFER => Self::Offer {
                changes,
                asked,
                answer,
            },
            _ => Self::Told { asked, answer },
        })
    }

    fn decode_about_writes(kind: u8, fields: &mut Bytes) -> Option<Self> {
        Some(match kind {
            WRITABLE => Self::Writable {
                session: fields.try_get_u64().ok()?,
                tree: fields.try_get_u32().ok()?,
                file: get_file(fields)?,
            },
            UNWRITABLE => Self::Unwritable {
                file: get_file(fields)?,
            },
            ROOM => Self::Room(Room {
                credits: fields.try_get_u32().ok()?,
                bytes: fields.try_get_u32().ok()?,
                given: fields.try_get_u64().ok()?,
            }),
            _ => Self::Behind {
                is_paid: fields.try_get_u8().ok()? != 0,
                id: fields.try_get_u64().ok()?,
                file: get_file(fields)?,
            },
        })
    }

    fn decode_numbered(kind: u8, fields: &mut Bytes) -> Result<Self, NotAMessage> {
        let run = fields.try_get_u32().map_err(|_| NotAMessage)?;
        let mut place = || fields.try_get_u64().map_err(|_| NotAMessage);
        Ok(match kind {
            MORE => Self::More { run, to: place()? },
            END => Self::End {
                run,
                offset: place()?,
            },
            USED => Self::Used {
                run,
                upto: place()?,
            },
            WANT => Self::Want {
                run,
                upto: place()?,
            },
            DATA => Self::Data {
                run,
                offset: place()?,
                bytes: fields.split_to(fields.len()),
            },
            DROP => Self::Drop { run },
            REFUSED => Self::Refused { run },
            FENCE => Self::Fence { number: run },
            FENCED => Self::Fenced { number: run },
            _ => return Err(NotAMessage),
        })
    }
}

fn numbered(kind: u8, run: u32, place: Option<u64>, output: &mut Vec<u8>) {
    output.put_u8(kind);
    output.put_u32(run);
    if let Some(place) = place {
        output.put_u64(place);
    }
}

fn about_file(kind: u8, file: FileId, output: &mut Vec<u8>) {
    output.put_u8(kind);
    put_file(output, file);
}

fn put_file(output: &mut Vec<u8>, file: FileId) {
    output.put_u64(file.persistent);
    output.put_u64(file.volatile);
}

fn get_file(fields: &mut Bytes) -> Option<FileId> {
    Some(FileId {
        persistent: fields.try_get_u64().ok()?,
        volatile: fields.try_get_u64().ok()?,
    })
}

impl Ahead {
    fn encode(&self, output: &mut Vec<u8>) {
        numbered(AHEAD, self.run, None, output);
        output.put_u32(self.changes);
        output.put_u8(self.firmness.told());
        output.put_u64(self.session);
        output.put_u32(self.tree);
        put_file(output, self.file);
        output.put_u64(self.from);
        output.put_u64(self.to);
    }

    fn decode(fields: &mut Bytes) -> Option<Self> {
        Some(Self {
            run: fields.try_get_u32().ok()?,
            changes: fields.try_get_u32().ok()?,
            firmness: Firmness::of(fields.try_get_u8().ok()?),
            session: fields.try_get_u64().ok()?,
            tree: fields.try_get_u32().ok()?,
            file: get_file(fields)?,
            from: fields.try_get_u64().ok()?,
            to: fields.try_get_u64().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FileId {
        FileId {
            persistent: 0x0102,
            volatile: 0x0304,
        }
    }

    fn check(golden: &[(Message, &str)]) {
        for (message, expected) in golden {
            let encoded = message.encode();
            let shown: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(shown, *expected, "{message:?}");
            assert_eq!(Message::decode(&encoded.into()), Ok(message.clone()));
        }
    }

    fn ahead(file: FileId) -> Ahead {
        Ahead {
            run: 7,
            changes: 2,
            firmness: Firmness::Opens,
            session: 0x77,
            tree: 5,
            file,
            from: 0x1_0000,
            to: TO_END,
        }
    }

    #[test]
    fn invariant_10_messages_look_as_they_always_did() {
        let ahead = ahead(file());
        let bytes = Bytes::from_static(b"ab");
        let golden: [(Message, &str); 13] = [
            (
                Message::Ahead(ahead),
                "0100000007000000020100000000000000770000000500000000000001020000000000000304\
                 0000000000010000ffffffffffffffff",
            ),
            (
                Message::More { run: 7, to: 9 },
                "02000000070000000000000009",
            ),
            (
                Message::Data {
                    run: 7,
                    offset: 8,
                    bytes: bytes.clone(),
                },
                "030000000700000000000000086162",
            ),
            (
                Message::End { run: 7, offset: 8 },
                "04000000070000000000000008",
            ),
            (Message::Drop { run: 7 }, "0500000007"),
            (Message::Yours { packet: bytes }, "066162"),
            (
                Message::Quiet {
                    reason: Reason::Operator,
                },
                "0704",
            ),
            (Message::Fence { number: 3 }, "0800000003"),
            (
                Message::Used { run: 7, upto: 9 },
                "10000000070000000000000009",
            ),
            (Message::Refused { run: 7 }, "1100000007"),
            (
                Message::Want { run: 7, upto: 9 },
                "12000000070000000000000009",
            ),
            (
                Message::Stop {
                    reason: Reason::Operator,
                },
                "1304",
            ),
            (Message::Fenced { number: 3 }, "1400000003"),
        ];
        check(&golden);
    }

    #[test]
    fn invariant_10_messages_about_writes_look_as_they_always_did() {
        let file = file();
        let golden: [(Message, &str); 4] = [
            (
                Message::Writable {
                    session: 0x77,
                    tree: 5,
                    file,
                },
                "0900000000000000770000000500000000000001020000000000000304",
            ),
            (
                Message::Unwritable { file },
                "0a00000000000001020000000000000304",
            ),
            (
                Message::Room(Room {
                    credits: 4,
                    bytes: 5,
                    given: 6,
                }),
                "0b00000004000000050000000000000006",
            ),
            (
                Message::Behind {
                    is_paid: true,
                    id: 8,
                    file,
                },
                "1501000000000000000800000000000001020000000000000304",
            ),
        ];
        check(&golden);
    }

    #[test]
    fn invariant_10_messages_about_offers_look_as_they_always_did() {
        let file = file();
        let asked = Bytes::from_static(b"ab");
        let answer = Bytes::from_static(b"c");
        let offer = Message::Offer {
            changes: 2,
            asked: asked.clone(),
            answer: answer.clone(),
        };
        let told = Message::Told { asked, answer };
        let named = "00000000000001020000000000000304";
        let golden: [(Message, &str); 6] = [
            (offer, "0c0000000200000002616263"),
            (told, "0d00000002616263"),
            (Message::Forget { file }, &format!("0e{named}")),
            (Message::Taken { file }, &format!("16{named}")),
            (Message::Released { file }, &format!("17{named}")),
            (Message::Shut { file }, &format!("18{named}")),
        ];
        check(&golden);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for payload in [
            &[][..],
            &[9, 0, 0, 0, 1],
            &[11, 0, 0, 0, 1],
            &[21; 20],
            &[13, 0, 0, 0, 2, 1],
            &[22, 0],
            &[5, 0, 0, 0],
            &[5, 0, 0, 0, 1, 2],
            &[1; 20],
        ] {
            let payload = Bytes::copy_from_slice(payload);
            assert_eq!(Message::decode(&payload), Err(NotAMessage), "{payload:?}");
        }
    }
}
