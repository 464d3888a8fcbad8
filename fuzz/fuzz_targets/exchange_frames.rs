//! A peer that sends any frames at all, with right checksums: a worker refuses or follows them, and
//! never panics. What it refuses leaves nothing to send.
//!
//! Input: see `umbel_fuzz::exchange`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_dedup_engine::{ExchangeInput, ExchangeOutput, Frame, WorkerId};
use umbel_fuzz::exchange::{items, link, next_frame, plan, worker};
use umbel_step::Outbox;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut rest)) = input.split_first() else { return };
    let (mut worker, _) = worker(0, plan(choice));
    let mut outbox = Outbox::new();
    while let Some((from, frame)) = next_frame(&mut rest) {
        let bytes = frame.encode(link(from));
        if let Ok(decoded) = Frame::decode(&bytes, link(from)) {
            assert_eq!(decoded, frame);
        }
        let refused =
            worker.step(ExchangeInput::Frame { from: WorkerId(from), bytes }, &mut outbox).is_err();
        let orders = outbox.take();
        assert!(orders.is_empty() || !refused);
        for order in orders {
            if let ExchangeOutput::Compare { cell, suspects } = order {
                let items = items(&suspects);
                worker
                    .step(ExchangeInput::Items { cell, items }, &mut outbox)
                    .expect("asked for, once");
                let _ = outbox.take();
            }
        }
    }
});
