//! The decoder: from frames back to the bytes that entered at the other end.
//!
//! Nothing is released and nothing is remembered before the hash of what was reconstructed agrees with the frame's.

use twox_hash::xxhash3_128;

use crate::codec::Decompressor;
use crate::copy::append;
use crate::echo::{Echo, Echoes};
use crate::error::FrameError;
use crate::extents::Place;
use crate::frame::{LogPlace, View};
use crate::log::{Found, Log, NOWHERE};
use crate::segments::{BlockLengths, Segments};
use crate::settings::Settings;
use crate::stats::DecoderStats;
use crate::token::{Known, Reader};

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// Its bytes were appended to the output.
    Released,
    /// It refers to this many bytes from this virtual position, of which not all are here. Nothing was appended.
    Missing {
        /// Virtual position.
        position: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The same, but the segment may be elsewhere: if its owner puts it in, the frame can be tried again. Nothing was appended.
    Away {
        /// Number of the segment.
        segment: u64,
        /// Virtual position.
        position: u64,
        /// Bytes.
        bytes: u64,
    },
    /// What was reconstructed is not what was sent. Nothing was appended.
    Mismatched,
}

/// One direction's decoder.
pub struct Decoder {
    log: Log,
    hash_key: u64,
    decompressor: Decompressor,
    plain: Vec<u8>,
    places: Vec<(Place, u64)>,
    echoes: Option<Echoes>,
    stats: DecoderStats,
}

/// Why reconstruction stopped.
enum Stop {
    Frame(FrameError),
    Missing {
        segment: Option<u64>,
        position: u64,
        bytes: u64,
    },
}

impl From<FrameError> for Stop {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl Decoder {
    /// One that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        let echoes = (settings.echo_bytes > 0)
            .then(|| Echoes::new(settings.echo_bytes, settings.seed, settings.advise));
        Self {
            echoes,
            log: Log::new(settings.memory_bytes, settings.extents_max, settings.advise),
            hash_key: settings.hash_key,
            decompressor: Decompressor::new(),
            plain: Vec::new(),
            places: Vec::new(),
            stats: DecoderStats::default(),
        }
    }

    /// Reads one whole frame and appends the bytes it stands for to `output`. The frames of one flow come in their order; those of
    /// different flows may come in any. An error means that the other end is broken.
    pub fn decode(&mut self, frame: &[u8], output: &mut Vec<u8>) -> Result<Decoded, FrameError> {
        let start = output.len();
        let decoded = self.try_decode(frame, output);
        self.finish(decoded, start, output)
    }

    /// The same for a frame without its literals ([`crate::Plain::seal_bare`]); `copy` is what it stands for, as far as the caller
    /// knows. If it is not, or too short, the frame is [`Decoded::Mismatched`].
    pub fn decode_bare(
        &mut self,
        frame: &[u8],
        copy: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Decoded, FrameError> {
        let start = output.len();
        let decoded = self.try_decode_bare(frame, copy, output);
        self.finish(decoded, start, output)
    }

    /// Remembers a frame that could not be read; `made` is what it stands for, as the other end has said since. What is new in it
    /// is there for the frames after it, and what it refers to stays a hole where it is not at hand. False if `made` is something
    /// else.
    pub fn learn(&mut self, frame: &[u8], made: &[u8]) -> Result<bool, FrameError> {
        let view = View::read(frame)?;
        let hash = xxhash3_128::Hasher::oneshot_with_seed(self.hash_key, made);
        let Some(place) = view
            .place
            .filter(|_| hash == view.hash && made.len() == view.length)
        else {
            return Ok(false);
        };
        let mut room = std::mem::take(&mut self.plain);
        let plain = plain_of(&mut self.decompressor, &view, &mut room)?;
        let (_, tokens) = plain
            .split_at_checked(view.plain_bytes - view.token_bytes)
            .ok_or(FrameError::Length)?;
        // Tokens that stand for more, or less, are seen here.
        literals_of(made, Reader::new(place.position, tokens))?;
        self.remember(place, tokens, made)?;
        self.plain = room;
        Ok(true)
    }

    /// Counts what became of a frame, and takes back what was not released.
    fn finish(
        &mut self,
        decoded: Result<Decoded, FrameError>,
        start: usize,
        output: &mut Vec<u8>,
    ) -> Result<Decoded, FrameError> {
        match &decoded {
            Ok(Decoded::Released) => {
                self.stats.frames += 1;
                self.stats.output_bytes += (output.len() - start) as u64;
            }
            Ok(Decoded::Away { .. }) => self.stats.away += 1,
            Ok(Decoded::Missing { .. }) => self.stats.missed += 1,
            Ok(Decoded::Mismatched) => self.stats.mismatched += 1,
            Err(_) => self.stats.malformed += 1,
        }
        if decoded != Ok(Decoded::Released) {
            output.truncate(start);
        }
        decoded
    }

    /// The segments of its log.
    pub fn segments(&mut self) -> Segments<'_> {
        Segments(&mut self.log)
    }

    /// Puts a segment where room was reserved for it.
    pub fn seed(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) {
        self.log.seed(number, bytes, lengths);
    }

    /// Puts a segment in that was at hand before, or for which room was reserved; false if there is no room or it is there.
    pub fn recall(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) -> bool {
        self.log.recall(number, bytes, lengths)
    }

    /// What of these bytes the other end has sent and this one holds, in their order: it can be named instead of sent back
    /// ([`crate::Encoder::said`]). Nothing, if [`Settings::echo_bytes`] is 0.
    pub fn echoes(&self, input: &[u8]) -> Vec<Echo> {
        let echoes = self.echoes.as_ref();
        echoes.map_or(Vec::new(), |echoes| echoes.find(&self.log, input))
    }

    /// Counters since the beginning.
    pub fn stats(&self) -> DecoderStats {
        self.stats
    }

    /// What a frame stands for, whatever its hash; nothing is remembered.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn made(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let view = View::read(frame).ok().filter(|view| !view.is_bare)?;
        let mut room = Vec::new();
        let plain = if view.is_compressed {
            self.decompressor
                .decompress(view.payload, view.plain_bytes, &mut room)?;
            room.as_slice()
        } else {
            view.payload
        };
        let (literals, tokens) = plain.split_at_checked(view.plain_bytes - view.token_bytes)?;
        let mut output = Vec::new();
        let made = self.reconstruct(&view, tokens, literals, &mut output);
        made.is_ok().then_some(output)
    }

    fn try_decode(&mut self, frame: &[u8], output: &mut Vec<u8>) -> Result<Decoded, FrameError> {
        let view = View::read(frame)?;
        if view.is_bare {
            return Err(FrameError::Length);
        }
        let mut room = std::mem::take(&mut self.plain);
        let decoded = self.decode_view(&view, &mut room, output);
        self.plain = room;
        decoded
    }

    fn try_decode_bare(
        &mut self,
        frame: &[u8],
        copy: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Decoded, FrameError> {
        let view = View::read(frame)?;
        let Some(place) = view.place.filter(|_| view.is_bare) else {
            return Err(FrameError::Length);
        };
        let Some(copy) = copy.get(..view.length) else {
            return Ok(Decoded::Mismatched);
        };
        let mut payload = literals_of(copy, Reader::new(place.position, view.payload))?;
        payload.extend_from_slice(view.payload);
        let whole = View {
            is_bare: false,
            plain_bytes: payload.len(),
            payload: &payload,
            ..view
        };
        self.decode_view(&whole, &mut Vec::new(), output)
    }

    fn decode_view(
        &mut self,
        view: &View,
        room: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<Decoded, FrameError> {
        let plain = plain_of(&mut self.decompressor, view, room)?;
        let literal_bytes = view.plain_bytes - view.token_bytes;
        let (literals, tokens) = plain
            .split_at_checked(literal_bytes)
            .ok_or(FrameError::Length)?;
        let start = output.len();
        output.reserve(view.length);
        match self.reconstruct(view, tokens, literals, output) {
            Ok(()) => (),
            Err(Stop::Frame(error)) => return Err(error),
            Err(Stop::Missing {
                segment,
                position,
                bytes,
            }) => {
                return Ok(match segment {
                    Some(segment) => Decoded::Away {
                        segment,
                        position,
                        bytes,
                    },
                    None => Decoded::Missing { position, bytes },
                });
            }
        }
        let made = output.get(start..).unwrap_or_default();
        if xxhash3_128::Hasher::oneshot_with_seed(self.hash_key, made) != view.hash {
            return Ok(Decoded::Mismatched);
        }
        if let Some(place) = view.place {
            self.remember(place, tokens, made)?;
        }
        Ok(Decoded::Released)
    }

    fn reconstruct(
        &self,
        view: &View,
        tokens: &[u8],
        mut literals: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let start = output.len();
        let position = match view.place {
            // However far beyond what is known: what lies between may be of flows that were cut.
            Some(place) => place.position,
            None if tokens.is_empty() => 0,
            None => return Err(FrameError::Place.into()),
        };
        let mut reader = Reader::new(position, tokens);
        let mut hint = NOWHERE;
        while let Some(token) = reader.next() {
            let token = token?;
            append(output, take(&mut literals, token.literals)?);
            let made = output.len() - start;
            let room = view.length.checked_sub(made).ok_or(FrameError::Length)? as u64;
            match token.known {
                known if known.bytes() > room => return Err(FrameError::Length.into()),
                Known::Run { byte, bytes } => output.resize(output.len() + bytes as usize, byte),
                Known::Copy { source, bytes } | Known::Again { source, bytes } => {
                    hint = self.copy((position, start), (source, bytes), hint, output)?;
                }
            }
        }
        append(output, literals);
        if output.len() - start != view.length {
            return Err(FrameError::Length.into());
        }
        Ok(())
    }

    /// Appends what is at `source`: from the log, or from this frame's own output, which begins at `position` and `start`.
    /// Returns the hint for what follows.
    fn copy(
        &self,
        (position, start): (u64, usize),
        (source, bytes): (u64, u64),
        mut hint: usize,
        output: &mut Vec<u8>,
    ) -> Result<usize, Stop> {
        let (mut at, end) = (source, source + bytes);
        let missing = |segment| Stop::Missing {
            segment,
            position: source,
            bytes,
        };
        while at < end {
            if at >= position {
                let from = start + (at - position) as usize;
                copy_own(from, (end - at) as usize, output)?;
                break;
            }
            let rest = end.min(position) - at;
            let (found, nth) = self.log.read(at, hint);
            hint = nth;
            at += match found {
                Found::Bytes(known) => {
                    let known = known
                        .get(..known.len().min(rest as usize))
                        .unwrap_or_default();
                    append(output, known);
                    known.len() as u64
                }
                Found::Run(byte, so_often) => {
                    let bytes = so_often.min(rest);
                    output.resize(output.len() + bytes as usize, byte);
                    bytes
                }
                Found::Away(segment) => return Err(missing(Some(segment))),
                Found::Missing => return Err(missing(None)),
            };
        }
        Ok(hint)
    }

    /// Puts a frame that was found right into the log; it stands for `made`.
    fn remember(&mut self, place: LogPlace, tokens: &[u8], made: &[u8]) -> Result<(), FrameError> {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let mut reader = Reader::new(place.position, tokens);
        let (mut address, mut done, mut hint) = (place.address, 0, NOWHERE);
        // Literals and what is kept again lie together, from here to `done`.
        let mut kept = 0;
        while let Some(token) = reader.next() {
            let token = token?;
            done += token.literals as usize;
            let bytes = token.known.bytes();
            if !matches!(token.known, Known::Again { .. }) {
                let new = made.get(kept..done).ok_or(FrameError::Length)?;
                let at = (place.position + kept as u64, address);
                self.keep(at, new, made.len(), &mut places);
                address += new.len() as u64;
                kept = done + bytes as usize;
            }
            match token.known {
                Known::Run { byte, bytes } => places.push((Place::Run(byte), bytes)),
                Known::Copy { source, .. } => {
                    hint = self.repeat(place.position, (source, bytes), hint, &mut places);
                }
                Known::Again { .. } => (),
            }
            done += bytes as usize;
        }
        let new = made.get(kept..).ok_or(FrameError::Length)?;
        let at = (place.position + kept as u64, address);
        self.keep(at, new, made.len(), &mut places);
        if let Some(echoes) = &mut self.echoes {
            echoes.settle();
        }
        self.log.put(place.position, &places);
        let pinned = self.log.take_pinned();
        self.log.unpin(&pinned);
        self.places = places;
        Ok(())
    }

    /// Keeps new bytes of a frame at a position and an address.
    fn keep(
        &mut self,
        (position, address): (u64, u64),
        new: &[u8],
        frame_bytes: usize,
        places: &mut Vec<(Place, u64)>,
    ) {
        self.log.keep_at(address, new, places);
        if let Some(echoes) = &mut self.echoes {
            echoes.learn(position, new, frame_bytes);
        }
    }

    /// Adds the places of what is at `source`, some of which may be in this frame, which begins at `position`.
    fn repeat(
        &mut self,
        position: u64,
        (source, bytes): (u64, u64),
        hint: usize,
        places: &mut Vec<(Place, u64)>,
    ) -> usize {
        let before = position.saturating_sub(source).min(bytes);
        let hint = self.log.places(source, before, hint, places);
        let own = source + before - position.min(source + before);
        places_of_own(own, bytes - before, places);
        hint
    }
}

/// Literals and tokens of a frame.
fn plain_of<'a>(
    decompressor: &mut Decompressor,
    view: &View<'a>,
    room: &'a mut Vec<u8>,
) -> Result<&'a [u8], FrameError> {
    if !view.is_compressed {
        return Ok(view.payload);
    }
    let done = decompressor.decompress(view.payload, view.plain_bytes, room);
    done.ok_or(FrameError::Compression)?;
    Ok(room.as_slice())
}

/// What of `bytes` no token knows.
fn literals_of(mut bytes: &[u8], mut tokens: Reader<'_>) -> Result<Vec<u8>, FrameError> {
    let mut literals = Vec::with_capacity(bytes.len());
    while let Some(token) = tokens.next() {
        let token = token?;
        literals.extend_from_slice(take(&mut bytes, token.literals)?);
        take(&mut bytes, token.known.bytes())?;
    }
    literals.extend_from_slice(bytes);
    Ok(literals)
}

/// Takes so many bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Result<&'a [u8], FrameError> {
    let count = usize::try_from(count).map_err(|_| FrameError::Length)?;
    let (front, rest) = bytes.split_at_checked(count).ok_or(FrameError::Length)?;
    *bytes = rest;
    Ok(front)
}

/// Appends bytes of the output itself, which may reach into what is being appended.
fn copy_own(from: usize, mut bytes: usize, output: &mut Vec<u8>) -> Result<(), Stop> {
    let mut at = from;
    while bytes > 0 {
        let now = bytes.min(output.len().saturating_sub(at));
        if now == 0 {
            return Err(FrameError::Reference.into());
        }
        output.extend_from_within(at..at + now);
        at += now;
        bytes -= now;
    }
    Ok(())
}

/// Repeats the places `offset` bytes into the frame, which may reach into what is being repeated.
fn places_of_own(mut offset: u64, mut bytes: u64, places: &mut Vec<(Place, u64)>) {
    let mut nth = 0;
    while let Some(&(_, length)) = places.get(nth)
        && offset >= length
    {
        offset -= length;
        nth += 1;
    }
    while bytes > 0 {
        let Some(&(place, length)) = places.get(nth) else {
            return;
        };
        let now = (length - offset).min(bytes);
        places.push((place.advanced(offset), now));
        (offset, nth) = (0, nth + 1);
        bytes -= now;
    }
}
