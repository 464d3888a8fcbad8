//! Requests that write: objects in one request or in parts, conditions, and removal.

use super::{Answer, Request, State, decoded, tag};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Smallest length of a part, except the last one.
const PART_BYTES_MIN: usize = 5 << 20;

/// The header that identifies the upload of an object.
const MARK_HEADER: &str = "x-amz-meta-umbel-upload";

/// An upload that was started.
pub(super) struct Upload {
    key: String,
    mark: Option<String>,
    parts: BTreeMap<u32, Vec<u8>>,
}

/// Whether a request completes an upload.
pub(super) fn is_finish(request: &Request) -> bool {
    request.method == "POST" && request.query.starts_with("uploadId=")
}

impl State {
    /// Answers all requests that write.
    pub(super) fn written(&mut self, key: &str, request: &Request) -> Answer {
        let Request { method, query, headers, body, .. } = request;
        let query: BTreeMap<&str, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, decoded(value)))
            .collect();
        let id = query.get("uploadId");
        let mark = || headers.get(MARK_HEADER).cloned();
        if method == "PUT" || is_finish(request) {
            let length = headers.get("content-length").map(|length| length.parse::<usize>());
            assert_eq!(length, Some(Ok(body.len())), "a body has a length");
        }
        match (&method[..], id) {
            ("HEAD", None) => self.head(key),
            ("DELETE", None) => {
                self.objects.remove(key);
                Answer::new(204, "")
            }
            ("POST", None) if query.contains_key("uploads") => self.begin(key, mark()),
            ("PUT", None) => match self.refused(key, headers) {
                Some(answer) => answer,
                None => self.store(key, body.clone(), mark()),
            },
            ("PUT", Some(id)) => {
                let Some(upload) = self.uploads.get_mut(id).filter(|upload| upload.key == key)
                else {
                    return Answer::refusal(404, "NoSuchUpload");
                };
                let number = query["partNumber"].parse().unwrap();
                assert!((1..=10_000).contains(&number));
                upload.parts.insert(number, body.clone());
                let mut answer = Answer::new(200, "");
                answer.headers = vec![("etag", tag(body))];
                answer
            }
            ("DELETE", Some(id)) => match self.uploads.remove(id) {
                Some(_) => Answer::new(204, ""),
                None => Answer::refusal(404, "NoSuchUpload"),
            },
            ("GET", Some(id)) => {
                if self.uploads.contains_key(id) {
                    Answer::new(200, "<ListPartsResult></ListPartsResult>")
                } else {
                    Answer::refusal(404, "NoSuchUpload")
                }
            }
            ("POST", Some(id)) => self.finish(key, id, request),
            _ => panic!("{method} {key} {query:?}"),
        }
    }

    fn head(&self, key: &str) -> Answer {
        let Some(bytes) = self.objects.get(key) else { return Answer::new(404, "") };
        let mut answer = Answer::new(200, "");
        answer.headers = vec![("etag", tag(bytes))];
        answer.headers.extend(self.marks.get(key).map(|mark| (MARK_HEADER, mark.clone())));
        answer
    }

    fn begin(&mut self, key: &str, mark: Option<String>) -> Answer {
        self.begun += 1;
        let id = format!("an/id+of={}&", self.begun);
        let escaped = id.replace('&', "&amp;");
        let upload = Upload { key: key.to_owned(), mark, parts: BTreeMap::new() };
        self.uploads.insert(id, upload);
        let xml = format!("<UploadId>{escaped}</UploadId>");
        Answer::new(
            200,
            format!("<InitiateMultipartUploadResult>{xml}</InitiateMultipartUploadResult>"),
        )
    }

    /// The refusal if an object exists that the conditions exclude.
    fn refused(&self, key: &str, headers: &BTreeMap<String, String>) -> Option<Answer> {
        let condition = headers.get("if-none-match")?;
        assert_eq!(condition, "*");
        let is_there = self.objects.contains_key(key);
        is_there.then(|| Answer::refusal(412, "PreconditionFailed"))
    }

    fn store(&mut self, key: &str, bytes: Vec<u8>, mark: Option<String>) -> Answer {
        let mut answer = Answer::new(200, "");
        answer.headers = vec![("etag", tag(&bytes))];
        self.objects.insert(key.to_owned(), bytes);
        self.marks.remove(key);
        self.marks.extend(mark.map(|mark| (key.to_owned(), mark)));
        answer
    }

    fn finish(&mut self, key: &str, id: &str, request: &Request) -> Answer {
        let Some(upload) = self.uploads.get(id).filter(|upload| upload.key == key) else {
            return Answer::refusal(404, "NoSuchUpload");
        };
        let mut list = String::new();
        for (number, bytes) in &upload.parts {
            let tag = tag(bytes);
            write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
                .unwrap();
        }
        let body = String::from_utf8(request.body.clone()).unwrap();
        let start = body.find("<Part>").expect("a list of parts");
        assert_eq!(body[start..].trim_end_matches("</CompleteMultipartUpload>"), list);
        let parts: Vec<&Vec<u8>> = upload.parts.values().collect();
        if parts.iter().rev().skip(1).any(|part| part.len() < PART_BYTES_MIN) {
            return Answer::refusal(400, "EntityTooSmall");
        }
        if let Some(answer) = self.refused(key, &request.headers) {
            return answer;
        }
        let upload = self.uploads.remove(id).unwrap();
        let parts: Vec<Vec<u8>> = upload.parts.into_values().collect();
        self.store(key, parts.concat(), upload.mark);
        let xml = "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>";
        Answer::new(200, format!("   \n{xml}"))
    }
}
