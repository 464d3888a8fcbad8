//! Which settings are valid.

use super::address::split;
use super::*;

fn refused(change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config::default();
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

fn accepted(change: impl FnOnce(&mut Config)) {
    let mut config = Config::default();
    change(&mut config);
    assert_eq!(config.validate(), Ok(()));
}

#[test]
fn the_defaults_are_valid() {
    accepted(|_| ());
    assert_eq!(Config::development().validate(), Ok(()));
}

#[test]
fn addresses_have_a_host_and_a_port() {
    for (text, expected) in [
        ("127.0.0.1:7300", Some(("127.0.0.1", 7300))),
        ("node-1.umbel:1", Some(("node-1.umbel", 1))),
        ("[::1]:0", Some(("::1", 0))),
        ("::1:80", None),
        ("[node]:80", None),
        ("node", None),
        ("node:", None),
        ("node:+1", None),
        ("node:65536", None),
        (":80", None),
        ("a b:80", None),
        ("http://node:80", None),
    ] {
        assert_eq!(split(text), expected, "{text}");
    }
}

#[test]
fn other_machines_are_let_in_only_on_demand() {
    accepted(|config| config.listen = "[::1]:0".into());
    accepted(|config| config.listen = "localhost:7300".into());
    for address in ["0.0.0.0:7300", "10.0.0.1:7300", "node-1:7300", "[::]:7300"] {
        let message = refused(|config| config.listen = address.into());
        assert!(message.contains("without TLS") && message.contains(address), "{message}");
    }
    let message = refused(|config| {
        config.insecure = true;
        config.listen = "0.0.0.0:7300".into();
    });
    assert!(message.contains("advertise"), "{message}");
    accepted(|config| {
        config.insecure = true;
        config.listen = "0.0.0.0:7300".into();
        config.advertise = Some("node-1:7300".into());
    });
    let encrypted = |config: &mut Config| {
        config.listen = "node-1:7300".into();
        config.tls_cert = Some("node-1.pem".into());
        config.tls_key = Some("node-1.key".into());
        config.tls_ca = Some("ca.pem".into());
    };
    accepted(encrypted);
    let message = refused(|config| {
        encrypted(config);
        config.tls_optional = true;
    });
    assert!(message.contains("without TLS"), "{message}");
}

#[test]
fn a_cluster_has_one_origin() {
    let message = refused(|config| {
        config.dev = true;
        config.join = Some("node-1:7300".into());
    });
    assert_eq!(message, "dev and join exclude each other: give one of them");
    let message = refused(|config| config.initial_cluster = vec!["node-1:7300".into()]);
    assert!(message.contains("127.0.0.1:7300") && message.contains("node-1:7300"), "{message}");
    let own = "127.0.0.1:7300".to_owned();
    accepted(|config| config.initial_cluster = vec!["node-2:7300".into(), own.clone()]);
    let message = refused(|config| config.initial_cluster = vec![own.clone(), own.clone()]);
    assert!(message.contains("twice"), "{message}");
    let message = refused(|config| config.join = Some("node-1:0".into()));
    assert!(message.contains("must not be 0"), "{message}");
}

#[test]
fn numbers_have_ranges() {
    assert_eq!(refused(|config| config.shards = 1025), "shards = 1025: expected 0 to 1024");
    assert_eq!(refused(|config| config.cores = 4097), "cores = 4097: expected 0 to 4096");
    assert_eq!(refused(|config| config.replicas = 10), "replicas = 10: expected 1 to 9");
    assert!(refused(|config| config.heartbeat_ms = 134).contains("suspect_ms"));
    assert!(refused(|config| config.suspect_ms = 299).contains("expected 300"));
    assert!(refused(|config| config.queue_items_max = 1).contains("queue_items_max"));
    assert!(refused(|config| config.log_bytes_max = u64::MAX).contains("log_bytes_max"));
    assert!(refused(|config| config.data.clear()).contains("data"));
    let message = refused(|config| config.move_bytes_per_second_max = 1_048_575);
    assert!(
        message.starts_with("move_bytes_per_second_max = 1048575: expected 1048576"),
        "{message}"
    );
    accepted(|config| config.move_bytes_per_second_max = 0);
}

#[test]
fn every_setting_is_described_in_whole_sentences() {
    for setting in Config::SETTINGS {
        let text: Vec<&str> = setting.lines().collect();
        assert!(text.last().is_some_and(|line| line.ends_with('.')), "{}", setting.name);
    }
}

#[test]
fn tls_is_set_as_a_whole() {
    let message = refused(|config| config.tls_cert = Some("node.pem".into()));
    assert_eq!(message, "TLS needs tls_cert, tls_key and tls_ca, and tls_key is not set");
    let message = refused(|config| config.tls_ca = Some("ca.pem".into()));
    assert!(message.ends_with("tls_cert is not set"), "{message}");
    let message = refused(|config| config.tls_optional = true);
    assert!(message.contains("tls_optional without tls_cert"), "{message}");
}

#[test]
fn the_redis_protocol_is_as_protected_as_the_other() {
    accepted(|config| config.resp_listen = Some("127.0.0.1:6379".into()));
    let message = refused(|config| config.resp_listen = Some("0.0.0.0:6379".into()));
    assert!(message.starts_with("resp_listen = \"0.0.0.0:6379\": other machines"), "{message}");
    let message = refused(|config| config.resp_listen = Some("6379".into()));
    assert!(message.contains("resp_listen = \"6379\": expected HOST:PORT"), "{message}");
    accepted(|config| config.resp_default_kind = "classic".into());
    accepted(|config| config.resp_default_kind = "redisbloom".into());
    let message = refused(|config| config.resp_default_kind = "cuckoo".into());
    assert!(message.contains("expected scalable, redisbloom, blocked or classic"), "{message}");
}

#[test]
fn each_protocol_has_a_port_of_its_own() {
    let both = |listen: &'static str, resp: &'static str| {
        move |config: &mut Config| {
            (config.listen, config.resp_listen) = (listen.into(), Some(resp.into()));
            (config.insecure, config.advertise) = (true, Some("node-1:6379".into()));
        }
    };
    for (listen, resp) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("0.0.0.0:7300", "127.0.0.1:6379"),
        ("127.0.0.2:6379", "127.0.0.1:6379"),
        ("localhost:6379", "127.0.0.2:6379"),
        ("0.0.0.0:6379", "[::1]:6379"),
        ("node-1:6379", "node-2:6379"),
    ] {
        accepted(both(listen, resp));
        accepted(both(resp, listen));
    }
    for (listen, resp) in [
        ("127.0.0.1:6379", "127.0.0.1:6379"),
        ("localhost:6379", "127.0.0.1:6379"),
        ("[::1]:6379", "localhost:6379"),
        ("0.0.0.0:6379", "127.0.0.1:6379"),
        ("0.0.0.0:6379", "node-1:6379"),
        ("[::]:6379", "127.0.0.1:6379"),
        ("[::]:6379", "0.0.0.0:6379"),
        ("node-1:6379", "Node-1:6379"),
    ] {
        for (listen, resp) in [(listen, resp), (resp, listen)] {
            let message = refused(both(listen, resp));
            let expected = format!(
                "listen = \"{listen}\" (--listen) and resp_listen = \"{resp}\" (--resp) meet"
            );
            assert!(message.starts_with(&expected), "{message}");
        }
    }
}

#[test]
fn clients_can_connect_to_what_is_announced() {
    let announced = |text: &str| Config { resp_announce: Some(text.into()), ..Config::default() };
    let config = announced("cache.example:16379");
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.resp_announced(), Some(("cache.example", 16379)));
    assert_eq!(announced("[2001:db8::1]:6379").resp_announced(), Some(("2001:db8::1", 6379)));
    assert_eq!(Config::default().resp_announced(), None);
    for (text, problem) in [
        ("cache.example", "expected HOST:PORT"),
        ("cache.example:0", "the port must not be 0"),
        ("0.0.0.0:6379", "means all addresses"),
    ] {
        let message = refused(|config| config.resp_announce = Some(text.into()));
        assert!(message.starts_with(&format!("resp_announce = \"{text}\"")), "{message}");
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn questions_about_a_redis_cluster_are_answered_or_not() {
    for answers in ["single", "spread", "off"] {
        accepted(|config| config.resp_cluster = answers.into());
    }
    let message = refused(|config| config.resp_cluster = "split".into());
    assert_eq!(message, "resp_cluster = \"split\": expected single, spread or off");
}

#[test]
fn clients_reach_the_redis_protocol_where_it_is_announced_or_listens() {
    let config = Config::default();
    let reached = |local: &str| config.resp_reached_at(local, "node-1:7300");
    assert_eq!(reached("10.0.0.7:6379"), ("10.0.0.7".to_owned(), 6379));
    assert_eq!(reached("0.0.0.0:6379"), ("node-1".to_owned(), 6379));
    assert_eq!(reached("[::]:6380"), ("node-1".to_owned(), 6380));
    assert_eq!(reached("[2001:db8::1]:6379"), ("2001:db8::1".to_owned(), 6379));
    let config = Config { resp_announce: Some("cache.example:16379".into()), ..config };
    let announced = config.resp_reached_at("0.0.0.0:6379", "node-1:7300");
    assert_eq!(announced, ("cache.example".to_owned(), 16379));
}

#[test]
fn transactions_are_ordered_or_strict() {
    for transactions in ["ordered", "strict"] {
        accepted(|config| config.resp_multi = transactions.into());
    }
    let message = refused(|config| config.resp_multi = "isolated".into());
    assert_eq!(message, "resp_multi = \"isolated\": expected ordered or strict");
}

#[test]
fn the_console_has_modes() {
    for mode in ["off", "read-only", "proven", "full"] {
        accepted(|config| config.console = mode.into());
    }
    let message = refused(|config| config.console = "on".into());
    assert_eq!(message, "console = \"on\": expected off, read-only, proven or full");
}

#[test]
fn the_console_is_reached_under_names_of_hosts() {
    accepted(|config| config.console_hosts = vec!["umbel.example".into(), "10.0.0.1".into()]);
    for bad in ["", "umbel.example:443", "https://umbel.example", "a b"] {
        let message = refused(|config| config.console_hosts = vec![bad.into()]);
        assert!(message.contains("without scheme and port"), "{message}");
    }
}
