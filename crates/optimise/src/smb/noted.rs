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
                .map_or(Purpose::Pass, |setup| Purpose::Session(Box::new(setup))),
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
        // The oplock of a file that is taken up is the client's, whatever it says of that.
        let may_lend = self.may_lend(header, &create) && !create.is_reconnect();
        let lends = match may_lend && self.ids.begin() {
            true => Lends::Exclusive,
            false => Lends::Nothing,
        };
        Purpose::Create(Box::new(create), lends)
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
