//! A peer that does not keep to the order of cells.

use super::entry::{Keep, WorkerId};
use super::error::ExchangeError;
use super::frame::{Frame, FrameKind, FrameLink, flag};
use super::plan::{Exactness, JobShape};
use super::worker::{ExchangeInput, ExchangeOutput, Worker};
use super::{ExchangeCoordinator, FilterChoice};
use crate::limits::DEDUP_CELLS_AHEAD_MAX;
use umbel_step::Outbox;

#[test]
fn a_peer_that_opens_every_cell_is_refused_before_it_fills_the_memory() {
    let shape = JobShape {
        workers: 2,
        cells_per_owner: 200,
        exactness: Exactness::Fingerprint,
        keep: Keep::First,
        report_kept: false,
        item_bytes_mean: 0.0,
    };
    let plan = ExchangeCoordinator::plan_without_sample(shape, 2, None, FilterChoice::FullHash);
    let mut out = Outbox::new();
    let mut worker = Worker::new(WorkerId(0), shape, 7).unwrap();
    worker.step(ExchangeInput::Plan(plan), &mut out).unwrap();
    let open = |cell| {
        let link = FrameLink { job: 7, sender: 1, receiver: 0, attempt: 0 };
        let (kind, flags) = (FrameKind::Positions, flag::LAST | flag::FULL_HASH);
        let frame =
            Frame { kind, flags, param: 0, cell, sequence: 0, count: 0, covered: 0, payload: &[] };
        ExchangeInput::Frame { from: WorkerId(1), bytes: frame.encode(link) }
    };
    let max = DEDUP_CELLS_AHEAD_MAX;
    for cell in 0..max as u32 {
        worker.step(open(cell), &mut out).unwrap();
    }
    let refused = worker.step(open(100), &mut out);
    assert_eq!(refused, Err(ExchangeError::TooFarAhead { from: WorkerId(1), cell: 100, max }));
    assert!(worker.owes(0) && worker.owes_hashes(0) && !worker.owes(100));
    // The worker begins a cell itself: one more may be opened.
    worker.step(ExchangeInput::Cell { cell: 0, entries: vec![], ranks: vec![] }, &mut out).unwrap();
    let orders = out.take();
    let own = orders.into_iter().find_map(|order| match order {
        ExchangeOutput::Send { to: WorkerId(0), frame } => Some(frame),
        _ => None,
    });
    let own = ExchangeInput::Frame { from: WorkerId(0), bytes: own.expect("it owns the cell") };
    worker.step(own, &mut out).unwrap();
    assert!(!worker.owes(0) && !worker.owes_hashes(0));
    worker.step(open(100), &mut out).unwrap();
    assert!(worker.step(open(101), &mut out).is_err());
}

#[test]
fn plans_from_elsewhere_are_checked() {
    let shape = JobShape {
        workers: 2,
        cells_per_owner: 4,
        exactness: Exactness::Approximate { false_positive_rate: 1e-3 },
        keep: Keep::First,
        report_kept: true,
        item_bytes_mean: 0.0,
    };
    let plan = ExchangeCoordinator::plan_without_sample(shape, 1000, None, FilterChoice::Auto);
    assert_eq!(plan.validate(), Ok(()));
    let mut hostile = plan;
    hostile.position_count = 0;
    assert!(hostile.validate().is_err());
    hostile = plan;
    hostile.refine_bits = 65;
    let error = hostile.validate().unwrap_err();
    assert_eq!(error.to_string(), "a plan with refinement bits 65, at most 24 is possible");
    hostile = plan;
    hostile.truncation.as_mut().unwrap().position_bits = 0;
    assert!(hostile.validate().is_err());
    hostile = plan;
    hostile.mode = super::plan::Mode::Local;
    assert!(hostile.validate().is_err());
}
