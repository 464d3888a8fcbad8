//! What several filters have in common, ORed into another one.

use super::{AnyFilter, MergeError};
use crate::capability::Describe;
use crate::shape::ShapeMismatch;
use crate::words::{and, or};

/// Words that are worked on at a time: they stay in the nearest cache, and nothing as large as a filter is
/// allocated.
const PIECE_WORDS: usize = 512;

impl AnyFilter {
    /// ORs in the positions that are set in every one of the sources, and returns how many of them were not
    /// set before: afterwards this filter calls every item present that all sources do. It calls present some
    /// that only their chance meetings explain, too: each source errs on its own, so it has no more of those
    /// than the source that errs least. Doing it twice is doing it once; without sources nothing is changed.
    ///
    /// ```
    /// use umbel_filter::{AnyFilter, Blocked, Contains, HashRange, Insert, ItemHash};
    ///
    /// let empty = AnyFilter::from(Blocked::new(HashRange::WHOLE, 100, 6)?);
    /// let [only_one, both] = [ItemHash::new(1 << 60, 1 << 32), ItemHash::new(1 << 62, 1 << 40)];
    /// let (mut one, mut other, mut shared) = (empty.clone(), empty.clone(), empty);
    /// one.insert_batch(&[only_one, both], &mut Vec::new())?;
    /// other.insert(both)?;
    /// assert_eq!(shared.merge_shared(&[&one, &other]), Ok(6));
    /// assert!(shared.contains(both) && !shared.contains(only_one));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If this filter's kind is not blocked, classic or partitioned, or the shapes, which include the kind,
    /// differ. Nothing was changed.
    pub fn merge_shared(&mut self, sources: &[&Self]) -> Result<u64, MergeError> {
        let kind = self.kind();
        let ours = self.shape();
        if let Some(other) = sources.iter().find(|source| source.shape() != ours) {
            return Err(ShapeMismatch { ours, theirs: other.shape() }.into());
        }
        let Some(words) = bits_mut(self) else { return Err(MergeError::Unsupported { kind }) };
        let Some((first, rest)) = sources.split_first() else { return Ok(0) };
        let mut set_count = 0;
        let mut shared = Vec::with_capacity(PIECE_WORDS);
        for (at, piece) in words.chunks_mut(PIECE_WORDS).enumerate() {
            // Equal shapes have equally many words.
            let range = at * PIECE_WORDS..at * PIECE_WORDS + piece.len();
            shared.clear();
            shared.extend_from_slice(&bits(first)[range.clone()]);
            for source in rest {
                and(&mut shared, &bits(source)[range.clone()]);
            }
            set_count += or(piece, &shared);
        }
        Ok(set_count)
    }
}

/// The bits of a filter that has nothing but bits.
fn bits(filter: &AnyFilter) -> &[u64] {
    match filter {
        AnyFilter::Blocked(filter) => filter.words(),
        AnyFilter::Classic(filter) => filter.words(),
        AnyFilter::Partitioned(filter) => filter.words(),
        _ => &[],
    }
}

fn bits_mut(filter: &mut AnyFilter) -> Option<&mut [u64]> {
    match filter {
        AnyFilter::Blocked(filter) => Some(filter.words_mut()),
        AnyFilter::Classic(filter) => Some(filter.words_mut()),
        AnyFilter::Partitioned(filter) => Some(filter.words_mut()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::FilterPlan;
    use crate::capability::{Contains, Insert};
    use crate::hash::{ItemHash, ItemHasher};
    use crate::kind::Kind;
    use crate::range::HashRange;

    fn hashes(numbers: std::ops::Range<u32>) -> Vec<ItemHash> {
        numbers.map(|number| ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())).collect()
    }

    fn of(kind: Kind, numbers: std::ops::Range<u32>) -> AnyFilter {
        let (range, false_positive_rate) = (HashRange::WHOLE, 0.001);
        let plan = FilterPlan { kind, range, item_count: 20_000, false_positive_rate };
        let mut filter = AnyFilter::create(&plan).unwrap();
        filter.insert_batch(&hashes(numbers), &mut Vec::new()).unwrap();
        filter
    }

    const KINDS: [Kind; 3] = [Kind::Blocked, Kind::Classic, Kind::Partitioned];

    #[test]
    fn what_all_sources_have_is_added_and_nothing_else() {
        for kind in KINDS {
            let sources = [of(kind, 0..9_000), of(kind, 3_000..12_000), of(kind, 6_000..15_000)];
            let [one, other, third] = &sources;
            let before = of(kind, 50_000..51_000);
            let mut target = before.clone();
            let set_count = target.merge_shared(&[one, other, third]).unwrap();
            // Slow twin: word by word.
            let words: Vec<u64> = (0..bits(&before).len())
                .map(|at| bits(&before)[at] | bits(one)[at] & bits(other)[at] & bits(third)[at])
                .collect();
            assert_eq!(bits(&target), words, "{kind}");
            let added = target.describe().one_count - before.describe().one_count;
            assert!(set_count == added && added > 0, "{kind}: {set_count} {added}");
            let has = |hash: &ItemHash| target.contains(*hash);
            assert!(hashes(6_000..9_000).iter().chain(&hashes(50_000..51_000)).all(has));
            // Those of one source alone, but for chance meetings.
            let wrong = hashes(0..3_000).iter().filter(|hash| has(hash)).count();
            assert!(wrong < 60, "{kind}: {wrong} of 3,000");
            assert_eq!(target.merge_shared(&[third, one, other]), Ok(0), "in any order");
        }
    }

    #[test]
    fn one_source_is_a_merge_and_none_is_nothing() {
        for kind in KINDS {
            let (source, mut merged) = (of(kind, 0..100), of(kind, 50..150));
            let mut shared = merged.clone();
            assert_eq!(shared.merge_shared(&[]), Ok(0));
            assert_eq!(shared.merge_shared(&[&source]), merged.merge(&source));
            assert_eq!(bits(&shared), bits(&merged));
        }
    }

    #[test]
    fn what_is_no_array_of_bits_or_differs_is_refused() {
        for kind in Kind::ALL.into_iter().filter(|kind| !KINDS.contains(kind)) {
            let mut filter = of(kind, 0..9);
            let same = filter.clone();
            assert_eq!(filter.merge_shared(&[&same]), Err(MergeError::Unsupported { kind }));
        }
        let (mut blocked, classic) = (of(Kind::Blocked, 0..9), of(Kind::Classic, 0..9));
        let same = blocked.clone();
        let refused = blocked.merge_shared(&[&same, &classic]);
        assert!(matches!(refused, Err(MergeError::Shape(_))), "{refused:?}");
        assert_eq!(bits(&blocked), bits(&same));
    }
}
