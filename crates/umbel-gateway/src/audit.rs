//! The lines of the audit log: about calls of administrators, and about what was denied.
//!
//! The gate knows the caller and the outcome, but sees only the bytes of the request. So the method, which has the decoded
//! message, notes what was ordered. It never notes tokens or their hashes, keys, items, or the words of a job.

use std::sync::{Arc, OnceLock};

use axum::http::Extensions;
use tokio::time::Instant;
use tonic::Request;
use umbel_engine::meta::PrincipalName;
use umbel_node::metrics;
use umbel_ports::{LeftOut, StrangerLines};

use super::caller::Caller;
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

/// What a caller was denied, in the words of its protocol.
#[derive(Clone, Copy, Default)]
pub(super) struct DeniedCall<'a> {
    /// The path of a call.
    pub(super) path: Option<&'a str>,
    /// The name of a command of the Redis protocol.
    pub(super) command: Option<&'a str>,
    /// The verb that the caller lacks on a filter.
    pub(super) verb: Option<&'a str>,
    /// The name of this filter.
    pub(super) filter: Option<&'a str>,
}

/// Counts a denial and writes it to the audit log.
pub(super) fn denied(caller: &Caller, call: DeniedCall<'_>) {
    metrics::call_denied();
    let Some(left_out) = line_about(caller, &caller.stranger_log().denied) else { return };
    let (who, from, left_out) = (caller.to_string(), caller.address(), left_out.count());
    let who = who.as_str();
    let DeniedCall { path, command, verb, filter } = call;
    tracing::warn!(
        target: "umbel::audit", who, from, path, command, verb, filter, left_out, "denied"
    );
}

/// Counts a wrong password and writes it to the audit log, with the principal that was tried.
pub(super) fn wrong_password(caller: &Caller, tried: Option<&PrincipalName>) {
    metrics::call_denied();
    // Who guesses the passwords of others is limited even if it has proved its own identity.
    let lines = &caller.stranger_log().wrong_passwords;
    let Some(left_out) = lines.take(Instant::now().into_std()) else { return };
    let (from, left_out) = (caller.address(), left_out.count());
    let tried = tried.map(PrincipalName::as_str);
    tracing::warn!(target: "umbel::audit", from, tried, left_out, "a password is wrong");
}

/// Takes a line of the log about a refused caller; None if it must not be written. Callers that have proved their
/// identity are not limited: they can be told apart and excluded.
pub(super) fn line_about(caller: &Caller, lines: &StrangerLines) -> Option<LeftOut> {
    if caller.is_somebody() {
        return Some(LeftOut::NONE);
    }
    lines.take(Instant::now().into_std())
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
