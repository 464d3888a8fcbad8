//! Renaming filters.
//!
//! The name changes at once, and a partitioned filter answers again when all its shards have reached its
//! next generation. A coordinator whose copy of the catalogue is outdated still sends requests under the
//! old name; shards refuse them, and it refreshes its catalogue. So no request under the old name is
//! answered after one under the new name has been.

use super::filter_name::FilterName;
use super::filter_record::FilterState;
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use crate::ids::{FilterId, Generation};
use crate::meta::Result;

impl MetaState {
    /// Renames a filter that is at this generation. A filter that has the new name already is dropped if it
    /// is `replaced`; otherwise the command is refused.
    pub(super) fn rename_filter(
        &mut self,
        (filter, generation): (FilterId, Generation),
        name: &FilterName,
        replaced: Option<FilterId>,
    ) -> Result<MetaReply> {
        let no_merge = self.check_no_merge();
        let record = self.named(filter)?;
        if record.name == *name || record.generation > generation {
            return Ok(MetaReply::Done);
        }
        if record.state != FilterState::Live {
            return Err(record.busy());
        }
        if !record.is_replicated() {
            no_merge?;
        }
        match self.names.get(name) {
            None => {}
            // The first change, so that nothing has changed if it is refused.
            Some(&other) if Some(other) == replaced => drop(self.drop_filter(other)?),
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
