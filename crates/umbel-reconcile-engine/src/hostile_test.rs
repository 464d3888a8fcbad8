//! Sessions whose bytes are damaged, lost, repeated, reordered or forged, and sessions whose symbols
//! collide: they end with the exact difference and a verified digest, or with a named error; never with a
//! wrong result, and they never hang.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::error::SessionError;
use super::item::Item;
use super::message::Message;
use super::options::{Direction, OnConflict, Optimize, Options, SessionRole, SymbolKind};
use super::plan::{Plan, Stage};
use super::session_test::sets;
use super::testing::{Damage, Shuttle, Side, sketch_of};
use super::wire::{FrameBuffer, put_frame};

/// Seeded sessions of the test that always runs; the ignored test runs all.
const SESSIONS: u64 = 2_000;

/// Upper bound of the bytes of an `Abort` frame and its text.
const LAST_WORD_BYTES: u64 = 300;

/// The fault that is injected into one message of a session.
const FAULTS: [&str; 8] =
    ["none", "flip", "cut", "drop", "repeat", "swap", "lie", "lie about the end"];

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.draw(of.len() as u64) as usize]
    }
}

/// A frame with a changed byte in its body, and a matching checksum.
fn lie(bytes: &[u8], at_end: bool, dice: &mut Dice) -> Vec<u8> {
    let mut buffer = FrameBuffer::default();
    buffer.push(bytes);
    let mut frame = buffer.next_frame().expect("a frame").expect("a whole one");
    let length = frame.body.len() as u64;
    let at =
        if at_end { length.saturating_sub(1 + dice.draw(8)) } else { dice.draw(length.max(1)) };
    if let Some(byte) = frame.body.get_mut(at as usize) {
        *byte ^= 1 << dice.draw(8);
    }
    if dice.draw(8) == 0 {
        frame.body.truncate(at as usize);
    }
    let mut lie = Vec::new();
    put_frame(&mut lie, frame.frame_type, &frame.body);
    lie
}

/// Injects one fault into one of the first messages.
fn damage(fault: &'static str, mut dice: Dice) -> Damage {
    let mut left = dice.draw(12);
    let mut held: Option<(bool, Vec<u8>)> = None;
    Box::new(move |to_ours, bytes| {
        if let Some((side, first)) = held.take() {
            // Only messages to the same side can be swapped.
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
                let bit = dice.draw(8 * bytes.len() as u64) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                vec![bytes]
            }
            "cut" => {
                let length = dice.draw(bytes.len() as u64) as usize;
                vec![bytes[..length].to_vec()]
            }
            "drop" => vec![],
            "repeat" => vec![bytes.clone(), bytes],
            "swap" => {
                held = Some((to_ours, bytes));
                vec![]
            }
            "lie" => vec![lie(&bytes, false, &mut dice)],
            "lie about the end" => vec![lie(&bytes, true, &mut dice)],
            _ => vec![bytes],
        }
    })
}

struct Case {
    shuttle: Shuttle,
    ours: BTreeSet<Item>,
    theirs: BTreeSet<Item>,
    text: String,
    is_honest: bool,
}

fn case(seed: u64, fault: &'static str) -> Case {
    let mut dice = Dice(seed);
    let kind = dice.pick(&SymbolKind::ALL);
    let direction = dice.pick(&Direction::ALL);
    let most = dice.pick(&[4, 20, 60]);
    let (shared, a, b) = (dice.draw(100), dice.draw(most), dice.draw(most));
    let (ours, theirs) = sets(kind, dice.draw(2) == 0, shared, a, b);
    let mut initiator = Options::initiator(kind, direction, dice.draw(u64::MAX));
    let SessionRole::Initiator(aim) = &mut initiator.role else { panic!() };
    aim.optimize = dice.pick(&[Optimize::Bytes, Optimize::Time]);
    (aim.want_items, aim.notify_responder) = (dice.draw(2) == 0, dice.draw(2) == 0);
    aim.expected_difference = dice.pick(&[None, None, Some(40)]);
    let responder = Options::responder(kind, dice.draw(u64::MAX));
    let bits = dice.pick(&[8, 12, 16, 32]);
    let text = format!("seed {seed}: {fault}, {bits} bits, {shared} + {a}, {b} of {initiator:?}");
    let mut shuttle = Shuttle::new(initiator, responder, &ours, &theirs);
    shuttle.ours.session = shuttle.ours.session.with_symbol_bits(bits);
    shuttle.chunk_bytes = dice.pick(&[0, 0, 1, 7]);
    shuttle.damage = damage(fault, dice);
    // One session in three has stored sketches, which decode some of the differences and not others.
    if seed.is_multiple_of(3) {
        let coded_count = 10 << (seed % 5);
        let [(for_ours, our_side), (for_theirs, their_side)] =
            [(&ours, &mut shuttle.ours), (&theirs, &mut shuttle.theirs)];
        our_side.begin_with(sketch_of(kind, for_ours, coded_count));
        their_side.begin_with(sketch_of(kind, for_theirs, coded_count + seed % 7));
    }
    Case { shuttle, ours, theirs, text, is_honest: !fault.starts_with("lie") }
}

/// A side that finishes with `Ok` must be right. Any side may only have applied items that the other has,
/// unless the other lied: ids that it never had are accepted until the digests differ.
fn check_side(case: &Case, side: &Side, here: &BTreeSet<Item>, there: &BTreeSet<Item>) {
    let text = &case.text;
    for item in &side.applied {
        let is_right = there.contains(item) && !here.contains(item);
        assert!(is_right || !case.is_honest, "{text}: applied {item:?}");
    }
    let Ok(outcome) = side.result.as_ref().expect("done") else {
        return;
    };
    assert!(outcome.verified, "{text}");
    // Ids that a liar invented were merged before the digests differed, so they belong to both sets now.
    if !case.is_honest && outcome.attempt_count > 1 {
        return;
    }
    let only_here: BTreeSet<Item> = here.difference(there).cloned().collect();
    let only_there: BTreeSet<Item> = there.difference(here).cloned().collect();
    assert_eq!(outcome.only_there_count, only_there.len() as u64, "{text}");
    if case.is_honest {
        assert_eq!(outcome.only_here_count, only_here.len() as u64, "{text}");
    }
    if let Some(found) = side.items_here() {
        assert_eq!(found, only_here, "{text}");
    }
    let found = side.items_there();
    assert!(found.is_subset(&only_there), "{text}");
    if !side.applied.is_empty() {
        assert_eq!(found, only_there, "{text}");
    }
}

fn run(seeds: std::ops::Range<u64>) {
    let mut ok_count = 0;
    let mut error_counts = [0u64; 12];
    for seed in seeds {
        let fault = FAULTS[seed as usize % FAULTS.len()];
        let mut case = case(seed, fault);
        case.shuttle.run();
        let (ours, theirs) = (&case.shuttle.ours, &case.shuttle.theirs);
        check_side(&case, ours, &case.ours, &case.theirs);
        check_side(&case, theirs, &case.theirs, &case.ours);
        for side in [ours, theirs] {
            match side.result.as_ref().expect("done") {
                Ok(_) => ok_count += 1,
                Err(error) => error_counts[kind_of(error)] += 1,
            }
        }
        if fault == "none" {
            for side in [ours, theirs] {
                let result = side.result.as_ref().expect("done");
                assert!(
                    matches!(result, Ok(_) | Err(SessionError::NotConverged { .. })),
                    "{}: {result:?}",
                    case.text
                );
            }
        }
    }
    assert!(ok_count > 0 && error_counts.iter().sum::<u64>() > 0);
}

fn kind_of(error: &SessionError) -> usize {
    match error {
        SessionError::Refused(_) => 0,
        SessionError::Frame(_) => 1,
        SessionError::OutOfOrder { .. } => 2,
        SessionError::LimitExceeded { .. } => 3,
        SessionError::UnexpectedItem { .. } => 4,
        SessionError::NotConverged { .. } => 5,
        SessionError::Aborted { .. } => 6,
        SessionError::Disconnected { .. } => 7,
        SessionError::Cancelled { .. } => 8,
        SessionError::Key => 9,
        SessionError::Resumable => 10,
        SessionError::StaleSketch => panic!("the sketches are of the sets"),
        SessionError::Driver { what } => panic!("the driver did nothing wrong: {what}"),
    }
}

#[test]
fn whatever_happens_to_the_bytes_no_result_is_wrong() {
    run(0..SESSIONS);
}

#[test]
#[ignore = "a minute where it is optimised, ten where not; the same with more seeds"]
fn whatever_happens_to_the_bytes_no_result_is_wrong_long() {
    run(SESSIONS..SESSIONS + 100_000);
}

/// Symbols of 12 bits of a hundred items collide often; another key separates them, or the whole list
/// resolves them.
#[test]
fn collisions_are_found_and_cured_by_another_key() {
    let mut resalted = 0;
    for seed in 0..60 {
        let (ours, theirs) = sets(SymbolKind::Hashed, true, 60, 12, 12 + seed % 3);
        let initiator = Options::initiator(SymbolKind::Hashed, Direction::TwoWay, seed);
        let mut shuttle =
            Shuttle::new(initiator, Options::responder(SymbolKind::Hashed, 77), &ours, &theirs);
        shuttle.ours.session = shuttle.ours.session.with_symbol_bits(13);
        shuttle.run();
        if let Some(Ok(outcome)) = &shuttle.ours.result {
            shuttle.check(Direction::TwoWay);
            resalted += u32::from(outcome.attempt_count > 1);
        }
    }
    assert!(resalted > 5, "{resalted}");
}

/// Sides with different domains, datasets or kinds fail with an error that names the reason.
#[test]
fn strangers_part_with_a_reason() {
    let (ours, theirs) = sets(SymbolKind::Hashed, true, 30, 2, 2);
    let ours_options = Options::initiator(SymbolKind::Hashed, Direction::TwoWay, 1);
    let role = |accept_items, on_conflict| SessionRole::Responder { accept_items, on_conflict };
    let cases = [
        (Options { dataset_id: 9, ..Options::responder(SymbolKind::Hashed, 2) }, "Dataset"),
        (Options::responder(SymbolKind::Keyed, 2), "Kind"),
        (
            Options {
                role: role(false, OnConflict::Report),
                ..Options::responder(SymbolKind::Hashed, 2)
            },
            "ReadOnly",
        ),
        (
            Options {
                role: role(true, OnConflict::A),
                ..Options::responder(SymbolKind::Hashed, 2)
            },
            "Conflict",
        ),
    ];
    for (options, reason) in cases {
        let mut shuttle = Shuttle::new(ours_options, options, &ours, &theirs);
        if options.kind != SymbolKind::Hashed {
            shuttle.theirs.items.clear();
        }
        shuttle.run();
        let result = shuttle.ours.result.unwrap();
        assert!(format!("{result:?}").contains(reason), "{result:?}");
    }
    let other = Options { domain: [1; 16], ..Options::responder(SymbolKind::Hashed, 2) };
    let mut shuttle = Shuttle::new(ours_options, other, &ours, &theirs);
    shuttle.run();
    assert_eq!(shuttle.ours.result, Some(Err(SessionError::Key)));
    assert!(shuttle.ours.applied.is_empty() && shuttle.theirs.result.unwrap().is_err());
}

/// Sets so small that their symbols fit into the first frame: nothing of them is sent to a side of
/// another domain, and that side hands out no items decoded from them. (Simulated seeds 53, 2344 and 2452.)
#[test]
fn nothing_of_small_sets_is_exchanged_with_a_stranger() {
    for kind in SymbolKind::ALL {
        for direction in [Direction::Compare, Direction::Pull, Direction::TwoWay] {
            for (shared, a, b) in [(0, 0, 7), (3, 2, 2), (0, 8, 2), (1, 0, 0)] {
                let (ours, theirs) = sets(kind, true, shared, a, b);
                let other = Options { domain: [1; 16], ..Options::responder(kind, 2) };
                let mut shuttle =
                    Shuttle::new(Options::initiator(kind, direction, 1), other, &ours, &theirs);
                shuttle.run();
                assert_eq!(shuttle.ours.result, Some(Err(SessionError::Key)));
                assert!(shuttle.theirs.result.expect("done").is_err());
                assert!(shuttle.ours.only_there.is_empty() && shuttle.theirs.only_there.is_empty());
            }
        }
    }
}

/// The initiator's plan, changed to coded symbols with this credit, and followed by a further one.
fn asking_for(credit: u64, further: Option<u64>) -> Damage {
    Box::new(move |to_ours, bytes| {
        if to_ours {
            return vec![bytes];
        }
        let (mut buffer, mut forged) = (FrameBuffer::default(), Vec::new());
        buffer.push(&bytes);
        while let Some(frame) = buffer.next_frame().expect("frames") {
            let Message::Plan(plan) = Message::read(&frame).expect("a message") else {
                put_frame(&mut forged, frame.frame_type, &frame.body);
                continue;
            };
            let plan = Plan { stage: Stage::Riblt, filter_quarters: [0, 0], credit, ..plan };
            put_frame(&mut forged, Message::PLAN, &Message::Plan(plan).body());
            if let Some(count) = further {
                put_frame(&mut forged, Message::CREDIT, &Message::Credit { count }.body());
            }
        }
        vec![forged]
    })
}

/// A responder does not compute coded symbols without end for who asks for them.
#[test]
fn credit_beyond_what_any_difference_needs_is_refused() {
    let (ours, theirs) = sets(SymbolKind::Hashed, true, 100, 60, 60);
    let max = 8 * 320 + 64;
    for (credit, further, refused) in [
        (max, None, None),
        (max + 1, None, Some(max + 1)),
        (u64::MAX, None, Some(u64::MAX)),
        (32, Some(max + 1), Some(max + 1)),
        (32, Some(u64::MAX), Some(u64::MAX)),
    ] {
        let mut shuttle = Shuttle::of(SymbolKind::Hashed, Direction::TwoWay, &ours, &theirs);
        shuttle.damage = asking_for(credit, further);
        shuttle.run();
        let result = shuttle.theirs.result.expect("done");
        let limit = "coded symbols are asked for";
        let expected = refused.map(|got| SessionError::LimitExceeded { limit, got, max });
        let found = result.err().filter(|error| {
            matches!(error, SessionError::LimitExceeded { limit: found, .. } if *found == limit)
        });
        assert_eq!(found, expected, "{credit} {further:?}");
    }
}

/// No side sends more than its session's limit, apart from a last frame that reports it. (Simulated seed 1
/// with a cap.)
#[test]
fn nothing_is_sent_beyond_the_cap() {
    let (ours, theirs) = sets(SymbolKind::Hashed, false, 300, 200, 200);
    for bytes_max in [1, 100, 174, 175, 300, 1_000, 3_000] {
        for is_ours in [true, false] {
            let mut initiator = Options::initiator(SymbolKind::Hashed, Direction::TwoWay, 1);
            let mut responder = Options::responder(SymbolKind::Hashed, 2);
            let limited = if is_ours { &mut initiator } else { &mut responder };
            limited.limits.bytes_max = bytes_max;
            let mut shuttle = Shuttle::new(initiator, responder, &ours, &theirs);
            let sent = Rc::new(Cell::new([0, 0]));
            let counted = Rc::clone(&sent);
            shuttle.damage = Box::new(move |to_ours, bytes| {
                let mut sums = counted.get();
                sums[usize::from(to_ours)] += bytes.len() as u64;
                counted.set(sums);
                vec![bytes]
            });
            shuttle.run();
            let of_limited = sent.get()[usize::from(!is_ours)];
            assert!(of_limited <= bytes_max + LAST_WORD_BYTES, "{of_limited} of {bytes_max}");
            let side = if is_ours { &shuttle.ours } else { &shuttle.theirs };
            let result = side.result.as_ref().expect("done");
            assert!(matches!(result, Err(SessionError::LimitExceeded { .. })), "{result:?}");
        }
    }
}
