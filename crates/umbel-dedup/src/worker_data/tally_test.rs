//! A tally over several workshops, carried by hand.

use super::workshop::FileWorkshop;
use std::collections::VecDeque;
use umbel_dedup_engine::{Group, Tally, TallyInput, TallyOutput, TallyShape, WorkerId};
use umbel_step::Outbox;

/// Counts the groups in processes that live so long; who knows them already only answers. What each worker then says of its
/// files.
pub(super) fn carry(shops: &[FileWorkshop], chunk_bases: &[u32]) -> Vec<Vec<u8>> {
    let (chunk_bases, tells_sizes) = (chunk_bases.to_vec(), true);
    let names_parts = false;
    let shape = TallyShape { job: 77, attempt: 1, chunk_bases, tells_sizes, names_parts };
    let workers = (0u16..).map(WorkerId).zip(shops);
    let mut tallies = Vec::new();
    let mut inputs = Vec::new();
    let mut weights = vec![Vec::new(); shops.len()];
    for (id, shop) in workers {
        tallies.push(Tally::new(id, shape.clone()).unwrap());
        shop.forget_groups().unwrap();
        let places = shop.gather().unwrap();
        inputs.push((id, TallyInput::Begin { places }));
    }
    let mut outbox = Outbox::new();
    let mut mail = VecDeque::new();
    loop {
        for (id, input) in inputs.drain(..) {
            tallies[id.index()].step(input, &mut outbox).unwrap();
            mail.extend(outbox.take().into_iter().map(|output| (id, output)));
        }
        let Some((id, output)) = mail.pop_front() else { break };
        let shop = &shops[id.index()];
        match output {
            TallyOutput::Send { to, frame } => {
                inputs.push((to, TallyInput::Frame { from: id, bytes: frame }));
            }
            TallyOutput::Read { keeper, range } => {
                let claims = shop.claims(range).unwrap();
                inputs.push((id, TallyInput::Claims { keeper, claims }));
            }
            TallyOutput::Groups(groups) => shop.learn(id, &groups).unwrap(),
            TallyOutput::Sizes { keeper, range, sizes } => {
                let claims = shop.claims(range).unwrap();
                let groups = claims.iter().map(|claim| claim.kept).zip(sizes);
                let groups: Vec<Group> = groups
                    .map(|(kept, told)| Group { kept, size: told.size, part: told.part })
                    .collect();
                shop.learn(keeper, &groups).unwrap();
            }
            TallyOutput::Name(places) => {
                inputs.push((id, TallyInput::Parts(shop.parts(&places).unwrap())));
            }
            TallyOutput::Done => weights[id.index()] = shop.seal_groups().unwrap(),
        }
    }
    weights
}
