//! What the cluster is told of this node's memory: quotas of filters rest on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::{MetaCommand, MetaState};

use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::local::Local;

/// How long one try may take.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next try: a cluster that is being formed has no leader yet.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// Has the cluster know how much memory this node may use, if it knows itself; ends when it does.
pub(crate) async fn tell(local: Arc<Local>, coordinator: Arc<Coordinator>, limit_bytes: u64) {
    let node = local.node();
    let is_known = |state: &MetaState| state.memory_limit(node) == Some(limit_bytes);
    if limit_bytes == 0 {
        return;
    }
    loop {
        let deadline = Instant::now() + TELL_TIMEOUT;
        let told = async {
            coordinator.meta_refresh(deadline).await?;
            if coordinator.read_meta(is_known)? {
                return Ok::<_, CallFailure>(());
            }
            let command = MetaCommand::NoteMemoryLimit { node, limit_bytes };
            coordinator.meta_propose(command, deadline).await.map(drop)
        };
        match told.await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(%error, "the cluster was not told this node's memory yet");
            }
        }
        tokio::time::sleep(TELL_PAUSE).await;
    }
}
