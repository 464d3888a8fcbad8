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
    QUIET_MAX, Restored, check_ranges, checked, decode_settings, invalid, step_deadline,
};
use crate::catalogue::ranges_of;
use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Creates a filter from an export. It becomes live if count and checksum of the frames are right;
    /// otherwise, or if the caller gives up before, it is dropped. It counts towards the quota of `owner`.
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
        let ranges = self.ranges_for(&settings)?;
        check_ranges(theirs, &settings.shape, ranges)?;
        let mut settings = checked(settings, ranges)?;
        settings.shape = self.placed(settings.shape);
        let cuts = Cuts { theirs, ours: ranges };
        let loading = Loading::begin(Arc::clone(self), &name, owner, settings, cuts).await?;
        loading
            .run(async |loading| {
                loop {
                    match next(&mut parts).await? {
                        Some(ImportPart::Frame(frame)) => loading.load(frame).await?,
                        Some(ImportPart::End(end)) => return loading.verify(end).await,
                        Some(ImportPart::Head(_)) => {
                            return Err(invalid("a second header came".to_owned()));
                        }
                        None => return Err(ended_early()),
                    }
                }
            })
            .await
    }

    /// Creates the filters of a backup, each as soon as its frames are verified. Filters whose names are taken
    /// are left out. On an error the complete filters stay.
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
        let (mut outcome, mut seen_count) = (Restored::default(), 0);
        loop {
            match next(&mut parts).await? {
                Some(BackupPart::Filter(filter)) => {
                    seen_count += 1;
                    let name = filter.name.clone();
                    if self.restore_filter(filter, owner.clone(), ranges, &mut parts).await? {
                        outcome.restored.push(name);
                    } else {
                        tracing::warn!(filter = name, "not restored: the name is taken");
                        outcome.skipped.push(name);
                    }
                }
                Some(BackupPart::End { filter_count }) if filter_count == seen_count => {
                    return Ok(outcome);
                }
                Some(BackupPart::End { filter_count }) => {
                    let what = format!("{seen_count} filters came, expected {filter_count}");
                    return Err(invalid(what));
                }
                Some(_) => return Err(invalid("a frame came before its filter".to_owned())),
                None => return Err(ended_early()),
            }
        }
    }

    /// Creates one filter of a backup whose shards were cut as in `theirs`; false if its name is taken.
    async fn restore_filter<S>(
        self: &Arc<Self>,
        filter: BackupFilter,
        owner: Option<PrincipalName>,
        theirs: ShardRanges,
        parts: &mut S,
    ) -> Result<bool>
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
                return Ok(false);
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
        loading.run(work).await.map(|_| true)
    }

    /// The shards for which the frames of such a filter are cut: a replicated filter fits any cluster.
    fn ranges_for(&self, settings: &FilterSettings) -> Result<ShardRanges> {
        match settings.distribution {
            Distribution::Partitioned => self.read_meta(ranges_of)?,
            Distribution::Replicated => Ok(one_shard()),
        }
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
