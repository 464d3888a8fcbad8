//! Decides what a block should contain, from the contents of the replicas.

/// Largest number of surplus bits of one replica in one block that are kept: more than bit flips cause,
/// and few enough to leave the filter's rate unchanged (64 of the 32,768 bits of a block of words).
pub(super) const SURPLUS_BITS_MAX: u64 = 64;

/// The content that a block should have, given the replicas' answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// All answers agree.
    Equal,
    /// A majority has the same content: that content, plus the other replicas' surplus bits that are
    /// kept.
    Mend(Vec<u64>),
    /// No content has a majority: the union of all contents.
    Union(Vec<u64>),
    /// No content has a majority, and a union would be wrong, or cannot be shown to be right.
    Undecided,
}

/// Counts votes: `contents` are from the replicas that answered, `voter_count` is the number of all
/// replicas.
///
/// Where bits only rise, bits that a replica has and the majority lacks are kept if they are few: the
/// replica may have answered "present" because of them (a leader does so even without logging the item),
/// and an answer is never taken back. A block with many surplus bits is garbage.
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

/// Number of bits, or of positions, that `one` has and `other` lacks.
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
        // 128 surplus bits are too many for flips.
        let winner = Verdict::Mend(WINNER.to_vec());
        assert_eq!(vote(&[WINNER, GARBAGE, WINNER], 3, true, true), winner);
        // Counters also fall: surplus bits are as wrong as missing ones.
        assert_eq!(vote(&[FEW, WINNER, WINNER], 3, false, true), winner);
        // Two of three voters are a majority; two of five are not.
        assert_eq!(vote(&[WINNER, WINNER, GARBAGE], 5, true, true), Verdict::Undecided);
    }

    #[test]
    fn without_a_majority_there_is_a_union_or_nothing() {
        let union = Verdict::Union(vec![0b1111, 0]);
        assert_eq!(vote(&[FEW, WINNER], 2, true, true), union);
        // The third replica may return and decide; until then no bit may be missing.
        assert_eq!(vote(&[FEW, WINNER], 3, true, true), union);
        assert_eq!(vote(&[GARBAGE, WINNER], 3, true, true), Verdict::Undecided);
        let all = Verdict::Union(GARBAGE.to_vec());
        assert_eq!(vote(&[GARBAGE, WINNER, FEW], 3, true, true), all);
        assert_eq!(vote(&[FEW, WINNER], 2, false, true), Verdict::Undecided);
        assert_eq!(vote(&[], 3, true, true), Verdict::Undecided);
        // Levels that differ in size are not combined.
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
