//! Requests that write: multipart uploads, which become visible as a whole; small objects in one request; and
//! removals.
//!
//! ```text
//! begin  POST ?uploads                 -> id         nothing is visible
//! part   PUT  ?partNumber=1&uploadId=  -> tag        each tried until it is there; sent again, it replaces itself
//! finish POST ?uploadId= (all tags)    -> object     at once, or not at all
//! abort  DELETE ?uploadId=
//! ```
//!
//! Every body is signed with its SHA-256, which the store recomputes, so it stores what was written. Entity
//! tags cannot show that, because they are a hash only where nothing is encrypted. Every object has metadata
//! with a unique mark. If the response to a finish or put is lost, the mark of the object under the key shows
//! whether the request succeeded.

use crate::address::ObjectAddress;
use crate::error::{ObjectError, ServerRefusal};
use crate::listing::leaves;
use crate::part::PartBuffer;
use crate::sign::{NO_BODY_SHA256, percent_encoded, sha256_hex};
use crate::store::{
    ANSWER_TIMEOUT, BODY_TIMEOUT, ObjectStore, REFUSAL_BYTES_MAX, StoreRequest, Trouble, body_text,
    entity_tag, judged, patiently,
};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;

/// The header with an object's mark.
const MARK_HEADER: &str = "x-amz-meta-umbel-upload";

/// Bytes that a connection must transfer within [`BODY_TIMEOUT`], as for reading.
const TIMED_BYTES: u64 = 4 << 20;

/// Timeout for the response to a finish: S3 assembles parts for minutes and keeps the connection alive
/// meanwhile.
const FINISH_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeout for the response to an abort: a process that is interrupted waits for it.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

impl ObjectStore {
    /// Whether an object exists under this key.
    ///
    /// # Errors
    ///
    /// [`ObjectError`], also if the bucket does not exist.
    pub fn has(&self, address: &ObjectAddress) -> Result<bool, ObjectError> {
        let range = [("range", "bytes=0-0".to_owned())];
        patiently(None, || match self.get(address, "", &range) {
            Ok(response) => {
                drain(response);
                Ok(true)
            }
            // 416: the object is empty.
            Err(Trouble::Final(error)) if error.status() == Some(416) => Ok(true),
            Err(Trouble::Final(ObjectError::Refused(refusal))) if is_absent(&refusal) => Ok(false),
            Err(trouble) => Err(trouble),
        })
    }

    /// The mark of the object under this key, if it exists and has one.
    pub(crate) fn mark_of(&self, address: &ObjectAddress) -> Result<Option<String>, ObjectError> {
        let request = request("HEAD", address, "", &[], NO_BODY_SHA256);
        patiently(None, || match self.send(&request, ()) {
            Ok(response) => {
                let mark = response.headers().get(MARK_HEADER).and_then(|mark| mark.to_str().ok());
                Ok(mark.map(str::to_owned))
            }
            Err(Trouble::Final(error)) if error.status() == Some(404) => Ok(None),
            Err(trouble) => Err(trouble),
        })
    }

    /// Whether an upload exists that was neither finished nor aborted.
    pub(crate) fn is_open(&self, address: &ObjectAddress, id: &str) -> Result<bool, ObjectError> {
        let query = format!("max-parts=1&uploadId={}", percent_encoded(id, false));
        patiently(None, || match self.get(address, &query, &[]) {
            Ok(response) => {
                drain(response);
                Ok(true)
            }
            Err(Trouble::Final(error)) if error.status() == Some(404) => Ok(false),
            Err(trouble) => Err(trouble),
        })
    }

    /// Begins an upload of an object that will have this mark, and returns its id.
    pub(crate) fn begin(&self, address: &ObjectAddress, mark: &str) -> Result<String, ObjectError> {
        let headers = [(MARK_HEADER, mark.to_owned())];
        let request = request("POST", address, "uploads=", &headers, NO_BODY_SHA256);
        patiently(None, || {
            let text = text_of(self.send(&request, &[][..])?)?;
            Ok(upload_id(&text)?)
        })
    }

    /// Sends a sealed part, and returns its entity tag.
    pub(crate) fn send_part(
        &self,
        address: &ObjectAddress,
        id: &str,
        number: usize,
        (part, hash): (&mut PartBuffer, &str),
    ) -> Result<String, ObjectError> {
        let id = percent_encoded(id, false);
        let query = format!("partNumber={number}&uploadId={id}");
        let request = StoreRequest {
            times: times(part.bytes()),
            ..request("PUT", address, &query, &[], hash)
        };
        patiently(None, || {
            let response = match part.rewound()? {
                Some(file) => self.send(&request, file),
                None => self.send(&request, part.in_memory().expect("it is nowhere else")),
            }?;
            let tag = entity_tag(&response).filter(|tag| !tag.is_empty());
            drain(response);
            tag.ok_or_else(|| ObjectError::malformed("a part has no entity tag").into())
        })
    }

    /// Assembles the parts to an object under the key.
    pub(crate) fn finish(
        &self,
        address: &ObjectAddress,
        (id, mark): (&str, &str),
        tags: &[String],
        overwrite: bool,
    ) -> Result<(), ObjectError> {
        let body = part_list(tags);
        let hash = sha256_hex(body.as_bytes());
        let query = format!("uploadId={}", percent_encoded(id, false));
        let headers = conditions(overwrite);
        let request = StoreRequest {
            times: Some((BODY_TIMEOUT, FINISH_TIMEOUT)),
            ..request("POST", address, &query, &headers, &hash)
        };
        let outcome =
            patiently(None, || finished(&text_of(self.send(&request, body.as_bytes())?)?));
        self.resolved(address, mark, outcome)
    }

    /// Stores a small object in one request.
    pub(crate) fn put(
        &self,
        address: &ObjectAddress,
        mark: &str,
        bytes: &[u8],
        overwrite: bool,
    ) -> Result<(), ObjectError> {
        let hash = sha256_hex(bytes);
        let mut headers = conditions(overwrite);
        headers.push((MARK_HEADER, mark.to_owned()));
        let request = StoreRequest {
            times: times(bytes.len() as u64),
            ..request("PUT", address, "", &headers, &hash)
        };
        let outcome = patiently(None, || self.send(&request, bytes).map(drain));
        self.resolved(address, mark, outcome)
    }

    /// The outcome of a request that creates an object: if its last response is an error, an earlier try may
    /// have succeeded.
    fn resolved(
        &self,
        address: &ObjectAddress,
        mark: &str,
        outcome: Result<(), ObjectError>,
    ) -> Result<(), ObjectError> {
        let Err(error) = outcome else { return Ok(()) };
        if self.mark_of(address).is_ok_and(|found| found.as_deref() == Some(mark)) {
            return Ok(());
        }
        Err(if error.status() == Some(412) { ObjectError::Exists } else { error })
    }

    /// Aborts an upload. Once `stop` is set, there is at most one more try.
    pub(crate) fn abort(
        &self,
        address: &ObjectAddress,
        id: &str,
        stop: Option<&AtomicBool>,
    ) -> Result<(), ObjectError> {
        let query = format!("uploadId={}", percent_encoded(id, false));
        let times = Some((ABORT_TIMEOUT, ABORT_TIMEOUT));
        let request =
            StoreRequest { times, ..request("DELETE", address, &query, &[], NO_BODY_SHA256) };
        patiently(stop, || match self.send(&request, ()) {
            Ok(response) => {
                drain(response);
                Ok(())
            }
            Err(Trouble::Final(error)) if error.status() == Some(404) => Ok(()),
            Err(trouble) => Err(trouble),
        })
    }

    /// Removes the object under this key, if it has this mark.
    pub(crate) fn take_back(&self, address: &ObjectAddress, mark: &str) -> Result<(), ObjectError> {
        if self.mark_of(address)?.as_deref() != Some(mark) {
            return Ok(());
        }
        let request = request("DELETE", address, "", &[], NO_BODY_SHA256);
        patiently(None, || self.send(&request, ()).map(drain))
    }
}

fn request<'a>(
    method: &'a str,
    address: &'a ObjectAddress,
    query: &'a str,
    headers: &'a [(&'a str, String)],
    body_sha256: &'a str,
) -> StoreRequest<'a> {
    StoreRequest { method, address, query, headers, body_sha256, times: None }
}

/// Timeouts for sending so many bytes, and for the response.
fn times(bytes: u64) -> Option<(Duration, Duration)> {
    let pieces = u32::try_from(bytes / TIMED_BYTES).unwrap_or(u32::MAX).saturating_add(1);
    Some((BODY_TIMEOUT.saturating_mul(pieces), ANSWER_TIMEOUT))
}

/// If nothing may be replaced: a condition with which the store rejects the request if the object exists.
fn conditions(overwrite: bool) -> Vec<(&'static str, String)> {
    if overwrite { Vec::new() } else { vec![("if-none-match", "*".to_owned())] }
}

/// Whether the bucket exists, but no object under the key.
fn is_absent(refusal: &ServerRefusal) -> bool {
    refusal.status == 404 && refusal.code != "NoSuchBucket"
}

/// Reads the rest of a response, so that its connection can be used again.
fn drain(response: Response<Body>) {
    let _ = body_text(response, REFUSAL_BYTES_MAX);
}

fn text_of(response: Response<Body>) -> Result<String, Trouble> {
    body_text(response, REFUSAL_BYTES_MAX).map_err(Trouble::Passing)
}

/// The upload id in the response to a begin.
fn upload_id(xml: &str) -> Result<String, ObjectError> {
    let mut id = String::new();
    let root = leaves(xml, |path, text| {
        if path == ["UploadId"] {
            text.clone_into(&mut id);
        }
        Ok(())
    })?;
    if root != "InitiateMultipartUploadResult" || id.is_empty() {
        return Err(ObjectError::malformed(format!("expected an upload's id, not `{root}`")));
    }
    Ok(id)
}

/// Parses the response to a finish: its status is 200 before the store knows the outcome.
fn finished(xml: &str) -> Result<(), Trouble> {
    let root = leaves(xml, |_, _| Ok(()));
    match root.as_deref() {
        Ok("CompleteMultipartUploadResult") => Ok(()),
        Ok("Error") => Err(judged(ServerRefusal::read(200, xml))),
        Ok(root) => {
            let text = format!("expected the end of an upload, not `{root}`");
            Err(ObjectError::malformed(text).into())
        }
        // The response was cut short while the store was working: the next try shows whether it succeeded.
        Err(error) => Err(Trouble::Passing(error.to_string())),
    }
}

/// The body of a finish: all parts in order.
fn part_list(tags: &[String]) -> String {
    let mut xml =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for (number, tag) in (1..).zip(tags) {
        let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(xml, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    xml.push_str("</CompleteMultipartUpload>");
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_read() {
        let xml = "<?xml version=\"1.0\"?><InitiateMultipartUploadResult><Bucket>b</Bucket>\
                   <UploadId>a&amp;b==</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(xml).unwrap(), "a&b==");
        for length in 0..xml.len() {
            assert!(upload_id(&xml[..length]).is_err(), "{length}");
        }
        assert!(upload_id(&xml.replace("UploadId", "Id")).is_err());
        assert!(upload_id("<Error><UploadId>x</UploadId></Error>").is_err());
    }

    #[test]
    fn a_finish_ends_well_only_if_the_body_says_so() {
        let good = "  \n<?xml version=\"1.0\"?>\n<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
        assert!(finished(good).is_ok());
        for length in 0..good.len() {
            assert!(matches!(finished(&good[..length]), Err(Trouble::Passing(_))), "{length}");
        }
        let refusal = |code: &str| finished(&format!("<Error><Code>{code}</Code></Error>"));
        assert!(matches!(refusal("InternalError"), Err(Trouble::Passing(_))));
        assert!(matches!(refusal("InvalidPart"), Err(Trouble::Final(_))));
        assert!(matches!(finished("<html></html>"), Err(Trouble::Final(_))));
    }

    #[test]
    fn parts_are_listed_in_order() {
        let xml = part_list(&["\"a\"".to_owned(), "<&".to_owned()]);
        let mut parts = Vec::new();
        leaves(&xml, |_, text| {
            parts.push(text.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(parts, ["1", "\"a\"", "", "2", "<&", ""]);
    }
}
