//! Pairing two gateways with two texts that operators copy between them.
//!
//! The first gateway's `farhaul init` makes an [`Offer`]: its public key, where
//! it is reached, the address plan and a one-time secret. `farhaul join` at the
//! other site pins that key and makes an answer: its own public key and
//! address, signed with that key, and authenticated with the secret. The first
//! gateway accepts an answer only to its own latest offer and only once.
//! Neither gateway needs to run, or to reach the other, for any of it.
//!
//! Both texts are `PREFIX` and base64url of a JSON document and a checksum;
//! white space is ignored, since terminals wrap long lines. `now_s` is always
//! seconds since 1970 UTC.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::config::meaning::{HostPort, Network};
use crate::config::units;
use crate::keys::{self, KeyError, PrivateKey, PublicKey};

/// How long an offer can be answered, in seconds.
pub const VALID_S: u64 = 24 * 3600;
/// How far ahead of ours the clock of the offer's machine may be, in seconds.
const CLOCK_SKEW_S: u64 = 3600;
const OFFER_PREFIX: &str = "fhjoin1-";
const ANSWER_PREFIX: &str = "fhanswer1-";
const SECRET_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;
/// Real tokens have some 400 characters.
const TOKEN_CHARS_MAX: usize = 16 * 1024;
const NETWORKS_MAX: usize = 64;

/// Why a text is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// It does not begin like one.
    #[error("this is not {expected}: it begins with `{prefix}`; copy all of it")]
    NotOne {
        /// What was expected.
        expected: &'static str,
        /// How that begins.
        prefix: &'static str,
    },
    /// The other kind of text.
    #[error("this is {found}, but {expected} is needed here")]
    OtherKind {
        /// What it is.
        found: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// A part is missing or wrong.
    #[error("{expected} is damaged: a character is missing or wrong; copy all of it again")]
    Damaged {
        /// What was expected.
        expected: &'static str,
    },
    /// Undamaged, but its content makes no sense to this version.
    #[error("{expected} cannot be used: {what}")]
    Content {
        /// What was expected.
        expected: &'static str,
        /// What is wrong.
        what: String,
    },
    /// Too old.
    #[error(
        "the pairing token expired {} ago; make a new one at the first gateway: farhaul init --another",
        ago(*.ago_s)
    )]
    Expired {
        /// Since when, in seconds.
        ago_s: u64,
    },
    /// Made by a machine whose clock is ahead, or by hand.
    #[error(
        "the pairing token is valid for longer than 24 hours: compare the clocks of both machines (`date -u`)"
    )]
    Future,
    /// Both ends are the same gateway.
    #[error("this token was made here: run `farhaul join` on the gateway of the other site")]
    OwnOffer,
    /// An answer to something else.
    #[error(
        "this answers another token than the one that is waiting here; the latest token counts, and each only once"
    )]
    OtherOffer,
    /// Secret or signature do not fit.
    #[error(
        "this answer was not made by someone who had the token; do not use it, make a new token: farhaul init --another"
    )]
    NotAuthentic,
    /// No offer waits for an answer.
    #[error(
        "no token waits for an answer here ({path} is not there); make one: farhaul init --another"
    )]
    NothingPending {
        /// Where it would lie.
        path: PathBuf,
    },
    /// Key or file trouble.
    #[error(transparent)]
    Key(#[from] KeyError),
}

const OFFER: &str = "a pairing token";
const ANSWER: &str = "an answer to a pairing token";

/// What the first gateway offers to the one that joins.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// Until when it can be answered.
    pub expires_s: u64,
    /// Name of the first site.
    pub site: String,
    /// Key of the first gateway.
    pub key: PublicKey,
    /// Where the first gateway is reached; absent where it only dials out.
    pub address: Option<HostPort>,
    /// What lies behind the first gateway.
    pub networks: Vec<Network>,
    /// What the first operator says lies behind the other one.
    pub peer_networks: Vec<Network>,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer(by {} {}, secret hidden)", self.site, self.key)
    }
}

/// What the joining gateway says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Name of its site.
    pub site: String,
    /// Its key.
    pub key: PublicKey,
    /// Where it is reached, where the first gateway has to dial.
    pub address: Option<HostPort>,
    /// What lies behind it.
    pub networks: Vec<Network>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferText {
    expires: u64,
    site: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    networks: Vec<String>,
    peer: Vec<String>,
    secret: String,
}

impl Drop for OfferText {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.secret);
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerText {
    site: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    networks: Vec<String>,
    /// Which offer is answered: SHA-256 of its document, which holds the
    /// first gateway's key.
    to: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    body: String,
    mac: String,
    signature: String,
}

impl Offer {
    /// A new offer with a fresh secret, valid for [`VALID_S`] from `now_s`.
    pub fn new(
        site: String,
        key: PublicKey,
        address: Option<HostPort>,
        networks: Vec<Network>,
        peer_networks: Vec<Network>,
        now_s: u64,
    ) -> Result<Self, PairingError> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        SystemRandom::new()
            .fill(&mut *secret)
            .map_err(|_| KeyError::Random)?;
        Ok(Self {
            expires_s: now_s.saturating_add(VALID_S),
            site,
            key,
            address,
            networks,
            peer_networks,
            secret,
        })
    }

    /// The text to carry to the other gateway. Whoever has it can answer it.
    pub fn token(&self) -> Zeroizing<String> {
        Zeroizing::new(seal(OFFER_PREFIX, self.document().as_bytes()))
    }

    fn document(&self) -> Zeroizing<String> {
        let text = OfferText {
            expires: self.expires_s,
            site: self.site.clone(),
            key: self.key.to_string(),
            address: self.address.as_ref().map(HostPort::to_string),
            networks: texts(&self.networks),
            peer: texts(&self.peer_networks),
            secret: URL_SAFE_NO_PAD.encode(*self.secret),
        };
        // Strings, numbers and lists always have a JSON form.
        Zeroizing::new(serde_json::to_string(&text).unwrap_or_default())
    }

    /// Reads a token. Does not look at the clock: see [`Offer::check_time`].
    pub fn from_token(text: &str) -> Result<Self, PairingError> {
        let document = open(text, OFFER_PREFIX, OFFER)?;
        let text: OfferText = parse(&document, OFFER)?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        let decoded = Zeroizing::new(
            URL_SAFE_NO_PAD
                .decode(text.secret.as_bytes())
                .unwrap_or_default(),
        );
        if decoded.len() != SECRET_BYTES {
            return Err(content(OFFER, "its secret has the wrong length"));
        }
        secret.copy_from_slice(&decoded);
        Ok(Self {
            expires_s: text.expires,
            site: site(&text.site, OFFER)?,
            key: key(&text.key, OFFER)?,
            address: address(text.address.as_deref(), OFFER)?,
            networks: networks(&text.networks, OFFER)?,
            peer_networks: networks(&text.peer, OFFER)?,
            secret,
        })
    }

    /// Refuses an offer that is too old, or valid for longer than offers are.
    pub fn check_time(&self, now_s: u64) -> Result<(), PairingError> {
        if now_s > self.expires_s {
            return Err(PairingError::Expired {
                ago_s: now_s - self.expires_s,
            });
        }
        if self.expires_s - now_s > VALID_S + CLOCK_SKEW_S {
            return Err(PairingError::Future);
        }
        Ok(())
    }

    /// The joining gateway's answer: `about` says who it is, `own` is its key.
    pub fn answer(&self, about: &Answer, own: &PrivateKey) -> Result<String, PairingError> {
        if own.public() == self.key {
            return Err(PairingError::OwnOffer);
        }
        let body = AnswerText {
            site: about.site.clone(),
            key: own.public().to_string(),
            address: about.address.as_ref().map(HostPort::to_string),
            networks: texts(&about.networks),
            to: self.digest(),
        };
        let body = serde_json::to_string(&body).unwrap_or_default();
        let signed = Signed {
            mac: URL_SAFE_NO_PAD.encode(hmac::sign(&self.mac_key(), &bound(&body)).as_ref()),
            signature: URL_SAFE_NO_PAD.encode(own.sign(&bound(&body))),
            body,
        };
        let document = serde_json::to_string(&signed).unwrap_or_default();
        Ok(seal(ANSWER_PREFIX, document.as_bytes()))
    }

    /// Checks an answer to this offer: made with its secret, by the owner of
    /// the key it names, in time.
    pub fn accept(&self, text: &str, now_s: u64) -> Result<Answer, PairingError> {
        let document = open(text, ANSWER_PREFIX, ANSWER)?;
        let signed: Signed = parse(&document, ANSWER)?;
        let body: AnswerText = parse(signed.body.as_bytes(), ANSWER)?;
        if body.to != self.digest() {
            return Err(PairingError::OtherOffer);
        }
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let message = bound(&signed.body);
        let answer = Answer {
            site: site(&body.site, ANSWER)?,
            key: key(&body.key, ANSWER)?,
            address: address(body.address.as_deref(), ANSWER)?,
            networks: networks(&body.networks, ANSWER)?,
        };
        let authentic = hmac::verify(&self.mac_key(), &message, &bytes(&signed.mac)).is_ok()
            && answer.key.verifies(&message, &bytes(&signed.signature));
        if !authentic {
            return Err(PairingError::NotAuthentic);
        }
        if answer.key == self.key {
            return Err(PairingError::OwnOffer);
        }
        self.check_time(now_s)?;
        Ok(answer)
    }

    /// Names the offer, and with it the first gateway's key, without its secret.
    fn digest(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.document().as_bytes());
        URL_SAFE_NO_PAD.encode(digest.as_ref())
    }

    fn mac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &*self.secret)
    }

    /// Keeps the offer until it is answered, in a file of mode 0600. An older
    /// offer there is void from then on.
    pub fn keep(&self, path: &Path) -> Result<(), PairingError> {
        forget(path)?;
        let token = self.token();
        Ok(keys::write_private_new(path, token.as_bytes())?)
    }

    /// The offer that waits for its answer.
    pub fn pending(path: &Path) -> Result<Self, PairingError> {
        match keys::read_private(path) {
            Ok(text) => Self::from_token(&text),
            Err(KeyError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(PairingError::NothingPending {
                    path: path.to_owned(),
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Drops the offer that waits, if any: it can no longer be answered.
pub fn forget(path: &Path) -> Result<(), PairingError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(KeyError::Io {
            path: path.to_owned(),
            source,
        }
        .into()),
        _ => Ok(()),
    }
}

/// What an answer's secret and signature are made over: nothing else is ever
/// signed with a gateway's key under this heading.
fn bound(body: &str) -> Vec<u8> {
    [b"farhaul pairing answer 1\0", body.as_bytes()].concat()
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn texts(networks: &[Network]) -> Vec<String> {
    networks.iter().map(Network::to_string).collect()
}

fn content(expected: &'static str, what: impl fmt::Display) -> PairingError {
    PairingError::Content {
        expected,
        what: what.to_string(),
    }
}

// What comes out of a token goes into a configuration file, so it has to be as
// good as what an operator may write there.

fn site(text: &str, kind: &'static str) -> Result<String, PairingError> {
    units::name(text).map_err(|fault| content(kind, fault.message))
}

fn key(text: &str, kind: &'static str) -> Result<PublicKey, PairingError> {
    text.parse().map_err(|error| content(kind, error))
}

fn address(text: Option<&str>, kind: &'static str) -> Result<Option<HostPort>, PairingError> {
    text.map(units::host_port)
        .transpose()
        .map_err(|fault| content(kind, fault.message))
}

fn networks(texts: &[String], kind: &'static str) -> Result<Vec<Network>, PairingError> {
    if texts.len() > NETWORKS_MAX {
        return Err(content(kind, "it names more than 64 networks"));
    }
    let network = |text: &String| units::network(text).map_err(|f| content(kind, f.message));
    texts.iter().map(network).collect()
}

fn parse<T: for<'de> Deserialize<'de>>(
    document: &[u8],
    kind: &'static str,
) -> Result<T, PairingError> {
    serde_json::from_slice(document)
        .map_err(|_| content(kind, "another version of farhaul made it"))
}

fn checksum(prefix: &str, document: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(prefix.as_bytes());
    context.update(document);
    let digest = context.finish();
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest.as_ref()[..CHECKSUM_BYTES]);
    sum
}

fn seal(prefix: &str, document: &[u8]) -> String {
    let whole = Zeroizing::new([document, &checksum(prefix, document)].concat());
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(&*whole))
}

fn open(
    text: &str,
    prefix: &'static str,
    expected: &'static str,
) -> Result<Zeroizing<Vec<u8>>, PairingError> {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bare = Zeroizing::new(bare);
    let Some(body) = bare.strip_prefix(prefix) else {
        let kinds = [
            (OFFER_PREFIX, OFFER),
            (ANSWER_PREFIX, ANSWER),
            ("fh1-", "a public key"),
        ];
        let other = kinds.iter().find(|(prefix, _)| bare.starts_with(prefix));
        return Err(match other {
            Some((_, found)) => PairingError::OtherKind { found, expected },
            None => PairingError::NotOne { expected, prefix },
        });
    };
    let damaged = || PairingError::Damaged { expected };
    if body.len() > TOKEN_CHARS_MAX {
        return Err(damaged());
    }
    let mut whole = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).map_err(|_| damaged())?);
    let length = whole
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .ok_or_else(damaged)?;
    if checksum(prefix, &whole[..length]) != whole[length..] {
        return Err(damaged());
    }
    whole.truncate(length);
    Ok(whole)
}

#[cfg(test)]
mod tests;
