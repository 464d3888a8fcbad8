//! Imports: copies are loaded into filters that stay invisible until the last frame is verified.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use tokio::time::timeout;
use umbel_engine::FilterId;
use umbel_engine::meta::{
    Distribution, FilterName, FilterRecord, FilterSettings, MetaError, PrincipalName,
};
use umbel_engine::placement::ShardRanges;

use super::loading::{Cuts, Loading, ended_early};
use super::whole::one_shard;
use super::{
    BACKUP_FORMAT, BackupFilter, BackupHead, BackupPart, ExportedSettings, ImportHead, ImportPart,
    QUIET_MAX, Restored, check_key, check_ranges, checked, decode_settings, invalid, step_deadline,
};
use crate::catalogue::ranges_of;
use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

/// Most filters that the error of a restore names as restored: the list of filters shows all.
const RESTORED_NAMED_MAX: usize = 8;

/// Where a restore broke off.
enum Break {
    /// Between two filters.
    Between,
    /// While the filter of this name was created or loaded: nobody can have used it.
    Loading(String),
    /// When the filter of this name, which was loaded, was to become live.
    GoingLive(String),
}

impl Coordinator {
    /// Creates a filter from an export. It becomes live if count and checksum of the frames are right;
    /// otherwise, or if the caller gives up before, it is dropped. It counts towards the quota of `owner`, who must be
    /// allowed to read a filter with its key, if that is secret.
    pub async fn import<S>(
        self: &Arc<Self>,
        mut parts: S,
        owner: Option<PrincipalName>,
    ) -> Result<(FilterId, FilterRecord)>
    where
        S: Stream<Item = Result<ImportPart>> + Unpin,
    {
        let Some(ImportPart::Head(head)) = next(&mut parts).await? else {
            return Err(invalid("the first message must hold a header".to_owned()));
        };
        let ImportHead { name, ranges: theirs, settings } = head;
        let settings: ExportedSettings = decode_settings(&settings)?;
        self.meta_refresh(step_deadline()).await?;
        let settings = self.read_meta(|state| settings.with_key(state))??;
        self.read_meta(|state| check_key(state, &settings.key, owner.as_ref()))??;
        let ranges = self.ranges_for(&settings)?;
        check_ranges(theirs, &settings.shape, ranges)?;
        let mut settings = checked(settings, ranges)?;
        settings.shape = self.placed(settings.shape);
        let cuts = Cuts { theirs, ours: ranges };
        let loading = Loading::begin(Arc::clone(self), &name, owner, settings, cuts).await?;
        let work = async |loading: &mut Loading| loop {
            match next(&mut parts).await? {
                Some(ImportPart::Frame(frame)) => loading.load(frame).await?,
                Some(ImportPart::End(end)) => return loading.verify(end).await,
                Some(ImportPart::Head(_)) => {
                    return Err(invalid("a second header came".to_owned()));
                }
                None => return Err(ended_early()),
            }
        };
        loading.fill(work).await?.go_live().await
    }

    /// Creates the filters of a backup, each as soon as its frames are verified. Filters whose names are taken
    /// are left out. On an error the complete filters stay, and the error names them.
    pub async fn restore<S>(
        self: &Arc<Self>,
        mut parts: S,
        owner: Option<PrincipalName>,
    ) -> Result<Restored>
    where
        S: Stream<Item = Result<BackupPart>> + Unpin,
    {
        let Some(BackupPart::Head(head)) = next(&mut parts).await? else {
            return Err(invalid("the first message must hold a header".to_owned()));
        };
        let BackupHead { format, ranges, .. } = head;
        if format != BACKUP_FORMAT {
            let what = format!("the backup has format {format}, expected {BACKUP_FORMAT}");
            return Err(invalid(what));
        }
        self.meta_refresh(step_deadline()).await?;
        let mut outcome = Restored::default();
        match self.restore_filters(&mut outcome, owner, ranges, &mut parts).await {
            Ok(()) => Ok(outcome),
            Err((at, cause)) => Err(broken_off(&outcome.restored, &at, cause)),
        }
    }

    /// Creates the filters of a backup, and adds each to the outcome. An error comes with where it happened.
    async fn restore_filters<S>(
        self: &Arc<Self>,
        outcome: &mut Restored,
        owner: Option<PrincipalName>,
        theirs: ShardRanges,
        parts: &mut S,
    ) -> Result<(), (Break, CallFailure)>
    where
        S: Stream<Item = Result<BackupPart>> + Unpin,
    {
        let between = |error: CallFailure| (Break::Between, error);
        let mut seen_count = 0;
        loop {
            match next(parts).await.map_err(between)? {
                Some(BackupPart::Filter(filter)) => {
                    seen_count += 1;
                    let name = filter.name.clone();
                    match self.load_filter(filter, owner.clone(), theirs, parts).await {
                        Ok(Some(loading)) => match loading.go_live().await {
                            Ok(_) => outcome.restored.push(name),
                            Err(error) => return Err((Break::GoingLive(name), error)),
                        },
                        Ok(None) => {
                            tracing::warn!(filter = name, "not restored: the name is taken");
                            outcome.skipped.push(name);
                        }
                        Err(error) => return Err((Break::Loading(name), error)),
                    }
                }
                Some(BackupPart::End { filter_count }) if filter_count == seen_count => {
                    return Ok(());
                }
                Some(BackupPart::End { filter_count }) => {
                    let what = format!("{seen_count} filters came, expected {filter_count}");
                    return Err(between(invalid(what)));
                }
                Some(_) => {
                    return Err(between(invalid("a frame came before its filter".to_owned())));
                }
                None => return Err(between(ended_early())),
            }
        }
    }

    /// Creates one filter of a backup whose shards were cut as in `theirs`, and loads it; None if its name is taken.
    async fn load_filter<S>(
        self: &Arc<Self>,
        filter: BackupFilter,
        owner: Option<PrincipalName>,
        theirs: ShardRanges,
        parts: &mut S,
    ) -> Result<Option<Loading>>
    where
        S: Stream<Item = Result<BackupPart>> + Unpin,
    {
        let BackupFilter { name, settings } = filter;
        let name = FilterName::new(name).map_err(|error| invalid(error.to_string()))?;
        let settings: FilterSettings = decode_settings(&settings)?;
        let ranges = self.ranges_for(&settings)?;
        let theirs = match settings.distribution {
            Distribution::Partitioned => theirs,
            Distribution::Replicated => ranges,
        };
        check_ranges(theirs, &settings.shape, ranges)?;
        let settings = checked(settings, ranges)?;
        let cuts = Cuts { theirs, ours: ranges };
        let loading = match Loading::begin(Arc::clone(self), &name, owner, settings, cuts).await {
            Ok(loading) => loading,
            Err(CallFailure::Meta(MetaError::NameTaken { .. })) => {
                skip_filter(parts).await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let work = async |loading: &mut Loading| loop {
            match next(parts).await? {
                Some(BackupPart::Frame(frame)) => loading.load(frame).await?,
                Some(BackupPart::FilterEnd(end)) => return loading.verify(end).await,
                Some(_) => return Err(invalid("a filter of the backup has no end".to_owned())),
                None => return Err(ended_early()),
            }
        };
        loading.fill(work).await.map(Some)
    }

    /// The shards for which the frames of such a filter are cut: a replicated filter fits any cluster.
    fn ranges_for(&self, settings: &FilterSettings) -> Result<ShardRanges> {
        match settings.distribution {
            Distribution::Partitioned => self.read_meta(ranges_of)?,
            Distribution::Replicated => Ok(one_shard()),
        }
    }
}

/// The failure of a restore that broke off here, after it had restored these filters.
fn broken_off(restored: &[String], at: &Break, cause: CallFailure) -> CallFailure {
    let mut what = match (at, &cause) {
        (Break::GoingLive(name), CallFailure::OutcomeUnknown { .. }) => {
            format!("filter {name:?} of the backup may or may not have been restored: {cause}")
        }
        (Break::GoingLive(name) | Break::Loading(name), _) => {
            format!("filter {name:?} of the backup was not restored: {cause}")
        }
        (Break::Between, _) => format!("the restore broke off between two filters: {cause}"),
    };
    if restored.is_empty() {
        what += "; none was restored before it";
    } else {
        let named: Vec<String> =
            restored.iter().take(RESTORED_NAMED_MAX).map(|name| format!("{name:?}")).collect();
        what += &format!("; restored before it: {}", named.join(", "));
        if restored.len() > RESTORED_NAMED_MAX {
            what += &format!(" and {} more", restored.len() - RESTORED_NAMED_MAX);
        }
    }
    what += "; those behind it in the backup were not created: when the cause is mended";
    if let Some(name) = may_be_left(at, &cause) {
        what += &format!(
            ", and umbel filter list shows {name:?} neither as `creating` nor as `importing` (before, it would \
             be left out)"
        );
    }
    what +=
        ", restore the same backup again, which leaves out filters that exist (umbel filter list)";
    let is_partial = !restored.is_empty();
    CallFailure::RestoreBroken { what, is_partial, cause: Box::new(cause) }
}

/// The name of the filter that may be there for a while although it was not restored: the cluster may create it later,
/// and where no majority answers, it was not dropped.
fn may_be_left<'b>(at: &'b Break, cause: &CallFailure) -> Option<&'b str> {
    match (at, cause) {
        (
            Break::Loading(name) | Break::GoingLive(name),
            CallFailure::OutcomeUnknown { .. } | CallFailure::NoQuorum { .. },
        ) => Some(name),
        _ => None,
    }
}

/// The next part; an error if the client sends none for `QUIET_MAX`.
async fn next<T, S>(parts: &mut S) -> Result<Option<T>>
where
    S: Stream<Item = Result<T>> + Unpin,
{
    match timeout(QUIET_MAX, parts.next()).await {
        Ok(part) => part.transpose(),
        Err(_) => {
            let seconds = QUIET_MAX.as_secs();
            Err(invalid(format!("the client sent nothing for {seconds} s")))
        }
    }
}

/// Skips the frames of a filter.
async fn skip_filter<S>(parts: &mut S) -> Result<()>
where
    S: Stream<Item = Result<BackupPart>> + Unpin,
{
    loop {
        match next(parts).await? {
            Some(BackupPart::Frame(_)) => {}
            Some(BackupPart::FilterEnd(_)) => return Ok(()),
            Some(_) => return Err(invalid("a filter of the backup has no end".to_owned())),
            None => return Err(ended_early()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use tokio::time::sleep;
    use umbel_node::limits::EXPORT_FRAME_PAYLOAD_BYTES_MAX;

    use super::*;

    #[test]
    fn a_restore_that_broke_off_names_what_exists_and_what_does_not() {
        let names: Vec<String> = (0..=RESTORED_NAMED_MAX).map(|n| format!("f{n}")).collect();
        let taken = || CallFailure::Overloaded { what: "no room".to_owned() };
        let loading = || Break::Loading("g".to_owned());
        let text = |count: usize, at: Break, cause: CallFailure| {
            broken_off(&names[..count], &at, cause).to_string()
        };
        let whole = text(2, loading(), taken());
        assert_eq!(
            whole,
            "filter \"g\" of the backup was not restored: no room; restored before it: \"f0\", \"f1\"; those behind it in \
             the backup were not created: when the cause is mended, restore the same backup again, which leaves out \
             filters that exist (umbel filter list)"
        );
        assert!(text(0, loading(), taken()).contains("; none was restored before it; those"));
        assert!(text(names.len(), Break::Between, taken()).contains("\"f7\" and 1 more; those"));
        for (count, is_partial) in [(0, false), (1, true)] {
            let CallFailure::RestoreBroken { is_partial: is, cause, .. } =
                broken_off(&names[..count], &Break::Between, taken())
            else {
                panic!()
            };
            assert_eq!((is, *cause), (is_partial, taken()));
        }
    }

    /// The cluster may have created it, or may yet, and drops it when its lease ends.
    #[test]
    fn a_filter_that_a_restore_may_have_left_is_to_be_waited_for() {
        let name = || "g".to_owned();
        let unknown = || CallFailure::OutcomeUnknown { what: "silence".to_owned() };
        let silent = || CallFailure::NoQuorum { what: "meta".to_owned(), within: Duration::ZERO };
        let text = |at: Break, cause| broken_off(&["f".to_owned()], &at, cause).to_string();
        let waits = "when the cause is mended, and umbel filter list shows \"g\" neither as `creating` nor as `importing`";
        for cause in [unknown(), silent()] {
            let said = text(Break::Loading(name()), cause);
            assert!(said.starts_with("filter \"g\" of the backup was not restored: "), "{said}");
            assert!(said.contains(waits) && said.contains(", restore the same backup"), "{said}");
        }
        // It was loaded, and may be live.
        let said = text(Break::GoingLive(name()), unknown());
        assert!(said.starts_with("filter \"g\" of the backup may or may not"), "{said}");
        assert!(said.contains(waits), "{said}");
        assert!(!text(Break::Between, unknown()).contains("importing"));
    }

    /// As slowly as `umbel filter import --from redis://` lets a server answer.
    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_slow_source_is_waited_for() {
        let after = |pause| {
            let part = async move {
                sleep(pause).await;
                Ok::<u8, CallFailure>(7)
            };
            stream::once(part).boxed()
        };
        let of_frame = u64::try_from(EXPORT_FRAME_PAYLOAD_BYTES_MAX).unwrap() / (16 << 10);
        let slow = Duration::from_secs(60 + of_frame);
        assert_eq!(next(&mut after(slow)).await, Ok(Some(7)));
        let error = next(&mut after(2 * QUIET_MAX)).await.unwrap_err().to_string();
        assert!(error.contains("the client sent nothing for 150 s"), "{error}");
    }
}
