//! SOCKS5 (RFC 1928): CONNECT, without authentication.
//!
//! | message | bytes |
//! |---|---|
//! | greeting | `05`, number of methods, methods |
//! | choice | `05`, `00` (no authentication) or `ff` (none acceptable) |
//! | request | `05`, command, `00`, address type, address, port |
//! | reply | `05`, reply code, `00`, address type, bound address, port |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use farhaul_tunnel::{Refusal, Target};
use tokio::net::TcpStream;

use super::{Answer, Parsed, Refused, named_target, read_message, write};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const COMMAND_CONNECT: u8 = 1;
const TYPE_V4: u8 = 1;
const TYPE_NAME: u8 = 3;
const TYPE_V6: u8 = 4;

// RFC 1928 section 6.
pub(super) const SUCCEEDED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const TTL_EXPIRED: u8 = 6;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const TYPE_NOT_SUPPORTED: u8 = 8;

/// Takes greeting and request; the request is not answered yet.
pub(super) async fn handshake(
    stream: &mut TcpStream,
    read: &mut BytesMut,
) -> Result<(Target, Answer), Refused> {
    read_message(stream, read, parse_greeting).await?;
    write(stream, &[VERSION, NO_AUTHENTICATION]).await?;
    let target = read_message(stream, read, parse_request).await?;
    Ok((target, Answer::Socks))
}

/// A whole reply.
pub(super) fn reply(code: u8, bound: SocketAddr) -> Bytes {
    let mut reply = vec![VERSION, code, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            reply.push(TYPE_V4);
            reply.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            reply.push(TYPE_V6);
            reply.extend_from_slice(&address.octets());
        }
    }
    reply.extend_from_slice(&bound.port().to_be_bytes());
    reply.into()
}

fn failure(code: u8) -> Bytes {
    reply(code, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
}

/// The reply that says why the destination was not connected.
pub(super) fn refusal(why: Refusal) -> Bytes {
    failure(match why {
        Refusal::Refused => CONNECTION_REFUSED,
        Refusal::HostUnreachable | Refusal::NameNotFound => HOST_UNREACHABLE,
        Refusal::NetworkUnreachable => NETWORK_UNREACHABLE,
        // The RFC has no code for a time-out; clients report this one as such.
        Refusal::TimedOut => TTL_EXPIRED,
        Refusal::Policy => NOT_ALLOWED,
        Refusal::AsymmetricReturn
        | Refusal::Overload
        | Refusal::Internal
        | Refusal::Draining
        | Refusal::Other(_) => GENERAL_FAILURE,
    })
}

/// The greeting must offer to go without authentication.
fn parse_greeting(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [] => Ok(None),
        [VERSION] => Ok(None),
        [VERSION, count, rest @ ..] => {
            let Some(methods) = rest.get(..usize::from(*count)) else {
                return Ok(None);
            };
            if methods.contains(&NO_AUTHENTICATION) {
                Ok(Some(((), 2 + methods.len())))
            } else {
                let reply = [VERSION, NONE_ACCEPTABLE];
                Err(Refused::new("it insists on authentication", reply.to_vec()))
            }
        }
        [4, ..] => Err(Refused::new("it speaks SOCKS4; set it to SOCKS5", "")),
        _ => Err(Refused::new("it does not speak SOCKS5", "")),
    }
}

fn parse_request(bytes: &[u8]) -> Parsed<Target> {
    let (command, rest) = match bytes {
        [] | [VERSION] | [VERSION, _] | [VERSION, _, _] => return Ok(None),
        [VERSION, command, _, rest @ ..] => (*command, rest),
        _ => {
            return Err(Refused::new(
                "its request is not SOCKS5",
                failure(GENERAL_FAILURE),
            ));
        }
    };
    if command != COMMAND_CONNECT {
        let why = format!("it asks for command {command}; only CONNECT is served");
        return Err(Refused::new(why, failure(COMMAND_NOT_SUPPORTED)));
    }
    let (host, after) = match rest {
        [TYPE_V4, rest @ ..] => match rest.split_first_chunk::<4>() {
            Some((octets, after)) => (Host::Address(Ipv4Addr::from(*octets).into()), after),
            None => return Ok(None),
        },
        [TYPE_V6, rest @ ..] => match rest.split_first_chunk::<16>() {
            Some((octets, after)) => (Host::Address(Ipv6Addr::from(*octets).into()), after),
            None => return Ok(None),
        },
        [TYPE_NAME] => return Ok(None),
        [TYPE_NAME, length, rest @ ..] => match rest.split_at_checked(usize::from(*length)) {
            Some((name, after)) => (Host::Name(name), after),
            None => return Ok(None),
        },
        _ => {
            let why = "its address is of an unknown type";
            return Err(Refused::new(why, failure(TYPE_NOT_SUPPORTED)));
        }
    };
    let Some((port, after)) = after.split_first_chunk::<2>() else {
        return Ok(None);
    };
    let port = u16::from_be_bytes(*port);
    let target = match host {
        Host::Address(address) if port != 0 => Some(Target::Address(SocketAddr::new(
            address.to_canonical(),
            port,
        ))),
        Host::Address(_) => None,
        Host::Name(name) => named_target(name, port),
    };
    match target {
        Some(target) => Ok(Some((target, bytes.len() - after.len()))),
        None => Err(Refused::new(
            "its destination is not valid",
            failure(GENERAL_FAILURE),
        )),
    }
}

enum Host<'a> {
    Address(IpAddr),
    Name(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![VERSION, COMMAND_CONNECT, 0, kind];
        bytes.extend_from_slice(address);
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    fn named(name: &str, port: u16) -> Vec<u8> {
        let mut address = vec![u8::try_from(name.len()).unwrap()];
        address.extend_from_slice(name.as_bytes());
        request(TYPE_NAME, &address, port)
    }

    fn parsed(bytes: &[u8]) -> Target {
        let (target, length) = parse_request(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        target
    }

    #[test]
    fn requests_of_every_address_type() {
        let address = |text: &str| Target::Address(text.parse().unwrap());
        assert_eq!(
            parsed(&request(TYPE_V4, &[10, 2, 0, 1], 445)),
            address("10.2.0.1:445")
        );
        let v6: Ipv6Addr = "fd00::2".parse().unwrap();
        assert_eq!(
            parsed(&request(TYPE_V6, &v6.octets(), 80)),
            address("[fd00::2]:80")
        );
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        assert_eq!(
            parsed(&request(TYPE_V6, &mapped.octets(), 80)),
            address("127.0.0.1:80")
        );
        let name = "files.example.org";
        assert_eq!(
            parsed(&named(name, 80)),
            Target::Host {
                name: name.into(),
                port: 80
            }
        );
        // Clients put literals into names.
        assert_eq!(parsed(&named("10.2.0.1", 80)), address("10.2.0.1:80"));
        assert_eq!(parsed(&named("fd00::2", 80)), address("[fd00::2]:80"));
    }

    #[test]
    fn what_is_not_served_gets_its_code() {
        let code = |bytes: &[u8]| parse_request(bytes).unwrap_err().reply[1];
        assert_eq!(code(&[5, 2, 0, 1]), COMMAND_NOT_SUPPORTED);
        assert_eq!(code(&[5, 3, 0, 1]), COMMAND_NOT_SUPPORTED);
        assert_eq!(code(&[5, 1, 0, 2]), TYPE_NOT_SUPPORTED);
        assert_eq!(code(&named("", 80)), GENERAL_FAILURE);
        assert_eq!(code(&named("a b", 80)), GENERAL_FAILURE);
        assert_eq!(code(&named("a\n", 80)), GENERAL_FAILURE);
        assert_eq!(code(&named("a", 0)), GENERAL_FAILURE);
        assert_eq!(code(&request(TYPE_NAME, &[1, 0xff], 80)), GENERAL_FAILURE);
        assert_eq!(code(&request(TYPE_V4, &[10, 0, 0, 1], 0)), GENERAL_FAILURE);
        assert_eq!(
            &parse_greeting(&[5, 1, 2]).unwrap_err().reply[..],
            [5, 0xff]
        );
        assert_eq!(&parse_greeting(&[5, 0]).unwrap_err().reply[..], [5, 0xff]);
        assert!(parse_greeting(b"GET /").unwrap_err().reply.is_empty());
    }

    #[test]
    fn refusals_have_the_codes_of_the_rfc() {
        for (why, code) in [
            (Refusal::Refused, 5),
            (Refusal::HostUnreachable, 4),
            (Refusal::NetworkUnreachable, 3),
            (Refusal::TimedOut, 6),
            (Refusal::Policy, 2),
            (Refusal::NameNotFound, 4),
            (Refusal::Overload, 1),
        ] {
            assert_eq!(
                &refusal(why)[..],
                [5, code, 0, 1, 0, 0, 0, 0, 0, 0],
                "{why:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_greeting(&bytes);
            let _ = parse_request(&bytes);
        }

        #[test]
        fn a_prefix_never_decides(name in "[a-z.]{1,255}", port in 1u16.., cut in any::<usize>()) {
            let bytes = named(&name, port);
            prop_assert!(parse_request(&bytes[..cut % bytes.len()]).unwrap().is_none());
        }

        #[test]
        fn no_request_waits_for_more_than_262_bytes(tail in proptest::collection::vec(any::<u8>(), 262)) {
            let mut bytes = vec![5, 1, 0];
            bytes.extend_from_slice(&tail);
            prop_assert!(!matches!(parse_request(&bytes), Ok(None)));
        }
    }
}
