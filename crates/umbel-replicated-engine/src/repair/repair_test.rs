//! Sessions compared with plain XOR and OR of the arrays, their cost, and what is refused.

use proptest::collection::vec;
use proptest::prelude::*;

use super::error::{RepairError, RepairRefusal};
use super::options::{Policy, RepairOptions};
use super::session::RepairSession;
use super::testing::{Shuttle, options, table};

const POLICIES: [Policy; 3] = [Policy::Compare, Policy::Mirror, Policy::Union];

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// An array with half of its bits set.
pub(crate) fn array(word_count: usize, seed: u64) -> Vec<u64> {
    (0..word_count as u64).map(|at| mix(at ^ seed << 32)).collect()
}

/// The same array with `count` bits flipped in some words.
pub(crate) fn flipped(words: &[u64], range: std::ops::Range<usize>, count: u64) -> Vec<u64> {
    let mut words = words.to_vec();
    for at in 0..count {
        let drawn = mix(at ^ 0xabcd << 40);
        let word = range.start + (drawn >> 6) as usize % range.len();
        words[word] ^= 1 << (drawn % 64);
    }
    words
}

/// The slow twin: both arrays afterwards, and the number of bits in which they differed.
fn check(shuttle: &Shuttle, policy: Policy, ours: &[u64], theirs: &[u64]) {
    let or: Vec<u64> = ours.iter().zip(theirs).map(|(a, b)| a | b).collect();
    let (our_end, their_end) = match policy {
        Policy::Compare => (ours, theirs),
        Policy::Mirror => (theirs, theirs),
        Policy::Union => (&or[..], &or[..]),
    };
    let [a, b] = shuttle.outcomes();
    assert!(shuttle.ours.words == our_end);
    assert!(shuttle.theirs.words == their_end);
    let mut differing = vec![0u64; ours.len()];
    for difference in &shuttle.ours.differences {
        assert!(difference.differing.is_sorted_by(|a, b| a < b));
        for &bit in &difference.differing {
            differing[512 * difference.block as usize + bit as usize / 64] ^= 1 << (bit % 64);
        }
    }
    let xor: Vec<u64> = ours.iter().zip(theirs).map(|(a, b)| a ^ b).collect();
    assert!(differing == xor);
    let count: u64 = xor.iter().map(|word| u64::from(word.count_ones())).sum();
    assert_eq!(a.differing_bit_count, count);
    assert_eq!(a.table, table(our_end));
    assert_eq!(b.table, table(their_end));
    assert_eq!((a.sent_bytes, a.received_bytes), (b.received_bytes, b.sent_bytes));
    assert_eq!(a.bytes, b.bytes);
    assert_eq!(a.bytes.total(), a.sent_bytes + a.received_bytes);
}

fn repaired(policy: Policy, ours: &[u64], theirs: &[u64]) -> Shuttle {
    let mut shuttle = Shuttle::new(policy, ours, theirs);
    shuttle.run();
    check(&shuttle, policy, ours, theirs);
    shuttle
}

#[test]
fn equal_copies_are_two_short_frames() {
    let words = array(5_000, 1);
    for policy in POLICIES {
        let [outcome, _] = repaired(policy, &words, &words).outcomes();
        // A Hello of 57 bytes, and a Welcome frame of 6 bytes around one.
        assert_eq!(outcome.bytes.total(), 63);
    }
}

/// From one flip to nothing in common, in arrays of one block to many.
#[test]
fn both_copies_become_what_the_policy_says() {
    for (word_count, flips) in [
        (1, 1),
        (3, 40),
        (512, 4),
        (1_000, 30),
        (40_000, 1),
        (40_000, 12),
        (40_000, 1_000),
        (40_000, 10_000),
        (40_000, 60_000),
        (600_000, 30),
    ] {
        let ours = array(word_count, flips);
        let theirs = flipped(&ours, 0..word_count, flips);
        for policy in POLICIES {
            repaired(policy, &ours, &theirs);
        }
    }
}

#[test]
fn clustered_and_unrelated_bits_are_repaired_too() {
    let ours = array(60_000, 9);
    let theirs = flipped(&ours, 10_000..10_600, 20_000);
    let shuttle = repaired(Policy::Mirror, &ours, &theirs);
    let [outcome, _] = shuttle.outcomes();
    assert!((2..=3).contains(&outcome.raw_block_count), "{outcome:?}");
    repaired(Policy::Union, &ours, &array(60_000, 10));
    repaired(Policy::Union, &ours, &vec![0; 60_000]);
    repaired(Policy::Mirror, &vec![0; 60_000], &flipped(&vec![0; 60_000], 0..60_000, 90_000));
}

/// One overfull block of five flips in 2^4 · 4! decodes to other flips: hashes find it.
#[test]
fn wrong_flips_are_found_by_their_hash() {
    let ours = array(512 * 4_000, 3);
    let mut theirs = ours.clone();
    for block in 0..4_000 {
        let count = if block % 2 == 0 { 3 } else { 6 };
        for at in 0..count {
            theirs[512 * block + (mix(at) as usize + 7 * block) % 512] ^=
                1 << (mix(block as u64 ^ at << 20) % 64);
        }
    }
    let shuttle = repaired(Policy::Mirror, &ours, &theirs);
    let [outcome, _] = shuttle.outcomes();
    assert!(outcome.wrong_block_count > 0, "{outcome:?}");
    assert_eq!(outcome.raw_block_count, 0);
}

/// Bytes of sessions over 32 MiB with 1, 30, 1,000 and 30,000 flips, within a tenth of their recorded
/// values.
#[test]
fn sessions_cost_what_they_did() {
    let ours = array(512 * 8_192, 5);
    let found = [1, 30, 1_000, 30_000].map(|flips| {
        let theirs = flipped(&ours, 0..ours.len(), flips);
        let [outcome, _] = repaired(Policy::Mirror, &ours, &theirs).outcomes();
        outcome.bytes.total()
    });
    let expected = [604, 1_168, 15_147, 86_937];
    let is_near = |(a, b): (&u64, &u64)| a.abs_diff(*b) * 10 <= *b;
    assert!(found.iter().zip(&expected).all(is_near), "{found:?}");
}

/// Forty windows, of which sixteen are open at once: the round trips of three or four in sequence.
#[test]
fn windows_go_side_by_side() {
    let ours = array(512 * 660, 7);
    let theirs = flipped(&ours, 0..ours.len(), 3_000);
    let repaired = |window_blocks| {
        let mut shuttle = Shuttle::with_window_blocks(window_blocks, Policy::Union, &ours, &theirs);
        shuttle.run();
        check(&shuttle, Policy::Union, &ours, &theirs);
        let [ours, theirs] = shuttle.outcomes();
        (ours.round_count, theirs.round_count)
    };
    let (round_count, question_count) = repaired([20, 16]);
    assert!(question_count > 120, "{question_count}");
    assert!((16..60).contains(&round_count), "{round_count} of {question_count}");
    let (alone, _) = repaired([660, 660]);
    assert!(round_count < 5 * alone, "{round_count}, and {alone} of one window");
}

/// If windows differ in most bits, all except the oldest wait for room.
#[test]
fn windows_wait_for_room() {
    let ours = array(512 * 300, 11);
    for policy in POLICIES {
        let theirs = array(512 * 300, 12);
        let mut shuttle = Shuttle::with_window_blocks([3, 7], policy, &ours, &theirs);
        shuttle.run();
        check(&shuttle, policy, &ours, &theirs);
    }
}

#[test]
fn another_array_is_refused_by_name() {
    let words = array(1_000, 1);
    let other = array(1_001, 1);
    let base = options(&table(&words), 5);
    let refused = |change: &dyn Fn(&mut RepairOptions), theirs: &[u64], accept_bits: bool| {
        let mut ours = base;
        change(&mut ours);
        let initiator = RepairSession::initiator(ours, Policy::Union, table(&words));
        let responder = RepairSession::responder(base, accept_bits, table(theirs));
        let mut shuttle = Shuttle::of((initiator, &words), (responder, theirs));
        shuttle.run();
        assert_eq!(shuttle.theirs.result, Some(Err(RepairError::RefusedHere)));
        match shuttle.ours.result {
            Some(Err(RepairError::Refused(refusal))) => refusal,
            result => panic!("{result:?}"),
        }
    };
    let size = RepairRefusal::BitCount { ours: 64_000, theirs: 64_064 };
    assert_eq!(refused(&|_| {}, &other, true), size);
    let shape = RepairRefusal::Shape { ours: 8, theirs: 7 };
    assert_eq!(refused(&|ours| ours.shape_id = 8, &words, true), shape);
    assert_eq!(refused(&|ours| ours.domain = [4; 16], &words, true), RepairRefusal::Key);
    assert_eq!(refused(&|_| {}, &words, false), RepairRefusal::ReadOnly);
}

/// A table that does not match its bits is detected, and copies that differ are never reported equal.
#[test]
fn a_wrong_table_is_no_success() {
    let words = array(100_000, 1);
    let mut wrong = table(&words);
    wrong.flip(5_000_000);
    let base = options(&wrong, 5);
    let initiator = RepairSession::initiator(base, Policy::Mirror, wrong);
    let responder = RepairSession::responder(base, true, table(&words));
    let mut shuttle = Shuttle::of((initiator, &words), (responder, &words));
    shuttle.run();
    assert!(matches!(shuttle.ours.result, Some(Err(_))), "{:?}", shuttle.ours.result);
    assert!(matches!(shuttle.theirs.result, Some(Err(_))));
    assert_eq!(shuttle.ours.words, words);
}

#[test]
fn limits_end_a_session_by_name() {
    let ours = array(20_000, 1);
    let theirs = flipped(&ours, 0..20_000, 5_000);
    let base = options(&table(&ours), 5);
    for responder_limits in [false, true] {
        let (mut a, mut b) = (base, base);
        if responder_limits {
            b.limits.block_reads_max = 10;
        } else {
            a.limits.bytes_max = 2_000;
        }
        let initiator = RepairSession::initiator(a, Policy::Mirror, table(&ours));
        let responder = RepairSession::responder(b, true, table(&theirs));
        let mut shuttle = Shuttle::of((initiator, &ours), (responder, &theirs));
        shuttle.run();
        let (limited, other) = if responder_limits {
            (shuttle.theirs.result, shuttle.ours.result)
        } else {
            (shuttle.ours.result, shuttle.theirs.result)
        };
        assert!(matches!(limited, Some(Err(RepairError::LimitExceeded { .. }))), "{limited:?}");
        assert!(matches!(other, Some(Err(RepairError::Aborted { .. }))), "{other:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any arrays: words of zeros, ones and noise that differ in some places.
    #[test]
    fn sessions_do_what_plain_words_do(
        ours in vec(prop_oneof![Just(0u64), Just(u64::MAX), any::<u64>()], 1..4_000),
        changes in vec((any::<prop::sample::Index>(), any::<u64>(), 0..64u32), 0..300),
        chunk_bytes in 0..200usize,
        window_blocks in [1..9usize, 1..9usize],
    ) {
        let mut theirs = ours.clone();
        for (at, word, shift) in changes {
            // From one bit to all of them.
            theirs[at.index(ours.len())] ^= word >> shift;
        }
        for policy in POLICIES {
            let mut shuttle =
                Shuttle::with_window_blocks(window_blocks, policy, &ours, &theirs);
            shuttle.chunk_bytes = chunk_bytes;
            shuttle.run();
            check(&shuttle, policy, &ours, &theirs);
        }
    }
}
