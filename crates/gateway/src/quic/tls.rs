//! TLS 1.3 with raw public keys (RFC 7250): each side presents its Ed25519
//! key and accepts only keys an operator pinned. No certificates, no clock.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    SignatureScheme,
};

use crate::keys::{PrivateKey, PublicKey};
use crate::lock::lock;

/// ALPN of the peer protocol. Frame versions are negotiated inside it.
const ALPN: &[u8] = b"farhaul";

/// The keys that may complete a handshake with us; replaced at reload.
#[derive(Debug, Default)]
pub struct PinnedKeys {
    keys: RwLock<HashSet<PublicKey>>,
    /// Presented and not known, until somebody asks; TLS passes no more on
    /// than that it refused.
    refused: Mutex<VecDeque<(Instant, PublicKey)>>,
}

/// Refused keys remembered at most: one for each handshake under way.
const REFUSED_MAX: usize = 64;
/// The refusal is what ends a handshake: its task learns of it at once.
const REFUSED_LATELY: Duration = Duration::from_secs(1);

impl PinnedKeys {
    /// Replaces the whole set. Connections that already stand are not touched.
    pub fn replace(&self, keys: impl IntoIterator<Item = PublicKey>) {
        let mut set = self
            .keys
            .write()
            .unwrap_or_else(|poison| poison.into_inner());
        *set = keys.into_iter().collect();
    }

    fn contains(&self, key: &PublicKey) -> bool {
        let set = self
            .keys
            .read()
            .unwrap_or_else(|poison| poison.into_inner());
        set.contains(key)
    }

    fn refuse(&self, key: PublicKey) {
        let mut refused = lock(&self.refused);
        refused.truncate(REFUSED_MAX - 1);
        refused.push_front((Instant::now(), key));
    }

    /// The key that was refused last, if nobody has asked for it yet. Whoever
    /// was refused earlier is not who fails now.
    pub fn take_refused(&self) -> Option<PublicKey> {
        let (at, key) = lock(&self.refused).pop_front()?;
        (at.elapsed() < REFUSED_LATELY).then_some(key)
    }
}

/// Server side of a handshake: any pinned key may dial us.
pub fn server(
    key: &PrivateKey,
    pinned: Arc<PinnedKeys>,
) -> Result<noq::crypto::rustls::QuicServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(PinnedVerifier {
        pinned: Accepted::Any(pinned),
        provider: provider.clone(),
    });
    let resolver = AlwaysResolvesServerRawPublicKeys::new(certified(key, &provider)?);
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.max_early_data_size = 0;
    // A resumed session would skip the check of the client's key.
    config.send_tls13_tickets = 0;
    noq::crypto::rustls::QuicServerConfig::try_from(config)
        .map_err(|error| Error::General(error.to_string()))
}

/// Client side of a handshake: exactly one key may answer.
pub fn client(
    key: &PrivateKey,
    peer: PublicKey,
) -> Result<noq::crypto::rustls::QuicClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(PinnedVerifier {
        pinned: Accepted::One(peer),
        provider: provider.clone(),
    });
    let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(key, &provider)?);
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    noq::crypto::rustls::QuicClientConfig::try_from(config)
        .map_err(|error| Error::General(error.to_string()))
}

/// The key the other side proved to hold, once the handshake is done.
pub fn peer_key(connection: &noq::Connection) -> Option<PublicKey> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    PublicKey::from_spki_der(chain.first()?.as_ref()).ok()
}

fn certified(key: &PrivateKey, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let pkcs8 = PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec());
    let signer = provider
        .key_provider
        .load_private_key(PrivateKeyDer::Pkcs8(pkcs8))?;
    let public = CertificateDer::from(key.public().to_spki_der());
    Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
}

#[derive(Debug)]
enum Accepted {
    Any(Arc<PinnedKeys>),
    One(PublicKey),
}

#[derive(Debug)]
struct PinnedVerifier {
    pinned: Accepted,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        let key = PublicKey::from_spki_der(spki.as_ref()).map_err(|_| refused.clone())?;
        let known = match &self.pinned {
            Accepted::Any(keys) => {
                let known = keys.contains(&key);
                if !known {
                    keys.refuse(key);
                }
                known
            }
            Accepted::One(pinned) => *pinned == key,
        };
        if known { Ok(()) } else { Err(refused) }
    }
}

/// What both traits ask for in the same words: signatures of TLS 1.3, made
/// with the raw key that was presented (RFC 7250).
macro_rules! signatures_by_raw_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _spki: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature_with_raw_key(
                message,
                &SubjectPublicKeyInfoDer::from(spki.as_ref()),
                signed,
                &self.provider.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    signatures_by_raw_key!();
}

impl ClientCertVerifier for PinnedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    signatures_by_raw_key!();
}
