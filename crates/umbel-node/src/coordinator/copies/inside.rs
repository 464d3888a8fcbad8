//! Copies of filters inside the cluster: what is exported is imported, under another name.

use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use umbel_engine::meta::{FilterName, PrincipalName};

use super::outgoing::{ExportWish, unknown_change};
use super::{ExportPart, ImportHead, ImportPart};
use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::ports::Purpose;

impl Coordinator {
    /// Makes a filter that has what another one has, all shards as they are at one moment, and that goes when that one goes.
    ///
    /// # Errors
    /// If there is no such filter, the name is taken, or there is no room. No part of a copy is left then.
    pub(crate) async fn copy_filter(
        self: &Arc<Self>,
        name: &FilterName,
        new_name: &FilterName,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        let expiry = self.expiry(name, deadline).await?.flatten();
        let wish = ExportWish { known: None, is_snapshot: true };
        let parts = self.export(name, wish, deadline).await?.into_stream();
        let parts = parts.map(|part| {
            Ok(match part? {
                ExportPart::Head(head) => ImportPart::Head(ImportHead {
                    name: new_name.clone(),
                    shard_count: head.shard_count,
                    settings: head.settings,
                }),
                ExportPart::Frame(frame) => ImportPart::Frame(frame),
                ExportPart::End(end) => ImportPart::End(end),
                ExportPart::Change(shard, _) => return Err(unknown_change(shard)),
            })
        });
        self.import(Box::pin(parts), owner).await?;
        match expiry {
            Some(_) => self.expire(new_name, expiry, deadline).await,
            None => Ok(()),
        }
    }

    /// The same in place of a filter that has the name, which answers until the copy does: that is made beside it.
    ///
    /// # Errors
    /// As of [`copy_filter`](Self::copy_filter); the filter that has the name stays then.
    pub(crate) async fn copy_over(
        self: &Arc<Self>,
        name: &FilterName,
        new_name: &FilterName,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        let beside = format!("copying-{:016x}", self.seed().number(Purpose::Snapshot));
        let beside = FilterName::new(beside);
        let beside = beside.map_err(|error| CallFailure::Invalid { what: error.to_string() })?;
        self.copy_filter(name, &beside, owner, deadline).await?;
        let renamed = self.rename(&beside, new_name, true, deadline).await;
        if renamed.is_err() {
            // Nobody else knows its name. What the caller hears is why it was not renamed.
            let _ = self.drop_filter(&beside, None, deadline).await;
        }
        renamed.map(drop)
    }
}
