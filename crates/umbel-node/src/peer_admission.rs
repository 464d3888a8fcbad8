//! Admission at the node's peer port: calls of members, adoption by a founder, requests of strangers.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{Mutex, watch};
use tonic::{Code, Status, Streaming};
use umbel_engine::meta::{MetaState, NODE_ADDRESS_BYTES_MAX, NodeRecord, VersionRange};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::{Disk, PortFuture};
use umbel_proto::v1::{
    AdoptRequest, ExchangePart, ExchangeQuestion, Founder, ScrubPart, WhoAreYouResponse,
};
use umbel_raft::peer::{
    AnswerStream, CallHandler, CallKind, CallRefusal, LocalIdentity, PEER_PROTOCOL, RefusalReason,
    cluster_bytes, cluster_of_bytes,
};
use umbel_raft::{Witness, answer_standings, requests_standings};
use umbel_step::planted::{self, Planted};
use umbel_storage::Storage;
use umbel_storage::identity::{self, Identity, MemberState};

use crate::VERSION;
use crate::awaited::named;
use crate::cube::{answer_scrub, take_questions};
use crate::local::Local;

#[cfg(test)]
mod strangers_test;

/// Decides which calls of which peers the node serves.
pub(crate) struct PeerAdmission {
    local: Arc<OnceLock<Arc<Local>>>,
    identity: Mutex<Identity>,
    disk: Arc<dyn Disk>,
    storage: Storage,
    witness: Arc<Witness>,
    /// The founders in this node's configuration; empty if it does not form a cluster.
    founders: Vec<String>,
    /// Shards of a new cluster, 0 for any number, and replicas of each, in this node's configuration.
    formation: (u32, u32),
    /// Cluster versions that this node supports.
    versions: VersionRange,
    /// Where clients reach this node's port of the Redis protocol, as `host:port`; empty if it has none.
    resp_address: String,
    /// How the list of a node that wanted to found a cluster with this one differs from this node's list, as of the last
    /// try.
    conflict: watch::Sender<Option<String>>,
    /// The membership in the identity, for tasks that wait for adoption.
    membership: watch::Sender<Option<LocalIdentity>>,
}

impl PeerAdmission {
    pub(crate) fn new(
        local: Arc<OnceLock<Arc<Local>>>,
        identity: Identity,
        (disk, storage): (Arc<dyn Disk>, Storage),
        witness: Arc<Witness>,
        (founders, formation): (Vec<String>, (u32, u32)),
        versions: VersionRange,
        resp_address: String,
    ) -> Self {
        let membership = watch::Sender::new(member_of(&identity));
        let identity = Mutex::new(identity);
        Self {
            local,
            identity,
            disk,
            storage,
            witness,
            founders,
            formation,
            versions,
            resp_address,
            conflict: watch::Sender::new(None),
            membership,
        }
    }

    /// What this node knows of a starting one. It answers also while it is starting itself, because
    /// otherwise nodes that start together would wait for each other.
    async fn standings_of(&self, node: NodeId) -> Bytes {
        let local = self.local.get();
        let copies = local.map(|local| local.copies().inserts_of(node)).unwrap_or_default();
        let nodes = local.map(|local| local.addresses().into_iter().collect()).unwrap_or_default();
        let own = self.identity().map(|own| own.node);
        answer_standings(node, own, &self.storage, &self.witness, copies, nodes).await
    }

    /// Watches the membership.
    pub(crate) fn membership(&self) -> watch::Receiver<Option<LocalIdentity>> {
        self.membership.subscribe()
    }

    /// Why this node was not adopted, if its list of founders is another than that of who tried.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.conflict.borrow().clone()
    }

    /// The current identity.
    pub(crate) async fn identity_now(&self) -> Identity {
        self.identity.lock().await.clone()
    }

    /// Makes a new identity durable.
    pub(crate) async fn become_member(&self, new: Identity) -> Result<(), String> {
        let mut identity = self.identity.lock().await;
        identity::save(&*self.disk, &new).await.map_err(|error| error.to_string())?;
        *identity = new;
        self.membership.send_replace(member_of(&identity));
        Ok(())
    }

    async fn adopted(&self, request: AdoptRequest) -> Result<(), Status> {
        let node = NodeId(request.node);
        let own = request.founders.iter().find(|founder| founder.node == node.0);
        let own = own.ok_or_else(|| {
            Status::invalid_argument(format!("founders: {node} is not among them"))
        })?;
        let first = first_founder(&request).map_or(&*own.address, |first| &*first.address);
        if request.protocol != PEER_PROTOCOL {
            return Err(Status::failed_precondition(format!(
                "{first} speaks peer protocol {}, {} {PEER_PROTOCOL}: bring both to one release",
                request.protocol, own.address
            )));
        }
        let cluster = cluster_of_bytes(&request.cluster_id)
            .ok_or_else(|| Status::invalid_argument("cluster_id: expected 16 bytes"))?;
        let mut identity = self.identity.lock().await;
        if let Some(ours) = member_of(&identity) {
            return if (ours.cluster, ours.node) == (cluster, node) {
                Ok(())
            } else {
                Err(Status::failed_precondition(format!(
                    "{} is {} of cluster {:032x} already: to form another cluster, give it an empty data folder; if \
                     {first} lost its data, run `umbel cluster remove` for its old number on another node, then start \
                     it with --join in place of --initial-cluster",
                    own.address, ours.node, ours.cluster
                )))
            };
        }
        let conflict = other_list((first, &request.founders), (&own.address, &self.founders));
        self.conflict.send_replace(conflict.clone());
        if let Some(conflict) = conflict {
            return Err(Status::new(OTHER_LIST, conflict));
        }
        if let Some(warning) = other_formation(&request, own, self.formation) {
            tracing::warn!("{warning}");
        }
        let new = Identity {
            nonce: identity.nonce,
            cluster: Some(cluster),
            node: Some(node),
            address: own.address.clone(),
            state: MemberState::Member,
        };
        identity::save(&*self.disk, &new)
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        *identity = new;
        self.membership.send_replace(member_of(&identity));
        Ok(())
    }

    /// Access to the node for a member; refuses a caller that is no longer a member, or if this node is
    /// not one yet.
    fn admit(&self, from: NodeId) -> Result<Arc<Local>, CallRefusal> {
        let starting = || CallRefusal::new(RefusalReason::Unavailable, "this node is starting");
        let local = self.local.get().cloned().ok_or_else(starting)?;
        let is_gone = local.read_meta(|state| state.is_no_member(from));
        if is_gone && !planted::on(Planted::RemovedNodeAdmitted) {
            return Err(CallRefusal::new(RefusalReason::Removed, not_a_member(from)));
        }
        Ok(local)
    }
}

fn not_a_member(node: NodeId) -> String {
    format!(
        "{node} was removed from the cluster, or never was in it; with an empty data folder, and \
         with TLS a certificate of its own, it may join again"
    )
}

/// The status of an adoption that is refused because of the lists of founders. Whoever asks tries again: the wrong list may
/// be that of the node that refuses, which is started again with the right one.
pub(crate) const OTHER_LIST: Code = Code::Aborted;

/// The founder that forms the cluster.
fn first_founder(request: &AdoptRequest) -> Option<&Founder> {
    request.founders.iter().min_by_key(|founder| founder.node)
}

/// How the list of a founder, at the address `first`, and that of this node, at `own`, differ; None if they are the same.
/// Both sides log the text, so it calls neither of them "this node".
fn other_list(
    (first, theirs): (&str, &[Founder]),
    (own, ours): (&str, &[String]),
) -> Option<String> {
    let short = |address: &str| address.chars().take(NODE_ADDRESS_BYTES_MAX).collect::<String>();
    let (first, own) = (short(first), short(own));
    if ours.is_empty() {
        return Some(format!(
            "{first} is to found a cluster with {own}, which was started without a list of founders: start all founders \
             with the same --initial-cluster"
        ));
    }
    let theirs: BTreeSet<String> = theirs.iter().map(|founder| short(&founder.address)).collect();
    let ours: BTreeSet<String> = ours.iter().map(|address| short(address)).collect();
    let alone = |who: &str, list: &BTreeSet<String>, other: &BTreeSet<String>| {
        let alone: Vec<&str> = list.difference(other).map(String::as_str).collect();
        (!alone.is_empty()).then(|| format!("{who} alone names {}", named(&alone)))
    };
    let differences = [alone(&first, &theirs, &ours), alone(&own, &ours, &theirs)];
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    (!differences.is_empty()).then(|| {
        format!(
            "{first}, which forms the cluster, and {own} name different founders (--initial-cluster): {}; start all \
             founders with the same list",
            differences.join(", ")
        )
    })
}

/// What a founder says that was started with other numbers of shards and replicas than the one that adopts it. No
/// refusal: the cluster is well defined, by the numbers of the first founder, and has started so in every release.
fn other_formation(
    request: &AdoptRequest,
    own: &Founder,
    (shards, replicas): (u32, u32),
) -> Option<String> {
    let AdoptRequest { shard_count, replica_count, .. } = *request;
    if (shards == 0 || shard_count == shards) && replica_count == replicas {
        return None;
    }
    let wanted = if shards == 0 { "any number".to_owned() } else { shards.to_string() };
    let first = first_founder(request)?;
    Some(format!(
        "node {} ({}) forms the cluster with {shard_count} shards and {replica_count} replicas of each, but this one, \
         node {} ({}), was started for {wanted} and {replicas}: the numbers of node {} count; start all founders with \
         the same shards and replicas",
        first.node, first.address, own.node, own.address, first.node
    ))
}

/// The membership that an identity contains.
fn member_of(identity: &Identity) -> Option<LocalIdentity> {
    Some(LocalIdentity { cluster: identity.cluster?, node: identity.node? })
}

impl CallHandler for PeerAdmission {
    fn identity(&self) -> Option<LocalIdentity> {
        *self.membership.borrow()
    }

    /// According to this node's catalogue. An old catalogue lacks nodes that have joined since, and
    /// such a node may be the one that brings the new entries; so unknown nodes are not refused.
    fn knows(&self, from: NodeId) -> bool {
        self.local.get().is_some_and(|local| {
            let is_live = |record: &NodeRecord| record.is_live();
            local.read_meta(|state| state.node(from).is_some_and(is_live))
        })
    }

    fn check_member(&self, from: NodeId) -> Result<(), Status> {
        let Some(local) = self.local.get() else { return Ok(()) };
        let is_gone = local.read_meta(|state| state.is_no_member(from));
        if is_gone && !planted::on(Planted::RemovedNodeAdmitted) {
            Err(Status::permission_denied(not_a_member(from)))
        } else {
            Ok(())
        }
    }

    fn handle(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
        Box::pin(async move {
            if requests_standings(kind, &body) {
                return Ok(self.standings_of(from).await);
            }
            self.admit(from)?.serve(from, kind, group, body).await
        })
    }

    fn exchange(
        self: Arc<Self>,
        from: NodeId,
        questions: Streaming<ExchangeQuestion>,
    ) -> PortFuture<'static, Result<AnswerStream<ExchangePart>, Status>> {
        Box::pin(async move {
            let local = self.admit(from).map_err(|refusal| Status::unavailable(refusal.message))?;
            let answer = take_questions(local.copies(), from, questions).await?;
            Ok(Box::pin(answer) as AnswerStream<ExchangePart>)
        })
    }

    fn scrub(
        self: Arc<Self>,
        from: NodeId,
        parts: Streaming<ScrubPart>,
    ) -> Result<AnswerStream<ScrubPart>, Status> {
        let local = self.admit(from).map_err(|refusal| Status::unavailable(refusal.message))?;
        Ok(Box::pin(answer_scrub(Arc::clone(local.copies()), from, parts)?))
    }

    fn adopt(&self, request: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
        Box::pin(self.adopted(request))
    }

    fn who_are_you(&self) -> WhoAreYouResponse {
        let ours = self.identity();
        let is_formed = self.local.get().is_some_and(|local| local.read_meta(MetaState::is_formed));
        WhoAreYouResponse {
            protocol: PEER_PROTOCOL,
            cluster_id: ours.map(|ours| cluster_bytes(ours.cluster)).unwrap_or_default(),
            node: ours.map_or(0, |ours| ours.node.0),
            is_formed,
            oldest_version: self.versions.oldest.0,
            newest_version: self.versions.newest.0,
            release: VERSION.to_owned(),
            resp_address: self.resp_address.clone(),
            wall_ms: self.local.get().map_or(0, |local| local.seed().wall_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn founders_with_other_numbers_are_named_with_them() {
        let founder = |node, address: &str| Founder { node, address: address.to_owned() };
        let own = founder(2, "n2:1");
        let request = AdoptRequest {
            founders: vec![founder(1, "n1:1"), own.clone()],
            shard_count: 16,
            replica_count: 3,
            ..AdoptRequest::default()
        };
        assert_eq!(other_formation(&request, &own, (16, 3)), None);
        assert_eq!(other_formation(&request, &own, (0, 3)), None);
        let said = |shards, replicas| other_formation(&request, &own, (shards, replicas)).unwrap();
        let warning = said(8, 3);
        for part in ["node 1 (n1:1)", "16 shards and 3 replicas", "node 2 (n2:1)", "for 8 and 3"] {
            assert!(warning.contains(part), "{warning}");
        }
        assert!(said(16, 1).contains("for 16 and 1"));
        assert!(said(0, 1).contains("for any number and 1"));
    }

    #[test]
    fn a_list_that_differs_is_told_with_both_addresses_and_the_difference() {
        let founders = |list: &[&str]| -> Vec<Founder> {
            let founder =
                |(node, address): (u64, &&str)| Founder { node, address: (*address).to_owned() };
            (1..).zip(list).map(founder).collect()
        };
        let list =
            |list: &[&str]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
        let said = |theirs: &[&str], ours: &[&str]| {
            other_list(("n1:1", &founders(theirs)), ("n3:1", &list(ours)))
        };
        let three = ["n1:1", "n2:1", "n3:1"];
        assert_eq!(said(&three, &three), None);
        let longer = said(&three, &["n1:1", "n2:1", "n3:1", "n4:1"]).unwrap();
        let expected = "n1:1, which forms the cluster, and n3:1 name different founders (--initial-cluster): n3:1 \
                        alone names n4:1; start all founders with the same list";
        assert_eq!(longer, expected);
        let other = said(&three, &["n1:1", "n3:1", "n5:1"]).unwrap();
        assert!(other.contains(": n1:1 alone names n2:1, n3:1 alone names n5:1; "), "{other}");
        let none = said(&three, &[]).unwrap();
        assert!(none.contains("n3:1, which was started without a list"), "{none}");
        // Whoever reaches the port may send any list.
        let many: Vec<String> =
            (0..1000).map(|number| format!("{number}{}", "x".repeat(1000))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(said(&many, &three).unwrap().len() < 4096);
    }
}
