//! Filters that get another name.
//!
//! The name changes at once, and the filter answers again when all its shards are at its next generation. So who still asks by the
//! name before, because his copy of the catalogue is old, is refused by the shards and looks again: nobody is answered by the old name
//! after somebody was answered by the new one.

use super::catalogue::FilterState;
use super::command::{MetaError, MetaReply};
use super::filter_name::FilterName;
use super::state::MetaState;
use crate::ids::{FilterId, Generation};

impl MetaState {
    /// Gives a filter, which is at this generation, another name; the one that has the name is dropped, if it is the one that is
    /// named.
    pub(super) fn rename_filter(
        &mut self,
        (filter, generation): (FilterId, Generation),
        name: &FilterName,
        replaced: Option<FilterId>,
    ) -> Result<MetaReply, MetaError> {
        let record = self.named(filter)?;
        if record.name == *name || record.generation > generation {
            return Ok(MetaReply::Done);
        }
        if record.state != FilterState::Live {
            return Err(record.busy());
        }
        match self.names.get(name) {
            None => {}
            Some(&other) if Some(other) == replaced => drop(self.drop_filter(other)),
            Some(_) => return Err(MetaError::NameTaken { name: name.as_str().to_owned() }),
        }
        let record = self.named(filter)?;
        let before = std::mem::replace(&mut record.name, name.clone());
        if !record.is_replicated() {
            let to = Generation(record.generation.0.saturating_add(1));
            record.state = FilterState::Renaming { to };
        }
        self.names.remove(&before);
        self.names.insert(name.clone(), filter);
        Ok(MetaReply::Done)
    }
}
