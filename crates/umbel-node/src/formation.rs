//! How a node becomes part of a cluster: it is a member already, founds the cluster, is adopted by the
//! founder, or joins.
//!
//! ```text
//! founder 1  asks the others, draws the cluster's identity, keeps it on disk, adopts all others,
//!            then forms
//! founder n  waits until founder 1 has adopted it; the adoption is on its disk before it answers
//! joiner     asks any member for a number; its nonce makes a repeated question one question
//! ```
//!
//! The cluster begins at the newest version that all founders support. A founder forms the cluster only
//! after every other founder was adopted. So a founder without an identity beside a formed cluster has
//! lost its disk: it is refused, with a message that says what to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use umbel_engine::NodeId;
use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaError, MetaReply, MetaState};
use umbel_ports::Purpose;
use umbel_ports::channel::channel;
use umbel_proto::v1::admin_client::AdminClient;
use umbel_proto::v1::{AdoptRequest, Founder, JoinRequest};
use umbel_raft::peer::{
    LocalIdentity, PEER_PROTOCOL, cluster_bytes, cluster_of_bytes, peer_client,
};
use umbel_step::planted::{self, Planted};
use umbel_storage::identity::{Identity, MemberState};
use umbel_storage::types::NodeAddress;

use crate::awaited::{Awaited, log_conflict};
use crate::calls::{MetaAnswer, MetaRequest};
use crate::config::{Config, ConfigError};
use crate::founder_looks::{
    FOUNDER_REQUEST_TIMEOUT, FounderLooks, LOOK_PAUSE, watch_adopter, watch_others, who_are, who_is,
};
use crate::leader_calls::LeaderCalls;
use crate::local::Local;
use crate::local::release::versions_of;
use crate::node::StartError;
use crate::peer_admission::{OTHER_LIST, PeerAdmission};
use crate::ports::Ports;
use crate::reasons::{BrokenTries, Reasons, lacks_tls, passes, reason_of};

/// Pause between requests to a node that does not respond yet.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The founders in the order of their numbers, sorted by address.
pub(crate) fn founders(config: &Config, address: &str) -> Vec<String> {
    let mut founders =
        if config.dev { vec![address.to_owned()] } else { config.initial_cluster.clone() };
    founders.sort_unstable();
    founders.dedup();
    founders
}

/// Waits until the node belongs to a cluster.
///
/// # Errors
/// If it cannot become part of one, however long it waits; the text says what to do.
pub(crate) async fn membership(
    admission: &PeerAdmission,
    awaited: &Awaited,
    config: &Config,
    ports: &Ports,
    address: &str,
) -> Result<LocalIdentity, StartError> {
    if let Some(member) = *admission.membership().borrow() {
        if let Some(join) = &config.join {
            let cluster = format_args!("{:032x}", member.cluster);
            tracing::info!(%cluster, join, "the data folder belongs to a cluster, join is not used");
        }
        return Ok(member);
    }
    let founders = founders(config, address);
    match &config.join {
        _ if founders.first().is_some_and(|first| first == address) => {
            found(admission, ports, &founders, address).await
        }
        _ if !founders.is_empty() => {
            let looks = FounderLooks::new(awaited, config.tls_cert.is_some());
            wait_for_adoption(admission, (awaited, looks), ports, &founders, address).await
        }
        // Only of a node that is in no cluster yet: a member may be restarted with settings that all nodes share.
        Some(member) if member == address => {
            Err(ConfigError::JoinsItself { address: address.to_owned() }.into())
        }
        Some(member) => {
            let has_tls = config.tls_cert.is_some();
            let joined = join(admission, ports, member, address, has_tls).await;
            joined.map_err(StartError::Membership)
        }
        None => Err(ConfigError::NoOrigin.into()),
    }
}

/// Draws the cluster's identity and stores it, unless another founder reports an existing cluster. The
/// other founders are adopted once this node runs. A founder that does not respond now can still refuse
/// the adoption then.
async fn found(
    admission: &PeerAdmission,
    ports: &Ports,
    founders: &[String],
    address: &str,
) -> Result<LocalIdentity, StartError> {
    let others = founders.iter().filter(|&founder| founder != address);
    for (other, answer) in who_are(ports, others, FOUNDER_REQUEST_TIMEOUT).await {
        if let Some(formed) = answer.ok().filter(|answer| answer.is_formed) {
            return Err(StartError::Founded(lost_disk(other, &formed.cluster_id)));
        }
    }
    let mut bytes = [0; 16];
    ports.seed.fill(Purpose::Identity, &mut bytes);
    let cluster = u128::from_le_bytes(bytes);
    let node = NodeId(1);
    let identity = Identity {
        nonce: admission.identity_now().await.nonce,
        cluster: Some(cluster),
        node: Some(node),
        address: address.to_owned(),
        state: MemberState::Forming,
    };
    admission.become_member(identity).await.map_err(StartError::Membership)?;
    Ok(LocalIdentity { cluster, node })
}

/// Waits for the founder; gives up if the others have formed a cluster without this node.
async fn wait_for_adoption(
    admission: &PeerAdmission,
    (awaited, mut looks): (&Awaited, FounderLooks<'_>),
    ports: &Ports,
    founders: &[String],
    address: &str,
) -> Result<LocalIdentity, StartError> {
    let (mut membership, began) = (admission.membership(), Instant::now());
    tracing::info!(founder = founders[0], "waiting for the founder of the cluster");
    loop {
        let mut missing = Vec::new();
        let others = founders.iter().filter(|&founder| founder != address);
        for (founder, answer) in who_are(ports, others, REQUEST_TIMEOUT).await {
            let other = match answer {
                Ok(other) => other,
                Err(status) => {
                    missing.push((founder, status));
                    continue;
                }
            };
            if other.is_formed && membership.borrow().is_none() {
                if planted::on(Planted::IdentityIgnored) {
                    let taken = take_old_number(admission, &other.cluster_id, founders, address);
                    return taken.await.map_err(StartError::Membership);
                }
                return Err(StartError::Founded(lost_disk(founder, &other.cluster_id)));
            }
        }
        let conflict = admission.conflict();
        // Others that start at the same time are not missing yet; and if the lists differ, this one may name nodes that
        // do not exist.
        let is_told = conflict.is_none() && began.elapsed() >= LOOK_PAUSE;
        looks.note_conflict(conflict);
        if is_told {
            looks.note(&missing);
        }
        let adopted = membership.wait_for(Option::is_some);
        if let Ok(Ok(member)) = tokio::time::timeout(LOOK_PAUSE, adopted).await {
            awaited.note_adopted(&founders[0]);
            let taken_back = || StartError::Membership("the adoption was taken back".to_owned());
            return member.ok_or_else(taken_back);
        }
    }
}

/// A planted bug: a founder without data continues under its old number.
async fn take_old_number(
    admission: &PeerAdmission,
    cluster_id: &[u8],
    founders: &[String],
    address: &str,
) -> Result<LocalIdentity, String> {
    let cluster = cluster_of_bytes(cluster_id).unwrap_or_default();
    let place = founders.iter().position(|founder| founder == address).unwrap_or_default();
    let local = LocalIdentity { cluster, node: NodeId(place as u64 + 1) };
    become_member(admission, admission.identity_now().await, local, address).await
}

/// Makes this node, which was `before`, a member under this number.
async fn become_member(
    admission: &PeerAdmission,
    before: Identity,
    local: LocalIdentity,
    address: &str,
) -> Result<LocalIdentity, String> {
    let identity = Identity {
        cluster: Some(local.cluster),
        node: Some(local.node),
        address: address.to_owned(),
        state: MemberState::Member,
        ..before
    };
    admission.become_member(identity).await?;
    Ok(local)
}

fn lost_disk(other: &str, cluster_id: &[u8]) -> String {
    let cluster = cluster_of_bytes(cluster_id).unwrap_or_default();
    format!(
        "{other} belongs to cluster {cluster:032x}, which is formed, but this node's data folder is \
         empty: if its data was lost, run `umbel cluster remove NODE` for its old number on another \
         node, then start this one with --join {other} in place of --initial-cluster"
    )
}

/// Warns if the node that `join` names is of another cluster than this node, whose data folder belongs to
/// `cluster`. It is no error: addresses are given to others over the years, and this node is a member that
/// starts again with the command that it joined with. Asks once; a node that does not answer is not waited for.
pub async fn warn_of_other_cluster(config: Config, ports: Ports, cluster: u128) {
    let Some(join) = &config.join else { return };
    let answer = who_is(&ports, join, REQUEST_TIMEOUT).await.ok();
    let other = answer.and_then(|answer| cluster_of_bytes(&answer.cluster_id));
    if let Some(other) = other.filter(|&other| other != cluster) {
        tracing::warn!(
            "join is not used: {join} is of cluster {other:032x}, and the data folder {} belongs to cluster \
             {cluster:032x}; to join the other one, name an empty folder",
            config.data
        );
    }
}

/// Requests a number for the node at `address` from a member. `has_tls` says whether this node speaks TLS.
async fn join(
    admission: &PeerAdmission,
    ports: &Ports,
    member: &str,
    address: &str,
    has_tls: bool,
) -> Result<LocalIdentity, String> {
    let identity = admission.identity_now().await;
    let (mut reasons, mut broken) = (Reasons::default(), BrokenTries::default());
    let channel = channel(&ports.net, member).map_err(|error| format!("{member}: {error}"))?;
    let mut client = AdminClient::new(channel);
    loop {
        let request = JoinRequest {
            address: address.to_owned(),
            nonce: identity.nonce,
            protocol: PEER_PROTOCOL,
            oldest_version: ports.versions.oldest.0,
            newest_version: ports.versions.newest.0,
        };
        let status = match tokio::time::timeout(REQUEST_TIMEOUT, client.join(request)).await {
            Ok(Ok(response)) => {
                let response = response.into_inner();
                let cluster = cluster_of_bytes(&response.cluster_id)
                    .ok_or_else(|| format!("{member} named no cluster"))?;
                let local = LocalIdentity { cluster, node: NodeId(response.node) };
                return become_member(admission, identity, local, address).await;
            }
            Ok(Err(status)) => status,
            Err(_) => tonic::Status::deadline_exceeded("no answer"),
        };
        if !passes(&status) {
            return Err(format!("{member} refuses this node: {}", status.message()));
        }
        let reason = reason_of(&status, has_tls);
        if broken.warns(lacks_tls(&status, has_tls)) {
            tracing::warn!(member, reason, "cannot join");
        } else if reasons.is_due(&reason, Instant::now()) {
            tracing::info!(member, reason, "cannot join yet");
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Until the cluster is formed, notes what the founder does that adopts this node, if that is another one.
pub(crate) fn await_cluster(
    calls: Arc<LeaderCalls>,
    config: &Config,
    ports: &Ports,
    address: &str,
) -> impl Future<Output = ()> + use<> {
    let adopter = founders(config, address).into_iter().next().filter(|first| first != address);
    let (ports, has_tls) = (ports.clone(), config.tls_cert.is_some());
    async move {
        if let Some(adopter) = adopter {
            watch_adopter(calls, ports, adopter, has_tls).await;
        }
    }
}

/// Completes the founder's work, and notes which others are missing meanwhile. Idempotent.
pub(crate) async fn complete(
    admission: &PeerAdmission,
    (local, awaited): (&Arc<Local>, &Awaited),
    config: &Config,
    ports: &Ports,
    address: &str,
) -> Result<(), String> {
    let identity = admission.identity_now().await;
    if identity.state != MemberState::Forming {
        return Ok(());
    }
    let mut others = founders(config, address);
    others.retain(|founder| founder != address);
    let looks = FounderLooks::new(awaited, config.tls_cert.is_some());
    let outcome = tokio::select! {
        biased;
        outcome = form(admission, identity, (local, awaited), config, ports, address) => outcome,
        never = watch_others(looks, ports, &others) => match never {},
    };
    awaited.note_missing(&[]);
    outcome
}

/// Adopts the other founders, forms the meta group, and proposes the description of the cluster.
async fn form(
    admission: &PeerAdmission,
    identity: Identity,
    (local, awaited): (&Arc<Local>, &Awaited),
    config: &Config,
    ports: &Ports,
    address: &str,
) -> Result<(), String> {
    let nodes: Vec<(NodeId, String)> = (1..).map(NodeId).zip(founders(config, address)).collect();
    let (shard_count, replica_count) = (config.shards_at_first(nodes.len()), config.replicas);
    let founders = nodes
        .iter()
        .map(|(node, address)| Founder { node: node.0, address: address.clone() })
        .collect();
    let request = AdoptRequest {
        protocol: PEER_PROTOCOL,
        cluster_id: cluster_bytes(local.cluster()),
        node: 0,
        founders,
        shard_count,
        replica_count,
    };
    for (node, address) in nodes.iter().filter(|&&(node, _)| node != local.node()) {
        let request = AdoptRequest { node: node.0, ..request.clone() };
        adopt(ports, awaited, request, address, config.tls_cert.is_some()).await?;
    }
    // A vote request to a node that is still starting is lost, and costs an election timeout.
    let mut newest = ports.versions.newest;
    for (node, address) in nodes.iter().filter(|&&(node, _)| node != local.node()) {
        while !local.member().is_there(*node, address).await {
            tokio::time::sleep(RETRY_PAUSE / 10).await;
        }
        newest = newest.min(newest_of(ports, address).await);
    }
    let asked: Vec<NodeId> = nodes.iter().map(|&(node, _)| node).collect();
    let members: BTreeMap<NodeId, NodeAddress> =
        nodes.iter().map(|(node, address)| (*node, NodeAddress(address.clone()))).collect();
    local.meta().form(members).await?;
    let form = MetaCommand::Form { cluster: local.cluster(), nodes, shard_count, replica_count };
    propose_until(local, &form, MetaState::is_formed).await.map_err(|error| error.to_string())?;
    raise_to(local, newest, &asked).await.map_err(|error| error.to_string())?;
    admission.become_member(Identity { state: MemberState::Member, ..identity }).await
}

/// Raises the version of the formed cluster step by step. Stops early if another node has joined
/// already, whose versions were not checked; the version can be raised at any time.
pub(crate) async fn raise_to(
    local: &Arc<Local>,
    newest: ClusterVersion,
    asked: &[NodeId],
) -> Result<(), MetaError> {
    let has_others =
        |state: &MetaState| state.live_nodes().iter().any(|node| !asked.contains(node));
    loop {
        let look = |state: &MetaState| (state.version(), has_others(state));
        let (version, has_others_now) = local.read_meta(look);
        if version >= newest {
            return Ok(());
        }
        if has_others_now {
            tracing::warn!("the cluster stays at {version}: raise it by umbel cluster upgrade");
            return Ok(());
        }
        let raise = MetaCommand::RaiseVersion { to: version.next(), asked: asked.to_vec() };
        let is_done = |state: &MetaState| state.version() > version || has_others(state);
        match propose_until(local, &raise, is_done).await {
            // A node has joined, which the next iteration notices.
            Ok(()) | Err(MetaError::BadVersion { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Proposes a command to the meta group, through the founder that leads it, until its effect shows on
/// this node or it is refused.
async fn propose_until(
    local: &Arc<Local>,
    command: &MetaCommand,
    is_done: impl Fn(&MetaState) -> bool,
) -> Result<(), MetaError> {
    while !local.read_meta(&is_done) {
        match local.serve_meta(MetaRequest::Propose(command.clone())).await.0 {
            MetaAnswer::Reply(MetaReply::Refused(error)) => return Err(error),
            MetaAnswer::Reply(_) => {}
            _ => {
                // Another founder may be the leader; it gets the same command.
                local.propose_elsewhere(command).await;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
    Ok(())
}

/// The newest cluster version that a running founder supports.
async fn newest_of(ports: &Ports, address: &str) -> ClusterVersion {
    loop {
        match who_is(ports, address, REQUEST_TIMEOUT).await {
            Ok(answer) => return versions_of(&answer).newest,
            Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}

/// Adopts one node, however long it takes to start. `has_tls` says whether this node speaks TLS.
async fn adopt(
    ports: &Ports,
    awaited: &Awaited,
    request: AdoptRequest,
    address: &str,
    has_tls: bool,
) -> Result<(), String> {
    let mut reasons = Reasons::default();
    let mut client =
        peer_client(&ports.net, address).map_err(|error| format!("{address}: {error}"))?;
    loop {
        let asked = client.adopt(request.clone());
        let status = match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(_)) => {
                awaited.note_conflict(None);
                return Ok(());
            }
            Ok(Err(status)) => status,
            Err(_) => tonic::Status::deadline_exceeded("no answer"),
        };
        if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) {
            return Err(format!("{address} refuses to found the cluster: {}", status.message()));
        }
        let reason = reason_of(&status, has_tls);
        let is_conflict = status.code() == OTHER_LIST;
        awaited.note_conflict(is_conflict.then(|| reason.clone()));
        if is_conflict {
            log_conflict(&reason, &mut reasons);
        } else if reasons.is_due(&reason, Instant::now()) {
            tracing::info!(address, reason, "waiting for a founding node");
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
