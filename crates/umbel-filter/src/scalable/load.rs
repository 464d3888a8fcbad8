//! Levels that come from a copy, part by part.

use super::{FilterLevel, LevelsError, Scalable};
use crate::blocked::Blocked;

impl Scalable {
    /// The filter of a level, to load a part of it, of a copy in which the level took so many new items.
    ///
    /// Levels are loaded in their order: the next one opens when the one before is full. A level whose
    /// number of items is known is given out again for the same number, so that parts may come one by one,
    /// and twice. Until all parts of all levels have come, items of the copy are missing.
    ///
    /// ```
    /// use umbel_filter::{Contains, HashRange, Insert, ItemHash, Scalable};
    ///
    /// let mut theirs = Scalable::new(HashRange::WHOLE, 2, 0.01)?;
    /// for number in 1..=3 {
    ///     theirs.insert(ItemHash::new(number << 60, number << 32))?;
    /// }
    /// let mut ours = Scalable::new(HashRange::WHOLE, 2, 0.01)?;
    /// for (number, level) in (0..).zip(theirs.levels()) {
    ///     let filter = ours.level_to_load(number, level.item_count())?;
    ///     filter.words_mut().copy_from_slice(level.filter().words());
    /// }
    /// assert_eq!(ours, theirs);
    /// // The second level has one item, and is not full.
    /// assert!(ours.level_to_load(2, 1).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a level before is not full, the level has another number of items already or no room for so
    /// many, or there is no such level. Nothing was changed.
    pub fn level_to_load(
        &mut self,
        level: u32,
        item_count: u64,
    ) -> Result<&mut Blocked, LevelsError> {
        let at = usize::try_from(level).unwrap_or(usize::MAX);
        let last = self.levels.len() - 1;
        let wrong = |least, capacity| LevelsError::ItemCount { level, item_count, least, capacity };
        if at <= last {
            let is_last = at == last;
            let ours = &mut self.levels[at];
            // A level without items is one of which nothing is known yet.
            let least = ours.item_count;
            let most = if least == 0 && is_last { ours.capacity } else { least };
            if !(least..=most).contains(&item_count) {
                return Err(wrong(least, most));
            }
            ours.item_count = item_count;
            return Ok(&mut ours.filter);
        }
        let before = &self.levels[last];
        if at > last + 1 || before.item_count < before.capacity {
            let level = u32::try_from(last).unwrap_or(u32::MAX);
            let FilterLevel { item_count, capacity, .. } = *before;
            return Err(LevelsError::ItemCount { level, item_count, least: capacity, capacity });
        }
        let mut next = FilterLevel::new(self.shape, level)
            .map_err(|source| LevelsError::Create { level, source })?;
        if item_count > next.capacity {
            return Err(wrong(0, next.capacity));
        }
        next.item_count = item_count;
        self.levels.push(next);
        Ok(&mut self.levels[at].filter)
    }
}
