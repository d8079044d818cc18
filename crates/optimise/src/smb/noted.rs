//! What is noted of the client's requests when they go to the server. The other part of `far`.

use bytes::Bytes;

use super::far::{FarSmb, part_of};
use super::netbios::PREFIX_BYTES;
use super::pending::{Lends, Purpose};
use super::smb2::connect::{NegotiateRequest, SessionSetupRequest};
use super::smb2::header::{Command, Header};
use super::smb2::open::{CloseRequest, CreateRequest, FileId};
use super::smb2::query::{FLAGS_FROM_THE_FIRST, QueryDirectoryRequest};
use super::smb2::transfer::ReadRequest;
use crate::output::Outbox;

/// What has a longer path is not followed: thousands can wait to be opened.
const NAME_BYTES_MAX: usize = 4096;

impl FarSmb {
    /// What the answer to a request of the client's will be needed for.
    pub(super) fn purpose(
        &mut self,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
    ) -> Purpose {
        match header.command {
            Command::Negotiate => {
                if let Ok(negotiate) = NegotiateRequest::parse(message) {
                    self.connection.handle_negotiate(&negotiate);
                }
                Purpose::Pass
            }
            Command::SessionSetup => SessionSetupRequest::parse(message)
                .map_or(Purpose::Pass, |setup| {
                    Purpose::Session(Box::new(setup.noted()))
                }),
            Command::Create => CreateRequest::parse(message)
                .map_or(Purpose::Pass, |create| self.opens(header, create)),
            Command::Close => CloseRequest::parse(message)
                .map_or(Purpose::Pass, |close| Purpose::Close(close.file)),
            Command::Read => ReadRequest::parse(message).map_or(Purpose::Pass, |read| {
                Purpose::Read(part_of(header, &read), self.reading.changes)
            }),
            Command::QueryDirectory => {
                QueryDirectoryRequest::parse(message).map_or(Purpose::Pass, |asked| {
                    let is_first = asked.flags & FLAGS_FROM_THE_FIRST != 0;
                    Purpose::Listing(asked.file, asked.class, is_first)
                })
            }
            Command::QueryInfo => {
                self.note_question(header, message, out);
                Purpose::Pass
            }
            _ => Purpose::Pass,
        }
    }

    fn opens(&mut self, header: &Header, create: CreateRequest) -> Purpose {
        self.writing.handle_opening(&create);
        self.note_open(header, &create);
        if create.name.len() > NAME_BYTES_MAX {
            return Purpose::Pass;
        }
        let lends = match self.may_lend(header, &create) && self.ids.begin() {
            true => Lends::Exclusive,
            false => Lends::Nothing,
        };
        Purpose::Create(Box::new(create.noted()), lends)
    }
}

/// What a packet's other messages say of a request: it is about the `file` of the one before, or opens what one `behind` it
/// closes again. That is never followed, for no answer to CLOSE names a file.
pub(super) fn relate(
    purpose: &mut Purpose,
    file: Option<FileId>,
    packet: &Bytes,
    behind: &[(usize, usize)],
) {
    match purpose {
        Purpose::Close(closed) => *closed = file.unwrap_or(*closed),
        Purpose::Create(..) if is_closed_again(packet, behind) => *purpose = Purpose::Pass,
        _ => (),
    }
}

/// Whether what is opened in front of these messages is closed by one of them.
fn is_closed_again(packet: &Bytes, behind: &[(usize, usize)]) -> bool {
    let headers = behind.iter().filter_map(|(start, end)| {
        let message = packet.get(PREFIX_BYTES + start..PREFIX_BYTES + end)?;
        Header::parse(message).ok()
    });
    let goes_on = |header: &Header| header.is_related() && header.command != Command::Create;
    let mut related = headers.take_while(goes_on);
    related.any(|header| header.command == Command::Close)
}

#[cfg(test)]
mod tests {
    use super::super::smb2::open::CreateContext;
    use super::*;
    use crate::settings::Settings;

    fn noted(command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Purpose {
        let mut far = FarSmb::new(Settings::of_link(6_480_000, 200_000_000), 0);
        let header = Header::request(command, 4, 5, 6);
        let mut message = Vec::new();
        header.emit(&mut message);
        body(&mut message);
        far.purpose(&header, &message.into(), &mut Outbox::default())
    }

    fn opening(name_bytes: usize, contexts: Vec<CreateContext>) -> Purpose {
        let create = CreateRequest {
            oplock: 9,
            impersonation: 2,
            access: 3,
            attributes: 0,
            share: 7,
            disposition: 1,
            options: 0,
            name: vec![b'n'; name_bytes],
            contexts,
        };
        noted(Command::Create, |message| create.emit(0, message))
    }

    /// Thousands of requests wait at a server that does not answer.
    #[test]
    fn invariant_5_little_is_kept_of_what_is_asked() {
        let context = |name: &[u8], data_bytes| CreateContext {
            name: name.to_vec(),
            data: vec![0; data_bytes],
        };
        let mut contexts = vec![context(b"ExtA", 200_000), context(b"DHnC", 16)];
        contexts.extend((0..1000).map(|_| context(b"DH2C", 32)));
        let Purpose::Create(create, _) = opening(NAME_BYTES_MAX, contexts) else {
            panic!("not followed");
        };
        let taken_up = [context(b"DHnC", 0), context(b"DH2C", 0)];
        assert!(create.contexts == taken_up, "more, or less");
        assert_eq!((create.access, create.share), (3, 7));
        let long = opening(NAME_BYTES_MAX + 2, Vec::new());
        assert!(matches!(long, Purpose::Pass));
    }

    #[test]
    fn invariant_5_of_a_token_is_kept_who_the_client_is() {
        // NTLM's last message, of nobody and of somebody.
        for (user_bytes, is_nobody) in [(0, true), (8, false)] {
            let mut ntlm = b"NTLMSSP\0\x03\0\0\0".to_vec();
            ntlm.resize(60_000, 0);
            ntlm.splice(36..37, [user_bytes]);
            let setup = SessionSetupRequest {
                flags: 0,
                security_mode: 1,
                capabilities: 0,
                channel: 0,
                previous: 0,
                token: [vec![0xa1; 50], ntlm].concat(),
            };
            let Purpose::Session(kept) =
                noted(Command::SessionSetup, |message| setup.emit(message))
            else {
                panic!("not followed");
            };
            assert_eq!(kept.is_anonymous(), is_nobody);
            assert!(kept.token.len() < 100);
        }
    }
}
