//! What replicas together hold in a block.

/// Surplus bits of one replica in one block that are kept: more than flips make, and little enough to
/// leave the filter's rate as it is (64 of the 32,768 bits of a block of words).
pub(super) const SURPLUS_BITS_MAX: u64 = 64;

/// What a block is to hold, by the replicas that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// All answers agree.
    Equal,
    /// The content of a majority, with what is kept of the others' bits.
    Mend(Vec<u64>),
    /// No content has a majority: what any of them has.
    Union(Vec<u64>),
    /// No content has a majority, and a union would not be right, or it is not known to be.
    Undecided,
}

/// Counts votes: `contents` are those of the replicas that answered, of `voter_count` that there are.
///
/// Where bits only rise, bits that a replica has and the majority lacks are kept if they are few: it may
/// have answered "present" because of them, as leader even without logging the item, and an answer is
/// never taken back. A block that has many is garbage.
pub(super) fn vote(
    contents: &[&[u64]],
    voter_count: usize,
    is_monotone: bool,
    is_words: bool,
) -> Verdict {
    let Some((first, rest)) = contents.split_first() else { return Verdict::Undecided };
    if rest.iter().all(|content| content == first) {
        return Verdict::Equal;
    }
    let votes = |content: &[u64]| contents.iter().filter(|other| ***other == *content).count();
    let majority = contents.iter().find(|content| 2 * votes(content) > voter_count);
    let fits = |content: &&[u64]| !is_words || content.len() == first.len();
    match majority {
        Some(winner) if !is_monotone => Verdict::Mend(winner.to_vec()),
        Some(winner) => {
            let kept = contents.iter().filter(|content| {
                (!is_words || content.len() == winner.len())
                    && surplus(content, winner, is_words) <= SURPLUS_BITS_MAX
            });
            let union = |all: Vec<u64>, content: &&[u64]| union(&all, content, is_words);
            Verdict::Mend(kept.fold(winner.to_vec(), union))
        }
        None if !is_monotone || !contents.iter().all(fits) => Verdict::Undecided,
        None => {
            let all =
                contents.iter().fold(first.to_vec(), |all, content| union(&all, content, is_words));
            let is_small = |content: &&[u64]| surplus(&all, content, is_words) <= SURPLUS_BITS_MAX;
            if contents.len() == voter_count || contents.iter().all(is_small) {
                Verdict::Union(all)
            } else {
                Verdict::Undecided
            }
        }
    }
}

/// Bits, or positions, that one has and the other lacks.
pub(super) fn surplus(one: &[u64], other: &[u64], is_words: bool) -> u64 {
    if is_words {
        let pairs = one.iter().enumerate();
        let extra = |(at, word): (usize, &u64)| word & !other.get(at).copied().unwrap_or(0);
        return pairs.map(|pair| u64::from(extra(pair).count_ones())).sum();
    }
    one.iter().filter(|position| other.binary_search(position).is_err()).count() as u64
}

fn union(one: &[u64], other: &[u64], is_words: bool) -> Vec<u64> {
    if is_words {
        return one.iter().zip(other).map(|(one, other)| one | other).collect();
    }
    let mut all = [one, other].concat();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: &[u64] = &[0b0111, 0];
    const WINNER: &[u64] = &[0b1101, 0];
    const GARBAGE: &[u64] = &[u64::MAX, u64::MAX];

    #[test]
    fn a_majority_wins_and_few_surplus_bits_stay() {
        assert_eq!(vote(&[WINNER, WINNER, WINNER], 3, true, true), Verdict::Equal);
        let mended = Verdict::Mend(vec![0b1111, 0]);
        assert_eq!(vote(&[FEW, WINNER, WINNER], 3, true, true), mended);
        // 128 bits more are no flips.
        let winner = Verdict::Mend(WINNER.to_vec());
        assert_eq!(vote(&[WINNER, GARBAGE, WINNER], 3, true, true), winner);
        // Counters fall too: a surplus is as wrong as a lack.
        assert_eq!(vote(&[FEW, WINNER, WINNER], 3, false, true), winner);
        // Two of three voters are a majority; two of five are none.
        assert_eq!(vote(&[WINNER, WINNER, GARBAGE], 5, true, true), Verdict::Undecided);
    }

    #[test]
    fn without_a_majority_there_is_a_union_or_nothing() {
        let union = Verdict::Union(vec![0b1111, 0]);
        assert_eq!(vote(&[FEW, WINNER], 2, true, true), union);
        // The third may come back and decide, but no bit may be missing till then.
        assert_eq!(vote(&[FEW, WINNER], 3, true, true), union);
        assert_eq!(vote(&[GARBAGE, WINNER], 3, true, true), Verdict::Undecided);
        let all = Verdict::Union(GARBAGE.to_vec());
        assert_eq!(vote(&[GARBAGE, WINNER, FEW], 3, true, true), all);
        assert_eq!(vote(&[FEW, WINNER], 2, false, true), Verdict::Undecided);
        assert_eq!(vote(&[], 3, true, true), Verdict::Undecided);
        // Levels that differ in size are not put together.
        assert_eq!(vote(&[FEW, &[]], 2, true, true), Verdict::Undecided);
        assert_eq!(vote(&[&[], FEW, FEW], 3, true, true), Verdict::Mend(FEW.to_vec()));
    }

    #[test]
    fn positions_are_counted_one_by_one() {
        let (one, other): (&[u64], &[u64]) = (&[3, 9, 12], &[3, 12, 40]);
        assert_eq!((surplus(one, other, false), surplus(other, one, false)), (1, 1));
        let mended = Verdict::Mend(vec![3, 9, 12, 40]);
        assert_eq!(vote(&[one, other, other], 3, true, false), mended);
    }
}
