//! Whether marked packets are delivered to this machine: the policy rule and
//! the route, which nothing of the nftables table depends on.
//!
//! The kernel is asked where it would send a packet that carries our mark. One
//! lookup takes some microseconds however many routes there are, and it tells
//! also of somebody's rule before ours. Layout: linux/rtnetlink.h.

use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use socket2::{Domain, Protocol, Socket, Type};

use super::nfqueue::{attribute, ne16, ne32};
use super::rules::{Family, Identity};
use crate::lock::lock;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
const RTA_DST: u16 = 1;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTN_LOCAL: u8 = 2;
/// Of the netlink header, and of the route's behind it.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;

/// Addresses for documentation (RFC 5737, RFC 3849): nobody has them, so only
/// a route for everything delivers them here.
const NOBODY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NOBODY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Asks the kernel's routing tables.
#[derive(Debug)]
pub(super) struct Delivery {
    asking: Mutex<Asking>,
    identity: Identity,
}

#[derive(Debug)]
struct Asking {
    socket: Socket,
    number: u32,
}

impl Delivery {
    /// Needs no privilege.
    pub fn open(identity: Identity) -> io::Result<Delivery> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let kind = Type::RAW.nonblocking();
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(protocol))?;
        let asking = Mutex::new(Asking { socket, number: 0 });
        Ok(Delivery { asking, identity })
    }

    /// Whether a marked packet of this family would be delivered here, by our
    /// table. Where the kernel cannot be asked nothing speaks against it.
    pub fn works(&self, family: Family) -> bool {
        let asking = &mut *lock(&self.asking);
        asking.number = asking.number.wrapping_add(1);
        let request = request(family, self.identity.mark, asking.number);
        if asking.socket.send(&request).is_err() {
            return true;
        }
        // The kernel has answered when `send` returns.
        let mut answer = [0; 1024];
        while let Ok(length) = asking.socket.read(&mut answer) {
            let answer = answer.get(..length).unwrap_or_default();
            if ne32(answer, 8) == Some(asking.number) {
                return is_local(answer, self.identity.table);
            }
        }
        true
    }
}

fn request(family: Family, mark: u32, number: u32) -> Vec<u8> {
    let (kind, address) = match family {
        Family::V4 => (libc::AF_INET, IpAddr::from(NOBODY_V4)),
        Family::V6 => (libc::AF_INET6, IpAddr::from(NOBODY_V6)),
    };
    let address = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let mut body = vec![kind as u8, (address.len() * 8) as u8, 0, 0, 0, 0, 0, 0];
    body.extend(RTM_F_LOOKUP_TABLE.to_ne_bytes());
    body.extend(attribute(RTA_DST, &address));
    body.extend(attribute(RTA_MARK, &mark.to_ne_bytes()));
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend(RTM_GETROUTE.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// Whether the kernel's answer is a local route of `table`. Otherwise it is
/// another route, or the error that there is none.
fn is_local(answer: &[u8], table: u32) -> bool {
    if ne16(answer, 4) != Some(RTM_NEWROUTE) || answer.get(HEADER_BYTES + 7) != Some(&RTN_LOCAL) {
        return false;
    }
    let mut attributes = answer.get(HEADER_BYTES + ROUTE_BYTES..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (ne16(attributes, 0), ne16(attributes, 2)) {
        if kind == RTA_TABLE {
            return ne32(attributes, 4) == Some(table);
        }
        let next = usize::from(length).max(4).next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(kind: u16, route: u8, table: u32) -> Vec<u8> {
        let mut body = vec![2, 32, 0, 0, 0, 0, 0, route, 0, 0, 0, 0];
        body.extend(attribute(RTA_DST, &NOBODY_V4.octets()));
        body.extend(attribute(RTA_TABLE, &table.to_ne_bytes()));
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn only_a_local_route_of_our_table_delivers() {
        assert!(is_local(&answer(RTM_NEWROUTE, RTN_LOCAL, 250), 250));
        assert!(!is_local(&answer(RTM_NEWROUTE, RTN_LOCAL, 255), 250));
        assert!(!is_local(&answer(RTM_NEWROUTE, 1, 250), 250));
        // NLMSG_ERROR, as where no rule leads to a route.
        assert!(!is_local(&answer(2, RTN_LOCAL, 250), 250));
    }

    #[test]
    fn without_our_rule_nothing_is_delivered() {
        let identity = Identity {
            queue: 9,
            mark: 0x0ef0_0000,
            table: 4_000_000_001,
        };
        let delivery = Delivery::open(identity).unwrap();
        for family in [Family::V4, Family::V6, Family::V4] {
            assert!(!delivery.works(family));
        }
    }

    proptest! {
        #[test]
        fn invariant_6_any_answer_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = is_local(&bytes, 250);
        }

        #[test]
        fn invariant_6_mutated_answers_are_survived(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = answer(RTM_NEWROUTE, RTN_LOCAL, 250);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = is_local(&bytes, 250);
        }
    }
}
