//! HTTP CONNECT (RFC 9110 section 9.3.6, RFC 9112 section 3.2.3).

use bytes::{Bytes, BytesMut};
use farhaul_tunnel::{Refusal, Target};
use tokio::net::TcpStream;

use super::{Answer, Parsed, Refused, named_target, read_message};

/// Most bytes of request line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The answer to a CONNECT that worked. It must not announce a length.
pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Takes the request with all its headers; it is not answered yet.
pub(super) async fn handshake(
    stream: &mut TcpStream,
    read: &mut BytesMut,
) -> Result<(Target, Answer), Refused> {
    let target = read_message(stream, read, parse).await?;
    Ok((target, Answer::Connect))
}

/// The response that says why the destination was not connected. `Proxy-Status`
/// (RFC 9209) names the cause for programs, the body for people.
pub(super) fn refusal(why: Refusal) -> Bytes {
    let (status, error, text) = match why {
        Refusal::Refused => (
            "502 Bad Gateway",
            "connection_refused",
            "the server refused",
        ),
        Refusal::HostUnreachable => (
            "502 Bad Gateway",
            "destination_ip_unroutable",
            "the server is unreachable",
        ),
        Refusal::NetworkUnreachable => (
            "502 Bad Gateway",
            "destination_ip_unroutable",
            "its network is unreachable",
        ),
        Refusal::NameNotFound => ("502 Bad Gateway", "dns_error", "the name does not resolve"),
        Refusal::TimedOut => (
            "504 Gateway Timeout",
            "connection_timeout",
            "the server does not answer",
        ),
        Refusal::Policy => (
            "403 Forbidden",
            "destination_ip_prohibited",
            "a gateway must not lead there: a loopback address, or not in the far [accept] destinations",
        ),
        Refusal::Overload => (
            "503 Service Unavailable",
            "connection_limit_reached",
            "a gateway is full",
        ),
        Refusal::Draining => (
            "503 Service Unavailable",
            "proxy_internal_error",
            "a gateway is shutting down",
        ),
        Refusal::AsymmetricReturn | Refusal::Internal | Refusal::Other(_) => (
            "502 Bad Gateway",
            "proxy_internal_error",
            "the far gateway could not connect",
        ),
    };
    response(
        status,
        &format!("Proxy-Status: farhaul; error={error}\r\n"),
        text,
    )
}

fn response(status: &str, headers: &str, text: &str) -> Bytes {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    )
    .into()
}

fn refused(status: &str, headers: &str, why: &str) -> Refused {
    Refused::new(why, response(status, headers, why))
}

fn parse(bytes: &[u8]) -> Parsed<Target> {
    let Some(length) = head_bytes(bytes) else {
        // A request line that can only be wrong need not be waited for; this
        // also ends TLS and SOCKS clients at once.
        if bytes.first().is_some_and(|byte| !byte.is_ascii_graphic()) {
            return Err(refused("400 Bad Request", "", "this is not HTTP"));
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(refused(
                "431 Request Header Fields Too Large",
                "",
                "the request's headers are too large",
            ));
        }
        return Ok(None);
    };
    let line = bytes
        .split(|byte| matches!(byte, b'\r' | b'\n'))
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, authority, version) =
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(authority), Some(version), None) => (method, authority, version),
            _ => {
                return Err(refused(
                    "400 Bad Request",
                    "",
                    "the request line is malformed",
                ));
            }
        };
    if !version.starts_with(b"HTTP/1.") {
        return Err(refused(
            "505 HTTP Version Not Supported",
            "",
            "only HTTP/1.x is served here",
        ));
    }
    if method != b"CONNECT" {
        return Err(refused(
            "405 Method Not Allowed",
            "Allow: CONNECT\r\n",
            "only CONNECT is served here; set this as the proxy for https, or use SOCKS5",
        ));
    }
    match parse_authority(authority) {
        Some(target) => Ok(Some((target, length))),
        None => Err(refused("400 Bad Request", "", "CONNECT needs host:port")),
    }
}

/// How long the head is, with the empty line that ends it. A line may end
/// with a bare line feed (RFC 9112 section 2.2).
fn head_bytes(bytes: &[u8]) -> Option<usize> {
    let feeds = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    feeds.map(|(at, _)| at + 1).find_map(|next| {
        let empty_bytes = match bytes.get(next..)? {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return None,
        };
        Some(next + empty_bytes)
    })
}

/// `host:port`, an IPv6 address in brackets; the port may not be left out
/// (RFC 9110 section 9.3.6).
fn parse_authority(authority: &[u8]) -> Option<Target> {
    let colon = authority.iter().rposition(|byte| *byte == b':')?;
    let (host, port) = (authority.get(..colon)?, authority.get(colon + 1..)?);
    let digits = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let port: u16 = std::str::from_utf8(port)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()?;
    if let Some(inner) = host.strip_prefix(b"[") {
        let inner = std::str::from_utf8(inner.strip_suffix(b"]")?).ok()?;
        inner.parse::<std::net::Ipv6Addr>().ok()?;
        return named_target(inner.as_bytes(), port);
    }
    let plain = !host.iter().any(|byte| b":/@[]?#\\".contains(byte));
    if plain {
        named_target(host, port)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(request: &str) -> String {
        let reply = parse(request.as_bytes()).unwrap_err().reply;
        String::from_utf8_lossy(&reply[9..12]).into_owned()
    }

    #[test]
    fn targets_are_addresses_or_names() {
        for (authority, expected) in [
            (
                "10.2.0.1:443",
                Target::Address("10.2.0.1:443".parse().unwrap()),
            ),
            (
                "[fd00::2]:443",
                Target::Address("[fd00::2]:443".parse().unwrap()),
            ),
            (
                "[::ffff:127.0.0.1]:1",
                Target::Address("127.0.0.1:1".parse().unwrap()),
            ),
            (
                "a.example:443",
                Target::Host {
                    name: "a.example".into(),
                    port: 443,
                },
            ),
        ] {
            let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\nrest");
            let (target, length) = parse(request.as_bytes()).unwrap().unwrap();
            assert_eq!((target, &request[length..]), (expected, "rest"));
        }
    }

    #[test]
    fn lines_may_end_with_a_bare_line_feed() {
        for request in [
            "CONNECT a.example:443 HTTP/1.1\nHost: x\n\nrest",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: x\n\r\nrest",
            "CONNECT a.example:443 HTTP/1.0\n\nrest",
        ] {
            let (target, length) = parse(request.as_bytes()).unwrap().unwrap();
            assert_eq!(crate::near::text(&target), "a.example:443");
            assert_eq!(&request[length..], "rest", "{request:?}");
        }
        for unfinished in [
            "CONNECT a:1 HTTP/1.1\n",
            "CONNECT a:1 HTTP/1.1\nHost: x\n\r",
        ] {
            assert!(parse(unfinished.as_bytes()).unwrap().is_none());
        }
        assert_eq!(status("GET / HTTP/1.1\n\n"), "405");
    }

    #[test]
    fn what_is_not_served_gets_its_status() {
        for authority in [
            "host",
            "host:",
            ":80",
            "host:0",
            "host:65536",
            "host:+80",
            "fd00::2",
            "fd00::2:80",
            "[fd00::2]80",
            "[host]:80",
            "[10.0.0.1]:80",
            "u@host:80",
            "a/b:80",
            "",
            "[]:80",
        ] {
            assert_eq!(
                status(&format!("CONNECT {authority} HTTP/1.1\r\n\r\n")),
                "400",
                "{authority}"
            );
        }
        assert_eq!(status("GET http://a/ HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("CONNECT a:1 HTTP/2.0\r\n\r\n"), "505");
        assert_eq!(status("CONNECT a:1\r\n\r\n"), "400");
        assert_eq!(status("\x16\x03\x01"), "400");
        assert_eq!(status(&"x".repeat(HEAD_BYTES_MAX)), "431");
    }

    #[test]
    fn refusals_have_the_statuses_of_the_rfc() {
        for (why, start) in [
            (Refusal::Refused, "HTTP/1.1 502 "),
            (Refusal::HostUnreachable, "HTTP/1.1 502 "),
            (Refusal::TimedOut, "HTTP/1.1 504 "),
            (Refusal::Policy, "HTTP/1.1 403 "),
            (Refusal::Overload, "HTTP/1.1 503 "),
        ] {
            let reply = refusal(why);
            let text = std::str::from_utf8(&reply).unwrap();
            assert!(text.starts_with(start), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len())),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let line = [b"CONNECT ".as_slice(), &bytes, b" HTTP/1.1\r\n\r\n"].concat();
            let _ = parse(&line);
            let _ = parse_authority(&bytes);
        }

        #[test]
        fn a_prefix_never_decides(name in "[a-z.]{1,100}", port in 1u16.., cut in any::<usize>()) {
            let request = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}\r\n\r\n");
            prop_assert!(parse(&request.as_bytes()[..cut % request.len()]).unwrap().is_none());
        }
    }
}
