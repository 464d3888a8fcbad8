//! Why a change of a filter is not complete: what the shards report that have not done their part.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::meta::{FilterChange, FilterRecord, FilterState, MetaError};
use umbel_engine::shard::PartError;
use umbel_engine::{FilterId, Generation, ShardId};

use super::super::Coordinator;
use super::SHARD_CALLS_MAX;
use crate::Result;
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;

/// Time before a call's deadline that is reserved to ask shards why they are late: two tries at a leader
/// on a busy machine.
const REASON_TIME: Duration = Duration::from_secs(1);

/// Most reasons in one message; shards on one full disk all give the same.
const REASONS_MAX: usize = 3;

impl Coordinator {
    /// Until when to wait for a change of the catalogue, so that time is left to ask why it is late: at
    /// least half of the remaining time.
    pub(super) fn patience_until(deadline: Instant) -> Instant {
        let remaining = deadline.saturating_duration_since(Instant::now());
        deadline - REASON_TIME.min(remaining / 2)
    }

    /// The error if the meta group has agreed, but not every shard has followed: names the late shards,
    /// and why.
    pub(super) async fn unfinished(
        &self,
        filter: FilterId,
        within: Duration,
        deadline: Instant,
    ) -> CallFailure {
        let within = within.as_millis();
        let known = self.read_meta(|state| {
            let record = state.filter(filter)?;
            Some((format!("filter {:?}", record.name.as_str()), fate(record.state)))
        });
        // A filter that is gone by now has no name.
        let (name, fate) = known.ok().flatten().unwrap_or_else(|| (filter.to_string(), ""));
        let mut what =
            format!("not every shard has done its part for {name} within {within} ms{fate}");
        let reasons = self.late_shards(filter, deadline).await;
        for reason in reasons.iter().take(REASONS_MAX) {
            what += "; ";
            what += reason;
        }
        if reasons.len() > REASONS_MAX {
            what += &format!("; and {} more", reasons.len() - REASONS_MAX);
        }
        CallFailure::OutcomeUnknown { what }
    }

    /// Asks every shard for its slice of a filter that is being created, cleared or dropped. It only
    /// asks: a slice that was created here might arrive after the filter's end, and nothing would drop
    /// it.
    async fn late_shards(&self, filter: FilterId, deadline: Instant) -> Vec<String> {
        let wanted = self.read_meta(|state| {
            let record = state.filter(filter)?;
            let (generation, part) = Part::of(record)?;
            let request = ShardRequest::Describe { filter, generation };
            Some((state.shard_map().ranges()?, request, part))
        });
        let Ok(Some((ranges, request, part))) = wanted else { return Vec::new() };
        let call = |shard| self.call_late(shard, request.clone(), part, deadline);
        let answers = stream::iter(ranges.shards().map(call)).buffered(SHARD_CALLS_MAX);
        answers.filter_map(std::future::ready).collect().await
    }

    async fn call_late(
        &self,
        shard: ShardId,
        request: ShardRequest,
        part: Part,
        deadline: Instant,
    ) -> Option<String> {
        let why = part.why_late(self.shard_call(shard, request, deadline).await)?;
        Some(match self.shard_leader_hint(shard) {
            Some(leader) => format!("{shard} on {leader}: {why}"),
            None => format!("{shard}: {why}"),
        })
    }
}

/// The failure of a filter's creation that the meta group may have agreed to.
pub(super) fn may_exist(name: &str, error: CallFailure) -> CallFailure {
    match error {
        CallFailure::OutcomeUnknown { what } => CallFailure::OutcomeUnknown {
            what: format!(
                "filter {name:?} may have been created, or may not: {what}; umbel filter list tells, and creating it again \
                 does no harm: it is refused while a filter has the name"
            ),
        },
        error => error,
    }
}

/// What becomes of a change that the meta group has agreed to, and what a client may do meanwhile.
const fn fate(state: FilterState) -> &'static str {
    match state {
        FilterState::Creating { importing: false } => {
            ": it is in the catalogue, and can be used as soon as they have (umbel filter list shows it as live then); \
             creating it again is refused, and changes nothing"
        }
        FilterState::Dropping => ": it is gone as soon as they have, and its name is free then",
        FilterState::Clearing { .. }
        | FilterState::Rotating { .. }
        | FilterState::Renaming { .. } => {
            ": the change is done as soon as they have (umbel filter list shows the filter as live then)"
        }
        // An import that is late is given up, and its filter dropped.
        FilterState::Creating { importing: true } | FilterState::Importing | FilterState::Live => {
            ""
        }
    }
}

/// Refuses the next generation of a filter that another change is bringing to it: a command that arrives when that
/// is done does nothing, and the generation would look like its own.
pub(super) fn refuse_during_other_change(
    record: &FilterRecord,
    change: &FilterChange,
) -> Result<()> {
    let is_other = match record.state {
        FilterState::Clearing { .. } => !matches!(change, FilterChange::Clear { .. }),
        FilterState::Rotating { .. } => !matches!(change, FilterChange::Rotate { .. }),
        FilterState::Renaming { .. } => true,
        FilterState::Creating { .. }
        | FilterState::Importing
        | FilterState::Live
        | FilterState::Dropping => false,
    };
    if is_other {
        Err(CallFailure::FilterBusy {
            name: record.name.as_str().to_owned(),
            state: record.state.to_string(),
        })
    } else {
        Ok(())
    }
}

/// What the refusal of a filter's next generation means if the filter is at it by `now`. A change that was in progress
/// is done then; otherwise an earlier try of the command may have begun it, whose reply was lost, or another change.
pub(super) fn check_begun(
    record: &FilterRecord,
    now: Option<Generation>,
    refusal: CallFailure,
) -> Result<()> {
    let is_begun = now.is_some_and(|now| now > record.generation);
    match refusal {
        CallFailure::Meta(MetaError::Busy { .. }) if is_begun => {}
        refusal => return Err(refusal),
    }
    match record.state.next_generation() {
        Some(_) => Ok(()),
        None => {
            let name = record.name.as_str();
            let what = format!(
                "filter {name:?} has begun another generation, by this change or another one"
            );
            Err(CallFailure::OutcomeUnknown { what })
        }
    }
}

/// What every shard does for a change of the catalogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// To have a slice of the generation to which the change leads.
    Have,
    /// To have no slice any more.
    Forget,
}

impl Part {
    /// The part that is awaited, and the generation that it is about; None if nothing is changing.
    fn of(record: &FilterRecord) -> Option<(Generation, Self)> {
        match record.state {
            FilterState::Creating { .. } => Some((record.generation, Self::Have)),
            FilterState::Clearing { to }
            | FilterState::Rotating { to }
            | FilterState::Renaming { to } => Some((to, Self::Have)),
            FilterState::Dropping => Some((record.generation, Self::Forget)),
            FilterState::Importing | FilterState::Live => None,
        }
    }

    /// Why the part is not done, from the shard's answer about its slice; None if it is done.
    fn why_late(self, described: Result<ShardAnswer>) -> Option<String> {
        match (self, described) {
            (Self::Have, Ok(_))
            | (Self::Forget, Err(CallFailure::Part(PartError::UnknownSlice { .. }))) => None,
            (Self::Forget, Ok(_) | Err(CallFailure::Part(PartError::StaleGeneration { .. }))) => {
                Some("has not forgotten its slice".to_owned())
            }
            (Self::Have, Err(CallFailure::Part(PartError::UnknownSlice { .. }))) => {
                Some("has no part of it yet".to_owned())
            }
            (_, Err(error)) => Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    const FILTER: FilterId = FilterId(7);

    fn stale() -> CallFailure {
        let [got, current] = [2, 1].map(Generation);
        PartError::StaleGeneration { filter: FILTER, got, current }.into()
    }

    fn unknown() -> CallFailure {
        PartError::UnknownSlice { filter: FILTER, shard: ShardId(3) }.into()
    }

    #[test]
    fn no_change_takes_the_generation_of_another_for_its_own() {
        let (generation, to) = (Generation(1), Generation(2));
        let clear = FilterChange::Clear { generation };
        let rotate = FilterChange::Rotate { generation };
        let is_refused = |state, change| {
            let refused = refuse_during_other_change(&FilterRecord { state, ..record() }, change);
            matches!(refused, Err(CallFailure::FilterBusy { .. }))
        };
        for (state, clears, rotates) in [
            (FilterState::Live, true, true),
            (FilterState::Clearing { to }, true, false),
            (FilterState::Rotating { to }, false, true),
            (FilterState::Renaming { to }, false, false),
        ] {
            assert_eq!(!is_refused(state, &clear), clears, "{state}");
            assert_eq!(!is_refused(state, &rotate), rotates, "{state}");
        }
    }

    #[test]
    fn a_change_that_is_late_is_told_with_what_becomes_of_it() {
        let created = fate(FilterState::Creating { importing: false });
        assert!(created.contains("umbel filter list") && created.contains("creating it again is"));
        assert!(fate(FilterState::Dropping).contains("its name is free then"));
        let to = Generation(2);
        assert!(fate(FilterState::Clearing { to }).contains("the change is done as soon as"));
        for dropped in [FilterState::Creating { importing: true }, FilterState::Importing] {
            assert_eq!(fate(dropped), "");
        }
    }

    #[test]
    fn a_creation_without_an_answer_is_told_by_the_name() {
        let silent = CallFailure::OutcomeUnknown { what: "nobody leads".to_owned() };
        let text = may_exist("seen", silent).to_string();
        assert!(
            text.starts_with("filter \"seen\" may have been created, or may not: nobody leads; ")
        );
        assert!(text.contains("umbel filter list tells") && text.contains("again does no harm"));
        assert_eq!(may_exist("seen", stale()), stale());
    }

    #[test]
    fn a_refusal_of_a_generation_that_has_begun_does_not_say_that_nothing_was_changed() {
        let busy = || CallFailure::Meta(MetaError::Busy { name: "a".into(), state: "live".into() });
        let (live, to) = (record(), Generation(2));
        let clearing = FilterRecord { state: FilterState::Clearing { to }, ..record() };
        for now in [None, Some(live.generation)] {
            for seen in [&live, &clearing] {
                assert_eq!(check_begun(seen, now, busy()), Err(busy()));
            }
        }
        let unknown = check_begun(&live, Some(to), busy());
        assert!(matches!(unknown, Err(CallFailure::OutcomeUnknown { .. })), "{unknown:?}");
        assert_eq!(check_begun(&clearing, Some(to), busy()), Ok(()));
        assert_eq!(check_begun(&live, Some(to), stale()), Err(stale()));
    }

    #[test]
    fn a_slice_of_the_generation_before_is_late_for_both_parts() {
        let emptied = Part::Have.why_late(Err(stale())).unwrap();
        assert!(emptied.contains("generation 1") && emptied.contains("generation 2"), "{emptied}");
        let dropped = Part::Forget.why_late(Err(stale()));
        assert_eq!(dropped.as_deref(), Some("has not forgotten its slice"));
    }

    #[test]
    fn no_slice_is_late_where_one_is_wanted_and_done_where_none_is() {
        let created = Part::Have.why_late(Err(unknown()));
        assert_eq!(created.as_deref(), Some("has no part of it yet"));
        assert_eq!(Part::Forget.why_late(Err(unknown())), None);
    }

    #[test]
    fn a_shard_that_does_not_answer_says_why_for_both_parts() {
        for part in [Part::Have, Part::Forget] {
            let silent = CallFailure::OutcomeUnknown { what: "nobody leads".to_owned() };
            assert!(part.why_late(Err(silent)).unwrap().contains("nobody leads"));
        }
    }
}
