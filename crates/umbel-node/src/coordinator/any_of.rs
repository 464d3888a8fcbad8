//! Which of several filters is the first that has an item.

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::meta::FilterName;

use super::items::read_level;
use super::{Coordinator, ReadLevel};
use crate::failure::CallFailure;
use crate::gateway::items::ItemBatch;

/// Most filters that one question names: one for each day of a month, and what is older.
const FILTERS_MAX: usize = 32;

/// Filters of a question that are asked at once: each holds a hash an item meanwhile.
const ASKED_AT_ONCE_MAX: usize = 4;

/// Refuses a question that names no filter, or too many.
pub(crate) fn check_filter_count(count: usize) -> Result<(), CallFailure> {
    if (1..=FILTERS_MAX).contains(&count) {
        return Ok(());
    }
    let what = format!("filters has {count} names, expected 1 to {FILTERS_MAX}");
    Err(CallFailure::Invalid { what })
}

impl Coordinator {
    /// Asks several filters, and answers for each item which of them is the first that has it, by its
    /// place in the list. With the level of the answer: the one that was asked for, or the weakest of the
    /// filters' own. Filters behind the last that can change an answer are not asked.
    pub(crate) async fn contains_any(
        &self,
        filters: &[FilterName],
        items: &ItemBatch,
        level: Option<ReadLevel>,
        deadline: Instant,
    ) -> Result<(Vec<Option<usize>>, ReadLevel), CallFailure> {
        check_filter_count(filters.len())?;
        // A filter that is not there is named even where nothing depends on it: whether a list of names is
        // right must not depend on the items.
        let mut weakest = ReadLevel::Linearizable;
        for (at, name) in filters.iter().enumerate() {
            if filters[..at].contains(name) {
                let what = format!("filters[{at}] is named twice: {:?}", name.as_str());
                return Err(CallFailure::Invalid { what });
            }
            let filter = self.live_filter(name.as_str(), deadline).await?;
            let own = read_level(&filter.record, level).map_err(|error| of_filter(name, error))?;
            if own != ReadLevel::Linearizable {
                weakest = own;
            }
        }
        let mut firsts: Vec<Option<usize>> = vec![None; items.len()];
        let mut open_count = firsts.len();
        let questions = (0..filters.len()).map(|at| async move {
            let name = &filters[at];
            let answer = self.contains(name.as_str(), items, level, deadline).await;
            (at, answer.map_err(|error| of_filter(name, error)))
        });
        let mut answers = stream::iter(questions).buffered(ASKED_AT_ONCE_MAX);
        while open_count > 0
            && let Some((at, answer)) = answers.next().await
        {
            let (present, _) = answer?;
            for (first, is_present) in firsts.iter_mut().zip(present.iter()) {
                if is_present && first.is_none() {
                    *first = Some(at);
                    open_count -= 1;
                }
            }
        }
        Ok((firsts, weakest))
    }
}

/// An error that does not name its filter otherwise.
fn of_filter(name: &FilterName, error: CallFailure) -> CallFailure {
    match error {
        CallFailure::Invalid { what } => {
            CallFailure::Invalid { what: format!("filter {:?}: {what}", name.as_str()) }
        }
        error => error,
    }
}
