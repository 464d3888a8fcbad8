//! Files that Redis wrote, and hand-made encodings of older and newer servers.

use std::collections::BTreeMap;

use crate::{Key, RdbError, RdbReader, Value};

/// Values of every type, with an expiry, frequencies, functions and two databases; see
/// testdata/README.md.
pub(crate) const WITH_FREQUENCIES: &[u8] = include_bytes!("../testdata/redis-7.0-lfu.rdb");

/// One set, with its idle time.
pub(crate) const WITH_IDLE_TIMES: &[u8] = include_bytes!("../testdata/redis-7.0-lru.rdb");

/// The keys in their order.
pub(crate) fn keys(file: &[u8]) -> Result<Vec<Key>, RdbError> {
    let mut reader = RdbReader::new(file)?;
    let mut keys = Vec::new();
    while let Some(key) = reader.next_key()? {
        keys.push(key);
    }
    Ok(keys)
}

/// The items of all keys that have some, sorted where Redis defines no order.
pub(crate) fn items(file: &[u8]) -> Result<BTreeMap<String, Vec<String>>, RdbError> {
    let mut reader = RdbReader::new(file)?;
    let mut found = BTreeMap::new();
    while let Some(key) = reader.next_key()? {
        if matches!(key.value, Value::String | Value::Stream | Value::Module(_)) {
            continue;
        }
        let mut items = Vec::new();
        reader.read_items(|item| {
            items.push(String::from_utf8_lossy(item).into_owned());
            Ok::<(), RdbError>(())
        })?;
        if key.value != Value::List {
            items.sort();
        }
        found.insert(String::from_utf8_lossy(&key.name).into_owned(), items);
    }
    Ok(found)
}

/// A file with one key of this type, without a checksum.
pub(crate) fn file(type_byte: u8, value: &[u8]) -> Vec<u8> {
    [b"REDIS0012\xfe\x00", &[type_byte][..], b"\x01k", value, b"\xff", &[0; 8]].concat()
}

fn items_of(type_byte: u8, value: &[u8]) -> Result<Vec<String>, RdbError> {
    let file = file(type_byte, value);
    // Skipping the value ends at the same offset.
    assert_eq!(keys(&file)?.len(), 1);
    let mut items = items(&file)?;
    Ok(items.remove("k").unwrap_or_default())
}

/// Encodes a string, with a length of two bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap() | 0x4000;
    [&length.to_be_bytes(), bytes].concat()
}

fn ziplist(count: u16, values: &[u8]) -> Vec<u8> {
    let byte_count = u32::try_from(values.len() + 11).unwrap();
    string(
        &[&byte_count.to_le_bytes(), &[0; 4][..], &count.to_le_bytes(), values, &[0xff]].concat(),
    )
}

fn listpack(count: u16, values: &[u8]) -> Vec<u8> {
    let byte_count = u32::try_from(values.len() + 7).unwrap();
    string(&[&byte_count.to_le_bytes()[..], &count.to_le_bytes(), values, &[0xff]].concat())
}

#[test]
fn a_file_of_redis_7_has_its_keys_and_items() {
    let keys = keys(WITH_FREQUENCIES).unwrap();
    let mut types: Vec<(u64, String, String)> = keys
        .iter()
        .map(|key| (key.database, String::from_utf8_lossy(&key.name).into(), key.value.type_name()))
        .collect();
    types.sort();
    let types: Vec<String> =
        types.iter().map(|(db, name, of)| format!("{db} {name} {of}")).collect();
    assert_eq!(
        types,
        [
            "0 events stream",
            "0 fading set",
            "0 fields hash",
            "0 ints set",
            "0 many set",
            "0 nodes list",
            "0 number string",
            "0 plain list",
            "0 queue list",
            "0 ranks zset",
            "0 scores zset",
            "0 small set",
            "0 table hash",
            "0 text string",
            "3 seen:1 set",
            "3 seen:2 string",
        ]
    );
    for key in keys {
        let expected = (key.name == b"fading").then_some(4_102_444_800_000);
        assert_eq!(key.expires_at_ms, expected, "{key:?}");
    }
    let items = items(WITH_FREQUENCIES).unwrap();
    for (name, expected) in [
        ("ints", &["-2", "1", "5000000000", "70000"][..]),
        ("small", &["17", "alice", "bob", "carol"]),
        ("ranks", &["99", "first", "last", "second"]),
        ("scores", &["four", "one", "three", "two"]),
        ("fields", &["12345", "a", "b", "c"]),
        ("table", &["k1", "k2", "k3"]),
        ("nodes", &["a", "b", "c", "d", "e"]),
        ("plain", &[&"y".repeat(9000)]),
        ("queue", &["one", "2", "-3000", &"long".repeat(30), "123456789012", "40000", "8388607"]),
        ("fading", &["x", "y"]),
        ("seen:1", &["other"]),
    ] {
        assert_eq!(items[name], expected, "{name}");
    }
    let mut many: Vec<String> = (1..=30).map(|number| format!("member:{number}")).collect();
    many.sort();
    assert_eq!(items["many"], many);
    assert_eq!(self::items(WITH_IDLE_TIMES).unwrap()["seen"], ["1", "2", "three"]);
}

#[test]
fn ziplists_are_read_in_all_their_forms() {
    let text = "t".repeat(70);
    let values = [
        b"\x00\x02ab".to_vec(),
        [b"\x04\x40\x46", text.as_bytes()].concat(),
        [b"\xfe\x48\x00\x00\x00\x80\x00\x00\x00\x01z".to_vec()].concat(),
        b"\x00\xc0\xff\x7f\x00\xd0\x00\x00\x00\x80\x00\xe0\x01\x00\x00\x00\x01\x00\x00\x00"
            .to_vec(),
        b"\x00\xf0\xff\xff\xff\x00\xfe\x80\x00\xf1\x00\xfd".to_vec(),
    ]
    .concat();
    let expected =
        ["ab", &text, "z", "32767", "-2147483648", "4294967297", "-1", "-128", "0", "12"];
    for count in [10, u16::MAX] {
        assert_eq!(items_of(10, &ziplist(count, &values)).unwrap(), expected);
    }
    let lists = [b"\x02".to_vec(), ziplist(10, &values), ziplist(1, b"\x00\x01x")].concat();
    assert_eq!(items_of(14, &lists).unwrap(), [&expected[..], &["x"]].concat());
    let pairs = ziplist(4, b"\x00\x01b\x00\xf2\x00\x01a\x00\xf3");
    for type_byte in [12, 13] {
        assert_eq!(items_of(type_byte, &pairs).unwrap(), ["a", "b"]);
    }
}

#[test]
fn listpacks_are_read_in_all_their_forms() {
    let (medium, long) = ("m".repeat(200), "l".repeat(5000));
    let values = [
        b"\x7f\x01\x82ab\x03\xdf\xff\x02\xcf\xff\x02\xd0\x00\x02".to_vec(),
        [b"\xe0\xc8", medium.as_bytes(), b"\x01\xca"].concat(),
        [b"\xf0\x88\x13\x00\x00", long.as_bytes(), b"\x27\x8d"].concat(),
        b"\xf1\x00\x80\x03\xf2\xff\xff\x7f\x04\xf3\x00\x00\x00\x80\x05".to_vec(),
        b"\xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x09".to_vec(),
    ]
    .concat();
    let mut expected = vec!["127", "ab", "-1", "4095", "-4096", &medium, &long];
    expected.extend(["-32768", "8388607", "-2147483648", "9223372036854775807"]);
    expected.sort_unstable();
    assert_eq!(items_of(20, &listpack(11, &values)).unwrap(), expected);
    assert_eq!(items_of(20, &listpack(u16::MAX, &values)).unwrap(), expected);
    let pairs = listpack(4, b"\x81b\x02\x01\x01\x81a\x02\x02\x01");
    for type_byte in [16, 17] {
        assert_eq!(items_of(type_byte, &pairs).unwrap(), ["a", "b"]);
    }
    let message = |bytes: &[u8]| items_of(16, bytes).unwrap_err().to_string();
    assert!(message(&listpack(1, b"\x81b\x02")).ends_with("an item without a value"));
    assert!(
        message(&listpack(2, b"\x81b\x02")).ends_with("listpack: not as many values as it says")
    );
    assert!(message(&listpack(1, b"\xf5\x02")).ends_with("listpack: a value of no known form"));
    assert!(
        message(&listpack(1, b"\x8fb\x02")).ends_with("listpack: a value that is longer than it")
    );
    assert!(message(&string(b"\x09\0\0\0\0\0\xff")).ends_with("listpack: not as long as it says"));
    assert!(
        message(&string(b"\x08\0\0\0\0\0\xff\xff")).ends_with("listpack: bytes behind its end")
    );
}

#[test]
fn other_forms_are_read() {
    // A zipmap: a = 1, and b = a long value with two free bytes.
    let value = "v".repeat(300);
    let map =
        [&b"\x02\x01a\x01\x001\x01b\xfe\x2c\x01\x00\x00\x02"[..], value.as_bytes(), b"\0\0\xff"];
    assert_eq!(items_of(9, &string(&map.concat())).unwrap(), ["a", "b"]);
    // Intsets of each width.
    for (size, number) in [
        (2_u32, &b"\xfe\xff"[..]),
        (4, b"\xfe\xff\xff\xff"),
        (8, &[0xfe, 255, 255, 255, 255, 255, 255, 255]),
    ] {
        let set = [&size.to_le_bytes(), &b"\x01\0\0\0"[..], number].concat();
        assert_eq!(items_of(11, &string(&set)).unwrap(), ["-2"]);
    }
    assert!(
        items_of(11, &string(b"\x03\0\0\0\0\0\0\0")).unwrap_err().to_string().ends_with("8 bytes")
    );
    assert!(
        items_of(11, &string(b"\x02\0\0\0\x02\0\0\0ab"))
            .unwrap_err()
            .to_string()
            .ends_with("count says")
    );
    // Sorted sets with scores as digits, and without a score's digits.
    let scores = b"\x03\x01a\x031.5\x01b\xfe\x01c\xff";
    assert_eq!(items_of(3, scores).unwrap(), ["a", "b", "c"]);
    // Hashes with expiring fields.
    assert_eq!(items_of(22, b"\x02\x00\x01a\x01x\x40\xff\x01b\x01y").unwrap(), ["a", "b"]);
    assert_eq!(items_of(24, b"12345678\x02\x00\x01a\x01x\x05\x01b\x01y").unwrap(), ["a", "b"]);
    let triples = listpack(6, b"\x81a\x02\x81x\x02\x00\x01\x81b\x02\x81y\x02\x05\x01");
    assert_eq!(items_of(23, &triples).unwrap(), ["a", "b"]);
    assert_eq!(items_of(25, &[b"12345678", &triples[..]].concat()).unwrap(), ["a", "b"]);
    // Nodes of an unknown kind.
    assert!(items_of(18, b"\x01\x03\x01a").unwrap_err().to_string().contains("a node of no known"));
}

#[test]
fn streams_and_modules_are_passed_over() {
    let group = b"\x01\x01g\x01\x00";
    let pending = b"\x01iiiiiiiiiiiiiiiitttttttt\x02";
    let consumer = b"\x01\x01ctttttttt";
    let its = b"\x01iiiiiiiiiiiiiiii";
    let nodes = b"\x01\x10iiiiiiiiiiiiiiii\x03lll";
    let first = [&nodes[..], b"\x01\x05\x00", group, pending, consumer, its].concat();
    let second =
        [&nodes[..], b"\x01\x05\x00\x01\x00\x00\x00\x09", group, b"\x03", pending, consumer, its];
    let third = [
        &nodes[..],
        b"\x01\x05\x00\x01\x00\x00\x00\x09",
        group,
        b"\x03",
        pending,
        consumer,
        b"aaaaaaaa",
        its,
    ];
    for (type_byte, value) in [(15, first), (19, second.concat()), (21, third.concat())] {
        let found = keys(&file(type_byte, &value)).unwrap();
        assert_eq!(found[0].value, Value::Stream);
    }
    // A module's data outside of values, and as a value; then a slot's numbers.
    let file = b"REDIS0012\xf7\x81\0\0\0\0\0\0\x04\x01\x02\x01\x05\x02ab\0\xf4\x01\x02\x03\
        \x07\x01k\x81\0\0\0\0\0\0\x04\x01\x02\x01\0\xfd\x01\0\0\0\x00\x01s\x01v\xff\0\0\0\0\0\0\0\0";
    let found = keys(file).unwrap();
    assert_eq!(found[0].value.type_name(), "AAAAAAAAB");
    assert_eq!(found[1].expires_at_ms, Some(1_000));
}

#[test]
fn damage_is_told_with_its_place() {
    let message = |file: &[u8]| keys(file).unwrap_err().to_string();
    let magic =
        "byte 0: not a Redis database file, which begins with REDIS and a version of four digits";
    for other in [&b""[..], b"RED", b"UMBLEXP1\0", b"REDIS00x9\xff", b"VALKEY080\xff"] {
        assert_eq!(message(other), magic);
    }
    assert_eq!(message(b"REDIS0013\xff"), "byte 0: version 13, expected 1 to 12");
    assert_eq!(
        message(b"REDIS0012\x1b\x01k\x00"),
        "byte 9: 27 is no type of a value and no opcode that is known"
    );
    assert_eq!(
        message(b"REDIS0012\x06\x01k\x00"),
        "byte 9: 6 is no type of a value and no opcode that is known"
    );
    assert_eq!(message(b"REDIS0012\x00\x01k\x05ab"), "byte 15: it ends early");
    // Files of Redis 2.4 and older have no checksum.
    assert!(keys(b"REDIS0004\x00\x01k\x01v\xff").unwrap().len() == 1);
    let mut damaged = WITH_IDLE_TIMES.to_vec();
    let at = damaged.len() - 12;
    damaged[at] ^= 1;
    assert!(message(&damaged).ends_with(": it is damaged"), "{}", message(&damaged));
    // After an error, nothing more is read.
    let mut reader = RdbReader::new(&b"REDIS0012\x1b\xff"[..]).unwrap();
    reader.next_key().unwrap_err();
    reader.next_key().unwrap_err();
    // A value without items is an error for a caller that wants items; others skip it.
    let mut reader = RdbReader::new(&b"REDIS0009\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0"[..]).unwrap();
    reader.next_key().unwrap();
    assert!(reader.read_items(|_| Ok::<(), RdbError>(())).is_err());
}
