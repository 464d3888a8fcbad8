//! What the cluster is told of this node: its memory, on which quotas of filters rest, and its zone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_engine::meta::{MetaCommand, MetaState};
use umbel_engine::placement::Zone;

use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::local::Local;

/// How long one try may take.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next try: a cluster that is being formed has no leader yet.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// What a node knows of itself.
#[derive(Clone, Debug)]
pub(crate) struct SelfReport {
    /// How much memory it may use; 0 if it does not know.
    pub(crate) limit_bytes: u64,
    /// What it fails together with.
    pub(crate) zone: Option<Zone>,
}

impl SelfReport {
    /// What the cluster does not know yet.
    fn news(&self, node: NodeId, state: &MetaState) -> Option<MetaCommand> {
        let limit_bytes = self.limit_bytes;
        if limit_bytes != 0 && state.memory_limit(node) != Some(limit_bytes) {
            return Some(MetaCommand::NoteMemoryLimit { node, limit_bytes });
        }
        let zone = self.zone.clone();
        (state.zones().get(node) != zone.as_ref()).then_some(MetaCommand::NoteZone { node, zone })
    }
}

/// Has the cluster know what this node knows of itself; ends when it does.
pub(crate) async fn tell(local: Arc<Local>, coordinator: Arc<Coordinator>, report: SelfReport) {
    let node = local.node();
    loop {
        let deadline = Instant::now() + TELL_TIMEOUT;
        let told = async {
            coordinator.meta_refresh(deadline).await?;
            let Some(command) = coordinator.read_meta(|state| report.news(node, state))? else {
                return Ok::<_, CallFailure>(true);
            };
            coordinator.meta_propose(command, deadline).await.map(|_| false)
        };
        match told.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "the cluster was not told of this node yet");
                tokio::time::sleep(TELL_PAUSE).await;
            }
        }
    }
}
