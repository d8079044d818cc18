//! What the kernel knows of a TCP connection: TCP_INFO, the SYN it began with,
//! and the clamp of the window it advertises.

// These options have no safe wrapper in the libraries used here.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

/// State of a connection at one moment, as the kernel tells it; zero where an
/// older kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpState {
    /// Options in use: bit 0 timestamps, 1 SACK, 2 window scaling, 3 ECN.
    pub options: u8,
    /// Shift of the windows we receive; 0 also where scaling is not in use.
    pub send_window_shift: u8,
    /// Shift of the windows we advertise.
    pub receive_window_shift: u8,
    /// Payload of a full segment we send, bytes.
    pub send_mss_bytes: u32,
    /// MSS we told the other end, bytes.
    pub advertised_mss_bytes: u32,
    /// Path MTU the kernel believes in, bytes.
    pub path_mtu_bytes: u32,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Least round-trip time, microseconds; the greatest number while unknown.
    pub min_rtt_us: u32,
    /// Congestion window in segments.
    pub congestion_window_segments: u32,
    /// Slow-start threshold in segments.
    pub slow_start_threshold_segments: u32,
    /// Segments taken as lost at present.
    pub lost_segments: u32,
    /// Distance in segments within which the kernel expects reordering.
    pub reordering_segments: u32,
    /// Segments sent again so far.
    pub retransmitted_segments: u32,
    /// Segments with data sent so far.
    pub data_segments_out: u32,
    /// Bytes the other end acknowledged so far.
    pub acked_bytes: u64,
    /// Bytes received in order so far.
    pub received_bytes: u64,
    /// Latest estimate of the delivery rate, bytes per second.
    pub delivery_rate_bytes_per_s: u64,
    /// Time with data to send so far, microseconds.
    pub busy_us: u64,
    /// Of which the other end's window was the limit.
    pub receive_window_limited_us: u64,
    /// Of which the send buffer was the limit.
    pub send_buffer_limited_us: u64,
    /// Duplicates the other end reported.
    pub duplicate_sacks: u32,
    /// Times the kernel saw reordering.
    pub reorderings_seen: u32,
    /// Segments received out of order.
    pub out_of_order_segments: u32,
    /// Window the other end advertises at present, bytes.
    pub send_window_bytes: u32,
    /// Window we advertise at present, bytes.
    pub receive_window_bytes: u32,
    /// Retransmission time-outs so far.
    pub timeouts: u16,
}

/// Length of what is asked for; newer kernels know more, older ones less.
const INFO_BYTES: usize = 256;

impl TcpState {
    /// Of this connection, now.
    pub(crate) fn of(stream: &TcpStream) -> io::Result<Self> {
        let mut raw = [0_u8; INFO_BYTES];
        get(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            &mut raw,
        )?;
        Ok(Self::read(&raw))
    }

    /// `struct tcp_info` of linux/tcp.h, which only ever grows at its end.
    fn read(raw: &[u8; INFO_BYTES]) -> Self {
        let byte = |at: usize| raw.get(at).copied().unwrap_or(0);
        let word = |at: usize| u32::from_ne_bytes(take(raw, at));
        let long = |at: usize| u64::from_ne_bytes(take(raw, at));
        Self {
            options: byte(5),
            send_window_shift: byte(6) & 0x0f,
            receive_window_shift: byte(6) >> 4,
            send_mss_bytes: word(16),
            lost_segments: word(32),
            path_mtu_bytes: word(60),
            rtt_us: word(68),
            slow_start_threshold_segments: word(76),
            congestion_window_segments: word(80),
            advertised_mss_bytes: word(84),
            reordering_segments: word(88),
            retransmitted_segments: word(100),
            acked_bytes: long(120),
            received_bytes: long(128),
            min_rtt_us: word(148),
            data_segments_out: word(156),
            delivery_rate_bytes_per_s: long(160),
            busy_us: long(168),
            receive_window_limited_us: long(176),
            send_buffer_limited_us: long(184),
            duplicate_sacks: word(216),
            reorderings_seen: word(220),
            out_of_order_segments: word(224),
            send_window_bytes: word(228),
            receive_window_bytes: word(232),
            timeouts: u16::from_ne_bytes(take(raw, 240)),
        }
    }

    /// Whether both ends agreed on timestamps.
    pub(crate) fn uses_timestamps(&self) -> bool {
        self.options & 1 != 0
    }

    /// Whether both ends agreed on selective acknowledgements.
    pub(crate) fn uses_sack(&self) -> bool {
        self.options & 2 != 0
    }

    /// Whether both ends agreed on window scaling.
    pub fn scales_windows(&self) -> bool {
        self.options & 4 != 0
    }

    /// Whether both ends agreed on explicit congestion notification.
    pub(crate) fn uses_ecn(&self) -> bool {
        self.options & 8 != 0
    }
}

fn take<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    let slice = raw.get(at..at + N).and_then(|slice| slice.try_into().ok());
    slice.unwrap_or([0; N])
}

/// Settings of a connection, read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SocketSettings {
    /// SO_SNDBUF as the kernel has it (twice what was asked for), bytes.
    pub send_buffer_bytes: u64,
    /// SO_RCVBUF as the kernel has it, bytes.
    pub receive_buffer_bytes: u64,
    /// Whether the program has fixed the receive buffer, so that it does not grow;
    /// null where the kernel does not tell (before 5.14).
    pub receive_buffer_fixed: Option<bool>,
    /// Congestion control.
    pub congestion_control: String,
    /// State right after the handshake.
    pub at_start: TcpState,
    /// Options of the SYN that came; only the accepting end sees one.
    pub syn: Option<crate::probe::syn::SynOptions>,
}

impl SocketSettings {
    pub(crate) fn of(stream: &TcpStream) -> io::Result<Self> {
        let socket = SockRef::from(stream);
        let control = socket.tcp_congestion()?;
        let control = String::from_utf8_lossy(&control);
        Ok(Self {
            send_buffer_bytes: socket.send_buffer_size()? as u64,
            receive_buffer_bytes: socket.recv_buffer_size()? as u64,
            receive_buffer_fixed: is_receive_buffer_fixed(stream.as_raw_fd()),
            congestion_control: control.trim_end_matches('\0').to_owned(),
            at_start: TcpState::of(stream)?,
            syn: saved_syn(stream).and_then(|bytes| crate::probe::syn::SynOptions::read(&bytes)),
        })
    }
}

fn is_receive_buffer_fixed(socket: RawFd) -> Option<bool> {
    /// asm-generic/socket.h.
    const SO_BUF_LOCK: i32 = 72;
    /// linux/socket.h.
    const SOCK_RCVBUF_LOCK: i32 = 2;
    let mut raw = [0; 4];
    get(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &mut raw).ok()?;
    Some(i32::from_ne_bytes(raw) & SOCK_RCVBUF_LOCK != 0)
}

/// Lets accepted connections remember their SYN.
pub(crate) fn save_syns(listener: RawFd) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)
}

/// The packet a connection began with: IP header and TCP header. The kernel
/// gives it once.
fn saved_syn(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut raw = [0_u8; 240];
    let length = get(
        stream.as_raw_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_SAVED_SYN,
        &mut raw,
    )
    .ok()?;
    (length > 0).then(|| raw.get(..length).map(<[u8]>::to_vec))?
}

/// Fixes the receive buffer at a multiple of a window, for the kernel raises
/// the clamp of a buffer it sizes itself.
pub(crate) fn fix_buffer_for(socket: RawFd, window_bytes: u32) -> io::Result<()> {
    set_receive_buffer(
        socket,
        window_bytes.saturating_mul(4).clamp(16 << 10, 256 << 20),
    )
}

/// Never advertises more than `bytes`. Linux sets the clamp anew when it learns
/// how large arriving segments are: to be repeated while data comes.
pub(crate) fn clamp_window(socket: RawFd, bytes: u32) -> io::Result<()> {
    set(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_WINDOW_CLAMP,
        int(bytes),
    )
}

/// Sizes the send buffer so that it holds `bytes` of payload.
pub(crate) fn set_send_buffer(socket: RawFd, bytes: u32) -> io::Result<()> {
    force_buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
}

/// Beyond the machine's maximum where we may, else up to it.
pub(crate) fn set_receive_buffer(socket: RawFd, bytes: u32) -> io::Result<()> {
    force_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
}

fn force_buffer(socket: RawFd, force: i32, ask: i32, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, force, int(bytes))
        .or_else(|_| set(socket, libc::SOL_SOCKET, ask, int(bytes)))
}

fn int(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn set(socket: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option takes an int, and its address and size are given.
    let result = unsafe {
        let length = size_of::<i32>() as libc::socklen_t;
        libc::setsockopt(socket, level, option, (&raw const value).cast(), length)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Longest packet the kernel would send to where a UDP socket is connected.
pub(crate) fn path_mtu_bytes(socket: RawFd, is_v6: bool) -> io::Result<u32> {
    let mut raw = [0; 4];
    let (level, option) = match is_v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        false => (libc::IPPROTO_IP, libc::IP_MTU),
    };
    get(socket, level, option, &mut raw)?;
    Ok(u32::from_ne_bytes(raw))
}

/// Datagrams a socket dropped because nobody read them.
pub(crate) fn receive_drops(socket: RawFd) -> io::Result<u32> {
    /// asm-generic/socket.h.
    const SO_MEMINFO: i32 = 55;
    const PLACE: usize = libc::SK_MEMINFO_DROPS as usize * size_of::<u32>();
    let mut raw = [0; PLACE + 4];
    get(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut raw)?;
    Ok(u32::from_ne_bytes(
        raw.last_chunk().copied().unwrap_or_default(),
    ))
}

fn get(socket: RawFd, level: i32, option: i32, raw: &mut [u8]) -> io::Result<usize> {
    let mut length = raw.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `raw`.
    let result = unsafe {
        let address = raw.as_mut_ptr().cast();
        libc::getsockopt(socket, level, option, address, &raw mut length)
    };
    match result {
        0 => Ok(length as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn the_kernels_fields_are_where_they_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        save_syns(listener.as_raw_fd()).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        far.write_all(&[1]).unwrap();
        near.read_exact(&mut [0; 1]).unwrap();
        let (near_state, far_state) = (TcpState::of(&near).unwrap(), TcpState::of(&far).unwrap());
        // A SYN counts as a byte.
        assert_eq!(near_state.acked_bytes, 5001);
        assert_eq!(far_state.received_bytes, 5000);
        assert_eq!(near_state.path_mtu_bytes, 65535);
        assert!(near_state.min_rtt_us < 1_000_000 && near_state.data_segments_out >= 1);
        assert_eq!(near_state.send_window_bytes, far_state.receive_window_bytes);
        assert_eq!(near_state.send_window_shift, far_state.receive_window_shift);
        let settings = SocketSettings::of(&far).unwrap();
        assert_eq!(settings.syn.unwrap().mss_bytes, Some(65495));
    }

    #[test]
    fn a_buffer_that_a_program_has_fixed_is_told_from_the_kernels_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Kernels before 5.14 do not tell.
        let before = SocketSettings::of(&near).unwrap().receive_buffer_fixed;
        fix_buffer_for(near.as_raw_fd(), 8192).unwrap();
        let after = SocketSettings::of(&near).unwrap().receive_buffer_fixed;
        assert_ne!((before, after), (None, Some(true)));
        assert_ne!(before, Some(true));
        assert_ne!(after, Some(false));
    }
}
