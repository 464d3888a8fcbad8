//! How orders about filters are carried out: as the bare commands, unless the filter was renamed since the
//! client's right on its name was checked.

use std::borrow::Cow;

use super::command::MetaCommand;
use super::filter_order::{FilterChange, FilterOrder};
use super::filter_record::FilterState;
use super::reply::MetaError;
use super::state::MetaState;
use crate::meta::Result;

impl FilterOrder {
    /// The command that makes the same change, whatever the filter's name is.
    ///
    /// ```
    /// use umbel_engine::FilterId;
    /// use umbel_engine::meta::{FilterChange, FilterName, FilterOrder, MetaCommand};
    ///
    /// let (filter, name) = (FilterId(7), FilterName::new("a").unwrap());
    /// let order = FilterOrder { filter, name, change: FilterChange::Drop };
    /// assert_eq!(order.command(), MetaCommand::DropFilter { filter });
    /// ```
    #[must_use]
    pub fn command(&self) -> MetaCommand {
        let filter = self.filter;
        match &self.change {
            FilterChange::Drop => MetaCommand::DropFilter { filter },
            &FilterChange::SetExpiry { expires_ms } => {
                MetaCommand::SetExpiry { filter, expires_ms }
            }
            &FilterChange::Clear { generation } => MetaCommand::ClearFilter { filter, generation },
            &FilterChange::Rotate { generation } => {
                MetaCommand::RotateFilter { filter, generation }
            }
            FilterChange::Rename { generation, name, replaced } => MetaCommand::RenameFilter {
                filter,
                generation: *generation,
                name: name.clone(),
                replaced: *replaced,
            },
            &FilterChange::ReplaceExpiry { seen_ms, expires_ms } => {
                MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms }
            }
            &FilterChange::Take { seen } => MetaCommand::TakeFilter { filter, seen },
        }
    }
}

impl MetaCommand {
    /// The command without the name for which it was ordered: itself, if it has none.
    #[must_use]
    pub fn bare(&self) -> Cow<'_, Self> {
        match self {
            Self::Order(order) => Cow::Owned(order.command()),
            command => Cow::Borrowed(command),
        }
    }

    /// Whether proposing the command once more does no harm, as when the answer was lost. Of all commands two must
    /// not be. If somebody else has restored the time that [`ReplaceExpiry`](Self::ReplaceExpiry) saw, a repetition would find
    /// it and replace it again. And the answer to a second [`TakeFilter`](Self::TakeFilter) would not say who has taken it.
    ///
    /// ```
    /// use umbel_engine::FilterId;
    /// use umbel_engine::meta::{MetaCommand, SeenExpiry};
    ///
    /// let (filter, expires_ms) = (FilterId(7), Some(1_000));
    /// assert!(MetaCommand::SetExpiry { filter, expires_ms }.is_repeatable());
    /// assert!(!MetaCommand::ReplaceExpiry { filter, seen_ms: None, expires_ms }.is_repeatable());
    /// assert!(!MetaCommand::TakeFilter { filter, seen: SeenExpiry::Any }.is_repeatable());
    /// ```
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        !matches!(*self.bare(), Self::ReplaceExpiry { .. } | Self::TakeFilter { .. })
    }
}

impl MetaState {
    /// Refuses an order about a filter that has another name now, as if there were no such filter. What was
    /// done already may be ordered again: the command then does nothing.
    pub(super) fn check_order(&self, order: &FilterOrder) -> Result<()> {
        let Some(record) = self.filters.get(&order.filter) else { return Ok(()) };
        let is_named_so = match &order.change {
            FilterChange::Rename { name, .. } => [&order.name, name].contains(&&record.name),
            _ => record.name == order.name,
        };
        if is_named_so || record.state == FilterState::Dropping {
            return Ok(());
        }
        Err(MetaError::UnknownFilter { filter: order.filter })
    }
}
