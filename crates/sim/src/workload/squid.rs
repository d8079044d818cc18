//! Squid's native access.log:
//! `time elapsed_ms client code/status bytes method URL user hierarchy/peer type`.

use super::entry::{Entry, host_of_url};
use super::lines::{Kept, TooManyBadLines, number, read_lines, short, time_s};

/// Reads an access.log. Only what was fetched from elsewhere is kept: hits,
/// denials, errors and tunnels are left out, as the study left out what its
/// caches answered.
///
/// # Errors
/// [`TooManyBadLines`] beyond `bad_lines_max`.
pub fn read_squid(text: &str, bad_lines_max: usize) -> Result<Kept<Vec<Entry>>, TooManyBadLines> {
    read_lines(text, bad_lines_max, read_entry)
}

fn read_entry(line: &str) -> Result<Option<Entry>, String> {
    let mut words = line.split_whitespace();
    let ended_s = time_s(words.next(), "time in seconds")?;
    let elapsed_ms: u64 = number(words.next(), "elapsed time in ms")?;
    let client = words.next().ok_or("the client is missing")?;
    let outcome = words.next().ok_or("code and status are missing")?;
    let (code, status) = outcome
        .split_once('/')
        .ok_or_else(|| format!("`{}` is no code/status", short(outcome)))?;
    let status: u16 = number(Some(status), "status")?;
    let reply_bytes = number(words.next(), "size in bytes")?;
    let method = words.next().ok_or("the method is missing")?;
    let url = words.next().ok_or("the URL is missing")?;
    words.next().ok_or("the user is missing")?;
    let hierarchy = words.next().ok_or("hierarchy and peer are missing")?;
    let (way, peer) = hierarchy.split_once('/').unwrap_or((hierarchy, "-"));
    let is_fetched = code.contains("MISS") && way != "NONE" && way != "HIER_NONE";
    if !is_fetched || method == "CONNECT" || !(200..400).contains(&status) {
        return Ok(None);
    }
    let host = host_of_url(url).ok_or_else(|| format!("`{}` names no host", short(url)))?;
    let far_s = elapsed_ms as f64 / 1000.0;
    let entry = Entry {
        at_s: (ended_s - far_s).max(0.0),
        client: client.to_owned(),
        host,
        address: (peer != "-").then(|| peer.to_owned()),
        request_bytes: None,
        reply_bytes,
        far_s: Some(far_s),
    };
    entry.checked().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_kept_with_the_time_they_began() {
        let log = "\
868234567.890   2500 10.0.0.5 TCP_MISS/200 12345 GET http://www.example.com/a.gif - DIRECT/192.0.2.7 image/gif
868234568.000     12 10.0.0.5 TCP_HIT/200 999 GET http://www.example.com/b.gif - NONE/- image/gif
868234568.100    100 10.0.0.6 TCP_MISS/404 300 GET http://www.example.com/c - DIRECT/192.0.2.7 text/html
868234568.200   9000 10.0.0.6 TCP_MISS/200 300 CONNECT example.com:443 - HIER_DIRECT/192.0.2.8 -
868234568.300 nonsense
868234568.400 99999999999 10.0.0.6 TCP_MISS/200 1 GET http://a.example/ - DIRECT/192.0.2.8 -
868234568.500 1 10.0.0.6 TCP_MISS/200 18446744073709551615 GET http://a.example/ - DIRECT/192.0.2.8 -
";
        let read = read_squid(log, 3).unwrap();
        assert_eq!((read.kept.len(), read.left_out, read.bad_lines), (1, 3, 3));
        assert_eq!(read.bad[0].0, 5);
        let entry = &read.kept[0];
        assert!((entry.at_s - 868_234_565.39).abs() < 1e-6);
        assert_eq!((entry.reply_bytes, entry.far_s), (12_345, Some(2.5)));
        assert_eq!(
            (entry.host.as_str(), entry.address.as_deref()),
            ("www.example.com", Some("192.0.2.7"))
        );
        assert!(read_squid(log, 0).is_err());
    }
}
