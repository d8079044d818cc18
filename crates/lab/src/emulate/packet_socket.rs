//! Packet sockets: every frame of one interface, many per system call.
//!
//! Receiving and sending use two sockets. The receiving one asks for a
//! virtio-net header before every frame (`PACKET_VNET_HDR`), because only that
//! tells a finished frame from one whose sender left segmentation or the
//! checksum to its network card; for the VLAN tag that the kernel takes out of
//! the frame (`PACKET_AUXDATA`); and for the time of arrival. It does not see
//! what this host sends (`PACKET_IGNORE_OUTGOING`).
//!
//! The sending socket goes through the interface's queueing discipline: a
//! veth has none, so bypassing it (`PACKET_QDISC_BYPASS`) gains nothing there,
//! and a bypassed frame is invisible to tcpdump on the same interface.

// sockaddr_ll, control messages, recvmmsg and sendmmsg have no safe wrapper
// that carries the control data of many messages. All of it is in this file.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::frame::{Offload, VlanTag};

/// Most frames taken by one [`Receiver::receive`] or given by one [`Sender::send`].
pub(super) const BATCH_FRAMES: usize = 32;
/// Largest frame the kernel hands over: a 64 KiB segmentation-offload packet
/// with its headers. Longer ones (BIG TCP) come truncated and are refused.
const FRAME_BYTES_MAX: usize = 66 * 1024;
/// Socket buffers: half a second of a gigabit, so that the kernel does not
/// drop while this process waits for a processor.
const BUFFER_BYTES: libc::c_int = 64 << 20;
const VNET_HEADER_BYTES: usize = 10;
const CONTROL_BYTES: usize = 128;

/// One frame as the kernel handed it over.
pub(super) struct Received<'a> {
    /// Ethernet header and payload, without the VLAN tag the kernel took out.
    pub(super) data: &'a [u8],
    /// What its sender left undone.
    pub(super) offload: Offload,
    /// The tag that was taken out.
    pub(super) vlan: Option<VlanTag>,
    /// When the kernel received it: nanoseconds of the real-time clock.
    pub(super) arrival_real_ns: Option<u64>,
    /// The frame is longer than `data`.
    pub(super) truncated: bool,
}

/// Receives every frame that arrives at one interface.
pub(super) struct Receiver {
    socket: OwnedFd,
    /// One after the other: virtio-net header and frame of each slot.
    frames: Vec<u8>,
    control: Vec<[u64; CONTROL_BYTES / 8]>,
    messages: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the raw pointers in `messages` and `vectors` point into the other
// fields of the same value, are rewritten before every system call, and are
// never handed out.
unsafe impl Send for Receiver {}

const SLOT_BYTES: usize = VNET_HEADER_BYTES + FRAME_BYTES_MAX;

impl Receiver {
    /// Opens a receiver in promiscuous mode; frames queue from now on.
    pub(super) fn open(interface_index: u32) -> io::Result<Self> {
        let socket = open_socket()?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        grow_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
        bind(&socket, interface_index, libc::ETH_P_ALL as u16)?;
        // Undone by the kernel when the socket closes, however that happens.
        let membership = libc::packet_mreq {
            mr_ifindex: interface_index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let add = libc::PACKET_ADD_MEMBERSHIP;
        set_option(&socket, libc::SOL_PACKET, add, &membership)?;
        Ok(Self {
            socket,
            frames: vec![0; SLOT_BYTES * BATCH_FRAMES],
            control: vec![[0; CONTROL_BYTES / 8]; BATCH_FRAMES],
            // SAFETY: zero is a valid value of these plain C structures.
            messages: vec![unsafe { zeroed() }; BATCH_FRAMES],
            vectors: vec![unsafe { zeroed() }; BATCH_FRAMES],
        })
    }

    /// Takes what has arrived, up to [`BATCH_FRAMES`], and returns how many;
    /// 0 where nothing has. Read them with [`Receiver::frame`].
    ///
    /// `EINVAL` means that the kernel discarded one frame whose offload the
    /// virtio-net header cannot express; `ENETDOWN` that the interface is down
    /// or gone.
    pub(super) fn receive(&mut self) -> io::Result<usize> {
        let slots = self.frames.chunks_exact_mut(SLOT_BYTES);
        let parts = self.messages.iter_mut().zip(&mut self.vectors);
        for ((slot, (message, vector)), control) in slots.zip(parts).zip(&mut self.control) {
            vector.iov_base = slot.as_mut_ptr().cast();
            vector.iov_len = slot.len();
            let header = &mut message.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
        // SAFETY: every message points to one vector, one slot and one control
        // buffer of its own, which live as long as `self`; their lengths are
        // the real ones.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH_FRAMES as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => none_if_it_would_block(io::Error::last_os_error()),
        }
    }

    /// Frame `index` of the last batch; `None` where it is no frame at all.
    pub(super) fn frame(&self, index: usize) -> Option<Received<'_>> {
        let message = self.messages.get(index)?;
        let start = index * SLOT_BYTES;
        let end = start + (message.msg_len as usize).min(SLOT_BYTES);
        let slot = self.frames.get(start..end)?;
        let (header, data) = slot.split_at_checked(VNET_HEADER_BYTES)?;
        let mut received = Received {
            data,
            offload: Offload::parse(header)?,
            vlan: None,
            arrival_real_ns: None,
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        read_control(&message.msg_hdr, &mut received);
        Some(received)
    }

    /// Frames the kernel dropped because the socket's buffer was full, since
    /// the last call.
    pub(super) fn take_kernel_drops(&self) -> io::Result<u64> {
        // SAFETY: zero is a valid value of this plain C structure.
        let mut counts: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointer and length describe `counts`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counts).cast(),
                &raw mut length,
            )
        };
        check(result).map(|()| u64::from(counts.tp_drops))
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn read_control(header: &libc::msghdr, received: &mut Received<'_>) {
    // SAFETY: the header is one the kernel filled in; the CMSG macros walk its
    // control buffer within `msg_controllen`, which the kernel set. Payloads
    // are read unaligned and only when the message says they are that long.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            let data = libc::CMSG_DATA(message);
            let holds =
                |bytes: usize| control.cmsg_len >= libc::CMSG_LEN(bytes as libc::c_uint) as _;
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                    if holds(size_of::<libc::tpacket_auxdata>()) =>
                {
                    let aux: libc::tpacket_auxdata = ptr::read_unaligned(data.cast());
                    received.vlan = vlan_tag(&aux);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if holds(size_of::<libc::timespec>()) => {
                    let time: libc::timespec = ptr::read_unaligned(data.cast());
                    received.arrival_real_ns = nanoseconds(&time);
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
}

fn vlan_tag(aux: &libc::tpacket_auxdata) -> Option<VlanTag> {
    if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let protocol = if aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        aux.tp_vlan_tpid
    } else {
        libc::ETH_P_8021Q as u16
    };
    Some(VlanTag {
        protocol,
        control: aux.tp_vlan_tci,
    })
}

fn nanoseconds(time: &libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

/// Sends finished frames out of one interface.
pub(super) struct Sender {
    socket: OwnedFd,
}

impl Sender {
    /// Opens a sender.
    pub(super) fn open(interface_index: u32) -> io::Result<Self> {
        let socket = open_socket()?;
        grow_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
        // Protocol 0: this socket receives nothing.
        bind(&socket, interface_index, 0)?;
        Ok(Self { socket })
    }

    /// Sends the first of `frames`, up to [`BATCH_FRAMES`], in order. Returns
    /// how many went out, at least one; an error is about the first frame.
    pub(super) fn send(&self, frames: &[Vec<u8>]) -> io::Result<usize> {
        // SAFETY: zero is a valid value of these plain C structures.
        let mut messages: [libc::mmsghdr; BATCH_FRAMES] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut vectors: [libc::iovec; BATCH_FRAMES] = unsafe { zeroed() };
        for ((message, vector), frame) in messages.iter_mut().zip(&mut vectors).zip(frames) {
            // The kernel only reads from a vector of sendmmsg.
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let count = frames.len().min(BATCH_FRAMES);
        // SAFETY: the first `count` messages point to vectors and frames that
        // outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; protocol 0 receives nothing until bind.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(descriptor)?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn bind(socket: &OwnedFd, interface_index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: zero is a valid value of this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface_index.cast_signed();
    // SAFETY: pointer and length describe `address`.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    check(result)
}

/// Beyond the system's limit where permitted, else up to it.
fn grow_buffer(socket: &OwnedFd, force: libc::c_int, polite: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, force, &BUFFER_BYTES)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, polite, &BUFFER_BYTES))
}

fn set_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, a plain C value.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn none_if_it_would_block(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}
