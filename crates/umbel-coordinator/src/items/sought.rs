//! The filter that a request names, and of what kind it must be.

use tokio::time::Instant;
use umbel_engine::shard::PartError;
use umbel_filter::Kind;

use crate::{Coordinator, LiveFilter, Result};

/// A filter by its name.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) name: &'a str,
    /// Whether it must tell how often an item is in it.
    tells_copies: bool,
}

impl<'a> Sought<'a> {
    /// Of any kind.
    pub(super) const fn any(name: &'a str) -> Self {
        Self { name, tells_copies: false }
    }

    /// Partitioned, and of a kind that tells copies. Requests that go on under another catalogue meet no other filter.
    pub(super) const fn telling_copies(name: &'a str) -> Self {
        Self { name, tells_copies: true }
    }

    /// The live filter of this name, as far as this node knows; certainly, if it is refused for its kind.
    pub(super) async fn find(
        self,
        coordinator: &Coordinator,
        deadline: Instant,
    ) -> Result<LiveFilter> {
        let guess = coordinator.live_filter(self.name, deadline).await?;
        if self.allows(&guess) {
            return Ok(guess);
        }
        coordinator.meta_refresh(deadline).await?;
        let filter = coordinator.live_filter(self.name, deadline).await?;
        if self.allows(&filter) {
            return Ok(filter);
        }
        let what = format!("{:?} does not tell how often an item is in", self.name);
        Err(PartError::WrongKind { what }.into())
    }

    fn allows(self, filter: &LiveFilter) -> bool {
        let kind = Kind::from_id(filter.record.settings.kind);
        let tells_copies = kind.is_some_and(Kind::tells_copies) && !filter.record.is_replicated();
        tells_copies || !self.tells_copies
    }
}
