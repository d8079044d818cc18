//! What the two halves of an optimiser send each other in the place of the flow's bytes.
//!
//! | byte | item | payload | effect |
//! |---|---|---|---|
//! | 0 | START | protocol 1, knows 1 | near to far, first: what the client speaks; bits (`KNOWS_*`) of what the near half knows that was not always there |
//! | 1 | BYTES | bytes of the application | handed on, or read by the other half |
//! | 2 | MESSAGE | the optimiser's own | see the protocol |
//! | 3 | OPAQUE | reason 1 | everything behind it is the application's, without items |
//!
//! Byte, length 4 (big-endian), payload. START had one byte once: the second is 0 where it is missing, and who knows none
//! leaves it alone. A length of more than [`ITEM_BYTES_MAX`] and unknown bytes are errors.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::detect::Protocol;
use crate::reason::Reason;

/// Payload of an item.
pub const ITEM_BYTES_MAX: usize = 1 << 20;
/// More of the application's bytes are several items.
const BYTES_ITEM_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 5;

const START: u8 = 0;
const BYTES: u8 = 1;
const MESSAGE: u8 = 2;
const OPAQUE: u8 = 3;

/// The near half may be handed files that the far half has opened ahead of the client.
pub const KNOWS_OFFERED_FILES: u8 = 1;

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// What the client speaks, and what the near half knows.
    Start(Protocol, u8),
    /// The application's.
    Bytes(Bytes),
    /// The optimiser's.
    Message(Bytes),
    /// The end of items.
    Opaque(Reason),
}

impl Item {
    /// As bytes of the flow. Long bytes become several items.
    pub fn encode(self, output: &mut Vec<Bytes>) {
        match self {
            Self::Start(protocol, knows) => {
                let payload = [protocol.to_wire(), knows];
                push(START, Bytes::copy_from_slice(&payload), output);
            }
            Self::Opaque(reason) => output.push(short(OPAQUE, reason.to_wire())),
            Self::Message(message) => push(MESSAGE, message, output),
            Self::Bytes(mut bytes) => {
                while bytes.len() > BYTES_ITEM_BYTES {
                    push(BYTES, bytes.split_to(BYTES_ITEM_BYTES), output);
                }
                push(BYTES, bytes, output);
            }
        }
    }
}

fn short(kind: u8, payload: u8) -> Bytes {
    Bytes::copy_from_slice(&[kind, 0, 0, 0, 1, payload])
}

fn push(kind: u8, payload: Bytes, output: &mut Vec<Bytes>) {
    debug_assert!(payload.len() <= ITEM_BYTES_MAX);
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    header.put_u8(kind);
    header.put_u32(payload.len() as u32);
    output.push(header.freeze());
    if !payload.is_empty() {
        output.push(payload);
    }
}

/// Reads items from a flow, and the plain bytes behind them.
#[derive(Debug, Default)]
pub struct Items {
    held: BytesMut,
    /// Plain bytes as they came.
    whole: Bytes,
    is_plain: bool,
}

/// Bytes that are no item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnItem;

impl Items {
    /// More of the flow.
    pub fn push(&mut self, bytes: Bytes) {
        if self.is_plain && self.held.is_empty() && self.whole.is_empty() {
            self.whole = bytes;
        } else {
            self.held
                .extend_from_slice(&std::mem::take(&mut self.whole));
            self.held.extend_from_slice(&bytes);
        }
    }

    /// The next item that is whole. Behind [`Item::Opaque`] everything is [`Item::Bytes`].
    ///
    /// # Errors
    /// When the flow is not made of items.
    pub fn poll(&mut self) -> Result<Option<Item>, NotAnItem> {
        if self.is_plain {
            let bytes = match self.whole.is_empty() {
                true => self.held.split().freeze(),
                false => std::mem::take(&mut self.whole),
            };
            return Ok((!bytes.is_empty()).then_some(Item::Bytes(bytes)));
        }
        let Some((kind, length)) = self.header()? else {
            return Ok(None);
        };
        if self.held.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.held.advance(HEADER_BYTES);
        let payload = self.held.split_to(length).freeze();
        let first = payload.first().copied();
        let item = match (kind, first) {
            (BYTES, _) => Item::Bytes(payload),
            (MESSAGE, _) => Item::Message(payload),
            (START, Some(byte)) => {
                let protocol = Protocol::from_wire(byte).ok_or(NotAnItem)?;
                Item::Start(protocol, payload.get(1).copied().unwrap_or(0))
            }
            (OPAQUE, Some(byte)) => Item::Opaque(Reason::from_wire(byte)),
            _ => return Err(NotAnItem),
        };
        self.is_plain = matches!(item, Item::Opaque(_));
        Ok(Some(item))
    }

    /// Whether the flow may end here.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.held.is_empty() && self.whole.is_empty()
    }

    fn header(&self) -> Result<Option<(u8, usize)>, NotAnItem> {
        let Some((kind, rest)) = self.held.split_first() else {
            return Ok(None);
        };
        if *kind > OPAQUE {
            return Err(NotAnItem);
        }
        let Some(length) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        match length <= ITEM_BYTES_MAX {
            true => Ok(Some((*kind, length))),
            false => Err(NotAnItem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(item: Item) -> Vec<u8> {
        let mut encoded = Vec::new();
        item.encode(&mut encoded);
        encoded.concat()
    }

    #[test]
    fn invariant_10_items_look_as_they_always_did() {
        assert_eq!(
            bytes_of(Item::Start(Protocol::Smb, 1)),
            [0, 0, 0, 0, 2, 1, 1]
        );
        assert_eq!(
            bytes_of(Item::Bytes(Bytes::from_static(b"ab"))),
            [1, 0, 0, 0, 2, b'a', b'b']
        );
        assert_eq!(
            bytes_of(Item::Message(Bytes::from_static(b"c"))),
            [2, 0, 0, 0, 1, b'c']
        );
        assert_eq!(
            bytes_of(Item::Opaque(Reason::SmbSigned)),
            [3, 0, 0, 0, 1, 7]
        );
    }

    #[test]
    fn items_are_read_however_they_are_split() {
        let all = [
            Item::Start(Protocol::Smb, KNOWS_OFFERED_FILES),
            Item::Bytes(Bytes::from(vec![7; 100])),
            Item::Message(Bytes::from_static(b"hello")),
            Item::Opaque(Reason::Operator),
        ];
        let mut wire: Vec<u8> = all.iter().cloned().flat_map(bytes_of).collect();
        wire.extend_from_slice(b"plain");
        for size in 1..wire.len() {
            let mut items = Items::default();
            let (mut read, mut plain) = (Vec::new(), Vec::new());
            for piece in wire.chunks(size) {
                items.push(Bytes::copy_from_slice(piece));
                while let Some(item) = items.poll().unwrap() {
                    match item {
                        Item::Bytes(bytes) if read.len() == all.len() => plain.extend(bytes),
                        item => read.push(item),
                    }
                }
            }
            assert_eq!(
                (read.as_slice(), plain.as_slice()),
                (all.as_slice(), &b"plain"[..])
            );
            assert!(items.is_between());
        }
    }

    #[test]
    fn who_says_nothing_of_what_it_knows_knows_nothing_new() {
        let mut items = Items::default();
        items.push(Bytes::from_static(&[0, 0, 0, 0, 1, 1]));
        assert_eq!(items.poll(), Ok(Some(Item::Start(Protocol::Smb, 0))));
    }

    #[test]
    fn what_is_no_item_is_an_error() {
        for wire in [
            &[4][..],
            &[1, 0, 0x10, 0, 1],
            &[0, 0, 0, 0, 1, 9],
            &[3, 0, 0, 0, 0],
        ] {
            let mut items = Items::default();
            items.push(Bytes::copy_from_slice(wire));
            assert_eq!(items.poll(), Err(NotAnItem), "{wire:?}");
        }
    }
}
