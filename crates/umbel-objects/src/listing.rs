//! Parses the XML of a store: pages of keys, and refusals. `puts.rs` parses what concerns uploads.

use crate::error::{ObjectError, ServerRefusal};
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};

/// Deepest nesting of elements; those that are used are at depth three.
const DEPTH_MAX: usize = 16;

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) keys: Vec<String>,
    /// The token of the next page, if there is one.
    pub(crate) next: Option<String>,
}

impl Page {
    /// Parses a response to `ListObjectsV2` that was requested with URL-encoded keys.
    ///
    /// # Errors
    ///
    /// [`ObjectError::Malformed`]: it is no such response, or is incomplete.
    pub(crate) fn read(xml: &str) -> Result<Self, ObjectError> {
        let mut page = Self::default();
        let (mut key, mut is_truncated) = (None, false);
        let root = leaves(xml, |path, text| {
            match path {
                ["Contents", "Key"] => key = Some(url_decoded(text)?),
                ["Contents"] => match key.take() {
                    Some(key) => page.keys.push(key),
                    None => return Err(ObjectError::malformed("a listed object has no key")),
                },
                ["IsTruncated"] => is_truncated = text == "true",
                ["NextContinuationToken"] => page.next = Some(text.to_owned()),
                _ => {}
            }
            Ok(())
        })?;
        if root != "ListBucketResult" {
            let text = format!("expected a list of keys, not `{root}`");
            return Err(ObjectError::malformed(text));
        }
        match (is_truncated, &page.next) {
            (true, None) => Err(ObjectError::malformed("a cut list does not say how it goes on")),
            (true, Some(_)) => Ok(page),
            (false, _) => Ok(Self { next: None, ..page }),
        }
    }
}

impl ServerRefusal {
    /// Parses the body of a refusal, which may be anything.
    pub(crate) fn read(status: u16, body: &str) -> Self {
        let mut refusal = Self { status, ..Self::default() };
        let mut region = None;
        let root = leaves(body, |path, text| {
            match path {
                ["Code"] => text.clone_into(&mut refusal.code),
                ["Message"] => text.clone_into(&mut refusal.message),
                ["Region"] => region = Some(text.to_owned()),
                _ => {}
            }
            Ok(())
        });
        if root.is_ok_and(|root| root == "Error") {
            refusal.region = region;
            return refusal;
        }
        Self { status, ..Self::default() }
    }
}

/// Calls `take` with the path below the root and the text of each element, when the element ends, and returns
/// the name of the root.
pub(crate) fn leaves(
    xml: &str,
    mut take: impl FnMut(&[&str], &str) -> Result<(), ObjectError>,
) -> Result<String, ObjectError> {
    let broken = |detail: &str| ObjectError::malformed(format!("XML {detail}"));
    let mut reader = Reader::from_str(xml);
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event().map_err(|error| broken(&error.to_string()))? {
            Event::Start(element) => {
                if path.len() == DEPTH_MAX {
                    return Err(broken("is nested too deep"));
                }
                path.push(String::from_utf8_lossy(element.local_name().as_ref()).into_owned());
                text.clear();
            }
            Event::Text(part) => {
                let part = part.decode().map_err(|error| broken(&error.to_string()))?;
                text.push_str(&part);
            }
            Event::GeneralRef(reference) => text.push_str(&resolved(&reference)?),
            Event::End(_) => {
                let steps: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
                if !steps.is_empty() {
                    take(&steps, text.trim())?;
                }
                text.clear();
                let name = path.pop().ok_or_else(|| broken("ends what has not begun"))?;
                if path.is_empty() {
                    return Ok(name);
                }
            }
            Event::Eof => return Err(broken("is cut off")),
            _ => {}
        }
    }
}

/// The text that an entity or character reference stands for.
fn resolved(reference: &BytesRef<'_>) -> Result<String, ObjectError> {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return Ok(character.to_string());
    }
    let name = reference.decode().unwrap_or_default();
    let known = resolve_xml_entity(&name).map(str::to_owned);
    known.ok_or_else(|| ObjectError::malformed(format!("XML has an unknown entity `{name}`")))
}

/// Decodes a key of a listing. A plus stands for a blank; a plus in a key is percent-encoded.
fn url_decoded(text: &str) -> Result<String, ObjectError> {
    let broken = || ObjectError::malformed("a listed key is not encoded as a URL is");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = rest.split_off(..2).ok_or_else(broken)?;
                let digits = std::str::from_utf8(digits).map_err(|_| broken())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>b</Name><Prefix>a/</Prefix><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>
  <NextContinuationToken>1ueGc&amp;/=</NextContinuationToken>
  <Contents><Key>a/one+two%2B%C3%A9</Key><ETag>&quot;9b2c&quot;</ETag><Size>12</Size></Contents>
  <Contents><Key>a/b</Key><Size>0</Size><Owner><ID>x</ID></Owner></Contents>
  <CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>
</ListBucketResult>"#;

    #[test]
    fn pages_are_read() {
        let page = Page::read(PAGE).unwrap();
        assert_eq!(page.keys, ["a/one two+é", "a/b"]);
        assert_eq!(page.next.as_deref(), Some("1ueGc&/="));
        let last = PAGE.replace("true", "false");
        assert_eq!(Page::read(&last).unwrap().next, None);
    }

    #[test]
    fn a_page_that_is_cut_anywhere_is_refused() {
        for length in 0..PAGE.len() {
            if PAGE.is_char_boundary(length) {
                assert!(Page::read(&PAGE[..length]).is_err(), "{length}");
            }
        }
        let without_token = PAGE.replace("NextContinuationToken", "Token");
        assert!(Page::read(&without_token).is_err());
        assert!(Page::read(&PAGE.replace("<Key>a/b</Key>", "")).is_err());
        assert!(Page::read(&PAGE.replace("%2B", "%2")).is_err());
        assert!(Page::read(&PAGE.replace("&amp;", "&lol;")).is_err());
        assert!(Page::read(&"<a>".repeat(100)).is_err());
        assert!(Page::read("<html></html>").is_err());
    }

    #[test]
    fn refusals_are_read_whatever_they_are() {
        let body = "<Error><Code>PermanentRedirect</Code><Message>a &lt; b</Message><Region>eu-west-1</Region></Error>";
        let refusal = ServerRefusal::read(301, body);
        assert_eq!((&refusal.code[..], &refusal.message[..]), ("PermanentRedirect", "a < b"));
        assert_eq!(refusal.region.as_deref(), Some("eu-west-1"));
        for body in ["", "<html><Code>x</Code></html>", "bad gateway", "<Error><Code>x"] {
            let refusal = ServerRefusal::read(502, body);
            assert_eq!((refusal.status, &refusal.code[..]), (502, ""), "{body}");
        }
    }
}
