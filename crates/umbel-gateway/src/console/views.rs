//! What pages show, as JSON.

use std::time::Duration;

use tokio::time::Instant;
use umbel_ports::locked;

use super::Console;
use super::json::{self, Value};
use super::query::Page;
use super::sampler::{Depth, Topic};
use crate::caller::Caller;
use crate::convert;
use crate::limits::STATUS_TIMEOUT;

mod cluster;
mod cube;
mod filters;
mod job_outcome;
mod job_repeats;
mod jobs;
mod repair;

/// Pause between two samples of what nodes know without counting: more frequent samples show no more,
/// because leaders change within seconds.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// The same for samples with counted figures.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// A sample with counted figures is followed by a pause of this many times its duration, so that counting
/// takes at most a fifth of a core.
const PAUSE_PER_COUNT: u32 = 4;

/// A page of the console.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum View {
    /// Nodes, shards, leaders.
    Cluster,
    /// How full filters are.
    Filters,
    /// Jobs of the ledger.
    Jobs,
    /// Exchange of replicated filters.
    Cube,
    /// Replicas that were compared.
    Repair,
}

impl View {
    /// All of them, as the console lists them.
    pub(super) const ALL: [Self; 5] =
        [Self::Cluster, Self::Filters, Self::Jobs, Self::Cube, Self::Repair];

    /// The name in URLs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Filters => "filters",
            Self::Jobs => "jobs",
            Self::Cube => "cube",
            Self::Repair => "repair",
        }
    }

    /// The topic that a page of this view watches; leaves out the page or the owner if the view does not
    /// depend on it, so that such pages share a topic.
    pub(super) fn topic(self, page: Page, owner: String) -> Topic {
        match self {
            Self::Cluster => Topic { view: self, page: Page::default(), owner: String::new() },
            Self::Jobs => {
                let page = Page { open: page.open, ..Page::default() };
                Topic { view: self, page, owner: String::new() }
            }
            Self::Cube | Self::Repair => Topic { view: self, page: Page::default(), owner },
            Self::Filters => Topic { view: self, page, owner },
        }
    }

    /// The pause after a sample, longer if the sample is counted: large filters are counted bit by bit,
    /// and watching them must cost their nodes little.
    pub(super) fn pause_after(self, took: Duration) -> Duration {
        if self.counts() { COUNT_INTERVAL.max(took * PAUSE_PER_COUNT) } else { STATUS_INTERVAL }
    }

    /// Whether a sample is counted, which costs more than a status request.
    pub(super) const fn counts(self) -> bool {
        match self {
            Self::Cluster | Self::Jobs => false,
            Self::Filters | Self::Cube | Self::Repair => true,
        }
    }

    /// What the first sample contains: the figures of many filters in many shards take a while, and the
    /// page must appear before.
    pub(super) const fn first_depth(self) -> Depth {
        match self {
            Self::Filters => Depth::Listed,
            Self::Cluster | Self::Jobs | Self::Cube | Self::Repair => Depth::Counted,
        }
    }

    /// The view with this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.name() == name)
    }
}

/// Takes a sample: the view's content, and what every page shows of the node. Of filters it contains
/// those that the caller may see now.
pub(super) async fn sample(
    console: &Console,
    topic: &Topic,
    caller: &Caller,
    depth: Depth,
) -> String {
    let coordinator = &*console.coordinator;
    let refreshed = coordinator.meta_refresh(Instant::now() + STATUS_TIMEOUT);
    let shown = async {
        match topic.view {
            View::Cluster => cluster::sample(coordinator).await,
            View::Cube => cube::sample(coordinator, caller).await,
            View::Repair => repair::sample(coordinator, caller).await,
            View::Jobs => jobs::sample(coordinator, &topic.page.open).await,
            View::Filters => filters::sample(coordinator, caller, &topic.page, depth).await,
        }
    };
    let (refreshed, shown) = tokio::join!(refreshed, shown);
    let contact = locked(&console.contact).note(refreshed.is_ok(), coordinator.seed().wall_ms());
    let (shown, failure) = match shown {
        Ok(shown) => (shown, Value::Null),
        Err(failure) => (Value::Null, failure.to_string().into()),
    };
    let status = json::object([
        ("node", coordinator.node().0.into()),
        ("cluster_id", convert::cluster_text(coordinator.cluster_id()).into()),
        ("version", umbel_node::VERSION.into()),
        ("unheard_since_ms", contact.lost_since_ms.into()),
        ("failure", failure),
        (topic.view.name(), shown),
    ]);
    json::line(&status)
}
