//! What a client concludes from replies.

use tokio::io::AsyncWriteExt as _;

use super::*;

const NAMES: Names = Names { session: 7, first: 3, below: 2 };

fn batch(manner: Manner, items: &[u32]) -> Batch {
    let commands = commands(["BF.ADD", "BF.MADD"], "f", items);
    Batch { commands, manner, breaks_off: false, stays: false }
}

/// A call that got these replies, and whether it ends without further tries.
fn ended(batch: &Batch, replies: Vec<Reply>) -> (Outcome, bool) {
    let mut progress = Progress::of(batch);
    let waiting = progress.waiting();
    let expected = batch.requests(&waiting).len();
    if let Some(text) = progress.take(batch, &waiting, replies, (expected, true)) {
        return (Outcome::Reused(text), true);
    }
    let is_final = progress.is_final;
    (progress.outcome(batch.manner), is_final)
}

fn error(text: &'static str) -> Reply {
    Reply::Error(text.into())
}

#[test]
fn commands_have_their_names_and_frames() {
    let words = |batch: &Batch| {
        let requests = batch.requests(&Progress::of(batch).waiting());
        let text = |request: &Request| {
            request.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
        };
        requests.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(words(&batch(Manner::Plain, &[1, 2])), ["BF.MADD f item 1 item 2"]);
    let named =
        ["UMBEL.REQUEST 7:3 BELOW 2 BF.ADD f item 1", "UMBEL.REQUEST 7:4 BELOW 2 BF.ADD f item 3"];
    assert_eq!(words(&batch(Manner::Named(NAMES), &[1, 3])), named);
    let any = batch(Manner::Queries { any: true }, &[1]);
    assert_eq!(words(&any), ["READONLY", "BF.ADD f item 1", "READWRITE"]);
}

#[test]
fn answers_of_a_pipeline_are_joined() {
    let pipeline = batch(Manner::Plain, &[2, 1]);
    let replies = vec![Reply::Integer(1), Reply::Boolean(false)];
    assert_eq!(ended(&pipeline, replies), (Outcome::Done(vec![true, false]), false));
    let framed = batch(Manner::Queries { any: true }, &[1]);
    let replies = vec![Reply::OK, Reply::Integer(1), Reply::OK];
    assert_eq!(ended(&framed, replies).0, Outcome::Done(vec![true]));
}

#[test]
fn the_code_of_an_error_says_what_was_applied() {
    let table = [
        ("TRYAGAIN x", Outcome::NotApplied("TRYAGAIN x".to_owned()), false, false),
        ("OOM x", Outcome::NotApplied("OOM x".to_owned()), true, true),
        ("UNCERTAIN x", Outcome::Unknown("UNCERTAIN x".to_owned()), true, false),
        ("ERR x", Outcome::Unknown("ERR x".to_owned()), true, true),
    ];
    for (text, outcome, ends_plain, ends_named) in table {
        let of = |manner| ended(&batch(manner, &[1]), vec![error(text)]);
        assert_eq!(of(Manner::Plain), (outcome.clone(), ends_plain), "{text}");
        assert_eq!(of(Manner::Named(NAMES)), (outcome, ends_named), "{text}");
    }
}

#[test]
fn a_broken_connection_leaves_open_what_was_applied() {
    let unknown = Outcome::Unknown("no answer".to_owned());
    assert_eq!(ended(&batch(Manner::Plain, &[1]), Vec::new()), (unknown.clone(), true));
    assert_eq!(ended(&batch(Manner::Named(NAMES), &[1]), Vec::new()), (unknown, false));
    // A part of a pipeline was answered.
    let replies = vec![Reply::Integer(1), error("TRYAGAIN x")];
    let (outcome, is_final) = ended(&batch(Manner::Plain, &[2, 1]), replies);
    assert_eq!((outcome, is_final), (Outcome::Unknown("TRYAGAIN x".to_owned()), false));
}

#[test]
fn a_name_that_another_request_used_is_recognised() {
    let named = batch(Manner::Named(NAMES), &[1]);
    let text = format!("REQUEST {}", named.reused_text(0).unwrap());
    let (outcome, _) = ended(&named, vec![Reply::Error(text.clone().into())]);
    assert_eq!(outcome, Outcome::Reused(text));
}

#[test]
fn only_ok_answers_what_is_sent_around_a_query() {
    let any = batch(Manner::Queries { any: true }, &[1]);
    let framed = any.requests(&Progress::of(&any).waiting());
    let answered =
        |before: Reply, after: Reply| frames_answered(&framed, &[before, Reply::Integer(1), after]);
    assert_eq!(answered(Reply::OK, Reply::OK), Ok(true));
    assert_eq!(answered(error("LOADING x"), Reply::OK), Ok(false));
    assert_eq!(answered(Reply::OK, error("TRYAGAIN x")), Ok(false));
    assert!(answered(Reply::Integer(1), Reply::OK).is_err_and(|what| what.contains("READONLY")));
    assert!(answered(Reply::OK, error("ERR x")).is_err_and(|what| what.contains("READWRITE")));
    // Other commands may get errors, and the connection stays.
    let plain = batch(Manner::Plain, &[1]).requests(&[0]);
    assert_eq!(frames_answered(&plain, &[error("ERR x")]), Ok(true));
}

#[tokio::test]
async fn bytes_beyond_the_replies_are_a_violation() {
    watch::begin();
    let (mut node, stream) = tokio::io::duplex(64);
    let mut connection = RespConnection::over(Box::new(stream));
    node.write_all(b"+PONG\r\n:1\r\n").await.unwrap();
    let requests: [Request; 1] = [["PING"].iter().collect()];
    let replies = [connection.reply().await.unwrap()];
    assert!(!is_reusable(&connection, &requests, &replies));
    let surplus = [connection.reply().await.unwrap()];
    assert!(is_reusable(&connection, &requests, &surplus));
    let found = watch::end().violations;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].invariant, &*found[0].what), (REPLIES, "\":1\\r\\n\" answers no request"));
}
