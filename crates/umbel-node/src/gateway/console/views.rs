//! What pages show, as JSON.

use tokio::time::Instant;

use super::Console;
use super::json::Json;
use super::sampler::Topic;
use crate::gateway::convert;
use crate::gateway::limits::STATUS_TIMEOUT;

mod cluster;

/// A page of the console.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum View {
    /// Nodes, shards, leaders.
    Cluster,
}

impl View {
    /// All of them, as the console lists them.
    pub(super) const ALL: [Self; 1] = [Self::Cluster];

    /// Its name in addresses.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
        }
    }

    /// The view of a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.name() == name)
    }
}

/// Takes a sample: what the view shows, and what every page says of the node.
pub(super) async fn sample(console: &Console, topic: &Topic) -> String {
    let coordinator = &*console.coordinator;
    let heard = coordinator.meta_refresh(Instant::now() + STATUS_TIMEOUT);
    let shown = async {
        match topic.view {
            View::Cluster => cluster::sample(coordinator).await,
        }
    };
    let (heard, shown) = tokio::join!(heard, shown);
    let hearing = console.hearing().note(heard.is_ok(), coordinator.seed().wall_ms());
    let (shown, failure) = match shown {
        Ok(shown) => (shown, Json::Null),
        Err(failure) => (Json::Null, failure.to_string().into()),
    };
    Json::object([
        ("node", coordinator.node().0.into()),
        ("cluster", convert::cluster_text(coordinator.cluster_id()).into()),
        ("version", convert::VERSION.into()),
        ("unheard_since_ms", hearing.unheard_since_ms.into()),
        ("failure", failure),
        (topic.view.name(), shown),
    ])
    .to_string()
}
