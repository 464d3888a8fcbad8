//! Levels that come from a copy, part by part.

use super::{FilterLevel, LevelsError, Scalable, counts};
use crate::blocked::Blocked;

impl Scalable {
    /// The filter of a level, to load a part of it, of a copy in which the level took so many new items.
    ///
    /// Levels are opened in their order, the next one whenever it is asked for: in a copy of a filter that was a
    /// part of another one, levels that are not full were closed. A level whose
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
    /// // There are two levels, of two items and of one.
    /// assert!(ours.level_to_load(1, 2).is_err());
    /// assert!(ours.level_to_load(3, 1).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a level before is not there, the level has another number of items already or no room for so
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
            let ours = &mut self.levels[at];
            // A level without items is one of which nothing is known yet.
            let least = ours.item_count;
            let most = match least {
                0 => counts::most(ours.whole_capacity, &ours.filter),
                known => known,
            };
            if !(least..=most).contains(&item_count) {
                return Err(wrong(least, most));
            }
            ours.item_count = item_count;
            return Ok(&mut ours.filter);
        }
        if at > last + 1 {
            return Err(LevelsError::Missing {
                level,
                missing: u32::try_from(last + 1).unwrap_or(level),
            });
        }
        let mut next = FilterLevel::new(self.shape, level)
            .map_err(|source| LevelsError::Create { level, source })?;
        let most = counts::most(next.whole_capacity, &next.filter);
        if item_count > most {
            return Err(wrong(0, most));
        }
        next.item_count = item_count;
        self.levels.push(next);
        Ok(&mut self.levels[at].filter)
    }
}
