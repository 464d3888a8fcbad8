//! Groups are counted over several workers, whose frames the test delivers.

use super::workshop::FileWorkshop;
use std::collections::VecDeque;
use umbel_dedup_engine::{
    Group, GroupCountInput, GroupCountOutput, GroupCountShape, GroupCounter, WorkerId,
};
use umbel_step::Outbox;

/// Counts the groups; workers that have counted already only answer claims. Returns the weights of each
/// worker.
pub(super) fn carry(shops: &[FileWorkshop], chunk_bases: &[u32]) -> Vec<Vec<u8>> {
    let (chunk_bases, sends_sizes) = (chunk_bases.to_vec(), true);
    let names_parts = false;
    let shape = GroupCountShape { job: 77, attempt: 1, chunk_bases, sends_sizes, names_parts };
    let workers = (0u16..).map(WorkerId).zip(shops);
    let mut counters = Vec::new();
    let mut inputs = Vec::new();
    let mut weights = vec![Vec::new(); shops.len()];
    for (id, shop) in workers {
        counters.push(GroupCounter::new(id, shape.clone()).unwrap());
        shop.forget_groups().unwrap();
        let record_counts = shop.gather().unwrap();
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
        let shop = &shops[id.index()];
        match output {
            GroupCountOutput::Send { to, frame } => {
                inputs.push((to, GroupCountInput::Frame { from: id, bytes: frame }));
            }
            GroupCountOutput::Read { owner, range } => {
                let claims = shop.claims(range).unwrap();
                inputs.push((id, GroupCountInput::Claims { owner, claims }));
            }
            GroupCountOutput::Groups(groups) => shop.learn(id, &groups).unwrap(),
            GroupCountOutput::Sizes { owner, range, sizes } => {
                let claims = shop.claims(range).unwrap();
                let groups = claims.iter().map(|claim| claim.kept).zip(sizes);
                let groups: Vec<Group> = groups
                    .map(|(kept, group)| Group { kept, size: group.size, part: group.part })
                    .collect();
                shop.learn(owner, &groups).unwrap();
            }
            GroupCountOutput::Name(record_ids) => {
                inputs.push((id, GroupCountInput::Parts(shop.parts(&record_ids).unwrap())));
            }
            GroupCountOutput::Done => weights[id.index()] = shop.seal_groups().unwrap(),
        }
    }
    weights
}
