//! Requests to an object store: signed, bounded in time and size, and retried where that may help.

use crate::address::ObjectAddress;
use crate::error::{ObjectError, ServerRefusal, StoreError};
use crate::listing::Page;
use crate::object::Object;
use crate::read_ahead::Budget;
use crate::settings::{Place, Settings};
use crate::sign::{NO_BODY_SHA256, Signable, percent_encoded, signed_headers};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body};

/// Bytes at the start of an object that are read when it is opened: enough to detect compression and format.
pub(crate) const HEAD_BYTES: u64 = 64;

/// Largest page of a listing: a thousand keys of 1,024 bytes, three characters a byte, and as much again for
/// markup.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// Most keys that a listing may have: 2^24, the most files that one job can cut into chunks.
const KEYS_MAX: usize = 1 << 24;

/// Bytes of a refusal's body that are read.
pub(crate) const REFUSAL_BYTES_MAX: u64 = 64 << 10;

/// Consecutive tries without any new byte before a request fails: six seconds of waiting in all.
const TRIES_MAX: u32 = 7;

/// Wait after the first failed try; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Timeouts for connecting and for the start of a response: a store that takes longer counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeouts for a pause within a response, and for its whole body: 4 MiB at 35 KB/s.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// Small outputs may hold the process's memory divided by this until the commit: 16 MiB of 1 GiB, little
/// compared with the readers' sixteenth.
const HELD_SHARE: u64 = 64;

/// Idle connections that are kept for further requests.
const IDLE_CONNECTIONS: usize = 64;

/// An object store, as the environment variables describe it.
#[derive(Debug)]
pub struct ObjectStore {
    agent: Agent,
    settings: Settings,
    pub(crate) budget: Arc<Budget>,
    /// Bytes that small outputs may still hold in memory until the commit.
    pub(crate) held_left: AtomicU64,
}

/// One request.
pub(crate) struct StoreRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) address: &'a ObjectAddress,
    /// Query, encoded as it is sent, sorted by the bytes of its names.
    pub(crate) query: &'a str,
    /// Further headers, with names in lower case.
    pub(crate) headers: &'a [(&'a str, String)],
    /// SHA-256 of the body in hexadecimal digits.
    pub(crate) body_sha256: &'a str,
    /// Timeouts for sending the body and for receiving the whole response, if not the defaults.
    pub(crate) times: Option<(Duration, Duration)>,
}

/// Why one try failed.
pub(crate) enum Trouble {
    /// Another try may succeed.
    Passing(String),
    /// Some bytes were received, and the next try continues behind them.
    Broken(String),
    /// No retry can succeed.
    Final(ObjectError),
}

impl From<ObjectError> for Trouble {
    fn from(error: ObjectError) -> Self {
        Self::Final(error)
    }
}

impl ObjectStore {
    /// The store that the environment variables describe, for a process that may use so much memory. Sends no
    /// request.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn from_environment(memory_bytes: u64) -> Result<Arc<Self>, StoreError> {
        let settings = Settings::from_environment()?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("umbel/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_send_request(Some(ANSWER_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .max_idle_connections(IDLE_CONNECTIONS)
            .max_idle_connections_per_host(IDLE_CONNECTIONS);
        if settings.place("x").scheme == "https" {
            config = config.tls_config(trust(settings.ca_bundle.as_deref())?);
        }
        let agent = config.build().new_agent();
        let budget = Arc::new(Budget::of(memory_bytes));
        let held_left = AtomicU64::new(memory_bytes / HELD_SHARE);
        Ok(Arc::new(Self { agent, settings, budget, held_left }))
    }

    /// The keys of all objects that begin with `prefix`, by the bytes of their keys.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn list(&self, bucket: &ObjectAddress, prefix: &str) -> Result<Vec<String>, ObjectError> {
        let prefix = percent_encoded(prefix, false);
        let bucket = bucket.with_key(String::new());
        let mut objects = Vec::new();
        let mut from: Option<String> = None;
        loop {
            // The parameters are sorted by name, as the signature requires.
            let token = from.as_ref().map(|from| percent_encoded(from, false));
            let token =
                token.map_or_else(String::new, |token| format!("continuation-token={token}&"));
            let query = format!("{token}encoding-type=url&list-type=2&prefix={prefix}");
            let page = patiently(None, || {
                let response = self.get(&bucket, &query, &[])?;
                let text = body_text(response, PAGE_BYTES_MAX).map_err(Trouble::Passing)?;
                Ok(Page::read(&text)?)
            })?;
            objects.extend(page.keys);
            if objects.len() > KEYS_MAX {
                return Err(ObjectError::malformed(format!("it lists more than {KEYS_MAX} keys")));
            }
            match page.next {
                None => break,
                next if next == from => {
                    return Err(ObjectError::malformed("a page of the list leads to itself"));
                }
                next => from = next,
            }
        }
        objects.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(objects)
    }

    /// Opens an object in its current version, and reads its first bytes.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn open(
        self: &Arc<Self>,
        address: &ObjectAddress,
    ) -> Result<(Object, Vec<u8>), ObjectError> {
        let range = [("range", format!("bytes=0-{}", HEAD_BYTES - 1))];
        patiently(None, || {
            let response = match self.get(address, "", &range) {
                // The object is empty and has no first bytes.
                Err(Trouble::Final(error)) if error.status() == Some(416) => {
                    return Ok((Object::new(self, address, String::new(), 0), Vec::new()));
                }
                other => other?,
            };
            let tag = entity_tag(&response);
            let bytes = content_range(&response).map(|(_, total)| total);
            let is_empty = response.status() == 200 && length(&response) == Some(0);
            let Some(bytes) = bytes.or(is_empty.then_some(0)) else {
                return Err(ObjectError::malformed("it does not serve ranges of bytes").into());
            };
            let Some(tag) = tag.filter(|tag| !tag.is_empty()) else {
                return Err(ObjectError::malformed("the object has no entity tag").into());
            };
            let mut head = Vec::new();
            read_body(response, bytes.min(HEAD_BYTES), &mut head)?;
            Ok((Object::new(self, address, tag, bytes), head))
        })
    }

    /// Reads a span of an object whose entity tag must be unchanged. If the connection breaks, it continues
    /// behind the bytes that were received, unless `stop` is set.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub(crate) fn fetch(
        &self,
        object: &Object,
        (start, end): (u64, u64),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, ObjectError> {
        let wanted = end - start;
        let mut bytes = Vec::with_capacity(usize::try_from(wanted).expect("at most a part"));
        patiently(Some(stop), || {
            let had = bytes.len();
            let outcome = self.fetch_once(object, (start + had as u64, end), &mut bytes);
            match outcome {
                Err(Trouble::Passing(what)) if bytes.len() > had => Err(Trouble::Broken(what)),
                outcome => outcome,
            }
        })?;
        Ok(bytes)
    }

    fn fetch_once(
        &self,
        object: &Object,
        (start, end): (u64, u64),
        bytes: &mut Vec<u8>,
    ) -> Result<(), Trouble> {
        let headers =
            [("if-match", object.tag.clone()), ("range", format!("bytes={start}-{}", end - 1))];
        let response = match self.get(&object.address, "", &headers) {
            // 416: the object is shorter now.
            Err(Trouble::Final(error)) if matches!(error.status(), Some(412 | 416)) => {
                return Err(ObjectError::Changed.into());
            }
            other => other?,
        };
        // Not every store supports If-Match.
        if entity_tag(&response).is_some_and(|tag| tag != object.tag) {
            return Err(ObjectError::Changed.into());
        }
        match content_range(&response) {
            Some((first, total)) if first == start && total == object.bytes => {}
            Some((_, total)) if total != object.bytes => return Err(ObjectError::Changed.into()),
            _ => {
                let text = format!("expected bytes from {start} on");
                return Err(ObjectError::malformed(text).into());
            }
        }
        read_body(response, end - start, bytes)
    }

    /// Sends a GET request, and returns the response unless it is a refusal.
    pub(crate) fn get(
        &self,
        address: &ObjectAddress,
        query: &str,
        headers: &[(&str, String)],
    ) -> Result<Response<Body>, Trouble> {
        let request = StoreRequest {
            method: "GET",
            address,
            query,
            headers,
            body_sha256: NO_BODY_SHA256,
            times: None,
        };
        self.send(&request, ())
    }

    /// Whether requests are signed.
    pub fn signs(&self) -> bool {
        self.settings.credentials.is_some()
    }

    /// Sends a request with a body, and returns the response unless it is a refusal.
    pub(crate) fn send(
        &self,
        request: &StoreRequest<'_>,
        body: impl AsSendBody,
    ) -> Result<Response<Body>, Trouble> {
        let StoreRequest { method, address, query, headers, body_sha256, times } = *request;
        let Place { scheme, host, path } = self.settings.place(&address.bucket);
        let path = percent_encoded(&format!("{path}{}", address.key), true);
        let mark = if query.is_empty() { "" } else { "?" };
        let uri = format!("{scheme}://{host}{path}{mark}{query}");
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(credentials) = &self.settings.credentials {
            let signable = Signable {
                method,
                host: &host,
                path: &path,
                query,
                headers,
                body_sha256,
                unix_seconds: unix_seconds(),
                region: &self.settings.region,
            };
            for (name, value) in signed_headers(&signable, credentials) {
                request = request.header(name, value);
            }
        }
        request = request.header("host", &host);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let unsound = |error| ObjectError::malformed(format!("the request: {error}"));
        let mut request = request.body(body).map_err(unsound)?;
        if let Some((sending, answering)) = times {
            let config = self.agent.configure_request(request).timeout_send_body(Some(sending));
            let config = config.timeout_recv_response(Some(answering));
            request = config.timeout_recv_body(Some(answering)).build();
        }
        let response = self.agent.run(request).map_err(trouble)?;
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response)) }
    }

    /// Classifies a refusal.
    fn refused(&self, response: Response<Body>) -> Trouble {
        let status = response.status().as_u16();
        let header = response.headers().get("x-amz-bucket-region");
        let region = header.and_then(|region| region.to_str().ok()).map(str::to_owned);
        let body = body_text(response, REFUSAL_BYTES_MAX).unwrap_or_default();
        let mut refusal = ServerRefusal::read(status, &body);
        let is_elsewhere = matches!(status, 301 | 307) || refusal.code.contains("Malformed");
        refusal.region = refusal
            .region
            .or(region)
            .filter(|region| is_elsewhere && *region != self.settings.region);
        refusal.is_anonymous = self.settings.credentials.is_none();
        judged(refusal)
    }
}

/// Whether a retry may help after a refusal. It may if the body was damaged or truncated in transit, or if
/// the request conflicted with another writer at that moment.
pub(crate) fn judged(refusal: ServerRefusal) -> Trouble {
    let codes = [
        "RequestTimeout",
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "OperationAborted",
        "ConditionalRequestConflict",
    ];
    let is_passing = matches!(refusal.status, 408 | 429 | 500 | 502 | 503 | 504)
        || codes.contains(&&refusal.code[..]);
    if is_passing {
        Trouble::Passing(refusal.to_string())
    } else {
        Trouble::Final(ObjectError::Refused(refusal))
    }
}

/// Calls `attempt` until it succeeds or its error is final, with growing pauses; does not retry once `stop` is
/// set.
pub(crate) fn patiently<T>(
    stop: Option<&AtomicBool>,
    mut attempt: impl FnMut() -> Result<T, Trouble>,
) -> Result<T, ObjectError> {
    let mut tries = 0;
    loop {
        let last = match attempt() {
            Ok(value) => return Ok(value),
            Err(Trouble::Final(error)) => return Err(error),
            Err(Trouble::Passing(last)) => last,
            Err(Trouble::Broken(last)) => {
                tries = 0;
                last
            }
        };
        tries += 1;
        if tries == TRIES_MAX || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(ObjectError::Unreachable { tries, last });
        }
        pause(FIRST_WAIT * (1 << (tries - 1)));
    }
}

/// Waits before the next try: a random time between half of `time` and all of it, so that clients that failed
/// together do not retry together.
#[expect(clippy::disallowed_methods, reason = "the store's load is no condition that can be seen")]
fn pause(time: Duration) {
    let share: f64 = rand::random();
    std::thread::sleep(time.mul_f64(0.5 + share / 2.0));
}

/// Whether a request without a response may be sent again.
fn trouble(error: ureq::Error) -> Trouble {
    use ureq::Error;
    match error {
        Error::BadUri(_) | Error::Http(_) => {
            Trouble::Final(ObjectError::malformed(error.to_string()))
        }
        Error::Tls(_) | Error::Rustls(_) => {
            Trouble::Final(ObjectError::Untrusted(error.to_string()))
        }
        Error::Io(error) if is_about_trust(&error) => {
            Trouble::Final(ObjectError::Untrusted(error.to_string()))
        }
        error => Trouble::Passing(error.to_string()),
    }
}

/// Whether a connection failed with a TLS error, such as an untrusted certificate.
fn is_about_trust(error: &std::io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
}

/// Appends the body, which must be `wanted` bytes; after an error, the bytes that were received.
fn read_body(response: Response<Body>, wanted: u64, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
    let had = bytes.len() as u64;
    // One byte more detects a body that is too long; and reading to the end frees the connection.
    let outcome = response.into_body().into_reader().take(wanted + 1).read_to_end(bytes);
    let came = bytes.len() as u64 - had;
    if came > wanted {
        return Err(ObjectError::malformed("more bytes came than were asked for").into());
    }
    match outcome {
        Err(error) => Err(Trouble::Passing(format!("the connection broke: {error}"))),
        Ok(_) if came < wanted => Err(Trouble::Passing("the answer was cut short".to_owned())),
        Ok(_) => Ok(()),
    }
}

/// A response body as text, up to a limit.
pub(crate) fn body_text(response: Response<Body>, bytes_max: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(bytes_max + 1);
    reader.read_to_end(&mut bytes).map_err(|error| format!("the connection broke: {error}"))?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("the answer is longer than {bytes_max} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the answer is not UTF-8".to_owned())
}

pub(crate) fn entity_tag(response: &Response<Body>) -> Option<String> {
    Some(response.headers().get("etag")?.to_str().ok()?.to_owned())
}

fn length(response: &Response<Body>) -> Option<u64> {
    response.headers().get("content-length")?.to_str().ok()?.parse().ok()
}

/// Offset of the first byte and length of the whole object, from a partial response: `bytes 0-63/1234`.
fn content_range(response: &Response<Body>) -> Option<(u64, u64)> {
    if response.status() != 206 {
        return None;
    }
    let value = response.headers().get("content-range")?.to_str().ok()?;
    let (span, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((span.split_once('-')?.0.parse().ok()?, total.parse().ok()?))
}

/// The trusted certificates: those of a file, or those that the system trusts.
fn trust(ca_bundle: Option<&str>) -> Result<TlsConfig, StoreError> {
    // Fails only if a default provider is already installed, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let loaded = match ca_bundle {
        Some(path) => rustls_native_certs::load_certs_from_paths(Some(Path::new(path)), None),
        None => rustls_native_certs::load_native_certs(),
    };
    let certificates: Vec<Certificate<'static>> =
        loaded.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if certificates.is_empty() {
        return Err(StoreError::NoCertificates(loaded.errors.into_iter().next()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}

/// Seconds since 1970, for the signature of a request.
#[expect(clippy::disallowed_methods, reason = "servers refuse what was signed long ago")]
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
