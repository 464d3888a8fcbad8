//! The visible text of a page, for tests.

/// The texts of a page, one per line, without its style.
pub(crate) fn texts(page: &str) -> String {
    let body = page.split("</style>").nth(1).unwrap();
    let texts = body.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}
