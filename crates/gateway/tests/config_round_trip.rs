//! What `print-config` prints means the same, and no text makes the reader panic.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not what they call

use std::fs;
use std::path::{Path, PathBuf};

use farhaul_gateway::config::load::{LoadError, check, load};
use farhaul_gateway::config::meaning::{Config, Dial, InterceptMode, Optimise};
use farhaul_gateway::config::print;
use farhaul_gateway::keys::PrivateKey;
use proptest::prelude::*;

fn config_of(text: &str) -> Config {
    check(text, Path::new("/etc/farhaul/a.toml"), |_| None)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .config
}

fn good(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/good");
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn printed_configurations_are_read_back_equal() {
    for name in ["shortest.toml", "waits.toml", "everything.toml"] {
        let config = config_of(&good(name));
        let printed = print::full(&config);
        assert_eq!(config_of(&printed), config, "{printed}");
        assert_eq!(print::full(&config_of(&printed)), printed);
    }
}

#[test]
fn filling_in_the_defaults_brings_no_new_warnings() {
    let warnings = |text: &str| {
        let loaded = check(text, Path::new("/etc/farhaul/a.toml"), |_| None).unwrap();
        loaded.warnings.to_string().matches("warning:").count()
    };
    for name in ["shortest.toml", "waits.toml", "everything.toml"] {
        let printed = print::full(&config_of(&good(name)));
        assert_eq!(warnings(&printed), warnings(&good(name)), "{name}");
    }
}

#[test]
fn defaults_follow_the_documents() {
    let config = config_of(&good("shortest.toml"));
    assert_eq!(config.tunnel.listen.to_string(), "[::]:0");
    assert_eq!(config.tunnel.resume_max.as_secs(), 120);
    assert_eq!(config.tunnel.keep_alive.as_millis(), 700);
    assert_eq!(config.tunnel.dead_after.as_millis(), 2500);
    assert_eq!(config.peers[0].dial, Dial::Us);
    assert_eq!(config.intercept.mode, InterceptMode::Explicit);
    assert_eq!(config.site.key, PathBuf::from("/etc/farhaul/harbour.key"));
    assert!(config.accept.destinations.is_empty());
    let waits = config_of(&good("waits.toml"));
    assert_eq!(waits.tunnel.listen.to_string(), "[::]:4433");
    assert_eq!(waits.peers[0].dial, Dial::Peer);
}

#[test]
fn everything_that_is_written_arrives() {
    let config = config_of(&good("everything.toml"));
    assert_eq!(config.tunnel.resume_max.as_secs(), 120);
    assert_eq!(config.tunnel.drain.as_secs(), 0);
    assert_eq!(config.intercept.mark, 0x0120_0000);
    assert_eq!(config.store.memory_bytes, 3 << 29);
    let disk = config.store.disk.unwrap();
    assert_eq!(disk.path, PathBuf::from("/etc/farhaul/segments"));
    assert_eq!(disk.size_bytes, 200_000_000_000);
    let rule = &config.rules[0];
    assert_eq!(rule.optimise, Optimise::Direct);
    assert_eq!(rule.matching.port, [(873, 873), (8000, 8099)]);
    assert_eq!(rule.matching.source[1].prefix_bits, 32);
    assert_eq!(config.rules[1].name, "rule 2");
    assert_eq!(config.rules.last().unwrap().name, "default");
}

#[test]
fn the_reference_page_is_fresh() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    if std::env::var_os("FARHAUL_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(&page, print::reference()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(page).unwrap_or_default(),
        print::reference(),
        "write it anew: farhaul print-config --reference > docs/reference/configuration.md"
    );
}

#[test]
fn load_reads_the_private_key_too() {
    let folder = std::env::temp_dir().join(format!("farhaul-config-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.toml");
    let missing = load(&path).unwrap_err();
    assert!(matches!(missing, LoadError::Unreadable { .. }), "{missing}");

    fs::write(&path, good("shortest.toml")).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("a.toml:3:7: error: site.key: "), "{error}");
    assert!(error.contains("farhaul keygen"), "{error}");

    let key = PrivateKey::generate().unwrap();
    key.create(&folder.join("harbour.key")).unwrap();
    let config = load(&path).unwrap().config;
    assert_eq!(config.site.key, folder.join("harbour.key"));
    assert!(!print::full(&config).contains(&fs::read_to_string(&config.site.key).unwrap()[200..]));

    let own = good("shortest.toml")
        .lines()
        .fold(String::new(), |text, line| {
            text + &match line.starts_with("key = \"fh1-") {
                true => format!("key = \"{}\"\n", key.public()),
                false => format!("{line}\n"),
            }
        });
    fs::write(&path, own).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("this is this gateway's own key"), "{error}");
    fs::write(&path, b"\xff\xfe").unwrap();
    assert!(
        load(&path)
            .unwrap_err()
            .to_string()
            .contains("not UTF-8 at line 1")
    );
    fs::remove_dir_all(folder).unwrap();
}

/// Lines as an operator might write, break or half delete them.
fn toml_ish() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "[site]",
        "[[peer]]",
        "[[rule]]",
        "[[listen]]",
        "[tunnel]",
        "[store]",
        "[log]",
        "[a.b]",
        "name = \"x\"",
        "name = 1",
        "key = \"k\"",
        "address = \"h:1\"",
        "networks = [\"10.0.0.0/8\"]",
        "networks = [1, \"\", []]",
        "match = { port = [1, \"2-9\", -1, 99999999999999999999] }",
        "disk = { path = \"\", size = \"1 B\" }",
        "mark = 0xffffffffffffffff",
        "flows_max = -0",
        "keep_alive = \"9999999999999999999h\"",
        "compression = -128",
        "site.name = \"y\"",
        "peer = []",
        "peer = [1]",
        "rule = { }",
        "x = 1979-05-27T07:32:00Z",
        "[",
        "]]",
        "=",
        "\"\"\"",
    ]);
    let line = prop_oneof![
        4 => fixed.prop_map(str::to_owned),
        1 => "[a-z_]{1,12} = [\"'0-9a-z.:/\\[\\]{}]{0,12}",
        1 => any::<String>(),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

/// Printed memory is somebody's choice, also where it was the disk's.
fn as_printed(mut config: Config) -> Config {
    config.store.is_memory_by_disk = false;
    config
}

#[test]
fn memory_by_the_size_of_the_disk_is_printed_as_the_memory_it_is() {
    let text = good("everything.toml").replace("memory =", "# memory =");
    let loaded = check(&text, Path::new("/etc/farhaul/a.toml"), |_| None).unwrap();
    assert!(loaded.config.store.is_memory_by_disk);
    assert_eq!(
        config_of(&print::full(&loaded.config)),
        as_printed(loaded.config)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_text_panics(text in toml_ish()) {
        match check(&text, Path::new("x.toml"), |_| None) {
            Ok(loaded) => prop_assert_eq!(config_of(&print::full(&loaded.config)), as_printed(loaded.config)),
            Err(error) => prop_assert!(error.to_string().contains("x.toml:")),
        }
    }

    #[test]
    fn a_good_file_with_damage_never_panics(at in 0usize..1500, with in any::<char>()) {
        let mut text: Vec<char> = good("everything.toml").chars().collect();
        let at = at % text.len();
        text[at] = with;
        let text: String = text.into_iter().collect();
        if let Ok(loaded) = check(&text, Path::new("/etc/farhaul/a.toml"), |_| None) {
            prop_assert_eq!(config_of(&print::full(&loaded.config)), as_printed(loaded.config));
        }
    }
}
