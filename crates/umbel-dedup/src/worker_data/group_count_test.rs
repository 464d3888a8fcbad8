//! Groups are counted over several workers, whose frames the test delivers.

use super::fixture_test::wait;
use std::collections::VecDeque;
use std::sync::Arc;
use umbel_dedup_engine::job::GroupCountOrder;
use umbel_dedup_engine::{
    GroupCountInput, GroupCountOutput, GroupCountShape, GroupCounter, KeptGroup, WorkerId,
};
use umbel_jobs::Attempt;
use umbel_step::Outbox;

/// Counts the groups; workers that have counted already only answer claims. Returns the weights of each
/// worker.
pub(super) fn carry(attempts: &[Arc<dyn Attempt>], chunk_bases: &[u32]) -> Vec<Vec<u8>> {
    let (chunk_bases, sends_sizes) = (chunk_bases.to_vec(), true);
    let names_parts = false;
    let order = GroupCountOrder { chunk_bases: chunk_bases.clone(), sends_sizes, names_parts };
    let shape = GroupCountShape { job: 77, attempt: 1, chunk_bases, sends_sizes, names_parts };
    let workers = (0u16..).map(WorkerId).zip(attempts);
    let mut counters = Vec::new();
    let mut inputs = Vec::new();
    let mut groups = Vec::new();
    let mut weights = vec![Vec::new(); attempts.len()];
    for (id, attempt) in workers {
        counters.push(GroupCounter::new(id, shape.clone()).unwrap());
        let gathered = wait(attempt.gather(order.clone())).unwrap();
        let record_counts = gathered.record_counts();
        groups.push(gathered);
        inputs.push((id, GroupCountInput::Begin { record_counts }));
    }
    let mut outbox = Outbox::new();
    let mut mail = VecDeque::new();
    loop {
        for (id, input) in inputs.drain(..) {
            counters[id.index()].step(input, &mut outbox).unwrap();
            mail.extend(outbox.take().into_iter().map(|output| (id, output)));
        }
        let Some((id, output)) = mail.pop_front() else { break };
        let known = &mut groups[id.index()];
        match output {
            GroupCountOutput::Send { to, frame } => {
                inputs.push((to, GroupCountInput::Frame { from: id, bytes: frame }));
            }
            GroupCountOutput::Read { owner, range } => {
                let claims = known.claims(range).unwrap();
                inputs.push((id, GroupCountInput::Claims { owner, claims }));
            }
            GroupCountOutput::Groups(own) => known.learn(id, own).unwrap(),
            GroupCountOutput::Sizes { owner, range, sizes } => {
                let claims = known.claims(range).unwrap();
                let sized = claims.iter().map(|claim| claim.kept).zip(sizes);
                let sized: Vec<KeptGroup> = sized
                    .map(|(kept, group)| KeptGroup { kept, size: group.size, part: group.part })
                    .collect();
                known.learn(owner, sized).unwrap();
            }
            GroupCountOutput::Name(record_ids) => {
                inputs.push((id, GroupCountInput::Parts(known.parts(&record_ids).unwrap())));
            }
            GroupCountOutput::Done => weights[id.index()] = known.seal().unwrap(),
        }
    }
    weights
}
