//! The line of the audit log about a call of an administrator.
//!
//! The gate knows the caller and the outcome, but sees only the bytes of the request. So the method, which has the decoded
//! message, notes what was ordered. It never notes tokens or their hashes, keys, items, or the words of a job.

use std::sync::{Arc, OnceLock};

use axum::http::Extensions;
use tonic::Request;

use super::limits::{ORDER_CHARS_MAX, ORDER_LIST_MAX, ORDER_WORD_CHARS_MAX};

/// The outcome of a call whose caller left before the answer, or that the node's stop ended.
const UNANSWERED: &str = "unanswered";

/// What a call ordered, once its method has noted it. Calls that are not audited have none.
#[derive(Clone, Default)]
struct OrderNote(Arc<OnceLock<String>>);

/// Notes what an audited call orders; the text is cut.
pub(super) fn note<T>(request: &Request<T>, order: impl FnOnce(&T) -> String) {
    if let Some(OrderNote(noted)) = request.extensions().get::<OrderNote>() {
        noted.get_or_init(|| cut(&order(request.get_ref()), ORDER_CHARS_MAX));
    }
}

/// A text that the caller has chosen, cut, and in quotes if it is no plain word.
pub(super) fn word(text: &str) -> String {
    let text = cut(text, ORDER_WORD_CHARS_MAX);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:*/".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("{text:?}") }
}

/// The first values of a list, with commas between them.
pub(super) fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values = values.into_iter().take(ORDER_LIST_MAX).map(|value| value.to_string());
    values.collect::<Vec<_>>().join(",")
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// A call that is audited. Its line is written when this is dropped, so also if nobody waits for the answer any more: the
/// order may be carried out all the same.
pub(super) struct AuditLine {
    who: String,
    path: String,
    order: OrderNote,
    outcome: Option<String>,
}

impl AuditLine {
    /// Begins the line of a call, whose method is to note its order in these extensions.
    pub(super) fn begin(who: String, path: String, extensions: &mut Extensions) -> Self {
        let order = OrderNote::default();
        extensions.insert(order.clone());
        Self { who, path, order, outcome: None }
    }

    /// The call was answered.
    pub(super) fn answered(mut self, outcome: String) {
        self.outcome = Some(outcome);
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let Self { who, path, order: OrderNote(noted), outcome } = &*self;
        let (who, path) = (who.as_str(), path.as_str());
        let ordered = noted.get().map(String::as_str);
        let outcome = outcome.as_deref().unwrap_or(UNANSWERED);
        tracing::info!(target: "umbel::audit", who, path, ordered, outcome, "called");
    }
}

/// A request that notes its order, and what is read of it afterwards.
#[cfg(test)]
pub(super) fn audited<T>(message: T) -> (Request<T>, impl Fn() -> Option<String>) {
    let mut request = Request::new(message);
    let order = OrderNote::default();
    request.extensions_mut().insert(order.clone());
    (request, move || order.0.get().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_noted_of_audited_calls_alone_and_cut() {
        note(&Request::new(7), |_| panic!("this call is not audited"));
        let (request, noted) = audited(7);
        assert_eq!(noted(), None);
        note(&request, |node| format!("node={node} {}", "x".repeat(ORDER_CHARS_MAX)));
        let noted = noted().unwrap();
        assert!(noted.starts_with("node=7 x") && noted.len() == ORDER_CHARS_MAX, "{noted}");
    }

    #[test]
    fn chosen_texts_cannot_pass_for_other_words() {
        assert_eq!(word("crawl-2.a:*"), "crawl-2.a:*");
        assert_eq!(word(""), "\"\"");
        assert_eq!(word("a replace=false\n"), "\"a replace=false\\n\"");
        assert_eq!(word(&"ä".repeat(1000)).chars().count(), ORDER_WORD_CHARS_MAX + 2);
    }
}
