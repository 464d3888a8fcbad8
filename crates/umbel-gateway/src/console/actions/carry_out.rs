//! Carries out orders, each through the service that gRPC calls use.

use futures_util::StreamExt;
use tonic::{Request, Status};
use umbel_coordinator::catalogue::Seen;
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_proto::v1;
use umbel_proto::v1::admin_server::Admin;
use umbel_proto::v1::filters_server::Filters;
use umbel_proto::v1::jobs_server::Jobs;
use umbel_proto::v1::scrub_report::Part;

use super::order::{self, check_typed, read};
use super::{Action, Actions};
use crate::caller::Caller;
use crate::convert::kind_to_proto;
use crate::measure::measured;

/// A request as the gate lets it pass: with its caller.
fn asked<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request
}

impl Actions {
    /// Carries out an order and returns a text about it.
    ///
    /// # Errors
    /// As the gRPC call with the same effect; if the order is malformed.
    pub(super) async fn carry_out(
        &self,
        action: Action,
        caller: &Caller,
        body: &[u8],
    ) -> Result<String, Status> {
        match action {
            Action::Create => self.create(caller, read(body)?).await,
            Action::Clear => self.clear(caller, read(body)?).await,
            Action::Drop => self.drop(caller, read(body)?).await,
            Action::Move => self.move_replica(caller, read(body)?).await,
            Action::Drain => self.drain(caller, read(body)?).await,
            Action::Remove => self.remove(caller, read(body)?).await,
            Action::Compare => self.compare(caller, read(body)?).await,
            Action::Cancel => self.cancel(caller, &read(body)?).await,
            Action::Resume => self.resume(caller, &read(body)?).await,
        }
    }

    async fn create(&self, caller: &Caller, new: order::Create) -> Result<String, Status> {
        let order::Create { name, kind, capacity, rate, is_replicated } = new;
        let distribution = if is_replicated {
            v1::Distribution::Replicated
        } else {
            v1::Distribution::Partitioned
        };
        let request = v1::CreateRequest {
            name: name.clone(),
            kind: kind_to_proto(kind.id()).into(),
            capacity,
            false_positive_rate: rate,
            distribution: distribution.into(),
            ..Default::default()
        };
        let made = self.filters.create(asked(caller, request)).await?.into_inner();
        Ok(format!("Filter {name} is made.{}", unconfirmed(&made.unconfirmed_nodes)))
    }

    async fn clear(&self, caller: &Caller, wanted: order::Clear) -> Result<String, Status> {
        let order::Clear { name, filter, generation, typed } = wanted;
        check_typed(&typed, &name)?;
        let generation = Some(Generation(generation));
        let seen = Seen { filter: FilterId(filter), generation };
        let request = asked(caller, v1::ClearRequest { name: name.clone() });
        let cleared =
            measured("clear", self.filters.clear_seen(request, Some(seen))).await?.into_inner();
        Ok(format!("Filter {name} is empty.{}", unconfirmed(&cleared.unconfirmed_nodes)))
    }

    async fn drop(&self, caller: &Caller, wanted: order::Drop) -> Result<String, Status> {
        let order::Drop { name, filter, typed } = wanted;
        check_typed(&typed, &name)?;
        let seen = Seen { filter: FilterId(filter), generation: None };
        let request = asked(caller, v1::DropRequest { name: name.clone() });
        let dropped =
            measured("drop", self.filters.drop_seen(request, Some(seen))).await?.into_inner();
        Ok(format!("Filter {name} is gone.{}", unconfirmed(&dropped.unconfirmed_nodes)))
    }

    async fn move_replica(&self, caller: &Caller, wanted: order::Move) -> Result<String, Status> {
        let order::Move { shard, from, to } = wanted;
        let request = v1::MoveShardRequest { shard, from, to };
        self.admin.move_shard(asked(caller, request)).await?;
        Ok(format!(
            "A replica of shard {shard} moves from node {from} to node {to}: the view shows when it is there."
        ))
    }

    /// Refuses a dangerous order unless the node's address was typed. If the node is unknown, the call decides.
    fn check_node(&self, node: u64, typed: &str) -> Result<(), Status> {
        let address = self.address_of(NodeId(node));
        address.map_or(Ok(()), |address| check_typed(typed, &address))
    }

    async fn drain(&self, caller: &Caller, wanted: order::Drain) -> Result<String, Status> {
        let order::Drain { node, undo, typed } = wanted;
        if !undo {
            self.check_node(node, &typed)?;
        }
        let request = v1::DrainRequest { node, undo };
        let count = self.admin.drain(asked(caller, request)).await?.into_inner().replica_count;
        Ok(if undo {
            format!("Node {node} takes replicas again.")
        } else {
            format!(
                "Node {node} is being drained: {count} replicas go to other nodes, as the view shows."
            )
        })
    }

    async fn remove(&self, caller: &Caller, wanted: order::Remove) -> Result<String, Status> {
        let order::Remove { node, typed } = wanted;
        self.check_node(node, &typed)?;
        self.admin.remove(asked(caller, v1::RemoveNodeRequest { node })).await?;
        Ok(format!("Node {node} is removed, and never comes back under this number."))
    }

    async fn compare(&self, caller: &Caller, wanted: order::Compare) -> Result<String, Status> {
        let order::Compare { filter } = wanted;
        let request = asked(caller, v1::ScrubRequest { filter });
        let mut reports = self.admin.scrub(request).await?.into_inner();
        let mut compared = Compared::default();
        while let Some(report) = reports.next().await {
            compared.add(report?.part);
        }
        Ok(compared.to_string())
    }

    async fn cancel(&self, caller: &Caller, wanted: &order::Job) -> Result<String, Status> {
        let job = wanted.number()?;
        self.jobs.cancel_job(asked(caller, v1::CancelJobRequest { job })).await?;
        Ok(format!("Job {job} is asked to end: nothing of its outputs will stand under its name."))
    }

    async fn resume(&self, caller: &Caller, wanted: &order::Job) -> Result<String, Status> {
        let job = wanted.number()?;
        self.jobs.resume_job(asked(caller, v1::ResumeJobRequest { job })).await?;
        Ok(format!("Job {job} is taken up again."))
    }
}

/// A text about nodes that have not confirmed in time that they know of a change.
fn unconfirmed(nodes: &[u64]) -> String {
    let names: Vec<String> = nodes.iter().map(u64::to_string).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" Not confirmed yet by node {}, which follow by themselves.", names.join(", "))
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Compared {
    count: u64,
    mended_count: u64,
    failed_count: u64,
}

impl Compared {
    fn add(&mut self, part: Option<Part>) {
        let (failed, mended) = match part {
            Some(Part::Pair(pair)) => {
                (!pair.failure.is_empty(), pair.node_lost_bits + pair.partner_lost_bits > 0)
            }
            Some(Part::Shard(shard)) => {
                let is_left = shard.left_blocks > 0 || shard.answers_differ;
                let is_away = shard.replicas.iter().any(|replica| !replica.failure.is_empty());
                let differs = |replica: &v1::ScrubReplica| replica.lost_bits + replica.surplus_bits;
                let is_mended = shard.replicas.iter().any(|replica| differs(replica) > 0);
                (!shard.failure.is_empty() || is_left || is_away, is_mended)
            }
            Some(Part::Done(_)) | None => return,
        };
        self.count += 1;
        self.failed_count += u64::from(failed);
        self.mended_count += u64::from(mended && !failed);
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, mended_count, failed_count } = self;
        match (count, mended_count, failed_count) {
            (0, ..) => write!(f, "There is nothing to compare."),
            (count, 0, 0) => {
                write!(f, "Compared {count} slices and pairs of copies: all are equal.")
            }
            (count, mended, failed) => write!(
                f,
                "Compared {count} slices and pairs of copies: {mended} had lost bits, which are set again; \
                 {failed} failed, were left out in part or still differ. The rows of the view say which."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_shown_by_its_worst_ending() {
        let pair = |node_lost_bits, failure: &str| {
            Some(Part::Pair(v1::ScrubPair {
                node_lost_bits,
                failure: failure.to_owned(),
                ..Default::default()
            }))
        };
        let shard = |replica: v1::ScrubReplica, left_blocks| {
            let replicas = vec![v1::ScrubReplica::default(), replica];
            Some(Part::Shard(v1::ScrubShard { replicas, left_blocks, ..Default::default() }))
        };
        let result = |parts: Vec<Option<Part>>| {
            let mut compared = Compared::default();
            parts.into_iter().for_each(|part| compared.add(part));
            (compared, compared.to_string())
        };
        assert!(result(vec![Some(Part::Done(v1::ScrubDone::default()))]).1.contains("nothing"));
        assert!(result(vec![pair(0, "")]).1.ends_with("all are equal."));
        let lost = v1::ScrubReplica { lost_bits: 3, ..Default::default() };
        let away = v1::ScrubReplica { failure: "silent".to_owned(), ..Default::default() };
        let (compared, text) = result(vec![
            pair(2, ""),
            pair(0, "away"),
            shard(lost.clone(), 0),
            shard(lost, 1),
            shard(away, 0),
        ]);
        assert_eq!(compared, Compared { count: 5, mended_count: 2, failed_count: 3 });
        assert!(text.contains("2 had lost bits"), "{text}");
    }
}
