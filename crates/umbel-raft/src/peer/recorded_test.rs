//! The bytes of the messages between nodes are those that earlier builds send and expect.

use std::fmt::Debug;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use umbel_ports::testing::recorded::Recordings;
use umbel_proto::v1::exchange_part::Part as ExchangePart;
use umbel_proto::v1::exchange_question::Part as ExchangeQuestion;
use umbel_proto::v1::link_answer::Outcome as LinkAnswer;
use umbel_proto::v1::scrub_part::Part as ScrubPart;
use umbel_proto::v1::{
    self, AdoptRequest, CopyDelta, CopyDeltaEnd, CopyQuestion, CopyRefusal, ExchangeBegun,
    ExchangeStep, Founder, Hello, LinkAnswers, LinkCall, LinkCalls, LinkRefusal, NodeCount,
    NodeSample, ScrubClaim, ScrubEnd, ScrubOpen, WhoAreYouResponse,
};

use super::{PEER_PROTOCOL, RefusalReason, cluster_bytes};

umbel_ports::variants! {
    LinkAnswer { Body, Refusal }
    RefusalReason { Unspecified, UnknownGroup, Overloaded, BadBody, Unavailable, Removed }
    ExchangeQuestion { Step, Question }
    ExchangePart { Begun, Delta, Frame, End, Refusal }
    ScrubPart { Open, Claim, Frames, End }
}

const CLUSTER: u128 = 9;

fn check<M: Message + Default + PartialEq + Debug>(
    recordings: &mut Recordings,
    name: &str,
    message: &M,
) {
    let decoded = |bytes: &[u8]| M::decode(bytes).expect("a recording can be decoded");
    recordings.check_as(name, message, &message.encode_to_vec(), decoded);
}

/// Checks a message with each of its parts.
fn check_all<P: Variants + Clone, M: Message + Default + PartialEq + Debug>(
    recordings: &mut Recordings,
    parts: &[P],
    of: impl Fn(P) -> M,
) {
    for part in parts {
        check(recordings, part.name(), &of(part.clone()));
    }
    recordings.check_complete(P::NAMES);
}

fn counts() -> Vec<NodeCount> {
    vec![NodeCount { node: 1, count: 40 }]
}

fn check_links(recordings: &mut Recordings) {
    let cluster_id = cluster_bytes(CLUSTER);
    let hello = Hello { protocol: PEER_PROTOCOL, cluster_id, from: 1, to: 2 };
    check(recordings, "Hello", &hello);
    let body = Bytes::from_static(b"body");
    let call = LinkCall { id: 3, kind: 8, group: 4, timeout_ms: 500, body: body.clone() };
    check(recordings, "LinkCalls", &LinkCalls { calls: vec![call] });
    let refusal = |reason| LinkRefusal { reason, message: "what".to_owned() };
    let outcomes =
        [LinkAnswer::Body(body), LinkAnswer::Refusal(refusal(RefusalReason::Overloaded.into()))];
    let answers =
        |outcome| LinkAnswers { answers: vec![v1::LinkAnswer { id: 3, outcome: Some(outcome) }] };
    check_all(recordings, &outcomes, answers);
    let reasons = [
        RefusalReason::Unspecified,
        RefusalReason::UnknownGroup,
        RefusalReason::Overloaded,
        RefusalReason::BadBody,
        RefusalReason::Unavailable,
        RefusalReason::Removed,
    ];
    check_all(recordings, &reasons, |reason| refusal(reason.into()));
}

fn check_exchanges(recordings: &mut Recordings) {
    let question = CopyQuestion {
        filter: 7,
        generation: 2,
        number: 3,
        knows: counts(),
        received_log: 4,
        received_sequence: 5,
        log: 6,
        samples: counts(),
    };
    let step = ExchangeStep { epoch: 1, rank: 2, sweep: 3, step: 4 };
    let questions = [ExchangeQuestion::Step(step), ExchangeQuestion::Question(question)];
    check_all(recordings, &questions, |part| v1::ExchangeQuestion { part: Some(part) });
    let hashes = Bytes::from_static(b"8 bytes.");
    let delta = CopyDelta {
        filter: 7,
        generation: 2,
        question: 3,
        is_whole: true,
        log: 4,
        sequence: 5,
        knows: counts(),
        may_have: counts(),
        samples: vec![NodeSample { node: 1, since: 2, count: 3, hashes }],
        newest_slice: Some(9),
    };
    let refusal = CopyRefusal { filter: 7, generation: 2, message: "what".to_owned() };
    let parts = [
        ExchangePart::Begun(ExchangeBegun { sweep: 3 }),
        ExchangePart::Delta(delta),
        ExchangePart::Frame(Bytes::from_static(b"frame")),
        ExchangePart::End(CopyDeltaEnd { frame_count: 1 }),
        ExchangePart::Refusal(refusal),
    ];
    check_all(recordings, &parts, |part| v1::ExchangePart { part: Some(part) });
    let end = ScrubEnd { lost_bits: 1, news_bits: 2, failure: "what".to_owned() };
    let parts = [
        ScrubPart::Open(ScrubOpen { filter: 7, generation: 2 }),
        ScrubPart::Claim(ScrubClaim { knows: counts(), may_have: counts() }),
        ScrubPart::Frames(Bytes::from_static(b"frames")),
        ScrubPart::End(end),
    ];
    check_all(recordings, &parts, |part| v1::ScrubPart { part: Some(part) });
}

#[test]
fn every_message_between_nodes_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/messages.txt");
    let mut recordings = Recordings::read(path);
    check_links(&mut recordings);
    check_exchanges(&mut recordings);
    let adopt = AdoptRequest {
        protocol: PEER_PROTOCOL,
        cluster_id: cluster_bytes(CLUSTER),
        node: 1,
        founders: vec![Founder { node: 1, address: "n1:1".to_owned() }],
        shard_count: 2,
        replica_count: 3,
    };
    check(&mut recordings, "AdoptRequest", &adopt);
    let who = WhoAreYouResponse {
        protocol: PEER_PROTOCOL,
        cluster_id: cluster_bytes(CLUSTER),
        node: 1,
        is_formed: true,
        oldest_version: 1,
        newest_version: 5,
        release: "0.1.0".to_owned(),
        resp_address: String::new(),
        wall_ms: 0,
    };
    check(&mut recordings, "WhoAreYouResponse", &who);
    let who = WhoAreYouResponse { resp_address: "n1:6379".to_owned(), ..who };
    check(&mut recordings, "WhoAreYouResponse-with-resp-address", &who);
    let who = WhoAreYouResponse { wall_ms: 99, ..who };
    check(&mut recordings, "WhoAreYouResponse-with-wall-clock", &who);
    recordings.finish();
}
