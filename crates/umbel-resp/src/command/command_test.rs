//! The meaning of arguments, and the errors for invalid ones.

use super::*;
use crate::limits::{CLIENT_TEXT_BYTES_MAX, KEYS_MAX, PATTERN_BYTES_MAX, QUERY_NAMES_MAX};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::{Decoder, Reply, table};

fn parsed(request: &Request) -> Result<Command<'_>, Refusal> {
    let arguments = Arguments::new(request);
    table::find(arguments)?.parse(arguments)
}

/// Decodes a line into a request.
fn line(text: &str) -> Request {
    let bytes = format!("{text}\n");
    Decoder::new(true).decode(&mut bytes.as_bytes()).unwrap().expect("a line")
}

#[test]
fn every_refusal_has_its_text() {
    let transcript = include_str!("../../testdata/transcripts/refusals.txt");
    let mut lines = transcript.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    while let Some(request) = lines.next() {
        let request = request.strip_prefix("> ").expect("a request");
        let expected = lines.next().expect("an answer");
        let request_line = line(request);
        let refusal = parsed(&request_line).map(|_| ()).expect_err(request);
        let mut bytes = Vec::new();
        Reply::from(refusal).encode(Protocol::Two, &mut bytes);
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("-{expected}\r\n"), "{request}");
        count += 1;
    }
    assert!(count > 80, "{count} requests");
}

/// Limits on many names, and on long ones.
#[test]
fn what_is_kept_compared_or_answered_many_times_has_its_limit() {
    let request = |head: &str, name: String, count: usize| -> Request {
        let names = std::iter::repeat_n(name, count);
        head.split(' ').map(ToOwned::to_owned).chain(names).collect()
    };
    let message = |request: &Request| parsed(request).map(drop);
    let many = |head: &str, most: usize, what: &'static str| {
        assert_eq!(message(&request(head, "client".to_owned(), most)), Ok(()), "{head}");
        let refused = message(&request(head, "client".to_owned(), most + 1));
        assert_eq!(refused, Err(Refusal::TooMany { what, most }), "{head}");
    };
    for head in ["COMMAND INFO", "COMMAND DOCS", "CONFIG GET", "INFO"] {
        many(head, QUERY_NAMES_MAX, "names");
    }
    for head in ["DEL", "UNLINK", "EXISTS", "TOUCH"] {
        many(head, KEYS_MAX, "keys");
    }
    let long = |head: &str, most: usize, refusal: Refusal| {
        assert_eq!(message(&request(head, "a".repeat(most), 1)), Ok(()), "{head}");
        assert_eq!(message(&request(head, "a".repeat(most + 1), 1)), Err(refusal), "{head}");
    };
    let pattern = Refusal::TooMany { what: "bytes of a pattern", most: PATTERN_BYTES_MAX };
    for head in ["KEYS", "SCAN 0 MATCH", "CONFIG GET", "COMMAND LIST FILTERBY PATTERN"] {
        long(head, PATTERN_BYTES_MAX, pattern.clone());
    }
    for head in ["CLIENT SETNAME", "HELLO 3 SETNAME"] {
        long(head, CLIENT_TEXT_BYTES_MAX, Refusal::ClientName);
    }
    let attribute = Refusal::ClientAttributeValue { attribute: "LIB-NAME".to_owned() };
    long("CLIENT SETINFO LIB-NAME", CLIENT_TEXT_BYTES_MAX, attribute);
}

fn reserved(text: &str) -> NewBloom {
    let request = line(text);
    let Ok(Command::Reserve { key: b"k", new }) = parsed(&request) else { panic!("{text}") };
    new
}

#[test]
fn reserve_reads_options_anywhere() {
    let new = |error_rate, capacity, expansion| NewBloom { error_rate, capacity, expansion };
    assert_eq!(reserved("bf.reserve k .01 100"), new(0.01, 100, 2));
    assert_eq!(reserved("BF.RESERVE k 0.9 1073741824 nonscaling"), new(0.25, 1 << 30, 0));
    assert_eq!(reserved("BF.RESERVE k 1e-3 1 what Expansion 4"), new(0.001, 1, 4));
    assert_eq!(reserved("BF.RESERVE k 0.1 1 EXPANSION 0"), new(0.1, 1, 0));
    assert_eq!(reserved("BF.RESERVE k 0.1 1 EXPANSION 0 NONSCALING"), new(0.1, 1, 0));
}

fn inserted(text: &str) -> (Option<NewBloom>, Vec<String>, Option<RequestName>, AnswerForm) {
    let request = line(text);
    let Ok(Command::Insert(InsertItems { items, new, request })) = parsed(&request) else {
        panic!("{text}")
    };
    assert_eq!(items.key, b"k");
    let words = items.items.iter().map(|item| String::from_utf8(item.to_vec()).unwrap());
    (new, words.collect(), request, items.form)
}

#[test]
fn insert_looks_at_a_few_letters() {
    let (new, items, _, form) = inserted("BF.INSERT k errr .1 expo 4 cap 7 i a ITEMS b");
    assert_eq!(new, Some(NewBloom { error_rate: 0.1, capacity: 7, expansion: 4 }));
    let expected: Vec<String> = vec!["a".into(), "ITEMS".into(), "b".into()];
    assert_eq!((items, form), (expected, AnswerForm::List));
    let (new, items, ..) = inserted("bf.insert k nocreate items a");
    assert_eq!((new, items), (None, vec!["a".to_owned()]));
    let (new, ..) = inserted("bf.insert k NONSCALING EXPANSION 3 ITEMS a");
    assert_eq!(new, Some(NewBloom { expansion: 0, ..NewBloom::default() }));
    let (new, items, request, form) = inserted("BF.ADD k \"\"");
    assert_eq!((new, items, request), (Some(NewBloom::default()), vec![String::new()], None));
    assert_eq!(form, AnswerForm::One);
}

#[test]
fn a_request_has_a_name() {
    let (_, items, request, form) = inserted("UMBEL.REQUEST 7:9 below 8 bf.madd k a b");
    let name = RequestName { session: 7, sequence: 9, acknowledged_below: 8 };
    assert_eq!((items.len(), request, form), (2, Some(name), AnswerForm::List));
    let (.., request, _) = inserted(&format!("umbel.request {}:0 BF.ADD k a", u64::MAX));
    assert_eq!(request.map(|name| name.session), Some(u64::MAX));
}

#[test]
fn items_are_packed_from_where_they_begin() {
    let request = line("UMBEL.REQUEST 1:1 BF.INSERT k ITEMS ab \"\" c");
    let Ok(Command::Insert(insert)) = parsed(&request) else { panic!("an insert") };
    let (mut data, mut lengths) = (b"x".to_vec(), vec![1]);
    insert.items.items.pack(&mut data, &mut lengths);
    assert_eq!((&data[..], &lengths[..]), (&b"xabc"[..], &[1, 2, 0, 1][..]));
}

#[test]
fn hello_reads_its_options() {
    let request = line("HELLO 3 SETNAME me AUTH alice secret");
    let Ok(Command::Connection(ConnectionCommand::Hello(hello))) = parsed(&request) else {
        panic!("hello")
    };
    let credentials = Credentials { user: Some(b"alice"), password: b"secret" };
    assert_eq!(
        hello,
        Hello {
            protocol: Some(Protocol::Three),
            credentials: Some(credentials),
            name: Some(b"me")
        }
    );
}

#[test]
fn clients_are_chosen_by_type_and_id() {
    let chosen = |text: &str| {
        let request = line(text);
        match parsed(&request) {
            Ok(Command::Connection(ConnectionCommand::Client(ClientCommand::List(choice)))) => {
                format!("{choice:?}").split('(').next().unwrap_or_default().to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([chosen("CLIENT LIST"), chosen("CLIENT LIST type NORMAL")], ["All", "All"]);
    assert_eq!(chosen("CLIENT LIST TYPE pubsub"), "Nobody");
    assert_eq!(chosen("CLIENT LIST ID 1 -5"), "Ids");
}

#[test]
fn scan_reads_its_options() {
    let request = line("SCAN 17 COUNT 5 TYPE MBbloom-- MATCH a*");
    let Ok(Command::Keys(KeysCommand::Scan(scan))) = parsed(&request) else { panic!("scan") };
    let (pattern, of_type) = (Some(&b"a*"[..]), Some(&b"MBbloom--"[..]));
    assert_eq!(scan, Scan { cursor: 17, pattern, count: 5, of_type });
}

#[test]
fn a_filter_of_any_kind_is_described() {
    let request = line("UMBEL.CREATE k CAPACITY 5 KIND blocked REPLICATED BYTES 64");
    let Ok(Command::Umbel(UmbelCommand::Create { key: b"k", new })) = parsed(&request) else {
        panic!("create")
    };
    let size = NewSize::Bytes(64);
    assert_eq!(
        new,
        CreateFilter::Planned { kind: b"blocked", capacity: 5, size, is_replicated: true }
    );
    assert_eq!(created("LIKE other"), Ok(CreateFilter::Like(b"other")));
    for (options, by) in [("EXPANSION 4", 4), ("expansion 0", 0), ("fixed", 0)] {
        let request =
            line(&format!("UMBEL.CREATE k {options} KIND redisbloom ERROR 0.5 CAPACITY 5"));
        let Ok(Command::Umbel(UmbelCommand::Create { new, .. })) = parsed(&request) else {
            panic!("{options}")
        };
        let (size, is_replicated) = (NewSize::Chain { error_rate: 0.5, expansion: by }, false);
        let kind = b"redisbloom".as_slice();
        assert_eq!(
            new,
            CreateFilter::Planned { kind, capacity: 5, size, is_replicated },
            "{options}"
        );
    }
}

#[test]
fn a_merge_may_have_a_request_name() {
    let merge = |text: &str| {
        let request = line(text);
        let Ok(Command::Umbel(UmbelCommand::PutTogether { target, sources, request, .. })) =
            parsed(&request)
        else {
            panic!("{text}")
        };
        assert_eq!(target, b"a");
        (sources.len(), request)
    };
    let name = RequestName { session: 7, sequence: 1, acknowledged_below: 0 };
    assert_eq!(merge("UMBEL.REQUEST 7:1 UMBEL.MERGE a b c"), (2, Some(name)));
    // A filter may be called so.
    assert_eq!(merge("UMBEL.MERGE a FPRMAX b"), (2, None));
    assert_eq!(merge("UMBEL.MERGE a b FPRMAX"), (2, None));
}

/// The filter that `UMBEL.CREATE k` with these options describes. Another filter that it names must be
/// `other`.
fn created(options: &str) -> Result<CreateFilter<'static>, Refusal> {
    let request = line(&format!("UMBEL.CREATE k {options}"));
    match parsed(&request)? {
        Command::Umbel(UmbelCommand::Create { new: CreateFilter::Like(b"other"), .. }) => {
            Ok(CreateFilter::Like(b"other"))
        }
        Command::Umbel(UmbelCommand::Create {
            new: CreateFilter::Window { capacity, error_rate, window, is_replicated },
            ..
        }) => Ok(CreateFilter::Window { capacity, error_rate, window, is_replicated }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_window_is_described() {
    let window = |options: &str| match created(&format!("CAPACITY 9 ERROR 0.5 {options}")) {
        Ok(CreateFilter::Window { capacity: 9, error_rate: 0.5, window, is_replicated }) => {
            (window, is_replicated)
        }
        other => panic!("{other:?}"),
    };
    let time = |slice_ms, is_of_event| WindowEnd::Time { slice_ms, is_of_event };
    let late = LatePolicy::Reject;
    let of = |slice_count, end| NewWindow { slice_count, end, late, refresh: false };
    // A day has 24 hours.
    assert_eq!(window("WINDOW 86400000"), (of(24, time(3_600_000, false)), false));
    assert_eq!(window("window manual replicated"), (of(1, WindowEnd::Rotation), true));
    assert_eq!(window("SLICES 7 WINDOW MANUAL"), (of(7, WindowEnd::Rotation), false));
    let events = NewWindow { late: LatePolicy::Oldest, refresh: true, ..of(2, time(5, true)) };
    assert_eq!(window("WINDOW 10 SLICES 2 TIME event LATE oldest REFRESH"), (events, false));
}

#[test]
fn windows_that_are_none_are_refused() {
    for options in [
        "WINDOW 10",
        "WINDOW 24 KIND blocked",
        "WINDOW 24 BYTES 64",
        "WINDOW 24 TIME ingest",
        "WINDOW 24 TIME EVENT TIME EVENT",
        "WINDOW 24 LATE DROP",
        "WINDOW 24 TIME EVENT LATE never",
        "WINDOW MANUAL TIME EVENT",
        "WINDOW MANUAL SLICES 4294967296",
        "WINDOW 24 WINDOW 24",
        "WINDOW 0",
    ] {
        let refused = created(&format!("CAPACITY 9 ERROR 0.5 {options}"));
        assert!(refused.is_err(), "{options}: {refused:?}");
    }
    for (options, option) in
        [("SLICES 2", "SLICES"), ("REFRESH", "REFRESH"), ("TIME EVENT", "TIME")]
    {
        let refused = created(&format!("KIND blocked CAPACITY 9 ERROR 0.5 {options}"));
        assert_eq!(refused, Err(Refusal::CreateNeeds { option, other: "WINDOW" }), "{options}");
        let refused = created(&format!("LIKE x {options}"));
        assert_eq!(refused, Err(Refusal::CreateConflict { option, other: "LIKE" }), "{options}");
    }
}

#[test]
fn what_is_refused_has_its_name_and_the_beginning_of_its_value() {
    let refused = created(&format!("CAPACITY {}", "9".repeat(300)));
    let Err(Refusal::BadValue { argument, value, .. }) = refused else { panic!("a value") };
    assert_eq!((argument, value.len()), ("CAPACITY", 128));
    let refused = created("KIND blocked REPLICATED CAPACITY 9 replicated BYTES 64");
    assert_eq!(refused, Err(Refusal::CreateTwice { option: "REPLICATED" }));
}

#[test]
fn long_unknown_commands_are_cut() {
    let request: Request = ["x".repeat(300), "a".repeat(100), "b".repeat(100)].iter().collect();
    let refusal = parsed(&request).map(|_| ()).unwrap_err();
    let Refusal::UnknownCommand { name, arguments } = refusal else { panic!("unknown") };
    assert_eq!(name.len(), 128);
    // 103 bytes for the first argument leave room for 25 of the second.
    assert_eq!(arguments, format!("'{}' '{}' ", "a".repeat(100), "b".repeat(25)));
}
