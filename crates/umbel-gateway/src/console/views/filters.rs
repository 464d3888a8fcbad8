//! Filters and how full they are. The page computes rates and forecasts from the samples since it was opened.

use futures_util::{StreamExt, stream};
use tokio::time::{Duration, Instant};
use umbel_coordinator::Coordinator;
use umbel_coordinator::catalogue::FilterInfo;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterRecord, FilterState, FilterVerb};
use umbel_filter::Kind;
use umbel_proto::v1;

use crate::caller::Caller;
use crate::console::json::{self, Value};
use crate::console::query::Page;
use crate::console::sampler::Depth;
use crate::errors::Result;
use crate::{convert, describe};

/// Filters on one page: each is counted bit by bit, wherever its slices are.
pub(super) const ROWS_MAX: usize = 25;

/// Filters whose figures are requested at once.
pub(super) const ASKED_AT_ONCE_MAX: usize = 4;

/// How long the node waits for a filter's figures: without an answer it shows the filter without figures.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes a sample of the filters that the caller may see, with figures of those that it may read if
/// `depth` is `Depth::Counted`.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(
    coordinator: &Coordinator,
    caller: &Caller,
    page: &Page,
    depth: Depth,
) -> Result<Value> {
    let counts = depth == Depth::Counted;
    let found = coordinator.list(&page.prefix, &page.after, ROWS_MAX, caller.visible())?;
    let (may_read, may_manage) = (caller.readable(), caller.allowed(FilterVerb::Manage));
    let has_more = found.has_more;
    let rows = stream::iter(found.filters)
        .map(async |(id, record)| {
            let name = record.name.as_str();
            let may = May { read: counts && may_read(name), manage: may_manage(name) };
            row(coordinator, caller, may, id, &record).await
        })
        .buffered(ASKED_AT_ONCE_MAX)
        .collect::<Vec<_>>();
    let opened = async {
        let is_asked = counts && !page.open.is_empty() && may_read(&page.open);
        let record = |state: &umbel_engine::meta::MetaState| {
            state.filter_by_name(&page.open).map(|(_, record)| record.clone())
        };
        let record = is_asked.then(|| coordinator.read_meta(record).ok().flatten()).flatten()?;
        Some(detail(&describe::info(&info(coordinator, caller, &record).await?, false)))
    };
    let (rows, opened) = tokio::join!(rows, opened);
    Ok(json::object([
        ("rows", Value::Array(rows)),
        ("has_more", has_more.into()),
        ("is_counted", counts.into()),
        ("opened", opened.into()),
    ]))
}

/// The figures of a filter, if it answers. Each request counts as a call of the caller's principal: an
/// open page requests no more than the rates allow.
pub(super) async fn info(
    coordinator: &Coordinator,
    caller: &Caller,
    record: &FilterRecord,
) -> Option<FilterInfo> {
    if record.state != FilterState::Live || caller.take([1, 0, 0]).is_err() {
        return None;
    }
    let asked = coordinator.info(&record.name, Instant::now() + INFO_TIMEOUT);
    asked.await.ok()
}

/// What the caller may do with a filter.
#[derive(Clone, Copy)]
struct May {
    read: bool,
    manage: bool,
}

async fn row(
    coordinator: &Coordinator,
    caller: &Caller,
    may: May,
    id: FilterId,
    record: &FilterRecord,
) -> Value {
    let info = if may.read {
        info(coordinator, caller, record).await.map(|info| describe::info(&info, false))
    } else {
        None
    };
    let summary = convert::summary(id, record, false);
    json::object([
        // Orders to clear or drop the filter name it by this id.
        ("filter", summary.filter_id.into()),
        ("may_manage", may.manage.into()),
        ("name", (&*summary.name).into()),
        ("kind", Kind::from_id(record.settings.kind).map(|kind| kind.to_string()).into()),
        ("is_replicated", record.is_replicated().into()),
        ("state", (&*summary.state).into()),
        ("generation", summary.generation.into()),
        ("capacity", summary.capacity.into()),
        ("rate_planned", summary.false_positive_rate.into()),
        ("load", info.as_ref().map(load).into()),
    ])
}

fn load(info: &v1::InfoResponse) -> Value {
    json::object([
        ("item_count", info.item_count.into()),
        ("new_count", info.new_count.into()),
        ("position_count", info.position_count.into()),
        ("one_count", info.one_count.into()),
        ("rate_now", info.false_positive_rate_now.into()),
        ("memory_bytes", info.memory_bytes.into()),
        ("unexplained_ones", info.unexplained_one_count.into()),
    ])
}

/// The slices or copies of a filter.
fn detail(info: &v1::InfoResponse) -> Value {
    let slice = |slice: &v1::SliceInfo| {
        json::object([
            ("shard", slice.shard.into()),
            ("leader", slice.leader.into()),
            ("position_count", slice.position_count.into()),
            ("one_count", slice.one_count.into()),
            ("memory_bytes", slice.memory_bytes.into()),
        ])
    };
    let copy = |copy: &v1::CopyInfo| {
        json::object([
            ("node", copy.node.into()),
            ("answers", copy.is_reachable.into()),
            ("is_settled", copy.is_settled.into()),
            ("item_count", copy.item_count.into()),
            ("one_count", copy.one_count.into()),
            ("memory_bytes", copy.memory_bytes.into()),
        ])
    };
    json::object([
        ("name", info.filter.as_ref().map(|filter| &*filter.name).into()),
        ("slices", json::list(info.slices.iter().map(slice))),
        ("copies", json::list(info.copies.iter().map(copy))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_full_has_no_number_of_items() {
        let info = v1::InfoResponse { position_count: 8, one_count: 8, ..Default::default() };
        let shown = load(&info);
        assert_eq!(shown["item_count"], Value::Null);
        assert_eq!((&shown["new_count"], &shown["position_count"]), (&0.into(), &8.into()));
    }

    #[test]
    fn hostile_names_are_texts() {
        let name = "<img src=x onerror=alert(1)>\"},{\"";
        let filter = v1::FilterSummary { name: name.to_owned(), ..Default::default() };
        let shown = detail(&v1::InfoResponse { filter: Some(filter), ..Default::default() });
        let expected = "{\"copies\":[],\"name\":\"\\u003cimg src=x onerror=alert(1)>\\\"},{\\\"\",\"slices\":[]}";
        assert_eq!(json::line(&shown), expected);
    }
}
