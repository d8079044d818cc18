//! Common Log Format, and Combined, which adds two quoted fields:
//! `client ident user [day/month/year:h:m:s zone] "request" status bytes`.

use super::entry::{Entry, days_from_epoch, host_of_url};
use super::lines::{Kept, TooManyBadLines, number, read_lines, short};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads a log. Requests whose line names no host (all, on an origin server)
/// are said to be of `host`; replies without success are left out. Such a log
/// knows neither how long a reply took nor the length of its header:
/// `header_bytes` is added to each.
///
/// # Errors
/// [`TooManyBadLines`] beyond `bad_lines_max`.
pub fn read_clf(
    text: &str,
    host: &str,
    header_bytes: u64,
    bad_lines_max: usize,
) -> Result<Kept<Vec<Entry>>, TooManyBadLines> {
    read_lines(text, bad_lines_max, |line| {
        read_entry(line, host, header_bytes)
    })
}

fn read_entry(line: &str, host: &str, header_bytes: u64) -> Result<Option<Entry>, String> {
    let client = line
        .split_whitespace()
        .next()
        .ok_or("the client is missing")?;
    let (_, rest) = line.split_once('[').ok_or("the date is missing")?;
    let (date, rest) = rest.split_once(']').ok_or("the date does not end")?;
    let (_, rest) = rest.split_once('"').ok_or("the request is missing")?;
    let (request, rest) = quoted(rest).ok_or("the request does not end")?;
    let mut words = rest.split_whitespace();
    let status: u16 = number(words.next(), "status")?;
    let body_bytes = match words.next() {
        Some("-") => 0,
        word => number(word, "size in bytes")?,
    };
    let at_s = date_s(date).ok_or_else(|| format!("`{}` is no date", short(date)))?;
    if !(200..400).contains(&status) {
        return Ok(None);
    }
    let url = request
        .split_whitespace()
        .nth(1)
        .ok_or("the request names nothing")?;
    let named = if url.contains("://") {
        host_of_url(url)
    } else {
        None
    };
    let entry = Entry {
        at_s,
        client: client.to_owned(),
        host: named.unwrap_or_else(|| host.to_owned()),
        address: None,
        request_bytes: None,
        reply_bytes: header_bytes.saturating_add(body_bytes),
        far_s: None,
    };
    entry.checked().map(Some)
}

/// Up to the closing quote; a quote may stand in the text behind a backslash.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// `10/Oct/2000:13:55:36 -0700` in seconds since 1970.
fn date_s(date: &str) -> Option<f64> {
    let (moment, zone) = date.split_once(' ')?;
    let mut parts = moment.split(['/', ':']);
    let day = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? + 1;
    let year = parts.next()?.parse().ok()?;
    let mut clock = [0u32; 3];
    for part in &mut clock {
        *part = parts.next()?.parse().ok()?;
    }
    let [hour, minute, second] = clock;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let offset: u16 = zone.get(1..)?.parse().ok()?;
    let east_s = sign * (i64::from(offset / 100) * 3600 + i64::from(offset % 100) * 60);
    let days = days_from_epoch(year, u32::try_from(month).ok()?, day)?;
    let local_s = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some((local_s - east_s) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_and_combined_lines_are_read() {
        let log = r#"
127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326
10.0.0.1 - - [10/Oct/2000:20:55:37 +0000] "GET http://o.example/x HTTP/1.0" 304 - "ref \"x\"" "agent"
10.0.0.1 - - [10/Oct/2000:20:55:37 +0000] "GET /\"quoted\" HTTP/1.0" 500 17
10.0.0.1 - - [31/Feb/2000:20:55:37 +0000] "GET / HTTP/1.0" 200 17
10.0.0.1 - - [10/Oct/2000:20:55:37 +0000] "GET / HTTP/1.0 200 17
"#;
        let read = read_clf(log, "here.example", 250, 2).unwrap();
        assert_eq!((read.kept.len(), read.left_out, read.bad_lines), (2, 1, 2));
        let [first, second] = &read.kept[..] else {
            panic!()
        };
        // 13:55:36 seven hours west of Greenwich is 20:55:36 there.
        assert_eq!(first.at_s, 971_211_336.0);
        assert_eq!(
            (first.host.as_str(), first.reply_bytes),
            ("here.example", 2576)
        );
        assert_eq!(second.at_s - first.at_s, 1.0);
        assert_eq!(
            (second.host.as_str(), second.reply_bytes),
            ("o.example", 250)
        );
        assert_eq!(
            read.bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
            [5, 6]
        );
    }

    #[test]
    fn what_no_server_writes_is_malformed() {
        let line = |zone: &str, bytes: &str| {
            format!("h - - [10/Oct/2000:20:55:37 {zone}] \"GET / HTTP/1.0\" 200 {bytes}\n")
        };
        let wrong = [
            line("+9223372036854775807", "1"),
            line("\u{2212}0700", "1"),
            line("+0000", "18446744073709551615"),
            line("+0000", "-1"),
        ];
        for line in wrong {
            let read = read_clf(&line, "h", 250, 1).unwrap();
            assert_eq!((read.kept.len(), read.bad_lines), (0, 1), "{line}");
        }
    }
}
