//! A small object store: objects in memory behind the part of S3 that jobs use, with faults on demand.
//!
//! It shares only the hash function with the product: it recomputes signatures from the received request,
//! implements ranges, conditions and pages as in the protocol, and records every request. Writing is in
//! `uploads.rs`.

mod uploads;

use ring::{digest, hmac};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use umbel_filter::Hex;
use uploads::Upload;
use xxhash_rust::xxh3::xxh3_128;

/// The id of the only access key.
const ACCESS_KEY_ID: &str = "AKIATEST";
pub(crate) const SECRET_ACCESS_KEY: &str = "a/secret+of+the+tests";
const REGION: &str = "eu-test-1";

/// The only bucket.
pub(crate) const BUCKET: &str = "bucket";

/// Keys per page of a listing.
const PAGE_KEYS: usize = 2;

/// Bytes of a body that are sent before it is cut.
const CUT_BYTES: usize = 1000;

/// Faults, and how many times each occurs.
#[derive(Default)]
pub(crate) struct Faults {
    /// Responses `503 Slow Down`.
    pub(crate) overloads: u32,
    /// Bodies of objects that are cut.
    pub(crate) cuts: u32,
    /// Listings whose XML is truncated, in complete responses.
    pub(crate) cut_lists: u32,
    /// After this many requests for objects, this object gets this content.
    pub(crate) change: Option<(u32, String, Vec<u8>)>,
    /// The credentials allow to put objects, and to read none.
    pub(crate) is_write_only: bool,
}

/// A fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused permanently.
    Refused,
    /// The store is overloaded.
    Overload,
    /// The connection is closed within the request's body or, without a body, before the response.
    CutBody,
    /// The request is carried out, and the connection is closed before the response.
    LostAnswer,
    /// A request that completes an upload gets a good status and then an error; other requests get an
    /// overload.
    LateError,
    /// Another writer puts an object under this key just before.
    Race(String),
    /// The request is never carried out; its connection stays open until the client is gone.
    Hung,
    /// The request is carried out when [`ObjectStore::release`] was called.
    Held,
}

/// A request that got a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) query: String,
    pub(crate) key: String,
    pub(crate) range: String,
    pub(crate) status: u16,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// The headers with user-defined metadata of each object.
    marks: BTreeMap<String, String>,
    uploads: BTreeMap<String, Upload>,
    begun: u32,
    /// The number of requests before a fault, and the fault.
    fault: Option<(usize, Fault)>,
    /// Method and key of the request that hangs.
    hung: Option<(String, String)>,
    is_released: bool,
    faults: Faults,
    asked: Vec<Asked>,
}

/// A store that runs until the test ends.
pub(crate) struct ObjectStore {
    address: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl ObjectStore {
    /// A store with these objects.
    pub(crate) fn with<Bytes: AsRef<[u8]>>(objects: &[(&str, Bytes)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let objects = objects.iter().map(|(key, bytes)| ((*key).into(), bytes.as_ref().to_vec()));
        let state = State { objects: objects.collect(), ..State::default() };
        let state = Arc::new(Shared { state: Mutex::new(state), ..Shared::default() });
        let shared = Arc::clone(&state);
        serve(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                serve(move || while answer(&stream, &state).is_some() {});
            }
        });
        Self { address, state }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// All requests since the last call.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().asked)
    }

    /// Causes a fault of the request with this number, counted from 0 and from now.
    pub(crate) fn set_fault(&self, request: usize, fault: Fault) {
        self.state.lock().fault = Some((request, fault));
    }

    /// Waits until a request hangs; returns its method and its key.
    pub(crate) fn await_hung(&self) -> (String, String) {
        let state = self.state.lock();
        let state = self.state.changed.wait_while(state, |state| state.hung.is_none()).unwrap();
        state.hung.clone().unwrap()
    }

    /// Lets the request that is held be carried out.
    pub(crate) fn release(&self) {
        self.state.lock().is_released = true;
        self.state.changed.notify_all();
    }

    /// All objects whose keys have this prefix, by the rest of the key.
    pub(crate) fn below(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let state = self.state.lock();
        let below = state
            .objects
            .iter()
            .filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?.to_owned(), bytes.clone())));
        below.collect()
    }

    /// Removes an object, like its owner.
    pub(crate) fn remove(&self, key: &str) {
        self.state.lock().objects.remove(key);
    }

    /// Aborts all uploads, like a lifecycle rule of the bucket.
    pub(crate) fn drop_uploads(&self) {
        self.state.lock().uploads.clear();
    }

    /// The number of uploads that were started, but neither completed nor aborted.
    pub(crate) fn open_uploads(&self) -> usize {
        self.state.lock().uploads.len()
    }

    /// Sets the store's address and credentials in a command's environment.
    pub(crate) fn known_to(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars() {
            if name.starts_with("AWS_") || name.to_lowercase().ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.address));
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID).env("AWS_REGION", REGION);
        command.env("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY);
        command
    }
}

#[expect(clippy::disallowed_methods, reason = "it serves a process, not a call")]
fn serve(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Whether the connection is closed within the body.
    is_cut: bool,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), is_cut: false }
    }

    fn refusal(status: u16, code: &str) -> Self {
        Self::new(status, format!("<Error><Code>{code}</Code><Message>words</Message></Error>"))
    }
}

/// Answers the next request of a connection; `None` if the connection is closed.
fn answer(stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut request = read_head(&mut reader)?;
    let fault = shared.lock().next_fault();
    if fault == Some(Fault::CutBody) {
        return None;
    }
    let length = request.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    if matches!(fault, Some(Fault::Hung | Fault::Held)) {
        let path = decoded(&request.path);
        let key = path[1..].split_once('/').map_or("", |(_, key)| key);
        shared.lock().hung = Some((request.method.clone(), key.to_owned()));
        shared.changed.notify_all();
    }
    if fault == Some(Fault::Hung) {
        let _ = reader.read(&mut [0]);
        return None;
    }
    if fault == Some(Fault::Held) {
        let state = shared.lock();
        drop(shared.changed.wait_while(state, |state| !state.is_released).unwrap());
    }
    let mut answer = check_signature(&request).unwrap_or_else(|| {
        let mut state = shared.lock();
        state.answer(&request, fault.as_ref())
    });
    if fault == Some(Fault::LostAnswer) {
        return None;
    }
    let Answer { status, headers, body, is_cut } = &mut answer;
    let mut head = format!("HTTP/1.1 {status} said\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| {
        write!(head, "{name}: {value}\r\n").unwrap();
    });
    head.push_str("\r\n");
    if *is_cut {
        body.truncate(CUT_BYTES);
    }
    // Without delay, since otherwise the second of two small writes waits for the acknowledgement of the
    // first.
    let mut stream = stream;
    stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
    (!*is_cut).then_some(())
}

fn read_head(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut lines = reader.lines();
    let first = lines.next()?.ok()?;
    let (method, target) = first.strip_suffix(" HTTP/1.1")?.split_once(' ')?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
            return Some(Request { method, path, query, headers, body: Vec::new() });
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    None
}

/// Refuses a request whose signature is not that of exactly this request.
fn check_signature(request: &Request) -> Option<Answer> {
    let Request { method, path, query, headers, body } = request;
    let Some(given) = headers.get("authorization") else {
        return Some(Answer::refusal(403, "AccessDenied"));
    };
    let field = |name: &str| given.split_once(name).unwrap().1.split(',').next().unwrap();
    let (id, scope) = field("Credential=").split_once('/').unwrap();
    if scope.split('/').nth(1) != Some(REGION) {
        let body =
            format!("<Error><Code>PermanentRedirect</Code><Region>{REGION}</Region></Error>");
        return Some(Answer::new(301, body));
    }
    let names = field("SignedHeaders=");
    for name in ["host", "x-amz-content-sha256", "x-amz-date"] {
        assert!(names.split(';').any(|signed| signed == name), "{name} is not signed");
    }
    assert!(query.split('&').is_sorted(), "{query}");
    let body_hash = Hex(digest::digest(&digest::SHA256, body).as_ref()).to_string();
    if headers["x-amz-content-sha256"] != body_hash {
        return Some(Answer::refusal(400, "XAmzContentSHA256Mismatch"));
    }
    let mut canonical = format!("{method}\n{path}\n{query}\n");
    for name in names.split(';') {
        writeln!(canonical, "{name}:{}", headers[name]).unwrap();
    }
    write!(canonical, "\n{names}\n{}", headers["x-amz-content-sha256"]).unwrap();
    let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
    let date = &headers["x-amz-date"];
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", Hex(hash.as_ref()));
    let mut key = format!("AWS4{SECRET_ACCESS_KEY}").into_bytes();
    for part in scope.split('/') {
        key = sign(&key, part);
    }
    let is_right =
        id == ACCESS_KEY_ID && Hex(&sign(&key, &text)).to_string() == field("Signature=");
    (!is_right).then(|| Answer::refusal(403, "SignatureDoesNotMatch"))
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{:032x}\"", xxh3_128(bytes))
}

/// Consumes a fault of a kind, if one is left.
fn take(left: &mut u32) -> bool {
    let is_due = *left > 0;
    *left = left.saturating_sub(1);
    is_due
}

impl State {
    fn next_fault(&mut self) -> Option<Fault> {
        let (left, _) = self.fault.as_mut()?;
        if *left == 0 {
            return self.fault.take().map(|(_, fault)| fault);
        }
        *left -= 1;
        None
    }

    fn answer(&mut self, request: &Request, fault: Option<&Fault>) -> Answer {
        let path = decoded(&request.path);
        let Some((bucket, key)) = path[1..].split_once('/') else {
            return Answer::refusal(400, "InvalidRequest");
        };
        let range = request.headers.get("range").cloned().unwrap_or_default();
        if let Some(Fault::Race(key)) = fault {
            self.marks.remove(key);
            self.objects.insert(key.clone(), b"another writer's".to_vec());
        }
        let answer = match fault {
            Some(Fault::Refused) => Answer::refusal(403, "AccessDenied"),
            Some(Fault::LateError) if uploads::is_finish(request) => {
                Answer { status: 200, ..Answer::refusal(500, "InternalError") }
            }
            Some(Fault::Overload | Fault::LateError) => Answer::refusal(503, "SlowDown"),
            _ if take(&mut self.faults.overloads) => Answer::refusal(503, "SlowDown"),
            _ if bucket != BUCKET => Answer::refusal(404, "NoSuchBucket"),
            _ if key.is_empty() => self.list(&request.query),
            _ if request.method == "GET"
                && request.query.is_empty()
                && self.faults.is_write_only =>
            {
                Answer::refusal(403, "AccessDenied")
            }
            _ if request.method == "GET" && request.query.is_empty() => {
                self.object(key, &range, request.headers.get("if-match"))
            }
            _ => self.written(key, request),
        };
        self.asked.push(Asked {
            method: request.method.clone(),
            query: request.query.clone(),
            key: key.to_owned(),
            range,
            status: answer.status,
        });
        answer
    }

    fn object(&mut self, key: &str, range: &str, if_match: Option<&String>) -> Answer {
        if let Some((left, _, _)) = &mut self.faults.change {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let (_, changed, bytes) = self.faults.change.take().unwrap();
                self.objects.insert(changed, bytes);
            }
        }
        let Some(bytes) = self.objects.get(key) else {
            return Answer::refusal(404, "NoSuchKey");
        };
        if if_match.is_some_and(|wanted| *wanted != tag(bytes)) {
            return Answer::refusal(412, "PreconditionFailed");
        }
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        if start >= bytes.len() {
            return Answer::refusal(416, "InvalidRange");
        }
        let end = (end + 1).min(bytes.len());
        let place = format!("bytes {start}-{}/{}", end - 1, bytes.len());
        let mut answer = Answer::new(206, &bytes[start..end]);
        answer.headers = vec![("etag", tag(bytes)), ("content-range", place)];
        answer.is_cut = end - start > CUT_BYTES && take(&mut self.faults.cuts);
        answer
    }

    fn list(&mut self, query: &str) -> Answer {
        let pairs: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect();
        assert_eq!((&pairs["list-type"][..], &pairs["encoding-type"][..]), ("2", "url"));
        let from = pairs.get("continuation-token").map_or("", |token| &token["after ".len()..]);
        let found = self.objects.iter().filter(|(key, _)| key.starts_with(&pairs["prefix"]));
        let mut found = found.filter(|(key, _)| &key[..] > from).peekable();
        let mut xml = "<ListBucketResult>".to_owned();
        let mut last = "";
        for (key, bytes) in found.by_ref().take(PAGE_KEYS) {
            let (size, encoded) = (bytes.len(), encoded(key));
            write!(xml, "<Contents><Key>{encoded}</Key><Size>{size}</Size></Contents>").unwrap();
            last = key;
        }
        if found.peek().is_some() {
            let rest = format!("<NextContinuationToken>after {last}</NextContinuationToken>");
            write!(xml, "<IsTruncated>true</IsTruncated>{rest}").unwrap();
        }
        xml.push_str("</ListBucketResult>");
        if take(&mut self.faults.cut_lists) {
            xml.truncate(xml.len() / 2);
        }
        Answer::new(200, xml)
    }
}

/// A key as listings encode it.
fn encoded(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b' ' => text.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte) => {
                text.push(char::from(byte));
            }
            byte => write!(text, "%{byte:02X}").unwrap(),
        }
        text
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        bytes.push(match first {
            b'%' => {
                let (digits, behind) = rest.split_at(2);
                rest = behind;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
