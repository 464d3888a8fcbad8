//! The same commands to a node and to a Redis server, if one is installed: every answer must be the same, but for what
//! a filter answers otherwise than a set, which `comparable` names.

use crate::redis_server::{PATIENCE, Redis};
use crate::sandbox::Sandbox;
use crate::serve::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const SEEDS: u64 = 4;

const COMMANDS_PER_SEED: usize = 600;

/// The commands that are drawn, one a line. Of alternatives between bars one is drawn; what ends in `?` is left out half
/// of the time, and what ends in `*` comes up to three times. Capital letters stand for what `Draw::word` draws.
const GRAMMAR: &str = "
SADD K M M*
SADD K M*
SISMEMBER K M
SMISMEMBER K M*
SCARD K
DEL K*
UNLINK K?
EXISTS K*
TOUCH K*
TYPE K*
KEYS P*
DBSIZE M?
RENAME K*
RENAMENX K K
COPY K K
COPY K K REPLACE|DB|x D?
EXPIRE|PEXPIRE K S NX|XX|GT|LT? nx|gt|lt?
EXPIRE K*
EXPIREAT K 1|4000000000|N NX|XX|GT|LT|zz?
PEXPIREAT K 4000000000000|N NX|XX|GT|LT?
TTL|PTTL|EXPIRETIME|PEXPIRETIME K
TTL K*
PERSIST K*
PING|ECHO M*
SELECT D*
SELECT 0
RESET M?
HELLO 2|3|4|1|abc|0
HELLO 2|3 SETNAME N
HELLO 2|3 AUTH default x
CLIENT SETNAME n1|N
CLIENT GETNAME M?
CLIENT ID|nope M?
CLIENT NO-EVICT on|off|x
CLIENT REPLY ON|x
CLIENT
MULTI M?
WATCH
EXEC M?
EXEC
DISCARD M?
UNWATCH
OBJECT ENCODING|nope K*
MEMORY USAGE K SAMPLES|x? N?
SCAN 0|abc|99999999999999999999 MATCH|COUNT|TYPE|x? N?
WAIT 0|-1|abc 1|-1|x?
COMMAND nope
COMMAND GETKEYS del|sadd|copy|rename K K
FLUSHDB ASYNC|SYNC|x? ASYNC?
FLUSHALL x
DUMP K K
RESTORE K 0 garbage REPLACE|ABSTTL|IDLETIME|FREQ? N?
RESTORE K -1|abc garbage REPLACE?
RESTORE K?
TIME|ROLE|READONLY|QUITT|nope x
SLOWLOG GET|LEN|RESET|x N?
LATENCY LATEST|RESET|x K?
MODULE|CONFIG x
CONFIG GET maxmemory|save|nope N*
ACL WHOAMI|x M?
AUTH M*
INFO nosuch
";

/// Requests that are no commands of the usual form, each on a connection of its own.
const BYTES: [&[u8]; 23] = [
    b"\r\n",
    b"ping hello\r\n",
    b"echo \"a b\\x41\"\r\n",
    b"echo \"a\r\n",
    b"echo 'a'b\r\n",
    b"   ping   \r\n",
    b"\n\n\nPING\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n+PING\r\n",
    b"*abc\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$abc\r\n",
    b"*2147483648\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"$4\r\nPING\r\n",
    b"*1\r\n$4\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*1 \r\n",
    b"*1\r\n\r\n",
    b"*1\r\nx\r\n",
    b"POST / HTTP/1.1\r\n",
    b"Host: x\r\n",
];

struct Draw(StdRng);

impl Draw {
    fn command(&mut self) -> Vec<String> {
        let lines: Vec<&str> = GRAMMAR.lines().filter(|line| !line.is_empty()).collect();
        let line = *lines.choose(&mut self.0).unwrap();
        let mut words = Vec::new();
        for pattern in line.split(' ') {
            let (pattern, count) = match (pattern.strip_suffix('?'), pattern.strip_suffix('*')) {
                (Some(once), _) => (once, self.0.random_range(0..=1)),
                (_, Some(often)) => (often, self.0.random_range(0..=3)),
                _ => (pattern, 1),
            };
            for _ in 0..count {
                let choices: Vec<&str> = pattern.split('|').collect();
                let choice = *choices.choose(&mut self.0).unwrap();
                words.push(self.word(choice));
            }
        }
        if self.0.random_bool(0.3) {
            words[0] = words[0].to_lowercase();
        }
        words
    }

    fn word(&mut self, pattern: &str) -> String {
        let among: &[&str] = match pattern {
            "K" => &["k0", "k1", "k2", "k3", "k4"],
            "M" => &["m0", "m1", "m2", "m3", "m4"],
            "P" => &["*", "k[0-2]", "k?", "nothing", "k\\1", "[^k]*"],
            "D" => &["0", "1", "2", "15", "16", "-1", "abc", "99999999999999999999", "4294967296"],
            "S" => &[
                "1000000",
                "100000000",
                "0",
                "-1",
                "abc",
                "9223372036854775807",
                "99999999999999999",
            ],
            "N" => &[
                "0",
                "1",
                "-1",
                "10",
                "abc",
                "",
                "1.5",
                " 1",
                "+1",
                "01",
                "9223372036854775808",
                "a b",
                "n\n",
            ],
            _ => return pattern.to_owned(),
        };
        (*among.choose(&mut self.0).unwrap()).to_owned()
    }
}

/// A reply, in a form in which two can be compared.
#[derive(Clone, PartialEq, Debug)]
enum Answer {
    /// A line: a status, an error, a number, a null.
    Line(String),
    Text(String),
    /// With the letter of its type.
    Several(char, Vec<Answer>),
    Closed,
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        // A server that has closed the connection is told by its answer.
        let _ = self.0.get_mut().write_all(bytes);
    }

    fn send_words(&mut self, words: &[String]) {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.send(bytes.as_bytes());
    }

    fn answer(&mut self) -> Answer {
        let mut line = Vec::new();
        if !matches!(self.0.read_until(b'\n', &mut line), Ok(1..)) {
            return Answer::Closed;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let length = line[1..].parse::<usize>();
        match (&line[..1], length) {
            ("$" | "=", Ok(length)) => {
                let mut text = vec![0; length + 2];
                self.0.read_exact(&mut text).unwrap();
                Answer::Text(String::from_utf8_lossy(&text[..length]).into_owned())
            }
            (kind @ ("*" | "~" | ">" | "%"), Ok(length)) => {
                let length = if kind == "%" { 2 * length } else { length };
                let several = (0..length).map(|_| self.answer()).collect();
                Answer::Several(kind.chars().next().unwrap(), several)
            }
            _ => Answer::Line(line),
        }
    }
}

/// The answer without what differs between a filter and a set, between two servers, or from one moment to the next.
fn comparable(words: &[String], answer: Answer) -> Answer {
    let name = words[0].to_uppercase();
    let of_kind = |kind: &str| Answer::Line(kind.to_owned());
    match (&name[..], answer) {
        // Seconds and milliseconds that pass between two answers.
        ("TTL" | "PTTL" | "EXPIRETIME" | "PEXPIRETIME", Answer::Line(line)) => {
            let hour = if name.starts_with('P') { 3_600_000 } else { 3_600 };
            match line[1..].parse::<i64>() {
                Ok(left @ 1..) => Answer::Line(format!(":{} hours", (left + hour / 2) / hour)),
                _ => Answer::Line(line),
            }
        }
        ("KEYS", Answer::Several(kind, mut keys)) => {
            keys.sort_by_key(|key| format!("{key:?}"));
            Answer::Several(kind, keys)
        }
        // A filter is no set, and takes other room.
        ("SCAN", Answer::Several(..)) => of_kind("keys"),
        ("TYPE", Answer::Line(line)) if line == "+set" || line == "+MBbloom--" => of_kind("type"),
        ("MEMORY", Answer::Line(line)) if line.starts_with(':') => of_kind("bytes"),
        ("OBJECT", Answer::Text(_)) => of_kind("encoding"),
        // Versions and numbers of connections.
        ("HELLO", Answer::Several(kind, _)) => Answer::Several(kind, Vec::new()),
        ("CLIENT", Answer::Line(line)) if line.starts_with(':') => of_kind("id"),
        ("CONFIG", Answer::Several(kind, _)) => Answer::Several(kind, Vec::new()),
        (_, answer) => answer,
    }
}

/// Two clients that send the same.
struct Pair {
    redis: Client,
    umbel: Client,
    /// The commands of a transaction.
    queued: Vec<Vec<String>>,
}

impl Pair {
    fn new(redis: &str, umbel: &str) -> Self {
        let (redis, umbel) = (Client::new(redis), Client::new(umbel));
        Self { redis, umbel, queued: Vec::new() }
    }

    /// Sends a command to both, and compares the answers.
    fn ask(&mut self, words: &[String], before: &[Vec<String>]) {
        self.redis.send_words(words);
        self.umbel.send_words(words);
        let (redis, umbel) = (self.redis.answer(), self.umbel.answer());
        let is_queued = redis == Answer::Line("+QUEUED".to_owned());
        let each = match (&redis, &umbel) {
            (Answer::Several(_, redis), Answer::Several(_, umbel))
                if words[0].eq_ignore_ascii_case("exec") && redis.len() == umbel.len() =>
            {
                self.queued
                    .iter()
                    .cloned()
                    .zip(redis.iter().cloned().zip(umbel.iter().cloned()))
                    .collect()
            }
            _ => vec![(words.to_vec(), (redis, umbel))],
        };
        for (words, (redis, umbel)) in each {
            let (redis, umbel) = (comparable(&words, redis), comparable(&words, umbel));
            assert_eq!(umbel, redis, "{words:?} after {before:?}");
        }
        if is_queued {
            self.queued.push(words.to_vec());
        } else if ["exec", "discard", "reset"].contains(&&words[0].to_lowercase()[..]) {
            self.queued.clear();
        }
    }
}

#[test]
fn commands_are_answered_as_by_redis() {
    let sandbox = Sandbox::new();
    let Some(redis) = Redis::start(&sandbox) else {
        eprintln!("skipped: redis-server is not here");
        return;
    };
    let (_server, umbel) = Server::start_with_redis(&sandbox);
    for seed in 1..=SEEDS {
        let mut draw = Draw(StdRng::seed_from_u64(seed));
        let mut pair = Pair::new(&redis.address, &umbel);
        pair.ask(&["FLUSHALL".to_owned()], &[]);
        let mut before: Vec<Vec<String>> = Vec::new();
        for _ in 0..COMMANDS_PER_SEED {
            let words = draw.command();
            pair.ask(&words, before.get(before.len().saturating_sub(8)..).unwrap_or_default());
            before.push(words);
        }
    }
}

#[test]
fn bytes_that_are_no_command_are_answered_as_by_redis() {
    let sandbox = Sandbox::new();
    let Some(redis) = Redis::start(&sandbox) else {
        eprintln!("skipped: redis-server is not here");
        return;
    };
    let (_server, umbel) = Server::start_with_redis(&sandbox);
    let answers = |address: &str, bytes: &[u8]| {
        let mut client = Client::new(address);
        client.send(bytes);
        client.send(b"ECHO end\r\nQUIT\r\n");
        let mut answers = Vec::new();
        while answers.last() != Some(&Answer::Closed) {
            answers.push(client.answer());
        }
        answers
    };
    for bytes in BYTES {
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(answers(&umbel, bytes), answers(&redis.address, bytes), "{shown:?}");
    }
    // Umbel's limit is a lower one, so it names it.
    let long = b"*1\r\n$600000000\r\n";
    let [Answer::Line(here), Answer::Closed] = &answers(&umbel, long)[..] else {
        panic!("no error")
    };
    let [Answer::Line(there), Answer::Closed] = &answers(&redis.address, long)[..] else {
        panic!("no error of Redis")
    };
    assert_eq!(*here, format!("{there}: 600000000, expected at most 524288"));
}
