//! Who must confirm what, and that a node that hangs delays only those that need it.

use std::sync::Mutex;

use tonic::Status;
use umbel_engine::ShardId;
use umbel_ports::testing::MemoryNet;
use umbel_ports::{Net, PortFuture};
use umbel_proto::v1::{AdoptRequest, WhoAreYouResponse};

use super::*;
use crate::peer::test_node::{TIMING, identity, links, serve_handler};
use crate::peer::{CallHandler, CallRefusal, LocalIdentity};

const OWN: NodeId = NodeId(1);

/// A claim of node 1 for the group of a shard, among these sets of voters.
fn claim(shard: u32, voters: &[&[u64]]) -> Claim {
    let set = |nodes: &&[u64]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<NodeId>>();
    let voters: Vec<BTreeSet<NodeId>> = voters.iter().map(set).collect();
    let addresses = voters.iter().flatten().map(|&node| (node, format!("n{}:1", node.0)));
    Claim {
        group: GroupId::of_shard(ShardId(shard)),
        vote: Vote::new_committed(7, OWN),
        addresses: addresses.collect(),
        voters,
    }
}

/// A round of these claims, and their outcomes.
fn round(claims: Vec<Claim>) -> (Round, Vec<oneshot::Receiver<bool>>) {
    let waiting = claims.into_iter().map(|claim| {
        let (outcome, decided) = oneshot::channel();
        (WaitingClaim { claim, outcome }, decided)
    });
    let (waiting, decided) = waiting.unzip();
    (Round::new(OWN, waiting), decided)
}

#[test]
fn one_question_to_a_node_is_about_all_its_groups() {
    let claims = vec![claim(4, &[&[1, 2, 3]]), claim(5, &[&[1, 2]]), claim(6, &[&[1, 2], &[1, 3]])];
    let vote = claims[0].vote;
    let (round, _decided) = round(claims);
    let questions = round.questions(|_| true);
    let asked: Vec<(u64, &str, &[usize])> =
        questions.iter().map(|of| (of.to.0, of.address.as_str(), &of.claims[..])).collect();
    assert_eq!(asked, [(2, "n2:1", &[0, 1, 2][..]), (3, "n3:1", &[0, 2])]);
    let body: Vec<(GroupId, Vote)> = decode(&questions[1].body).unwrap();
    let of = |shard| (GroupId::of_shard(ShardId(shard)), vote);
    assert_eq!(body, [of(4), of(6)]);
    // A suspected node is not asked.
    let asked: Vec<u64> =
        round.questions(|node| node != NodeId(2)).iter().map(|of| of.to.0).collect();
    assert_eq!(asked, [3]);
}

#[test]
fn a_majority_of_each_set_of_voters_confirms() {
    let (mut round, mut decided) =
        round(vec![claim(4, &[&[1, 2, 3, 4, 5]]), claim(5, &[&[1, 2], &[1, 3]])]);
    round.take(NodeId(2), &[0, 1], &encode(&vec![true, true]));
    assert!(decided.iter_mut().all(|decided| decided.try_recv().is_err()));
    // The same node again is no second one.
    round.take(NodeId(2), &[0, 1], &encode(&vec![true, true]));
    assert!(!round.is_decided());
    round.take(NodeId(3), &[0, 1], &encode(&vec![false, true]));
    assert_eq!(decided[1].try_recv(), Ok(true));
    assert!(decided[0].try_recv().is_err(), "two of five");
    round.take(NodeId(4), &[0], &encode(&vec![true]));
    assert_eq!(decided[0].try_recv(), Ok(true));
    assert!(round.is_decided());
    round.take(NodeId(5), &[0], &encode(&vec![true]));
}

#[test]
fn an_answer_about_other_groups_confirms_nothing() {
    let (mut round, mut decided) = round(vec![claim(4, &[&[1, 2, 3]])]);
    for answer in [encode(&vec![true, true]), encode(&Vec::<bool>::new()), Bytes::new()] {
        round.take(NodeId(2), &[0], &answer);
    }
    assert!(decided[0].try_recv().is_err());
    drop(round);
    assert!(decided[0].try_recv().is_err());
}

/// Confirms everything, or never answers.
struct Voter {
    is_hanging: bool,
    claim_counts: Mutex<Vec<usize>>,
}

impl CallHandler for Voter {
    fn identity(&self) -> Option<LocalIdentity> {
        Some(identity(if self.is_hanging { 3 } else { 2 }))
    }

    fn handle(
        self: Arc<Self>,
        _: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
        assert_eq!((kind, group), (CallKind::ConfirmReads, GroupId::META));
        Box::pin(async move {
            if self.is_hanging {
                std::future::pending::<()>().await;
            }
            let claims: Vec<(GroupId, Vote)> = decode(&body).map_err(CallRefusal::bad_body)?;
            self.claim_counts.lock().unwrap().push(claims.len());
            Ok(encode(&vec![true; claims.len()]))
        })
    }

    fn adopt(&self, _: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn who_are_you(&self) -> WhoAreYouResponse {
        WhoAreYouResponse::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_delays_only_groups_that_need_it() {
    let net: Arc<dyn Net> = Arc::new(MemoryNet::default());
    let voter = |is_hanging| Arc::new(Voter { is_hanging, claim_counts: Mutex::default() });
    let two = serve_handler(&*net, "n2:1", voter(false)).await;
    let _three = serve_handler(&*net, "n3:1", voter(true)).await;
    let beats = Arc::new(Beats::new(OWN, 1, TIMING));
    let patience = beats.suspicion() / 2;
    let rounds = ReadRounds::start(OWN, Arc::new(links(&net, 1)), beats);
    let began = tokio::time::Instant::now();
    let (served, hanging) = tokio::join!(
        async {
            let is_confirmed = rounds.confirm(claim(4, &[&[1, 2, 3]])).await;
            (is_confirmed, began.elapsed())
        },
        rounds.confirm(claim(5, &[&[1, 3]])),
    );
    assert!(served.0 && served.1 < patience, "{served:?}");
    assert!(!hanging);
    assert_eq!(began.elapsed(), patience);
    assert_eq!(*two.handler.claim_counts.lock().unwrap(), [1]);
    // The next round is not held up by the last one.
    assert!(rounds.confirm(claim(4, &[&[1, 2, 3]])).await);
    assert_eq!(began.elapsed(), patience);
}
