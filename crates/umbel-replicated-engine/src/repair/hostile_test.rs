//! Sessions whose frames are damaged, lost, repeated, reordered or forged: they give the right arrays or a
//! named error, never a panic or a hang.

use proptest::collection::vec;
use proptest::prelude::*;

use super::error::RepairError;
use super::event::{RepairInput, RepairOutput};
use super::message::{ListLimits, Message, MessageLimits, Question};
use super::options::Policy;
use super::repair_test::{array, flipped, mix};
use super::session::RepairSession;
use super::testing::{Damage, Shuttle, options, table};
use crate::limits::REPAIR_STEP_BYTES_MAX;
use umbel_reconcile_engine::wire::{FrameBuffer, RawFrame, put_frame};
use umbel_step::Outbox;

/// What is done to one frame of a session.
const FAULTS: [&str; 8] =
    ["flip", "cut", "drop", "repeat", "swap", "lie", "lie about the end", "another type"];

/// A frame with a byte of its body changed, and the right checksum.
fn lie(bytes: &[u8], fault: &str, drawn: u64) -> Vec<u8> {
    let mut buffer = FrameBuffer::default();
    buffer.push(bytes);
    let mut frame = buffer.next_frame().expect("a frame").expect("a whole one");
    let length = frame.body.len() as u64;
    let from_end = length.saturating_sub(1 + drawn % 8);
    let at = if fault == "lie" { drawn % length.max(1) } else { from_end };
    if fault == "another type" {
        frame.frame_type = (drawn % 11) as u8;
    } else if let Some(byte) = frame.body.get_mut(at as usize) {
        *byte ^= 1 << (drawn >> 20 & 7);
    }
    if drawn >> 30 & 7 == 0 {
        frame.body.truncate(at as usize);
    }
    let mut lie = Vec::new();
    put_frame(&mut lie, frame.frame_type, &frame.body);
    lie
}

/// Applies one fault to one of the first frames.
fn damage(fault: &'static str, seed: u64) -> Damage {
    let mut left = mix(seed) % 30;
    let mut held: Option<(bool, Vec<u8>)> = None;
    let drawn = mix(seed ^ 1 << 50);
    Box::new(move |to_ours, bytes| {
        if let Some((side, first)) = held.take() {
            return if side == to_ours { vec![bytes, first] } else { vec![bytes] };
        }
        if left > 0 {
            left -= 1;
            return vec![bytes];
        }
        left = u64::MAX;
        match fault {
            "flip" => {
                let mut bytes = bytes;
                let bit = (drawn % (8 * bytes.len() as u64)) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                vec![bytes]
            }
            "cut" => vec![bytes[..(drawn % bytes.len() as u64) as usize].to_vec()],
            "drop" => vec![],
            "repeat" => vec![bytes.clone(), bytes],
            "swap" => {
                held = Some((to_ours, bytes));
                vec![]
            }
            _ => vec![lie(&bytes, fault, drawn)],
        }
    })
}

/// A side that reports Ok is right. If honest frames were only damaged, nothing wrong is ever applied.
fn check(shuttle: &Shuttle, policy: Policy, ours: &[u64], theirs: &[u64], is_lie: bool) {
    let or: Vec<u64> = ours.iter().zip(theirs).map(|(a, b)| a | b).collect();
    let end = match policy {
        Policy::Compare => [ours, theirs],
        Policy::Mirror => [theirs, theirs],
        Policy::Union => [&or[..], &or[..]],
    };
    let sides = [(&shuttle.ours, end[0], ours), (&shuttle.theirs, end[1], theirs)];
    for (side, end, begin) in sides {
        // An initiator that lies about its policy or its root gets what it requested.
        if side.result.as_ref().is_some_and(Result::is_ok) && !is_lie {
            assert_eq!(side.words, end);
        }
        for ((now, end), begin) in side.words.iter().zip(end).zip(begin) {
            assert!(is_lie || (now ^ begin) & !(end ^ begin) == 0, "only what differs is flipped");
        }
    }
    if shuttle.ours.result.as_ref().is_some_and(Result::is_ok) && policy == Policy::Mirror {
        let is_hello_lie = is_lie && shuttle.ours.differences.is_empty();
        assert!(is_hello_lie || shuttle.ours.words == theirs, "a mirror is exact");
    }
}

#[test]
fn damaged_sessions_end_right_or_with_an_error() {
    for seed in 0..600u64 {
        let fault = FAULTS[(seed % 8) as usize];
        let policy = [Policy::Compare, Policy::Mirror, Policy::Union][(seed / 8 % 3) as usize];
        let word_count = [700, 5_000, 100_000][(mix(seed) % 3) as usize];
        let flips = [3, 40, 900][(mix(seed ^ 1 << 40) % 3) as usize];
        let ours = array(word_count, seed);
        let theirs = flipped(&ours, 0..word_count, flips);
        let window_blocks = [[1024, 1 << 14], [1, 1], [5, 20]][(mix(seed ^ 1 << 44) % 3) as usize];
        let mut shuttle = Shuttle::with_window_blocks(window_blocks, policy, &ours, &theirs);
        shuttle.damage = damage(fault, seed);
        shuttle.chunk_bytes = [0, 3][(seed % 2) as usize];
        shuttle.run();
        check(&shuttle, policy, &ours, &theirs, seed % 8 > 4);
    }
}

/// A session with a peer that requests everything at once fails before all of it is built.
#[test]
fn who_asks_for_too_much_at_once_is_left() {
    let ours = array(512 * 2_000, 1);
    let theirs = array(512 * 2_000, 2);
    let (a, b) = (table(&ours), table(&theirs));
    let mut ours_half = RepairSession::initiator(options(&a, 1), Policy::Mirror, a);
    let mut theirs_half = RepairSession::responder(options(&b, 2), false, b);
    let mut out = Outbox::new();
    ours_half.step(RepairInput::Start, &ours, &mut out);
    let hello = out.take();
    let [RepairOutput::Send(hello)] = &hello[..] else { panic!("{hello:?}") };
    theirs_half.step(RepairInput::Received(hello.clone()), &theirs, &mut out);
    let welcome = out.take();
    assert!(matches!(&welcome[..], [RepairOutput::Send(_)]));
    let mut bytes = Vec::new();
    let mut put = |message: &Message| put_frame(&mut bytes, message.frame_type(), &message.body());
    put(&Message::Window { slot: 3, blocks: (0..2_000).collect() });
    (0..100).for_each(|_| {
        let question = Question::Raw;
        put(&Message::Ask { slot: 3, question, places: (0..250).collect() });
    });
    theirs_half.step(RepairInput::Received(bytes), &theirs, &mut out);
    let outputs = out.take();
    let sent = |output: &RepairOutput| match output {
        RepairOutput::Send(bytes) => bytes.len() as u64,
        _ => 0,
    };
    let sent_bytes: u64 = outputs.iter().map(sent).sum();
    assert!((REPAIR_STEP_BYTES_MAX..REPAIR_STEP_BYTES_MAX + (2 << 20)).contains(&sent_bytes));
    let is_named = |output: &RepairOutput| {
        matches!(
            output,
            RepairOutput::Finish(Err(RepairError::LimitExceeded {
                limit: "bytes of answers at once",
                ..
            }))
        )
    };
    assert!(outputs.iter().any(is_named));
}

/// Frames of a peer that has the key and sends anything.
fn frames() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    vec((0..11u8, vec(any::<u8>(), 0..60)), 0..12)
}

proptest! {
    /// Any frames with right checksums, with or without a valid greeting before them.
    #[test]
    fn any_frames_end_in_an_error_or_wait(frames in frames(), honest in 0..6usize, to_ours: bool) {
        let ours = array(3_000, 1);
        let theirs = flipped(&ours, 0..3_000, 200);
        let (a, b) = (table(&ours), table(&theirs));
        let (ours_options, theirs_options) = (options(&a, 1), options(&b, 2));
        let mut sides = [
            RepairSession::initiator(ours_options, Policy::Union, a),
            RepairSession::responder(theirs_options, true, b),
        ];
        let mut out = Outbox::new();
        let words = [&ours, &theirs];
        sides[0].step(RepairInput::Start, words[0], &mut out);
        let mut at = 1;
        for _ in 0..honest {
            for output in out.take() {
                if let RepairOutput::Send(bytes) = output {
                    sides[at].step(RepairInput::Received(bytes), words[at], &mut out);
                }
            }
            at = 1 - at;
        }
        let at = usize::from(!to_ours);
        for (frame_type, body) in frames {
            let mut bytes = Vec::new();
            put_frame(&mut bytes, frame_type, &body);
            sides[at].step(RepairInput::Received(bytes), words[at], &mut out);
        }
    }

    /// Decoded messages encode to bytes that decode to the same message.
    #[test]
    fn messages_return(frame_type in 0..11u8, body in vec(any::<u8>(), 0..80)) {
        let list = ListLimits { end: 1 << 30, count_max: 1 << 10 };
        let limits = MessageLimits { blocks: list, places: list, bits: list };
        let frame = |frame_type, body: &[u8]| RawFrame { frame_type, body: body.to_vec(), wire_bytes: 0 };
        if let Ok(message) = Message::read(&frame(frame_type, &body), &limits) {
            prop_assert_eq!(message.frame_type(), frame_type);
            let again = Message::read(&frame(frame_type, &message.body()), &limits);
            prop_assert_eq!(again, Ok(message));
        }
    }
}
