//! What the kernel says about an interface, and its offload switches
//! (`ethtool -k`), by ioctl: netlink would need a library for four questions,
//! and `/sys` may show another network namespace than the one we are in.
//!
//! Layouts: Linux `include/uapi/linux/ethtool.h`.

// ioctl has no safe wrapper for these requests. All of it is in this file.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

const ETHTOOL_GET_STRINGS: u32 = 0x1b;
const ETHTOOL_GET_STRING_SET_INFO: u32 = 0x37;
const ETHTOOL_GET_FEATURES: u32 = 0x3a;
const ETHTOOL_SET_FEATURES: u32 = 0x3b;
const STRING_SET_FEATURES: u32 = 4;
const STRING_BYTES: usize = 32;
/// Far above what any kernel has (about 65).
const FEATURES_MAX: usize = 1024;

/// Asks the kernel about one interface of the current network namespace.
pub(super) struct Device {
    socket: OwnedFd,
    name: [c_char; libc::IFNAMSIZ],
    /// Kernel's number of the interface.
    pub(super) index: u32,
}

impl Device {
    /// Looks the interface up; `NotFound` where there is none of that name.
    pub(super) fn named(name: &str) -> io::Result<Self> {
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(not_found());
        }
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        let index = netdevice::name_to_index(&socket, name).map_err(|error| match error {
            rustix::io::Errno::NODEV => not_found(),
            other => other.into(),
        })?;
        let mut bytes = [0; libc::IFNAMSIZ];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        Ok(Self {
            socket,
            name: bytes,
            index,
        })
    }

    /// Whether an interface of this number exists (under whatever name).
    pub(super) fn exists(&self) -> bool {
        netdevice::index_to_name(&self.socket, self.index).is_ok()
    }

    /// Whether it is administratively up.
    pub(super) fn is_up(&self) -> io::Result<bool> {
        let request = self.ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS filled in the flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }

    /// Its hardware type (`ARPHRD_*`) and address.
    pub(super) fn hardware(&self) -> io::Result<(u16, [u8; 6])> {
        let request = self.ask(libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFHWADDR filled in the hardware address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mut bytes = [0; 6];
        for (to, from) in bytes.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        Ok((address.sa_family, bytes))
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: zero is a valid value of this plain C structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn ask(&self, what: libc::c_ulong) -> io::Result<libc::ifreq> {
        let mut request = self.request();
        // SAFETY: the request is an ifreq with a terminated name, which these
        // requests read and fill in.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), what as _, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(request)
    }

    /// Runs one ethtool command on `words`, whose first word names it.
    fn ethtool(&self, words: &mut [u32]) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        let what = libc::SIOCETHTOOL as _;
        // SAFETY: the callers size `words` for the command and the count that
        // they write into it.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), what, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Names of all features, by number.
    fn feature_names(&self) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, mask (64 bit), data[1].
        let mut info = [
            ETHTOOL_GET_STRING_SET_INFO,
            0,
            1 << STRING_SET_FEATURES,
            0,
            0,
        ];
        if cfg!(target_endian = "big") {
            info.swap(2, 3);
        }
        self.ethtool(&mut info)?;
        let count = (info[4] as usize).min(FEATURES_MAX);
        // struct ethtool_gstrings: cmd, string_set, len, then the strings.
        let mut words = vec![0u32; 3 + count * STRING_BYTES / 4];
        if let [command, set, length, ..] = words.as_mut_slice() {
            *command = ETHTOOL_GET_STRINGS;
            *set = STRING_SET_FEATURES;
            *length = count as u32;
        }
        self.ethtool(&mut words)?;
        let bytes: Vec<u8> = words.iter().skip(3).flat_map(|w| w.to_ne_bytes()).collect();
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(name.get(..end.unwrap_or(name.len())).unwrap_or(name))
                .into_owned()
        };
        Ok(bytes.chunks(STRING_BYTES).map(text).collect())
    }

    /// All features with what is wanted of them and whether that can change.
    pub(super) fn features(&self) -> io::Result<Vec<Feature>> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_gfeatures: cmd, size, then per block available,
        // requested, active, never_changed.
        let mut words = vec![0u32; 2 + blocks * 4];
        if let [command, size, ..] = words.as_mut_slice() {
            *command = ETHTOOL_GET_FEATURES;
            *size = blocks as u32;
        }
        self.ethtool(&mut words)?;
        let feature = |(number, name): (usize, String)| {
            let block = 2 + number / 32 * 4;
            let bit = |word: usize| {
                let word = words.get(block + word).copied().unwrap_or(0);
                word >> (number % 32) & 1 == 1
            };
            Feature {
                name,
                changeable: bit(0) && !bit(3),
                wanted: bit(1),
                active: bit(2),
            }
        };
        Ok(names.into_iter().enumerate().map(feature).collect())
    }

    /// Says what is wanted of the named features; the others stay.
    pub(super) fn want(&self, names: &[String], wanted: bool) -> io::Result<()> {
        let all = self.feature_names()?;
        let blocks = all.len().div_ceil(32);
        // struct ethtool_sfeatures: cmd, size, then per block valid, requested.
        let mut words = vec![0u32; 2 + blocks * 2];
        if let [command, size, ..] = words.as_mut_slice() {
            *command = ETHTOOL_SET_FEATURES;
            *size = blocks as u32;
        }
        let mut any = false;
        for (number, name) in all.iter().enumerate() {
            if !names.contains(name) {
                continue;
            }
            let block = 2 + number / 32 * 2;
            if let Some([valid, requested]) = words.get_mut(block..block + 2) {
                *valid |= 1 << (number % 32);
                *requested |= u32::from(wanted) << (number % 32);
                any = true;
            }
        }
        if any {
            self.ethtool(&mut words)
        } else {
            Ok(())
        }
    }
}

/// One offload switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Feature {
    /// Name as `ethtool -k` shows it, e.g. `tx-tcp-segmentation`.
    pub(super) name: String,
    /// Whether it can be switched.
    pub(super) changeable: bool,
    /// What was asked for, which may differ from what is in force while
    /// another feature that it needs is off.
    pub(super) wanted: bool,
    /// What is in force.
    pub(super) active: bool,
}
