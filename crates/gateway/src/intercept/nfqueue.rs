//! NFQUEUE over netlink: receive held packets, say what becomes of them.
//!
//! Written out here instead of taken from a library because a held SYN must
//! cost its headers and an id, not a 4 KiB message buffer, and because the
//! socket has to be polled by the runtime whose health it stands for.
//! Message layout: linux/netfilter/nfnetlink.h and nfnetlink_queue.h.

use std::io::{self, Read};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;

use super::hold::PENDING_MAX;
use super::poll::register;

const SUBSYSTEM_QUEUE: u16 = 3;
const MSG_PACKET: u16 = SUBSYSTEM_QUEUE << 8;
const MSG_VERDICT: u16 = SUBSYSTEM_QUEUE << 8 | 1;
const MSG_CONFIG: u16 = SUBSYSTEM_QUEUE << 8 | 2;
const MSG_VERDICT_BATCH: u16 = SUBSYSTEM_QUEUE << 8 | 3;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

const ATTR_PACKET_HEADER: u16 = 1;
const ATTR_VERDICT: u16 = 2;
const ATTR_MARK: u16 = 3;
const ATTR_PAYLOAD: u16 = 10;
const CFG_COMMAND: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_LENGTH_MAX: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FLAG_FAIL_OPEN: u32 = 1;
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

/// Bytes of each packet the kernel copies to us: IPv6 with several extension
/// headers and a full TCP header fit.
const COPY_BYTES: u32 = 512;
const RECEIVE_BYTES: usize = 4096;
/// Packets the kernel may hold: those in our table and as many again on the
/// way to it.
const LENGTH_MAX: u32 = 2 * PENDING_MAX as u32;

/// A packet the kernel holds for us.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// To be named in the verdict.
    pub id: u32,
    /// fwmark it carries.
    pub mark: u32,
    /// From the IP header on, possibly cut.
    pub payload: &'a [u8],
}

/// One NFQUEUE number, bound to this socket until it and the guard's handle of
/// it are closed; the kernel would drop packets still held then.
pub(super) struct NfQueue {
    socket: AsyncFd<Socket>,
    number: u16,
}

impl NfQueue {
    /// Binds queue `number`, which holds at most [`LENGTH_MAX`] packets; beyond
    /// that they pass as if no rule had held them. `EPERM` or `EBUSY`: the
    /// number is taken (or the capability is missing).
    pub fn bind(number: u16) -> io::Result<NfQueue> {
        let socket = open()?;
        configure(&socket, number)?;
        Ok(NfQueue {
            socket: register(socket)?,
            number,
        })
    }

    /// Waits until packets may be read, then hands up to `max` of them to
    /// `take`; true when nothing is left to read.
    pub async fn receive(&self, max: usize, mut take: impl FnMut(Packet<'_>)) -> io::Result<bool> {
        let mut guard = self.socket.readable().await?;
        let mut buffer = [0u8; RECEIVE_BYTES];
        for _ in 0..max {
            match guard.try_io(|socket| socket.get_ref().read(&mut buffer)) {
                Err(_would_block) => return Ok(true),
                // The receive buffer overflowed: those packets passed (fail open).
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Ok(Ok(length)) => {
                    for message in Messages(buffer.get(..length).unwrap_or_default()) {
                        if let Some(packet) = message.packet() {
                            take(packet);
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Lets a held packet go on, with another mark if given.
    pub fn accept(&self, id: u32, mark: Option<u32>) -> io::Result<()> {
        self.verdict(id, VERDICT_ACCEPT, mark)
    }

    /// Discards a held packet.
    pub fn drop_packet(&self, id: u32) -> io::Result<()> {
        self.verdict(id, VERDICT_DROP, None)
    }

    /// Another handle of the same socket, for the guard.
    pub fn share(&self) -> io::Result<Socket> {
        self.socket.get_ref().try_clone()
    }

    fn verdict(&self, id: u32, verdict: u32, mark: Option<u32>) -> io::Result<()> {
        let mut message = Message::new(MSG_VERDICT, NLM_F_REQUEST, 0, self.number);
        message.attribute(ATTR_VERDICT, &verdict_header(verdict, id));
        if let Some(mark) = mark {
            message.attribute(ATTR_MARK, &mark.to_be_bytes());
        }
        self.socket.get_ref().send(&message.finish()).map(drop)
    }
}

/// A netlink socket of the netfilter family. It needs no bind: the kernel
/// names it at the first send, and an unaddressed send goes to the kernel.
pub(super) fn open() -> io::Result<Socket> {
    let family = Domain::from(libc::AF_NETLINK);
    let protocol = Protocol::from(libc::NETLINK_NETFILTER);
    let socket = Socket::new(family, Type::RAW, Some(protocol))?;
    // As far as the machine's limit allows.
    let _ = socket.set_recv_buffer_size(4 << 20);
    Ok(socket)
}

/// What the guard does with the gateway's queue in its stead. Nothing is read:
/// answers belong to the gateway, which ignores errors.
pub(super) struct SharedQueue {
    socket: Socket,
    number: u16,
}

impl SharedQueue {
    /// `socket` is what [`NfQueue::share`] gave.
    pub fn new(socket: Socket, number: u16) -> SharedQueue {
        SharedQueue { socket, number }
    }

    /// From now on nothing is held, and what is held passes at once.
    pub fn open_up(&self) -> io::Result<()> {
        // A queue of no length is always full, and a full one fails open.
        self.set_length_max(0)?;
        // Everything up to a packet id, which the kernel compares as sequence
        // numbers: two halves make a whole.
        for id in [u32::MAX / 2, u32::MAX] {
            let mut message = Message::new(MSG_VERDICT_BATCH, NLM_F_REQUEST, 0, self.number);
            message.attribute(ATTR_VERDICT, &verdict_header(VERDICT_ACCEPT, id));
            self.socket.send(&message.finish())?;
        }
        Ok(())
    }

    /// Packets are held again.
    pub fn close_again(&self) -> io::Result<()> {
        self.set_length_max(LENGTH_MAX)
    }

    fn set_length_max(&self, length_max: u32) -> io::Result<()> {
        let mut message = Message::new(MSG_CONFIG, NLM_F_REQUEST, 0, self.number);
        message.attribute(CFG_LENGTH_MAX, &length_max.to_be_bytes());
        self.socket.send(&message.finish()).map(drop)
    }
}

fn verdict_header(verdict: u32, id: u32) -> Vec<u8> {
    [verdict.to_be_bytes(), id.to_be_bytes()].concat()
}

fn configure(socket: &Socket, number: u16) -> io::Result<()> {
    let request = |attributes: &[(u16, &[u8])]| {
        let mut message = Message::new(MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK, 0, number);
        for (kind, value) in attributes {
            message.attribute(*kind, value);
        }
        socket.send(&message.finish())?;
        acknowledged(socket)
    };
    request(&[(CFG_COMMAND, &[COMMAND_BIND, 0, 0, 0])])?;
    let mut params = COPY_BYTES.to_be_bytes().to_vec();
    params.push(COPY_PACKET);
    request(&[(CFG_PARAMS, &params)])?;
    request(&[(CFG_LENGTH_MAX, &LENGTH_MAX.to_be_bytes())])?;
    request(&[
        (CFG_FLAGS, &FLAG_FAIL_OPEN.to_be_bytes()),
        (CFG_MASK, &FLAG_FAIL_OPEN.to_be_bytes()),
    ])
}

/// Waits for the kernel's answer to a request; its error becomes ours.
pub(super) fn acknowledged(mut socket: &Socket) -> io::Result<()> {
    let mut buffer = [0u8; RECEIVE_BYTES];
    loop {
        let length = socket.read(&mut buffer)?;
        for message in Messages(buffer.get(..length).unwrap_or_default()) {
            match message.error() {
                Some(0) => return Ok(()),
                Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                None => {}
            }
        }
    }
}

/// A netlink message being written.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Header with the netfilter part: family and resource number.
    pub fn new(kind: u16, flags: u16, family: u8, resource: u16) -> Message {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family, 0]);
        bytes.extend(resource.to_be_bytes());
        Message(bytes)
    }

    /// Appends an attribute, padded to four bytes.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend(attribute(kind, value));
    }

    /// The message with its length filled in.
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0.splice(0..4, length.to_ne_bytes());
        self.0
    }
}

/// One attribute, padded to four bytes.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The messages of one datagram; ends at the first that does not fit.
struct Messages<'a>(&'a [u8]);

/// One received message.
struct Received<'a> {
    kind: u16,
    body: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        let length = ne32(self.0, 0)? as usize;
        let kind = ne16(self.0, 4)?;
        let body = self.0.get(16..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received { kind, body })
    }
}

impl<'a> Received<'a> {
    /// Errno of an error message, 0 for an acknowledgement.
    fn error(&self) -> Option<i32> {
        (self.kind == NLMSG_ERROR)
            .then(|| ne32(self.body, 0))?
            .map(|error| (error as i32).wrapping_neg())
    }

    fn packet(&self) -> Option<Packet<'a>> {
        if self.kind != MSG_PACKET {
            return None;
        }
        let mut attributes = self.body.get(4..)?;
        let (mut id, mut mark, mut payload) = (None, 0, None);
        while let Some(length) = ne16(attributes, 0) {
            let length = usize::from(length);
            let value = attributes.get(4..length)?;
            match ne16(attributes, 2)? & 0x3fff {
                ATTR_PACKET_HEADER => id = Some(be32(value, 0)?),
                ATTR_MARK => mark = be32(value, 0)?,
                ATTR_PAYLOAD => payload = Some(value),
                _ => {}
            }
            attributes = attributes
                .get(length.next_multiple_of(4)..)
                .unwrap_or_default();
        }
        Some(Packet {
            id: id?,
            mark,
            payload: payload.unwrap_or_default(),
        })
    }
}

pub(super) fn ne16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn ne32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet_message(id: u32, mark: u32, payload: &[u8]) -> Vec<u8> {
        let mut message = Message::new(MSG_PACKET, 0, 2, 250);
        let mut header = id.to_be_bytes().to_vec();
        header.extend([8, 0, 0]);
        message.attribute(ATTR_PACKET_HEADER, &header);
        message.attribute(ATTR_MARK, &mark.to_be_bytes());
        message.attribute(ATTR_PAYLOAD, payload);
        message.finish()
    }

    proptest! {
        #[test]
        fn packets_are_read_back(
            packets in proptest::collection::vec(
                (any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..4),
        ) {
            let mut datagram = Vec::new();
            for (id, mark, payload) in &packets {
                datagram.extend(packet_message(*id, *mark, payload));
            }
            let read: Vec<_> = Messages(&datagram).filter_map(|m| m.packet()).collect();
            let expected: Vec<_> = packets.iter()
                .map(|(id, mark, payload)| Packet { id: *id, mark: *mark, payload })
                .collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn any_datagram_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes).take(100) {
                let _ = (message.error(), message.packet());
            }
        }

        #[test]
        fn mutated_datagrams_are_survived(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = packet_message(1, 2, b"payload");
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            for message in Messages(&bytes).take(100) {
                let _ = (message.error(), message.packet());
            }
        }
    }
}
