//! Items from servers that behave correctly, and from servers that do not.

use super::address::{parse_address, parse_origin};
use super::first_piece;
use super::server::Server;
use super::source::{Packer, Source, What, begun, scan_items};
use crate::commands::filter::items;
use bytes::BytesMut;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use umbel_resp::Decoder;
use umbel_tls::ForeignFiles;

/// The answer to the words of a request; None to hang up.
type Answering = fn(&[String]) -> Option<Vec<u8>>;

/// Starts a server with these answers that runs until the test ends.
async fn server(answering: Answering) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut decoder, mut bytes) = (Decoder::new(true), BytesMut::new());
            'connection: loop {
                let mut rest = &bytes[..];
                let mut answers = Vec::new();
                let mut is_over = false;
                while let Some(request) = decoder.decode(&mut rest).unwrap() {
                    let words = request.iter().map(|w| String::from_utf8_lossy(w).into_owned());
                    match answering(&words.collect::<Vec<_>>()) {
                        Some(answer) => answers.extend(answer),
                        None => is_over = true,
                    }
                }
                bytes = BytesMut::from(rest);
                // A client that has hung up gets no answer.
                if stream.write_all(&answers).await.is_err() || is_over {
                    break 'connection;
                }
                if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                    break 'connection;
                }
            }
        }
    });
    address
}

/// All items of key `k`, or the names of the keys that match a pattern, and the error that ended reading,
/// if any.
async fn read(address: &str, keys: Option<(&str, &str)>) -> (Vec<Vec<u8>>, Option<String>) {
    let what = match keys {
        None => What::Key(parse_origin(&format!("redis://{address}/k")).unwrap().key().unwrap()),
        Some((pattern, prefix)) => What::Names {
            place: parse_origin(&format!("redis://{address}")).unwrap().database().unwrap(),
            pattern: pattern.into(),
            prefix: prefix.into(),
        },
    };
    let (sender, mut batches) = items::channel();
    let reading = tokio::spawn(Source { what, files: ForeignFiles::default() }.send(sender));
    let (mut items, mut text) = (Vec::new(), None);
    while let Some(batch) = batches.recv().await {
        assert!(text.is_none(), "an error is the last");
        match batch {
            Ok(batch) => items.extend(batch.items.iter().map(<[u8]>::to_vec)),
            Err(error) => text = Some(format!("{error:#}")),
        }
    }
    reading.await.unwrap();
    (items, text)
}

fn bulks(values: &[&[u8]]) -> Vec<u8> {
    let head = format!("*{}\r\n", values.len()).into_bytes();
    let bulk =
        |value: &&[u8]| [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    values.iter().map(bulk).fold(head, |all, value| [all, value].concat())
}

fn page(cursor: &str, values: &[&[u8]]) -> Vec<u8> {
    let head = format!("*2\r\n${}\r\n{cursor}\r\n", cursor.len()).into_bytes();
    [head, bulks(values)].concat()
}

/// The words of a request, separated by spaces.
fn text(words: &[String]) -> String {
    words.join(" ")
}

#[tokio::test]
async fn sets_and_their_kin_are_read_page_by_page() {
    let set = server(|words| {
        Some(match &*text(words) {
            "TYPE k" => b"+set\r\n".to_vec(),
            "SSCAN k 0 COUNT 1000" => page("8", &[b"a", b"\xff\x00\r\n"]),
            "SSCAN k 8 COUNT 1000" => page("4", &[]),
            "SSCAN k 4 COUNT 1000" => page("0", &[b"", b"a"]),
            "EXISTS k" => b":1\r\n".to_vec(),
            other => panic!("{other}"),
        })
    });
    let (items, error) = read(&set.await, None).await;
    assert_eq!(
        (items, error),
        (vec![b"a".into(), b"\xff\x00\r\n".into(), b"".into(), b"a".into()], None)
    );

    let hash = server(|words| {
        Some(match &*text(words) {
            "TYPE k" => b"+hash\r\n".to_vec(),
            "HSCAN k 0 COUNT 1000" => page("0", &[b"f1", &[b'v'; 300_000], b"f2", b""]),
            "EXISTS k" => b":1\r\n".to_vec(),
            other => panic!("{other}"),
        })
    });
    let (items, error) = read(&hash.await, None).await;
    assert_eq!((items, error), (vec![b"f1".to_vec(), b"f2".to_vec()], None));

    let list = server(|words| {
        Some(match &*text(words) {
            "TYPE k" => b"+list\r\n".to_vec(),
            "LLEN k" => b":1001\r\n".to_vec(),
            "LRANGE k 0 999" => bulks(&[&b"x"[..]; 1_000]),
            "LRANGE k 1000 1000" => bulks(&[b"y"]),
            "EXISTS k" => b":1\r\n".to_vec(),
            other => panic!("{other}"),
        })
    });
    let (items, error) = read(&list.await, None).await;
    assert_eq!((items.len(), items.last(), error), (1_001, Some(&b"y".to_vec()), None));
}

#[tokio::test]
async fn names_of_keys_lose_their_prefix() {
    let names = server(|words| {
        Some(match &*text(words) {
            "SCAN 0 MATCH seen:* COUNT 1000" => page("3", &[b"seen:1", b"seen:"]),
            "SCAN 3 MATCH seen:* COUNT 1000" => page("0", &[b"seen:1"]),
            other => panic!("{other}"),
        })
    })
    .await;
    let (items, error) = read(&names, Some(("seen:*", "seen:"))).await;
    assert_eq!((items, error), (vec![b"1".to_vec(), b"".to_vec(), b"1".to_vec()], None));
    let (items, error) = read(&names, Some(("seen:*", ""))).await;
    assert_eq!((items.len(), items[0].as_slice(), error), (3, &b"seen:1"[..], None));
    let (items, error) = read(&names, Some(("seen:*", "seen:1"))).await;
    let error = error.unwrap();
    assert_eq!(items, Vec::<Vec<u8>>::new());
    let expected = format!("redis://{names}, keys \"seen:*\": after 1 items were read: ");
    assert!(error.starts_with(&expected) && error.contains("does not begin with"), "{error}");
}

#[tokio::test]
async fn what_has_no_items_is_refused_by_its_type() {
    let cases: [(Answering, &str); 5] = [
        (|_| Some(b"+MBbloomCF\r\n".to_vec()), "of another hash than Umbel's"),
        (|_| Some(b"+string\r\n".to_vec()), "it is of type string"),
        (|_| Some(b"+MBbloom--\r\n".to_vec()), "`umbel filter import --from`"),
        (|_| Some(b"+none\r\n".to_vec()), "there is no such key"),
        (|_| Some(b"+a\x1b[2J\r\n".to_vec()), "of type a?[2J"),
    ];
    for (answering, expected) in cases {
        let address = server(answering).await;
        let (items, error) = read(&address, None).await;
        let error = error.unwrap();
        assert!(items.is_empty());
        let named = error.starts_with(&format!("redis://{address}, key \"k\": "));
        assert!(named && error.contains(expected), "{error}");
    }
}

/// `WRONGTYPE` alone would not say that no command copies it.
#[tokio::test]
async fn a_cuckoo_filter_is_not_copied_and_the_error_says_why() {
    let first = async |answering| {
        let address = format!("redis://{}/k", server(answering).await);
        let address = parse_address(&address).unwrap();
        let mut server = Server::connect(address.place(), &ForeignFiles::default()).await.unwrap();
        first_piece(&mut server, &address).await.unwrap_err().to_string()
    };
    let cuckoo: Answering = |words| match &*words[0] {
        "TYPE" => Some(b"+MBbloomCF\r\n".to_vec()),
        _ => Some(b"-WRONGTYPE Operation\r\n".to_vec()),
    };
    assert!(first(cuckoo).await.contains("MBbloomCF"));
    let set: Answering = |words| match &*words[0] {
        "TYPE" => Some(b"+set\r\n".to_vec()),
        _ => Some(b"-WRONGTYPE Operation\r\n".to_vec()),
    };
    assert!(first(set).await.contains("WRONGTYPE"));
    // An answer of another node's that passes is reported as it is.
    let busy: Answering = |words| match &*words[0] {
        "TYPE" => Some(b"+MBbloomCF\r\n".to_vec()),
        _ => Some(b"-TRYAGAIN it is being loaded\r\n".to_vec()),
    };
    assert!(first(busy).await.contains("TRYAGAIN"));
}

/// Servers that hang up, never finish, or send what was not requested.
#[tokio::test]
async fn hostile_servers_are_left_with_an_error() {
    fn set(words: &[String], scanned: impl Fn() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        match &*words[0] {
            "TYPE" => Some(b"+set\r\n".to_vec()),
            "EXISTS" => Some(b":0\r\n".to_vec()),
            _ => scanned(),
        }
    }
    let cases: [(Answering, &str); 14] = [
        (|_| None, "the server hung up"),
        (|words| set(words, || None), "the server hung up"),
        (|words| set(words, || Some(page("7", &[b"a"]))), "cursor \"7\" again"),
        (|words| set(words, || Some(page("7", &[]))), "cursor \"7\" again"),
        (|words| set(words, || Some(page("", &[b"a"]))), "a cursor that is empty"),
        (|words| set(words, || Some(page("0", &[b"a"]))), "the key went away meanwhile"),
        (|words| set(words, || Some(b"*2\r\n$1\r\n0\r\n*16777217\r\n".to_vec())), "a count of"),
        (
            |words| set(words, || Some(b"*2\r\n$1\r\n0\r\n*1\r\n$536870913\r\n".to_vec())),
            "a count of",
        ),
        (
            |words| set(words, || Some(b"*2\r\n$1\r\n0\r\n*1\r\n$16777217\r\n".to_vec())),
            "items have 16777216",
        ),
        (
            |words| set(words, || Some(b"*2\r\n$1\r\n0\r\n*1\r\n*1\r\n$1\r\na\r\n".to_vec())),
            "not expected",
        ),
        (
            |words| set(words, || Some(b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nabc\r\n".to_vec())),
            "longer than it says",
        ),
        (|words| set(words, || Some(b"*2\r\n$65537\r\n".to_vec())), "a count of"),
        (|words| set(words, || Some(b"*3\r\n$1\r\n0\r\n".to_vec())), "not expected"),
        (|words| set(words, || Some(b"-NOPERM no\x1b[2J\r\n".to_vec())), "SSCAN: NOPERM no?[2J"),
    ];
    for (answering, expected) in cases {
        let address = server(answering).await;
        let (_, error) = read(&address, None).await;
        let error = error.unwrap();
        let named = error.starts_with(&format!("redis://{address}, key \"k\": "));
        assert!(named && error.contains(expected), "{expected}: {error}");
    }
    let pairs = server(|words| match &*words[0] {
        "TYPE" => Some(b"+zset\r\n".to_vec()),
        _ => Some(page("0", &[b"a", b"1", b"b"])),
    });
    let (_, error) = read(&pairs.await, None).await;
    assert!(error.unwrap().contains("3 values, which are no pairs"));
    // A page longer than requested.
    let list = server(|words| match &*words[0] {
        "TYPE" => Some(b"+list\r\n".to_vec()),
        "LLEN" => Some(b":5\r\n".to_vec()),
        _ => Some(b"*1001\r\n".to_vec()),
    });
    let (_, error) = read(&list.await, None).await;
    assert!(error.unwrap().contains("a count of"));
}

/// Time is paused and advances as soon as all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_waited_for_half_a_minute() {
    let (here, mut there) = duplex(1024);
    let text = b"+set\r\n*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\n";
    there.write_all(text).await.unwrap();
    let mut server = Server::over(Box::new(here));
    let (sender, _batches) = items::channel();
    let scan = begun(&mut server, b"k").await.unwrap();
    let scanned = scan_items(&mut server, scan, b"", &mut Packer::new(sender)).await;
    let error = format!("{:#}", scanned.err().unwrap());
    assert_eq!(error, "item 2: no answer within 30 s");
}

/// Below the timeout of an answer.
const TRICKLE: Duration = Duration::from_secs(25);

/// Each of 2^24 values arrives within its timeout; the page as a whole is too slow.
#[tokio::test(start_paused = true)]
async fn a_page_that_trickles_is_given_up_after_a_minute() {
    let (here, mut there) = duplex(1024);
    tokio::spawn(async move {
        there.write_all(b"+set\r\n*2\r\n$1\r\n0\r\n*16777216\r\n").await.unwrap();
        while there.write_all(b"$1\r\na\r\n").await.is_ok() {
            sleep(TRICKLE).await;
        }
    });
    let mut server = Server::over(Box::new(here));
    let (sender, _batches) = items::channel();
    let (began, scan) = (Instant::now(), begun(&mut server, b"k").await.unwrap());
    let scanned = scan_items(&mut server, scan, b"", &mut Packer::new(sender)).await;
    let error = format!("{:#}", scanned.err().unwrap());
    assert!(error.starts_with("item 4: ") && error.contains("the server is too slow"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// The same for a dump of many small pieces; a dump whose pieces are large may take as long.
#[tokio::test(start_paused = true)]
async fn a_dump_that_trickles_is_given_up_after_a_minute() {
    for (piece_bytes, piece_count) in [(1_usize, 2), (1 << 20, 100)] {
        let (here, mut there) = duplex(1024);
        tokio::spawn(async move {
            let (mut iterator, mut request) = (1, [0; 1024]);
            while matches!(there.read(&mut request).await, Ok(1..)) {
                sleep(TRICKLE).await;
                iterator += piece_bytes;
                let head = format!("*2\r\n:{iterator}\r\n${piece_bytes}\r\n");
                let piece = [head.as_bytes(), &vec![0; piece_bytes], b"\r\n"].concat();
                if there.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
        let mut server = Server::over(Box::new(here));
        let address = parse_address("redis://host/k").unwrap();
        let (mut iterator, mut count) = (0, 0);
        let error = loop {
            match server.dump(&address, iterator).await {
                Ok(dump) => iterator = dump.unwrap().iterator,
                Err(error) => break Some(error.to_string()),
            }
            count += 1;
            if count == 100 {
                break None;
            }
        };
        assert_eq!(count, piece_count, "{error:?}");
        assert!(error.is_none_or(|error| error.contains("the server is too slow")));
    }
}
