//! One pass of a file through encoder and decoder, timed by the CPU time of the thread.

use std::collections::BTreeMap;
use std::time::Duration;

use farhaul_reduce::{
    BlockLengths, Codec, Compressor, Decoded, Decoder, Encoder, Plain, ReadAt, Settings,
};
use rustix::time::{ClockId, clock_gettime};

use crate::source::Noise;

/// Input is handed over in pieces of this size, from one buffer that is used again: what a gateway does with a socket.
const READ_BYTES: usize = 256 << 10;
/// A frame refers to fewer segments that are not in memory, or it is sent once more as it is: what a gateway does.
const RECALLS_MAX: usize = 32;

/// A frame with less that is new is not looked for in what the other end has sent, nor one in which tokens take more than this
/// share of it: what a gateway does.
const ECHO_BYTES_MIN: usize = 1024;
const ECHO_SHARE: usize = 8;
/// What the other direction has carried.
const BACK_BYTES: usize = 64 << 20;
const BACK_SEED: u64 = 6;

/// Segments by their numbers.
type Disk = BTreeMap<u64, (Vec<u8>, BlockLengths)>;

/// Encoder and decoder of one direction.
pub struct Link {
    pub encoder: Encoder,
    pub decoder: Decoder,
    compressor: Compressor,
    flow: u64,
    sealed: Vec<u8>,
    disks: Option<[Disk; 2]>,
    /// Read back ahead of what is needed.
    ahead_bytes: u64,
    /// A copy of the other direction's log, in which what is new is looked for.
    back: Option<Box<Decoder>>,
}

/// What a pass cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pass {
    pub input_bytes: u64,
    pub wire_bytes: u64,
    pub literal_bytes: u64,
    pub token_bytes: u64,
    /// Frames that were sent once more as they are.
    pub repeated: u64,
    pub encode: Duration,
    /// Framing and compression.
    pub seal: Duration,
    pub decode: Duration,
}

impl Pass {
    pub fn encode_gb_s(&self) -> f64 {
        self.input_bytes as f64 / 1e9 / (self.encode + self.seal).as_secs_f64()
    }

    pub fn decode_gb_s(&self) -> f64 {
        self.input_bytes as f64 / 1e9 / self.decode.as_secs_f64()
    }
}

impl Link {
    pub fn new(settings: Settings) -> Self {
        Self {
            encoder: Encoder::new(settings),
            decoder: Decoder::new(settings),
            compressor: Compressor::new(),
            flow: 0,
            sealed: Vec::new(),
            disks: None,
            ahead_bytes: 0,
            back: None,
        }
    }

    /// Both directions look for what goes back the way it came: the other one has carried other bytes.
    pub fn with_echoes(settings: Settings) -> Self {
        let mut back = Self::new(settings);
        let mut noise = Noise::new(BACK_SEED);
        let bytes: Vec<u8> = std::iter::repeat_with(|| noise.next().to_le_bytes())
            .take(BACK_BYTES / 8)
            .flatten()
            .collect();
        back.pass(&bytes, Codec::Null);
        let mut link = Self::new(settings);
        link.back = Some(Box::new(back.decoder));
        link
    }

    /// With a disk at either end, which holds everything, and is read so far ahead.
    pub fn with_disks(settings: Settings, ahead_bytes: u64) -> Self {
        let mut link = Self::new(settings);
        link.encoder.segments().watch();
        link.decoder.segments().watch();
        (link.disks, link.ahead_bytes) = (Some(Default::default()), ahead_bytes);
        link
    }

    /// Reads back what the next bytes may refer to.
    fn recall(&mut self, piece: &[u8], pass: &mut Pass) {
        let Some([near, _]) = &self.disks else {
            return;
        };
        let (encoder, ahead_bytes) = (&mut self.encoder, self.ahead_bytes);
        let put_in = |encoder: &mut Encoder, reads: Vec<ReadAt>| {
            for read in reads {
                if let Some((bytes, lengths)) = near.get(&read.segment) {
                    encoder.recall(&read, bytes, lengths);
                }
            }
        };
        pass.encode += cpu_time_of(|| {
            let reads = encoder.look(piece, ahead_bytes);
            put_in(encoder, reads);
            let reads = encoder.look_closely(self.flow, piece);
            put_in(encoder, reads);
        });
    }

    /// Keeps what was written.
    fn save(&mut self) {
        let Some(disks) = &mut self.disks else {
            return;
        };
        let ends = [self.encoder.segments(), self.decoder.segments()];
        for (mut segments, disk) in ends.into_iter().zip(disks) {
            for number in segments.take_changed() {
                let mut bytes = Vec::new();
                if let Some(lengths) = segments.copy(number, &mut bytes) {
                    disk.insert(number, (bytes, lengths));
                }
            }
        }
    }

    /// Sends `input` as a flow of its own after everything before was acknowledged. Every byte is compared.
    pub fn pass(&mut self, input: &[u8], codec: Codec) -> Pass {
        let before = self.encoder.stats();
        let mut pass = Pass {
            input_bytes: input.len() as u64,
            ..Pass::default()
        };
        let mut piece = Vec::with_capacity(READ_BYTES);
        let (mut frames, mut output) = (Vec::new(), Vec::new());
        let (mut taken, mut given) = (0, 0);
        for part in input.chunks(READ_BYTES) {
            piece.clear();
            piece.extend_from_slice(part);
            taken += part.len();
            self.recall(&piece, &mut pass);
            pass.encode += cpu_time_of(|| {
                self.encoder.encode(self.flow, &piece);
                if taken == input.len() {
                    self.encoder.flush();
                }
                frames.extend(std::iter::from_fn(|| self.encoder.poll_frame()));
            });
            for frame in frames.drain(..) {
                let right = &input[given..given + frame.length];
                pass.encode += self.look_for_echoes(&frame, right);
                match self.deliver(&frame, codec, &mut pass, &mut output) {
                    None => assert!(output == right, "wrong bytes after {given}"),
                    Some(away) => self.repeat(&frame, away, &mut pass),
                }
                self.encoder.recycle(frame);
                given += right.len();
            }
            if self.disks.is_some() {
                self.encoder.handle_held(self.encoder.position());
            }
            self.save();
        }
        assert_eq!(given, input.len(), "every byte came through");
        self.encoder.handle_held(self.encoder.position());
        self.flow += 1;
        let after = self.encoder.stats();
        pass.literal_bytes = after.literal_bytes - before.literal_bytes;
        pass.token_bytes = after.token_bytes - before.token_bytes;
        pass
    }

    /// Looks for what is new in a frame in what the other end has sent, where a gateway does; nothing of it is there.
    fn look_for_echoes(&self, frame: &Plain, input: &[u8]) -> Duration {
        let new_bytes = frame.payload.len() - frame.token_bytes;
        let is_worth_it =
            new_bytes >= ECHO_BYTES_MIN && new_bytes / ECHO_SHARE >= frame.token_bytes;
        let Some(back) = self.back.as_ref().filter(|_| is_worth_it) else {
            return Duration::ZERO;
        };
        let mut found = Vec::new();
        let time = cpu_time_of(|| found = back.echoes(input));
        assert_eq!(found, [], "the other direction carried other bytes");
        time
    }

    /// Seals a frame and decodes it into `output`; what it refers to if that takes too many segments.
    fn deliver(
        &mut self,
        frame: &Plain,
        codec: Codec,
        pass: &mut Pass,
        output: &mut Vec<u8>,
    ) -> Option<(u64, u64)> {
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.clear();
        pass.seal += cpu_time_of(|| frame.seal(codec, &mut self.compressor, &mut sealed));
        pass.wire_bytes += sealed.len() as u64;
        output.clear();
        let mut away = None;
        pass.decode += cpu_time_of(|| {
            for _ in 0..=RECALLS_MAX {
                away = self.decode(&sealed, output);
                if away.is_none() {
                    break;
                }
            }
        });
        self.sealed = sealed;
        away
    }

    /// Decodes a frame, or reads a segment back that it needs first, and says where that was needed.
    fn decode(&mut self, sealed: &[u8], output: &mut Vec<u8>) -> Option<(u64, u64)> {
        match self.decoder.decode(sealed, output) {
            Ok(Decoded::Released) => None,
            Ok(Decoded::Away {
                segment,
                position,
                bytes,
            }) => {
                let disks = self.disks.as_ref().expect("without disks nothing is away");
                let (kept, lengths) = &disks[1][&segment];
                assert!(self.decoder.recall(segment, kept, lengths));
                Some((position, bytes))
            }
            other => panic!("nothing is missing, but {other:?}"),
        }
    }

    /// Sends a frame's bytes as they are, and forgets them.
    fn repeat(&mut self, frame: &Plain, away: (u64, u64), pass: &mut Pass) {
        let place = frame.place.expect("it refers to something");
        let frame_at = (place.position, frame.length as u64);
        self.encoder.handle_missing(frame_at, away);
        pass.wire_bytes += frame.length as u64;
        pass.repeated += 1;
    }
}

fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    work();
    now() - start
}

/// Compresses `literals` as the payloads of frames: bytes on the wire, processor time.
pub fn compress(literals: &[u8], codec: Codec) -> (usize, Duration) {
    let mut compressor = Compressor::new();
    let (mut bytes, mut sealed, mut time) = (0, Vec::new(), Duration::ZERO);
    for payload in literals.chunks(READ_BYTES) {
        let frame = Plain {
            flow: 0,
            place: None,
            length: payload.len(),
            token_bytes: 0,
            payload: payload.to_vec(),
            hash: 0,
        };
        sealed.clear();
        time += cpu_time_of(|| frame.seal(codec, &mut compressor, &mut sealed));
        bytes += sealed.len();
    }
    (bytes, time)
}
