//! Bytes to send, the same on every machine.
#![allow(dead_code, missing_docs)]

/// Numbers that look random (splitmix64).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = Noise::new(seed);
    let words = std::iter::repeat_with(|| noise.next().to_le_bytes());
    words
        .take(bytes.div_ceil(8))
        .flatten()
        .take(bytes)
        .collect()
}

/// Something like a text: words of a small vocabulary, numbers that do not repeat.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = Noise::new(seed);
    let mut text = String::with_capacity(bytes + 40);
    while text.len() < bytes {
        let word = [
            "flow", "frame", "segment", "window", "received", "from", "circuit", "the",
        ][noise.below(8) as usize];
        text += word;
        text += if noise.below(9) == 0 { "\n" } else { " " };
        if noise.below(3) == 0 {
            text += &format!("{:x} ", noise.below(1 << 40));
        }
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// Something like a web server's log from this line on.
pub fn log(first_line: u64, bytes: usize) -> Vec<u8> {
    let mut text = String::with_capacity(bytes + 200);
    let mut line = first_line;
    while text.len() < bytes {
        let mut noise = Noise::new(line);
        let (client, page, status) = (
            noise.below(300),
            noise.below(2000),
            [200, 200, 304, 404][noise.below(4) as usize],
        );
        text += &format!(
            "10.0.{}.{} - [{:09}] \"GET /app/item/{page}?session={:016x} HTTP/1.1\" {status} {} \"Mozilla/5.0 (X11; Linux)\"\n",
            client / 250,
            client % 250,
            line * 41,
            noise.next(),
            noise.below(90_000)
        );
        line += 1;
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// Something like a dump of a table; in a later `version` every eighth row has another amount.
pub fn dump(version: u64, bytes: usize) -> Vec<u8> {
    let mut text = String::with_capacity(bytes + 200);
    let mut row = 0;
    while text.len() < bytes {
        let mut noise = Noise::new(row);
        let is_changed = noise.below(8) == 0;
        let amount = noise.below(100_000) + if is_changed { version } else { 0 };
        text += &format!(
            "INSERT INTO orders VALUES ({row}, 'customer-{:06}', '2026-{:02}-{:02}', {}.{:02}, '{:016x}');\n",
            noise.below(50_000),
            1 + noise.below(12),
            1 + noise.below(28),
            amount / 100,
            amount % 100,
            noise.next()
        );
        row += 1;
    }
    text.truncate(bytes);
    text.into_bytes()
}
