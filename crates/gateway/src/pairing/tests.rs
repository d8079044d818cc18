//! Pairing: what is carried arrives, and nothing else is accepted.

use super::*;
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000;

fn nets(texts: &[&str]) -> Vec<Network> {
    texts
        .iter()
        .map(|text| units::network(text).unwrap())
        .collect()
}

fn offer(key: &PrivateKey) -> Offer {
    Offer::new(
        "harbour".into(),
        key.public(),
        Some(units::host_port("hq.example.org:4433").unwrap()),
        nets(&["10.1.0.0/16", "fd00:1::/48"]),
        nets(&["10.2.0.0/16"]),
        NOW,
    )
    .unwrap()
}

fn about(key: &PrivateKey) -> Answer {
    Answer {
        site: "branch".into(),
        key: key.public(),
        address: None,
        networks: nets(&["10.2.0.0/16"]),
    }
}

#[test]
fn two_texts_pair_two_gateways() {
    let (first, second) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    let offer = offer(&first);
    let carried = Offer::from_token(&offer.token()).unwrap();
    assert_eq!(carried, offer);
    carried.check_time(NOW + VALID_S).unwrap();
    let answer = carried.answer(&about(&second), &second).unwrap();
    // Terminals wrap long lines.
    let wrapped: Vec<&str> = answer.split_inclusive("A").collect();
    assert_eq!(
        offer.accept(&wrapped.join("\n  "), NOW + 60).unwrap(),
        about(&second)
    );
}

#[test]
fn tokens_expire() {
    let (first, second) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    let offer = offer(&first);
    let late = NOW + VALID_S + 1;
    assert!(matches!(
        offer.check_time(late),
        Err(PairingError::Expired { ago_s: 1 })
    ));
    let answer = offer.answer(&about(&second), &second).unwrap();
    assert!(matches!(
        offer.accept(&answer, late),
        Err(PairingError::Expired { .. })
    ));
    assert!(matches!(
        offer.check_time(NOW - 7200),
        Err(PairingError::Future)
    ));
}

#[test]
fn answers_are_bound_to_both_keys_and_the_secret() {
    let (first, second) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    let real = offer(&first);
    // Another offer of the same gateway: the older answer is void.
    let answer = offer(&first).answer(&about(&second), &second).unwrap();
    assert!(matches!(
        real.accept(&answer, NOW),
        Err(PairingError::OtherOffer)
    ));
    // Someone who knows the public parts but not the secret.
    let mut guess = real.clone();
    guess.secret[0] ^= 1;
    let answer = guess.answer(&about(&second), &second).unwrap();
    assert!(real.accept(&answer, NOW).is_err());
    assert!(matches!(
        real.answer(&about(&first), &first),
        Err(PairingError::OwnOffer)
    ));
    // A proper answer in which the key, or the site, was exchanged.
    let third = PrivateKey::generate().unwrap();
    let answer = real.answer(&about(&second), &second).unwrap();
    for (from, to) in [
        (second.public().to_string(), third.public().to_string()),
        ("branch".to_owned(), "brunch".to_owned()),
    ] {
        let document = open(&answer, ANSWER_PREFIX, ANSWER).unwrap();
        let document = String::from_utf8(document.to_vec()).unwrap();
        assert!(document.contains(&from));
        let forged = seal(ANSWER_PREFIX, document.replace(&from, &to).as_bytes());
        assert!(matches!(
            real.accept(&forged, NOW),
            Err(PairingError::NotAuthentic)
        ));
    }
    // With the secret, but without the private half of the key it names.
    let body: Signed = parse(&open(&answer, ANSWER_PREFIX, ANSWER).unwrap(), ANSWER).unwrap();
    let body = body
        .body
        .replace(&second.public().to_string(), &third.public().to_string());
    let signed = Signed {
        mac: URL_SAFE_NO_PAD.encode(hmac::sign(&real.mac_key(), &bound(&body)).as_ref()),
        signature: URL_SAFE_NO_PAD.encode(second.sign(&bound(&body))),
        body,
    };
    let forged = seal(
        ANSWER_PREFIX,
        serde_json::to_string(&signed).unwrap().as_bytes(),
    );
    assert!(matches!(
        real.accept(&forged, NOW),
        Err(PairingError::NotAuthentic)
    ));
}

#[test]
fn the_wrong_text_is_told_apart() {
    let key = PrivateKey::generate().unwrap();
    let offer = offer(&key);
    let error = offer.accept(&offer.token(), NOW).unwrap_err().to_string();
    assert!(error.contains("this is a pairing token"), "{error}");
    let error = Offer::from_token(&key.public().to_string())
        .unwrap_err()
        .to_string();
    assert!(error.contains("this is a public key"), "{error}");
    let error = Offer::from_token("hello").unwrap_err().to_string();
    assert!(error.contains("fhjoin1-"), "{error}");
}

#[test]
fn an_offer_waits_in_a_private_file_and_is_replaced() {
    let folder = std::env::temp_dir().join(format!("farhaul-pairing-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("harbour.pairing");
    let _ = std::fs::remove_file(&path);
    assert!(matches!(
        Offer::pending(&path),
        Err(PairingError::NothingPending { .. })
    ));
    let key = PrivateKey::generate().unwrap();
    let (older, newer) = (offer(&key), offer(&key));
    older.keep(&path).unwrap();
    newer.keep(&path).unwrap();
    assert_eq!(Offer::pending(&path).unwrap(), newer);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o7777, 0o600);
    forget(&path).unwrap();
    assert!(Offer::pending(&path).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_token_brings_is_checked_like_a_file() {
    let key = PrivateKey::generate().unwrap();
    let good = offer(&key).document().to_string();
    for (from, to) in [
        ("harbour", "x\\\"\\n[[peer]]"),
        ("hq.example.org:4433", "hq.example.org:0"),
        ("10.1.0.0/16", "10.1.2.3/16"),
        ("fh1-", "fh2-"),
        ("\"site\"", "\"sight\""),
    ] {
        assert!(good.contains(from));
        let bad = seal(OFFER_PREFIX, good.replacen(from, to, 1).as_bytes());
        assert!(
            matches!(Offer::from_token(&bad), Err(PairingError::Content { .. })),
            "{to}"
        );
    }
}

#[test]
fn debug_output_keeps_the_secret() {
    let offer = offer(&PrivateKey::generate().unwrap());
    let shown = format!("{offer:?}");
    assert!(!shown.contains(&URL_SAFE_NO_PAD.encode(*offer.secret)));
    assert!(shown.contains("secret hidden"));
}

proptest! {
    #[test]
    fn one_wrong_character_is_caught(at in 8usize..200, with in "[A-Za-z0-9_-]") {
        let token = offer(&PrivateKey::generate().unwrap()).token().to_string();
        let mut wrong = token.clone();
        wrong.replace_range(at..at + 1, &with);
        prop_assume!(wrong != token);
        prop_assert!(Offer::from_token(&wrong).is_err());
        wrong = token.clone();
        wrong.remove(at);
        prop_assert!(Offer::from_token(&wrong).is_err());
        prop_assert!(Offer::from_token(&token[..at]).is_err());
    }

    #[test]
    fn no_text_panics(text in any::<String>(), body in any::<Vec<u8>>()) {
        prop_assert!(Offer::from_token(&text).is_err());
        let prefixed = format!("{OFFER_PREFIX}{text}");
        prop_assert!(Offer::from_token(&prefixed).is_err());
        prop_assert!(Offer::from_token(&seal(OFFER_PREFIX, &body)).is_err());
        let own = offer(&PrivateKey::generate().unwrap());
        prop_assert!(own.accept(&seal(ANSWER_PREFIX, &body), NOW).is_err());
    }
}
