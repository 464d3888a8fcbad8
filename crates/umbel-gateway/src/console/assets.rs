//! The console's pages, scripts and styles, which are compiled into the program.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// One file.
pub(super) struct Asset {
    /// The path at which it is served.
    pub(super) path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the directory `console`.
macro_rules! asset {
    ($path:literal, $kind:expr, $file:literal) => {
        Asset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../../console/", $file)) }
    };
}

/// All files.
pub(super) static ALL: [Asset; 14] = [
    asset!("/console", HTML, "index.html"),
    asset!("/console/console.css", CSS, "console.css"),
    asset!("/console/icon.svg", SVG, "icon.svg"),
    asset!("/console/main.js", SCRIPT, "main.js"),
    asset!("/console/actions.js", SCRIPT, "actions.js"),
    asset!("/console/stream.js", SCRIPT, "stream.js"),
    asset!("/console/elements.js", SCRIPT, "elements.js"),
    asset!("/console/figures.js", SCRIPT, "figures.js"),
    asset!("/console/cluster.js", SCRIPT, "cluster.js"),
    asset!("/console/cube.js", SCRIPT, "cube.js"),
    asset!("/console/filters.js", SCRIPT, "filters.js"),
    asset!("/console/jobs.js", SCRIPT, "jobs.js"),
    asset!("/console/repair.js", SCRIPT, "repair.js"),
    asset!("/console/repeats.js", SCRIPT, "repeats.js"),
];

/// Whether there is a file at this path.
pub(super) fn has(path: &str) -> bool {
    ALL.iter().any(|asset| asset.path == path)
}

impl IntoResponse for &'static Asset {
    fn into_response(self) -> Response {
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        ([kind], self.bytes).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many lines as a reader can be expected to read as a whole.
    const LINES_MAX: usize = 1600;

    fn text(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.bytes).unwrap()
    }

    #[test]
    fn all_that_is_served_can_be_read_in_an_hour() {
        let lines: usize = ALL.iter().map(|asset| text(asset).lines().count()).sum();
        assert!(lines <= LINES_MAX, "{lines} lines, at most {LINES_MAX}");
    }

    /// The policy forbids these; browsers that do not know the policy must not get them either.
    #[test]
    fn pages_have_nothing_inline_and_make_no_markup_of_texts() {
        for asset in &ALL {
            let (path, text) = (asset.path, text(asset));
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{path}: {word}");
            }
            if asset.kind == HTML {
                for word in ["<style", " style=", "<script>", " onclick", " onload", "javascript:"]
                {
                    assert!(!text.contains(word), "{path}: {word}");
                }
            }
            // Nothing is loaded from other sites; the URL of SVG is only a name.
            let foreign = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!foreign.contains("://"), "{path}: names another site");
        }
    }

    #[test]
    fn files_that_are_named_are_there() {
        for asset in &ALL {
            for (at, _) in text(asset).match_indices("\"/console/") {
                let named = text(asset)[at + 1..].split('"').next().unwrap();
                assert!(has(named) || named.starts_with("/console/events"), "{named}");
            }
            for (at, begin) in text(asset).match_indices("from \"./") {
                let named = text(asset)[at + begin.len()..].split('"').next().unwrap();
                assert!(has(&format!("/console/{named}")), "{}: {named}", asset.path);
            }
        }
    }
}
