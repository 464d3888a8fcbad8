//! Finds the first of several filters that contains an item.

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::meta::FilterName;

use super::levels::read_level;
use super::{Coordinator, ReadLevel, Result};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;

/// Most filters in one request: one for each day of a month, and one for older items.
const FILTERS_MAX: usize = 32;

/// Filters of a request that are asked at once: each holds one hash per item meanwhile.
const ASKED_AT_ONCE_MAX: usize = 4;

/// Refuses a request that names no filter, or too many.
pub fn check_filter_count(count: usize) -> Result<()> {
    if (1..=FILTERS_MAX).contains(&count) {
        return Ok(());
    }
    let what = format!("filters has {count} names, expected 1 to {FILTERS_MAX}");
    Err(CallFailure::Invalid { what })
}

impl Coordinator {
    /// Asks several filters; returns for each item the index of the first filter that contains it, and
    /// the level of the answer: the requested one, or the weakest of the filters' defaults. Once every
    /// item has an answer, no further filters are asked.
    pub async fn contains_any(
        &self,
        filters: &[FilterName],
        items: &ItemBatch,
        level: Option<ReadLevel>,
        deadline: Instant,
    ) -> Result<(Vec<Option<usize>>, ReadLevel)> {
        check_filter_count(filters.len())?;
        // A missing filter is an error even if no answer depends on it: whether a list of names is valid
        // must not depend on the items.
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

/// Adds the filter's name to an error that does not contain it.
fn of_filter(name: &FilterName, error: CallFailure) -> CallFailure {
    let named = format!("filter {:?}", name.as_str());
    match error {
        CallFailure::Invalid { what } if !what.starts_with(&named) => {
            CallFailure::Invalid { what: format!("{named}: {what}") }
        }
        error => error,
    }
}
