//! HAR 1.2, what browsers save: JSON with one entry for each request.

use serde::Deserialize;

use super::entry::{Entry, days_from_epoch, host_of_url};
use super::lines::Kept;

/// Entries told in full when they cannot be used.
const TOLD_MAX: usize = 10;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    started_date_time: String,
    request: Message,
    response: Response,
    #[serde(default)]
    timings: Timings,
    #[serde(rename = "serverIPAddress")]
    server_ip_address: Option<String>,
    pageref: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    url: String,
    #[serde(default = "unknown")]
    headers_size: i64,
    #[serde(default = "unknown")]
    body_size: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: u16,
    #[serde(default = "unknown")]
    headers_size: i64,
    #[serde(default = "unknown")]
    body_size: i64,
    /// Chrome's own, the whole reply as it came over the wire.
    #[serde(rename = "_transferSize")]
    transfer_size: Option<i64>,
}

#[derive(Deserialize, Default)]
struct Timings {
    wait: Option<f64>,
    receive: Option<f64>,
}

fn unknown() -> i64 {
    -1
}

/// Reads a HAR file. Entries without a reply (blocked, from the cache) are left
/// out; malformed ones are counted, their place in the file told as its line.
///
/// # Errors
/// A text where it is no HAR at all.
pub fn read_har(text: &str) -> Result<Kept<Vec<Entry>>, String> {
    // Some tools write a byte order mark, which JSON forbids.
    let text = text.trim_start_matches('\u{feff}');
    let har: Har = serde_json::from_str(text).map_err(|error| format!("it is no HAR: {error}"))?;
    let mut all = Kept {
        kept: Vec::new(),
        bad_lines: 0,
        bad: Vec::new(),
        left_out: 0,
    };
    for (number, value) in har.log.entries.into_iter().enumerate() {
        match read_entry(value) {
            Ok(Some(entry)) => all.kept.push(entry),
            Ok(None) => all.left_out += 1,
            Err(why) => {
                all.bad_lines += 1;
                if all.bad.len() < TOLD_MAX {
                    all.bad.push((number + 1, why));
                }
            }
        }
    }
    Ok(all)
}

fn read_entry(value: serde_json::Value) -> Result<Option<Entry>, String> {
    let entry: Written = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let response = &entry.response;
    let known = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let reply_bytes = match response.transfer_size {
        Some(bytes) if bytes > 0 => known(bytes),
        _ => known(response.headers_size) + known(response.body_size),
    };
    if !(200..400).contains(&response.status) || reply_bytes == 0 {
        return Ok(None);
    }
    let asked_bytes = known(entry.request.headers_size) + known(entry.request.body_size);
    let time_ms = |time: Option<f64>| time.filter(|ms| *ms > 0.0).unwrap_or(0.0);
    let far_ms = time_ms(entry.timings.wait) + time_ms(entry.timings.receive);
    let entry = Entry {
        at_s: moment_s(&entry.started_date_time).ok_or("startedDateTime is no date")?,
        client: entry.pageref.unwrap_or_default(),
        host: host_of_url(&entry.request.url).ok_or("the URL names no host")?,
        address: entry.server_ip_address,
        request_bytes: u32::try_from(asked_bytes).ok().filter(|bytes| *bytes > 0),
        reply_bytes,
        far_s: Some(far_ms / 1000.0),
    };
    entry.checked().map(Some)
}

/// `2024-05-01T12:00:00.123+02:00` in seconds since 1970 (RFC 3339).
fn moment_s(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-');
    let year = date.next()?.parse().ok()?;
    let days = days_from_epoch(year, date.next()?.parse().ok()?, date.next()?.parse().ok()?)?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let mut clock = clock.split(':');
    let hour: f64 = clock.next()?.parse().ok()?;
    let minute: f64 = clock.next()?.parse().ok()?;
    let second: f64 = clock.next()?.parse().ok()?;
    let east_s = match zone {
        "Z" => 0.0,
        _ => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let seconds = hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0;
            if zone.starts_with('-') {
                -seconds
            } else {
                seconds
            }
        }
    };
    let at_s = days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second - east_s;
    at_s.is_finite().then_some(at_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAR: &str = r#"{"log": {"version": "1.2", "entries": [
        {"startedDateTime": "2024-05-01T12:00:00.500+02:00", "pageref": "page_1",
         "request": {"url": "https://a.example/x", "headersSize": 400, "bodySize": 0},
         "response": {"status": 200, "headersSize": 200, "bodySize": 5000},
         "timings": {"wait": 80.5, "receive": 19.5, "connect": -1}, "serverIPAddress": "192.0.2.1"},
        {"startedDateTime": "2024-05-01T10:00:01Z",
         "request": {"url": "https://a.example/y"},
         "response": {"status": 200, "_transferSize": 777}},
        {"startedDateTime": "2024-05-01T10:00:01Z", "request": {"url": "https://a.example/z"}, "response": {"status": 0}},
        {"request": 7}
    ]}}"#;

    #[test]
    fn sizes_and_times_come_from_where_browsers_put_them() {
        let read = read_har(HAR).unwrap();
        assert_eq!((read.kept.len(), read.left_out, read.bad_lines), (2, 1, 1));
        assert_eq!(read.bad[0].0, 4);
        let [first, second] = &read.kept[..] else {
            panic!()
        };
        assert_eq!(
            (first.request_bytes, first.reply_bytes, first.far_s),
            (Some(400), 5200, Some(0.1))
        );
        assert!((second.at_s - first.at_s - 0.5).abs() < 1e-6);
        assert_eq!((second.request_bytes, second.reply_bytes), (None, 777));
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(
            read_har("").is_err() && read_har("[]").is_err() && read_har("{\"log\": {}}").is_err()
        );
        assert_eq!(
            read_har("\u{feff}{\"log\": {\"entries\": []}}")
                .unwrap()
                .kept,
            []
        );
    }
}
