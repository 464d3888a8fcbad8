//! The lines of the audit log, all of one form: about calls of administrators, and about what was denied.
//!
//! | field | what it says |
//! |---|---|
//! | `who` | the caller, as its proof names it |
//! | `from` | its address |
//! | `call` | the path of a call, or the command of the Redis protocol |
//! | `ordered` | on what, and what of it |
//! | `outcome` | `granted`, `refused`, `failed`, or `unanswered` |
//! | `reason` | why it was not granted |
//! | `left_out` | how many lines were not written before this one |
//!
//! The gate knows the caller and the outcome, but sees only the bytes of the request. So the method, which has the decoded
//! message, notes what was ordered. It never notes tokens or their hashes, keys, items, or the words of a job.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use axum::response::Response;
use tokio::time::Instant;
use tonic::{Code, Request};
use umbel_engine::meta::{FilterName, PrincipalName};
use umbel_node::failure::CallFailure;
use umbel_node::metrics;
use umbel_ports::channel::PeerAddress;
use umbel_ports::{LeftOut, StrangerLines};

use super::caller::Caller;
use super::errors::code_name;
use super::limits::{ORDER_CHARS_MAX, ORDER_LIST_MAX, ORDER_WORD_CHARS_MAX};

/// What a caller calls, in the words of its protocol.
#[derive(Clone, Debug)]
pub(super) enum Called {
    /// The path of a request.
    Path(Arc<str>),
    /// The name of a command of the Redis protocol.
    Command(&'static str),
}

impl Called {
    fn as_str(&self) -> &str {
        match self {
            Self::Path(path) => path,
            Self::Command(name) => name,
        }
    }
}

/// What became of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It was carried out.
    Granted,
    /// The caller may not do this, or has not proved who it is; with the reason.
    Refused(String),
    /// The caller may do this, but it was not done, or not as a whole; with the reason.
    Failed(String),
    /// The caller left before the answer, or the node's stop ended the call: the order may be carried out all the same.
    Unanswered,
}

impl Outcome {
    /// The outcome by the gRPC status at the start of a response, or by that of HTTP; a stream may still fail later.
    pub(super) fn of_response(response: &Response) -> Self {
        let Some(status) = response.headers().get("grpc-status") else {
            let status = response.status();
            return match status {
                _ if status.is_success() => Self::Granted,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Self::Refused(status.to_string())
                }
                _ => Self::Failed(status.to_string()),
            };
        };
        let code = Code::from_bytes(status.as_bytes());
        match code {
            Code::Ok => Self::Granted,
            Code::PermissionDenied | Code::Unauthenticated => Self::Refused(code_name(code).into()),
            _ => Self::Failed(code_name(code).into()),
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Unanswered => "unanswered",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(reason) | Self::Failed(reason) => Some(reason),
            Self::Granted | Self::Unanswered => None,
        }
    }
}

/// What a call notes for its line, which is written when it is over. Calls that are not audited have none.
#[derive(Clone, Default)]
pub(super) struct AuditNote(Arc<Noted>);

#[derive(Default)]
struct Noted {
    ordered: OnceLock<String>,
    reason: OnceLock<String>,
    /// A denial inside of the call has a line.
    is_denied: AtomicBool,
}

impl AuditNote {
    /// Notes what is ordered; the text is cut.
    pub(super) fn order(&self, ordered: &str) {
        self.0.ordered.get_or_init(|| cut(ordered, ORDER_CHARS_MAX));
    }

    /// Notes why the call is not carried out, if the status of its response does not say that.
    pub(super) fn reason(&self, reason: &str) {
        self.0.reason.get_or_init(|| cut(reason, ORDER_CHARS_MAX));
    }

    /// Notes that a denial inside of the call has a line.
    fn deny(&self) {
        self.0.is_denied.store(true, Ordering::Relaxed);
    }
}

/// Notes what an audited call orders; the text is cut.
pub(super) fn note<T>(request: &Request<T>, order: impl FnOnce(&T) -> String) {
    if let Some(note) = request.extensions().get::<AuditNote>() {
        note.order(&order(request.get_ref()));
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
    from: Option<PeerAddress>,
    call: Option<Called>,
    note: AuditNote,
    outcome: Outcome,
}

impl AuditLine {
    /// Begins the line of a call.
    pub(super) fn begin(caller: &Caller) -> Self {
        Self {
            who: caller.to_string(),
            from: caller.address().cloned(),
            call: caller.called().cloned(),
            note: AuditNote::default(),
            outcome: Outcome::Unanswered,
        }
    }

    /// Where the call notes what it orders.
    pub(super) fn note(&self) -> AuditNote {
        self.note.clone()
    }

    /// The call was answered.
    pub(super) fn answered(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let Noted { ordered, reason, is_denied } = &*self.note.0;
        // Its line says what this one would.
        if is_denied.load(Ordering::Relaxed) && matches!(self.outcome, Outcome::Refused(_)) {
            return;
        }
        let (ordered, noted) = (ordered.get().map(String::as_str), reason.get());
        let who = self.who.as_str();
        let from = self.from.as_ref().map(PeerAddress::as_str);
        let call = self.call.as_ref().map(shown);
        let outcome = self.outcome.word();
        let reason = self.outcome.reason().map(|reason| noted.map_or(reason, String::as_str));
        tracing::info!(
            target: "umbel::audit", who, from, call, ordered, outcome, reason, "called"
        );
    }
}

/// Writes the line of an order that was carried out, and whose call is not audited otherwise.
pub(super) fn granted(caller: &Caller, ordered: &str) {
    let line = AuditLine::begin(caller);
    line.note.order(ordered);
    line.answered(Outcome::Granted);
}

/// Counts a denial and writes it to the audit log: on what, and why. The call that is denied gets no other line.
pub(super) fn denied(caller: &Caller, ordered: Option<&str>, reason: &str) {
    metrics::call_denied();
    if let Some(left_out) = line_about(caller, &caller.stranger_log().denied) {
        write_denial(caller, ordered, reason, left_out);
        if let Some(note) = caller.note() {
            note.deny();
        }
    }
}

/// The same for an import that failed, if it was refused for its key: the coordinator, which finds the key, knows no callers.
pub(super) fn import_failed(caller: &Caller, name: &FilterName, failure: &CallFailure) {
    if matches!(failure, CallFailure::Denied { .. }) {
        let ordered = format!("filter={}", word(name.as_str()));
        denied(caller, Some(&ordered), &failure.to_string());
    }
}

/// Counts a wrong password and writes it to the audit log, with the principal that was tried.
pub(super) fn wrong_password(caller: &Caller, tried: Option<&PrincipalName>) {
    metrics::call_denied();
    // Who guesses the passwords of others is limited even if it has proved its own identity.
    let lines = &caller.stranger_log().wrong_passwords;
    let Some(left_out) = lines.take(Instant::now().into_std()) else { return };
    let tried = tried.map(|tried| format!("principal={}", word(tried.as_str())));
    write_denial(caller, tried.as_deref(), "wrong password", left_out);
}

/// Counts a denied enrolment and writes it to the audit log.
pub(super) fn enrolment_denied(caller: &Caller, ordered: &str, reason: &str) {
    metrics::call_denied();
    if let Some(left_out) = line_about(caller, &caller.stranger_log().enrolments) {
        write_denial(caller, Some(ordered), reason, left_out);
    }
}

fn write_denial(caller: &Caller, ordered: Option<&str>, reason: &str, left_out: LeftOut) {
    let (who, from) = (caller.to_string(), caller.address().map(PeerAddress::as_str));
    let (who, call) = (who.as_str(), caller.called().map(shown));
    let reason = cut(reason, ORDER_CHARS_MAX);
    let outcome = Outcome::Refused(reason);
    let (outcome, reason, left_out) = (outcome.word(), outcome.reason(), left_out.count());
    tracing::warn!(
        target: "umbel::audit", who, from, call, ordered, outcome, reason, left_out, "denied"
    );
}

/// What is called, cut: a path may be as long as the caller likes.
fn shown(call: &Called) -> &str {
    let text = call.as_str();
    let end = text.char_indices().nth(ORDER_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
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
    let note = AuditNote::default();
    request.extensions_mut().insert(note.clone());
    (request, move || note.0.ordered.get().cloned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::response::IntoResponse as _;

    use super::*;
    use crate::audit_recorder::AuditRecorder;

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

    #[test]
    fn the_outcome_is_the_status_of_either_protocol() {
        assert_eq!(Outcome::of_response(&Response::default()), Outcome::Granted);
        let of_grpc = |status: &'static str| {
            let mut response = Response::default();
            response.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
            Outcome::of_response(&response)
        };
        assert_eq!(of_grpc("0"), Outcome::Granted);
        assert_eq!(of_grpc("7"), Outcome::Refused("permission_denied".to_owned()));
        assert_eq!(of_grpc("16"), Outcome::Refused("unauthenticated".to_owned()));
        assert_eq!(of_grpc("12"), Outcome::Failed("unimplemented".to_owned()));
        assert_eq!(of_grpc("?"), Outcome::Failed("unknown".to_owned()));
        let of_http = |status: StatusCode| Outcome::of_response(&status.into_response());
        assert_eq!(of_http(StatusCode::FORBIDDEN), Outcome::Refused("403 Forbidden".to_owned()));
        assert_eq!(of_http(StatusCode::NOT_FOUND), Outcome::Failed("404 Not Found".to_owned()));
    }

    fn caller(call: Called) -> Caller {
        Caller::node().at(Some("10.0.0.7:1".to_owned().into())).calling(Some(call))
    }

    #[test]
    fn all_lines_have_one_form() {
        let recorder = AuditRecorder::default();
        let _recording = recorder.begin();
        let path = |path: &str| caller(Called::Path(path.into()));
        let line = AuditLine::begin(&path("/umbel.v1.Admin/Remove"));
        line.note().order("node=3");
        line.answered(Outcome::Failed("not_found".to_owned()));
        let line = AuditLine::begin(&path("/console/actions/drop"));
        line.note().reason("it comes from no page of the console");
        line.answered(Outcome::Refused("403 Forbidden".to_owned()));
        drop(AuditLine::begin(&caller(Called::Command("flushall"))));
        granted(&path("/umbel.v1.Enrolment/Enrol"), "node=4 address=n4:7300");
        denied(&caller(Called::Command("bf.add")), Some("verb=insert filter=seen"), "no right");
        wrong_password(&caller(Called::Command("auth")), PrincipalName::new("root").as_ref());
        enrolment_denied(&path("/umbel.v1.Enrolment/Enrol"), "address=n5:7300", "expired");
        denied(&path(&"/".repeat(2 * ORDER_CHARS_MAX)), None, "no right");
        let long = "/".repeat(ORDER_CHARS_MAX);
        let begin = r#"denied who="node" from="10.0.0.7:1""#;
        let long = format!(r#"{begin} call="{long}" outcome="refused" reason="no right""#);
        let expected = [
            r#"called who="node" from="10.0.0.7:1" call="/umbel.v1.Admin/Remove" ordered="node=3" outcome="failed" reason="not_found""#,
            r#"called who="node" from="10.0.0.7:1" call="/console/actions/drop" outcome="refused" reason="it comes from no page of the console""#,
            r#"called who="node" from="10.0.0.7:1" call="flushall" outcome="unanswered""#,
            r#"called who="node" from="10.0.0.7:1" call="/umbel.v1.Enrolment/Enrol" ordered="node=4 address=n4:7300" outcome="granted""#,
            r#"denied who="node" from="10.0.0.7:1" call="bf.add" ordered="verb=insert filter=seen" outcome="refused" reason="no right""#,
            r#"denied who="node" from="10.0.0.7:1" call="auth" ordered="principal=root" outcome="refused" reason="wrong password""#,
            r#"denied who="node" from="10.0.0.7:1" call="/umbel.v1.Enrolment/Enrol" ordered="address=n5:7300" outcome="refused" reason="expired""#,
            &*long,
        ];
        assert_eq!(recorder.lines(), expected);
    }
}
