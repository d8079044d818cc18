//! Keys of gateways: Ed25519, pinned by both sides (raw public keys, RFC 7250).
//!
//! A private key lives in one PEM file (PKCS#8, RFC 8410) that only its owner
//! may read, so any TLS tool can inspect it. A line above the PEM block names
//! the public key and is checked when the file is read: a damaged seed would
//! otherwise be a valid, but different, key. The public key is what operators
//! copy around, so its text carries a checksum that catches typing errors.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use zeroize::{Zeroize, Zeroizing};

const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
const PUBLIC_PREFIX: &str = "fh1-";
/// SubjectPublicKeyInfo of an Ed25519 key up to the key itself (RFC 8410 section 4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// PKCS#8 version 1 of an Ed25519 key up to the seed (RFC 8410 section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
const PUBLIC_LINE: &str = "Public key: ";
/// A key file is some 250 bytes; whatever is larger is something else.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// What can be wrong with a key or its file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be opened, read or written.
    #[error("key file {path}: {source}{}", remedy(.source))]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A new file cannot be written there.
    #[error("key file {path} cannot be written: {source}{}", remedy_of_writing(.path, .source))]
    Unwritable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody besides the owner may read or write the file.
    #[error(
        "key file {path} has mode {mode:04o}: others than its owner can read or change it; run: chmod 600 {path}"
    )]
    Permissions {
        /// Which file.
        path: PathBuf,
        /// Permission bits found.
        mode: u32,
    },
    /// The file is a folder, a device or far too large.
    #[error(
        "key file {path} is not a regular file of at most 16 KiB; point `key` at the file that `farhaul keygen` wrote"
    )]
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// The content is not an Ed25519 private key.
    #[error("key file {path}: {what}; write a new one with: farhaul keygen --out FILE")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A new key would replace a file.
    #[error("{path} exists already and is not overwritten; move it away or choose another name")]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// Text that is not a public key.
    #[error("not a public key: {0}")]
    PublicText(&'static str),
    /// DER that is not an Ed25519 SubjectPublicKeyInfo (RFC 8410).
    #[error("not an Ed25519 public key in SubjectPublicKeyInfo form")]
    Spki,
    /// The system's random generator failed.
    #[error("the system's random generator failed")]
    Random,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; create it with: farhaul keygen --out FILE",
        io::ErrorKind::PermissionDenied => {
            "; run as the user that owns it, or give it to the user the gateway runs as"
        }
        _ => "",
    }
}

fn remedy_of_writing(path: &Path, error: &io::Error) -> String {
    let folder = folder_of(path);
    match error.kind() {
        io::ErrorKind::NotFound if !folder.exists() => {
            format!("; make its folder first: mkdir -p {}", folder.display())
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; run as a user that may write there, or choose another folder".to_owned()
        }
        _ => String::new(),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A gateway's public key.
///
/// Its text is `fh1-` and 48 characters of base64url: the key and the first
/// four bytes of a SHA-256 over it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl PublicKey {
    /// SubjectPublicKeyInfo in DER, 44 bytes (RFC 8410 section 4): what TLS
    /// sends for a raw public key (RFC 7250).
    pub fn to_spki_der(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0[..]].concat()
    }

    /// Reads what [`PublicKey::to_spki_der`] writes; anything else, also
    /// trailing bytes, is [`KeyError::Spki`].
    pub fn from_spki_der(der: &[u8]) -> Result<Self, KeyError> {
        let key = der.strip_prefix(&SPKI_PREFIX).ok_or(KeyError::Spki)?;
        key.try_into().map(Self).map_err(|_| KeyError::Spki)
    }

    /// Whether `signature` over `message` was made with this key's private half.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(b"farhaul public key 1");
        context.update(&self.0);
        let digest = context.finish();
        let mut sum = [0; CHECKSUM_BYTES];
        sum.copy_from_slice(&digest.as_ref()[..CHECKSUM_BYTES]);
        sum
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; KEY_BYTES + CHECKSUM_BYTES];
        bytes[..KEY_BYTES].copy_from_slice(&self.0);
        bytes[KEY_BYTES..].copy_from_slice(&self.checksum());
        write!(f, "{PUBLIC_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let body = text
            .strip_prefix(PUBLIC_PREFIX)
            .ok_or(KeyError::PublicText(
                "it starts with `fh1-`; `farhaul keygen` and `farhaul status` print it",
            ))?;
        let length_error =
            KeyError::PublicText("it has 48 characters after `fh1-`; a part is missing or doubled");
        if body.chars().count() != 48 {
            return Err(length_error);
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| {
            KeyError::PublicText("after `fh1-` only letters, digits, `-` and `_` occur")
        })?;
        let (key, sum) = bytes.split_at_checked(KEY_BYTES).ok_or(length_error)?;
        let key = Self(key.try_into().map_err(|_| KeyError::Spki)?);
        if key.checksum() != sum {
            return Err(KeyError::PublicText(
                "its checksum does not fit: a character was mistyped or two were swapped",
            ));
        }
        Ok(key)
    }
}

/// A gateway's private key. Wiped from memory when dropped; `Debug` shows only
/// the public half.
#[derive(Clone)]
pub struct PrivateKey {
    seed: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

impl PrivateKey {
    /// A new random key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new()
            .fill(&mut *seed)
            .map_err(|_| KeyError::Random)?;
        Self::from_seed(seed).ok_or(KeyError::Random)
    }

    fn from_seed(seed: Zeroizing<[u8; KEY_BYTES]>) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { seed, public })
    }

    /// Reads a key file: PEM with PKCS#8 (versions 1 and 2, RFC 8410), not
    /// readable for group or others.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        Self::from_pem(&text).map_err(|what| KeyError::Content {
            path: path.to_owned(),
            what,
        })
    }

    /// Writes the key to a new file of mode 0600. The file appears complete or
    /// not at all, and an existing one is never touched ([`KeyError::Exists`]).
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        let der = self.to_pkcs8_der();
        let body = Zeroizing::new(STANDARD.encode(&*der));
        let text = Zeroizing::new(format!(
            "Private key of a Farhaul gateway: whoever has it can pose as that gateway.\n\
             {PUBLIC_LINE}{}\n{PEM_BEGIN}\n{}\n{PEM_END}\n",
            self.public, *body
        ));
        write_private_new(path, text.as_bytes())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// PKCS#8 version 1 in DER, 48 bytes (RFC 8410 section 7), as TLS stacks take it.
    pub fn to_pkcs8_der(&self) -> Zeroizing<Vec<u8>> {
        // The capacity is exact: growing would leave a copy of the seed behind.
        let mut der = Zeroizing::new(Vec::with_capacity(PKCS8_PREFIX.len() + KEY_BYTES));
        der.extend_from_slice(&PKCS8_PREFIX);
        der.extend_from_slice(&*self.seed);
        der
    }

    /// Ed25519 signature over `message` (RFC 8032), 64 bytes.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match Ed25519KeyPair::from_seed_unchecked(&*self.seed) {
            Ok(pair) => pair.sign(message).as_ref().to_vec(),
            // The length is right by type; an empty signature verifies nowhere.
            Err(_) => Vec::new(),
        }
    }

    fn from_pem(text: &str) -> Result<Self, &'static str> {
        let (head, rest) = text
            .split_once(PEM_BEGIN)
            .ok_or("it holds no `BEGIN PRIVATE KEY` line")?;
        let (body, _) = rest
            .split_once(PEM_END)
            .ok_or("it is cut off before its `END PRIVATE KEY` line")?;
        let body: Zeroizing<String> =
            Zeroizing::new(body.chars().filter(|c| !c.is_whitespace()).collect());
        let der = STANDARD
            .decode(body.as_bytes())
            .map(Zeroizing::new)
            .map_err(|_| "its PEM block is damaged")?;
        let key = Self::from_pkcs8_der(&der)?;
        let named = head
            .lines()
            .find_map(|line| line.strip_prefix(PUBLIC_LINE))
            .map(|text| text.trim().parse::<PublicKey>());
        match named {
            None => Ok(key),
            Some(Ok(named)) if named == key.public => Ok(key),
            Some(_) => Err("its public key line does not belong to the private key below it"),
        }
    }

    fn from_pkcs8_der(der: &[u8]) -> Result<Self, &'static str> {
        let other = "it is not an Ed25519 key in PKCS#8 form";
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| other)?;
        // Both versions of PKCS#8 put the seed at the same place; comparing the
        // public keys makes sure of it.
        let mut seed = Zeroizing::new([0; KEY_BYTES]);
        let start = PKCS8_PREFIX.len();
        seed.copy_from_slice(der.get(start..start + KEY_BYTES).ok_or(other)?);
        let key = Self::from_seed(seed).ok_or(other)?;
        if key.public.0 == pair.public_key().as_ref() {
            Ok(key)
        } else {
            Err(other)
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(public {})", self.public)
    }
}

/// Reads a secret text file after checking that nobody else can.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let io = |source| KeyError::Io {
        path: path.to_owned(),
        source,
    };
    let not_a_file = || KeyError::NotAFile {
        path: path.to_owned(),
    };
    // Opening a FIFO would wait for its writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(not_a_file());
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Permissions {
            path: path.to_owned(),
            mode,
        });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            error.into_bytes().zeroize();
            Err(not_a_file())
        }
    }
}

/// Writes a new file of mode 0600 that appears complete or not at all.
pub(crate) fn write_private_new(path: &Path, content: &[u8]) -> Result<(), KeyError> {
    let io = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists {
            path: path.to_owned(),
        },
        _ => KeyError::Unwritable {
            path: path.to_owned(),
            source,
        },
    };
    let folder = folder_of(path);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let draft = folder.join(name);
    let written = write_synced(&draft, content)
        // A hard link is the one step that fails when the name is taken.
        .and_then(|()| fs::hard_link(&draft, path))
        .and_then(|()| File::open(folder)?.sync_all());
    let removed = fs::remove_file(&draft);
    written.map_err(io)?;
    removed.map_err(io)
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("farhaul-keys-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn file_round_trip_with_mode_0600_and_no_leftovers() {
        let dir = folder("round-trip");
        let path = dir.join("site.key");
        let key = PrivateKey::generate().unwrap();
        key.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(PrivateKey::load(&path).unwrap().public(), key.public());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let dir = folder("exists");
        let path = dir.join("site.key");
        fs::write(&path, "precious").unwrap();
        let error = PrivateKey::generate().unwrap().create(&path).unwrap_err();
        assert!(matches!(error, KeyError::Exists { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_remedy() {
        let dir = folder("modes");
        let path = dir.join("site.key");
        PrivateKey::generate().unwrap().create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateKey::load(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
            assert!(error.contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        PrivateKey::load(&path).unwrap();
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn folders_devices_and_damaged_files_are_refused() {
        let dir = folder("damaged");
        assert!(matches!(
            PrivateKey::load(&dir).unwrap_err(),
            KeyError::NotAFile { .. }
        ));
        assert!(PrivateKey::load(Path::new("/dev/null")).is_err());
        let missing = PrivateKey::load(&dir.join("none")).unwrap_err().to_string();
        assert!(missing.contains("farhaul keygen"), "{missing}");

        let path = dir.join("site.key");
        PrivateKey::generate().unwrap().create(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let other = PrivateKey::generate().unwrap();
        let swapped: String = good
            .lines()
            .map(|line| match line.starts_with(PUBLIC_LINE) {
                true => format!("{PUBLIC_LINE}{}\n", other.public()),
                false => format!("{line}\n"),
            })
            .collect();
        for bad in [
            "",
            "hello",
            &good[..good.len() - 30],
            &good.replace("MC4", "MC5"),
            &swapped,
        ] {
            fs::write(&path, bad).unwrap();
            let error = PrivateKey::load(&path).unwrap_err();
            assert!(matches!(error, KeyError::Content { .. }), "{bad}: {error}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn pkcs8_of_either_version_is_read() {
        let v2 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = PrivateKey::from_pkcs8_der(v2.as_ref()).unwrap();
        let v1 = key.to_pkcs8_der();
        let again = PrivateKey::from_pkcs8_der(&v1).unwrap();
        assert_eq!(key.public(), again.public());
        assert!(PrivateKey::from_pkcs8_der(&v1[..47]).is_err());
    }

    #[test]
    fn debug_output_keeps_the_secret() {
        let key = PrivateKey::generate().unwrap();
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.public().to_string()), "{shown}");
        assert!(!shown.contains(&format!("{:?}", *key.seed)));
        assert!(!shown.contains(&STANDARD.encode(*key.seed)[..8]));
    }

    #[test]
    fn signatures_verify_only_with_the_right_key_and_message() {
        let key = PrivateKey::generate().unwrap();
        let signature = key.sign(b"message");
        assert!(key.public().verifies(b"message", &signature));
        assert!(!key.public().verifies(b"massage", &signature));
        let other = PrivateKey::generate().unwrap();
        assert!(!other.public().verifies(b"message", &signature));
    }

    /// RFC 8410 section 10.1 gives this public key.
    #[test]
    fn spki_is_that_of_rfc_8410() {
        let der = STANDARD
            .decode("MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=")
            .unwrap();
        let key = PublicKey::from_spki_der(&der).unwrap();
        assert_eq!(key.0[..4], [0x19, 0xbf, 0x44, 0x09]);
        assert_eq!(key.to_spki_der(), der);
        assert!(PublicKey::from_spki_der(&der[..43]).is_err());
        assert!(PublicKey::from_spki_der(&[&der[..], &[0]].concat()).is_err());
    }

    #[test]
    fn text_form_is_stable() {
        let text = PublicKey([7; 32]).to_string();
        assert_eq!(text, "fh1-BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBweie3pO");
        assert_eq!(text.parse::<PublicKey>().unwrap(), PublicKey([7; 32]));
    }

    proptest! {
        #[test]
        fn any_key_round_trips(bytes: [u8; 32]) {
            let key = PublicKey(bytes);
            prop_assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
        }

        #[test]
        fn one_wrong_character_is_caught(bytes: [u8; 32], at in 4usize..52, with in "[A-Za-z0-9_-]") {
            let text = PublicKey(bytes).to_string();
            let mut wrong = text.clone();
            wrong.replace_range(at..at + 1, &with);
            prop_assume!(wrong != text);
            prop_assert!(wrong.parse::<PublicKey>().is_err());
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            prop_assert!(text.parse::<PublicKey>().is_err());
        }

        #[test]
        fn no_pem_panics(text in any::<String>()) {
            let _ = PrivateKey::from_pem(&format!("{PEM_BEGIN}{text}{PEM_END}"));
        }
    }
}
