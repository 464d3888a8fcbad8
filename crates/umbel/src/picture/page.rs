//! The frame of a page. A page is a single file that fetches and runs nothing; its content security
//! policy forbids both.

use super::markup::Element;

/// The style of all pages.
const STYLE: &str = include_str!("page.css");

/// SHA-256 of the style in base64. The policy allows this one style and nothing else.
const STYLE_HASH: &str = "taoXydKnve0tM0KjRXx+e4xlxWldKoT2A4z5yYCzW3I=";

/// The head of a page.
pub(crate) struct Heading {
    /// The command that wrote the page, and its release.
    pub(crate) source: String,
    /// The result, in one sentence.
    pub(crate) finding: String,
    /// What else a reader should know first.
    pub(crate) lead: String,
}

/// A whole page.
pub(crate) fn page(heading: Heading, content: impl IntoIterator<Item = Element>) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
    );
    let meta = |name: &'static str, content: &str| {
        Element::new("meta").with("name", name).with("content", content)
    };
    let policy =
        Element::new("meta").with("http-equiv", "Content-Security-Policy").with("content", policy);
    let Heading { source, finding, lead } = heading;
    let head = Element::new("head")
        .child(Element::new("meta").with("charset", "utf-8"))
        .child(policy)
        .child(meta("viewport", "width=device-width, initial-scale=1"))
        .child(meta("color-scheme", "light dark"))
        .child(Element::new("title").text(&finding))
        .child(Element::new("style").style(STYLE));
    let top = Element::new("header")
        .child(Element::new("p").with("class", "source").text(source))
        .child(Element::new("h1").text(&finding))
        .child(Element::new("p").with("class", "lead").text(lead));
    let main = Element::new("main").child(top).children(content);
    let html =
        Element::new("html").with("lang", "en").child(head).child(Element::new("body").child(main));
    format!("<!DOCTYPE html>\n{html}\n")
}

/// A section with its heading.
pub(crate) fn section(name: &'static str, content: impl IntoIterator<Item = Element>) -> Element {
    Element::new("section").child(Element::new("h2").text(name)).children(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let four = |three: &[u8]| {
            let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            let digit = |at: usize| DIGITS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            (0..4).map(|at| if at > three.len() { '=' } else { digit(at) }).collect::<String>()
        };
        bytes.chunks(3).map(four).collect()
    }

    #[test]
    fn the_style_is_the_one_that_the_page_allows() {
        let hash = ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes());
        assert_eq!(STYLE_HASH, base64(hash.as_ref()), "the style has changed");
    }

    #[test]
    fn a_page_stands_alone() {
        let heading = Heading {
            source: "umbel".to_owned(),
            finding: "<b>".to_owned(),
            lead: "</main>".to_owned(),
        };
        let page = page(heading, [section("Time", [])]);
        assert!(
            page.starts_with("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")
        );
        assert!(page.contains("content=\"default-src &#39;none&#39;; style-src &#39;sha256-"));
        assert!(page.contains("<title>&lt;b&gt;</title>"));
        let tail = "<section><h2>Time</h2></section></main></body></html>\n";
        assert!(page.ends_with(tail), "{page}");
        for foreign in ["<script", "http:", "https:", "url(", "@import", "src=", "href="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
