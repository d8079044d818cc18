//! Values with a notation of their own: durations, sizes, networks, addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use farhaul_link::LinkProfile;

use super::meaning::{Circuit, HostPort, Network};

/// Why a text is not a value, and what would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// What to write instead, where that is clear.
    pub remedy: Option<String>,
    /// Which part of the text is wrong, in bytes, where it is not all of it.
    pub within: Option<Range<usize>>,
    /// Whether the list of accepted values would add nothing.
    pub complete: bool,
}

impl Fault {
    /// Says what is wrong; what is accepted is added by the reader.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: None,
            within: None,
            complete: false,
        }
    }

    /// Also says what to write instead.
    pub fn with(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(message)
        }
    }

    /// Says everything there is to say.
    pub fn complete(message: impl Into<String>) -> Self {
        Self {
            complete: true,
            ..Self::new(message)
        }
    }
}

/// Number and unit of `text`, which may be separated by spaces.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit.trim())
}

/// Decimal number with at most nine places, as an integer of billionths.
fn billionths(text: &str) -> Option<u128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 || whole.len() > 20 {
        return None;
    }
    let scale = 10u128.pow(9 - part.len() as u32);
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = part.parse().ok()?;
    Some(whole * 1_000_000_000 + part * scale)
}

/// A duration such as `700ms`, `2.5s`, `2 min`, `1h`; a unit is required.
pub fn duration(text: &str) -> Result<Duration, Fault> {
    let (number, unit) = split_unit(text);
    let unit_ns: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "" if !number.is_empty() => {
            return Err(Fault::with(
                format!("`{text}` has no unit"),
                format!("seconds are `{number}s`, milliseconds `{number}ms`"),
            ));
        }
        _ => return Err(Fault::new(format!("`{text}` is not a duration"))),
    };
    let value = billionths(number)
        .and_then(|value| value.checked_mul(unit_ns))
        .and_then(|value| u64::try_from(value / 1_000_000_000).ok())
        .ok_or_else(|| Fault::new(format!("`{text}` is not a duration")))?;
    Ok(Duration::from_nanos(value))
}

/// A size in bytes such as `2 GiB`, `512MiB`, `1.5 TB`; a unit is required.
pub fn size(text: &str) -> Result<u64, Fault> {
    let (number, unit) = split_unit(text);
    let unit_bytes: u128 = match unit {
        "B" | "bytes" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "" if !number.is_empty() => {
            return Err(Fault::with(
                format!("`{text}` has no unit"),
                format!("write `{number} GiB`, `{number} MiB` or `{number} B`"),
            ));
        }
        _ => {
            let nearest = ["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]
                .into_iter()
                .find(|known| {
                    let unit = unit.to_ascii_lowercase();
                    let known = known.to_ascii_lowercase();
                    known == unit || known == format!("{unit}b") || known == format!("{unit}ib")
                });
            let fault = Fault::new(format!("`{text}` is not a size"));
            return Err(Fault {
                remedy: nearest
                    .filter(|_| !number.is_empty())
                    .map(|known| format!("did you mean `{number} {known}`?")),
                ..fault
            });
        }
    };
    billionths(number)
        .and_then(|value| value.checked_mul(unit_bytes))
        .and_then(|value| u64::try_from(value / 1_000_000_000).ok())
        .ok_or_else(|| Fault::new(format!("`{text}` is not a size")))
}

/// A network in CIDR form; a lone address is a network of one host.
pub fn network(text: &str) -> Result<Network, Fault> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| Fault::new(format!("`{text}` is not a network")))?;
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        return Err(Fault::with(
            format!("`{text}` is an IPv4 address in IPv6 clothing"),
            format!("write it as IPv4: `{v4}/...`"),
        ));
    }
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = match prefix {
        None => bits_max,
        Some(prefix) => prefix
            .parse()
            .ok()
            .filter(|bits| *bits <= bits_max && prefix.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| {
                Fault::new(format!(
                    "`{text}` is not a network: the prefix length is 0 to {bits_max}"
                ))
            })?,
    };
    let network = Network {
        address: first_address(address, prefix_bits),
        prefix_bits,
    };
    if network.address != address {
        return Err(Fault::with(
            format!("`{text}` has bits set behind its prefix"),
            format!("the network is `{network}`, the single host `{address}`"),
        ));
    }
    Ok(network)
}

fn first_address(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits));
            Ipv4Addr::from(u32::from(v4) & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits));
            Ipv6Addr::from(u128::from(v6) & mask.unwrap_or(0)).into()
        }
    }
}

/// An address and port to listen on; names are not resolved for that.
pub fn socket_address(text: &str) -> Result<SocketAddr, Fault> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let message = format!("`{text}` is not an address with a port");
    if let Some(remedy) = missing_port(text) {
        return Err(Fault::with(message, remedy));
    }
    if let Some(port) = text.strip_prefix(':').or(Some(text))
        && let Ok(port) = port.parse::<u16>()
    {
        return Err(Fault::with(
            message,
            format!("every local address is `[::]:{port}`"),
        ));
    }
    match text.rsplit_once(':') {
        Some(("localhost", port)) => Err(Fault::with(
            message,
            format!("write `127.0.0.1:{port}` or `[::1]:{port}`"),
        )),
        _ => Err(Fault::new(message)),
    }
}

/// What to say about an address without a port; an IPv6 address may swallow a
/// port that lacks the brackets before it.
fn missing_port(text: &str) -> Option<String> {
    let address: IpAddr = text.parse().ok()?;
    if let Some((host, port)) = text.rsplit_once(':')
        && let (Ok(host), Ok(port)) = (host.parse::<Ipv6Addr>(), port.parse::<u16>())
    {
        return Some(format!(
            "an IPv6 address stands in brackets, the port behind them: `[{host}]:{port}`"
        ));
    }
    let example = SocketAddr::new(address, 4433);
    Some(format!("the port is missing, as in `{example}`"))
}

/// A host name or address with a port between 1 and 65535.
pub fn host_port(text: &str) -> Result<HostPort, Fault> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => Err(port_zero(text)),
            port => Ok(HostPort {
                host: address.ip().to_string(),
                port,
            }),
        };
    }
    let message = format!("`{text}` is not a host with a port");
    if let Some(remedy) = missing_port(text) {
        return Err(Fault::with(message, remedy));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        let remedy = format!("the port is missing, as in `{text}:4433`");
        return Err(match host_name(text) {
            Ok(_) => Fault::with(message, remedy),
            Err(_) => Fault::new(message),
        });
    };
    host_name(host)?;
    match port.parse::<u16>() {
        Ok(0) => Err(port_zero(text)),
        Ok(port) => Ok(HostPort {
            host: host.to_ascii_lowercase(),
            port,
        }),
        Err(_) => Err(Fault::new(format!(
            "`{text}`: the port is a number from 1 to 65535"
        ))),
    }
}

/// What no connection leads to beyond its own machine or network.
pub fn never_served(address: IpAddr) -> Option<&'static str> {
    let v6_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    match address {
        address if address.is_loopback() => Some("loopback"),
        address if address.is_multicast() => Some("multicast"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("broadcast"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("link-local"),
        _ if v6_link_local => Some("link-local"),
        _ => None,
    }
}

/// What a literal host is that nobody can dial: one address of one machine.
pub fn never_dialled(host: &str) -> Option<&'static str> {
    match host.parse().ok()? {
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("broadcast"),
        address if address.is_multicast() => Some("multicast"),
        address if address.is_unspecified() => Some("no address of a machine"),
        _ => None,
    }
}

fn port_zero(text: &str) -> Fault {
    Fault::new(format!(
        "`{text}`: port 0 cannot be reached; name the real port"
    ))
}

/// A DNS name: letters, digits, `-` and `_` in labels of 1 to 63 (RFC 1035
/// section 2.3.4), at most 253 characters. A dotted quad that is no address is
/// a typing error, not a name.
fn host_name(text: &str) -> Result<(), Fault> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last_is_number = name
        .rsplit('.')
        .next()
        .is_some_and(|label| !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit()));
    let is_address = text.parse::<IpAddr>().is_ok();
    if (is_address || !last_is_number) && name.len() <= 253 && name.split('.').all(label) {
        Ok(())
    } else {
        Err(Fault::new(format!(
            "`{text}` is neither a host name nor an address"
        )))
    }
}

/// A host name in a rule; a leading `*.` stands for any number of labels.
pub fn host_pattern(text: &str) -> Result<String, Fault> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    if name.contains('*') {
        return Err(Fault::with(
            format!("`{text}`: `*` stands only at the beginning, before a dot"),
            "as in `*.example.org`",
        ));
    }
    if name.parse::<IpAddr>().is_ok() || name.contains('/') {
        return Err(Fault::with(
            format!("`{text}` is not a host name"),
            "addresses and networks go into `destination`",
        ));
    }
    host_name(name)?;
    Ok(text.trim_end_matches('.').to_ascii_lowercase())
}

/// A port or an inclusive range of ports, as in `445` or `8000-8099`.
pub fn port_range(text: &str) -> Result<(u16, u16), Fault> {
    let fault = || Fault::new(format!("`{text}` is not a port or a range of ports"));
    let port = |text: &str| match text.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(fault()),
    };
    match text.split_once('-') {
        None => port(text).map(|port| (port, port)),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            if first <= last {
                Ok((first, last))
            } else {
                Err(Fault::with(
                    format!("`{text}` runs backwards"),
                    format!("write `{last}-{first}`"),
                ))
            }
        }
    }
}

/// A name of a site, peer or rule: shown in tables, logs and metrics.
pub fn name(text: &str) -> Result<String, Fault> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    if text.trim() != text || text.is_empty() || text.chars().count() > 63 {
        Err(Fault::new(format!(
            "`{text}` is not a name: 1 to 63 characters, none of them a space at either end"
        )))
    } else if let Some(other) = text.chars().find(|c| !fits(*c)) {
        Err(Fault::new(format!(
            "`{text}` is not a name: {other:?} cannot be part of it"
        )))
    } else {
        Ok(text.to_owned())
    }
}

/// What is known of a circuit, in the words of `farhaul link`.
pub fn circuit(text: &str) -> Result<Circuit, Fault> {
    if text.trim().is_empty() {
        return Err(Fault::with(
            "nothing is said about the circuit",
            "leave the key out",
        ));
    }
    match LinkProfile::parse(text) {
        Ok(profile) => Ok(Circuit {
            words: text.to_owned(),
            profile,
        }),
        Err(error) => Err(Fault {
            within: Some(error.span()),
            ..Fault::new(error.to_string())
        }),
    }
}

/// A network interface's name as the kernel allows it: 1 to 15 bytes, no
/// slash, colon or white space.
pub fn interface(text: &str) -> Result<String, Fault> {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if text.is_empty() || text.len() > 15 || text.contains(odd) || matches!(text, "." | "..") {
        Err(Fault::with(
            format!("`{text}` is not the name of an interface"),
            "`ip -brief link` lists them",
        ))
    } else {
        Ok(text.to_owned())
    }
}

/// `duration`'s notation for a duration, exact.
pub fn write_duration(value: Duration) -> String {
    let ns = value.as_nanos();
    for (unit, unit_ns) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ns.is_multiple_of(unit_ns) {
            return format!("{}{unit}", ns / unit_ns);
        }
    }
    format!("{ns}ns")
}

/// `size`'s notation for a number of bytes, exact.
pub fn write_size(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// A number of bytes for people, with one decimal.
pub(super) fn rounded_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// A number of bytes for people: exact where that is short, else with one decimal.
pub fn show_size(bytes: u64) -> String {
    let exact = write_size(bytes);
    let digits = exact.chars().take_while(char::is_ascii_digit).count();
    match digits {
        ..=4 => exact,
        _ => rounded_size(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_that_nobody_dials_are_known() {
        for host in ["239.1.1.1", "255.255.255.255", "0.0.0.0", "::", "ff02::1"] {
            assert!(never_dialled(host).is_some(), "{host}");
        }
        for host in ["10.0.0.1", "127.0.0.1", "fd00::1", "hq.example.org"] {
            assert!(never_dialled(host).is_none(), "{host}");
        }
    }

    #[test]
    fn sizes_for_people_are_short() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (3 << 29, "1536 MiB"),
            (9 << 30, "9 GiB"),
            (20_000_000_000, "18.6 GiB"),
            (100_000_000_000_000, "90.9 TiB"),
            (10_001, "9.8 KiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(show_size(bytes), shown);
        }
    }

    #[test]
    fn durations() {
        let cases = [
            ("700ms", Duration::from_millis(700)),
            ("2.5s", Duration::from_millis(2500)),
            ("2 min", Duration::from_secs(120)),
            ("0s", Duration::ZERO),
            ("1d", Duration::from_secs(86_400)),
        ];
        for (text, value) in cases {
            assert_eq!(duration(text).unwrap(), value, "{text}");
        }
        for text in [
            "",
            "s",
            "-1s",
            "1 fortnight",
            "1e9s",
            "1.s",
            "99999999999d",
            "1..2s",
        ] {
            duration(text).unwrap_err();
        }
        assert!(
            duration("700")
                .unwrap_err()
                .remedy
                .unwrap()
                .contains("700ms")
        );
    }

    #[test]
    fn sizes() {
        let cases = [
            ("2 GiB", 2 << 30),
            ("1.5MB", 1_500_000),
            ("7 B", 7),
            ("0.5KiB", 512),
        ];
        for (text, value) in cases {
            assert_eq!(size(text).unwrap(), value, "{text}");
        }
        assert_eq!(
            size("2G").unwrap_err().remedy.unwrap(),
            "did you mean `2 GB`?"
        );
        assert_eq!(
            size("2 gib").unwrap_err().remedy.unwrap(),
            "did you mean `2 GiB`?"
        );
        for text in ["", "GiB", "2", "-1 B", "20000000 TiB"] {
            size(text).unwrap_err();
        }
    }

    #[test]
    fn networks_with_host_bits_name_the_network() {
        let fault = network("10.2.3.4/16").unwrap_err();
        assert!(fault.remedy.unwrap().contains("`10.2.0.0/16`"));
        let fault = network("fd00::1/64").unwrap_err();
        assert!(fault.remedy.unwrap().contains("`fd00::/64`"));
        assert_eq!(network("0.0.0.0/0").unwrap().prefix_bits, 0);
        assert_eq!(network("::/0").unwrap().prefix_bits, 0);
        assert_eq!(network("10.0.0.1").unwrap().prefix_bits, 32);
        for text in [
            "10.0.0.0/33",
            "10.0.0/8",
            "x",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::ffff:1.2.3.4/128",
        ] {
            network(text).unwrap_err();
        }
    }

    #[test]
    fn hosts_with_ports() {
        for text in [
            "hq.example.org:4433",
            "10.0.0.1:4433",
            "[fd00::1]:4433",
            "hq:1",
        ] {
            assert_eq!(host_port(text).unwrap().to_string(), text);
        }
        for text in [
            "hq",
            "hq:",
            "hq:0",
            "hq:65536",
            "10.0.0.999:1",
            "a b:1",
            "[::1]:0",
            ":1",
            "-a:1",
        ] {
            host_port(text).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = (duration(&text), size(&text), network(&text), socket_address(&text));
            let _ = (host_port(&text), host_pattern(&text), port_range(&text), name(&text));
            let _ = interface(&text);
        }

        #[test]
        fn written_values_are_read_back(ns in any::<u64>(), bytes in any::<u64>()) {
            let value = Duration::from_nanos(ns);
            prop_assert_eq!(duration(&write_duration(value)).unwrap(), value);
            prop_assert_eq!(size(&write_size(bytes)).unwrap(), bytes);
        }

        #[test]
        fn networks_are_read_back(address in any::<std::net::IpAddr>(), bits in 0u8..=128) {
            let bits = if address.is_ipv4() { bits.min(32) } else { bits };
            let net = Network { address: first_address(address, bits), prefix_bits: bits };
            if !matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
                prop_assume!(!net.to_string().contains("::ffff:"));
                prop_assert_eq!(network(&net.to_string()).unwrap(), net);
                prop_assert!(net.contains(address));
            }
        }
    }
}
