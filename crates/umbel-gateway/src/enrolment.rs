//! Certificates for nodes: the first one for a node that joins by a token, and the next one for a member.

use std::error::Error as _;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Request, Status};
use umbel_coordinator::{CaughtUp, Coordinator};
use umbel_engine::NodeId;
use umbel_engine::meta::{
    Applicant, MetaCommand, MetaError, MetaReply, MetaState, NodeRecord, VersionRange,
};
use umbel_node::config::host_of;
use umbel_node::failure::CallFailure;
use umbel_node::peer::{PEER_PROTOCOL, cluster_bytes};
use umbel_ports::channel::channel_to;
use umbel_ports::{NodeIdentity, NodeSigner, PeerIdentity};
use umbel_proto::v1;
use umbel_proto::v1::enrolment_client::EnrolmentClient;
use umbel_proto::v1::enrolment_server::{self, EnrolmentServer};

use super::audit;
use super::caller::Caller;
use super::deadlines::Deadlines;
use super::limits::{ENROLMENT_MESSAGE_BYTES_MAX, ENROLMENTS_MAX, ISSUED_DAYS, PASSED_ON_TIMEOUT};
use super::service_methods::service_methods;
use crate::errors::Result;

/// Serves nodes that have no certificate yet, or one that is to be renewed.
pub(super) struct EnrolmentService {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
    /// Permits for enrolments in progress: a caller that takes one has proved nothing yet.
    places: Semaphore,
}

impl EnrolmentService {
    pub(super) fn new(coordinator: Arc<Coordinator>, deadlines: Deadlines) -> Self {
        Self { coordinator, deadlines, places: Semaphore::new(ENROLMENTS_MAX) }
    }

    /// The service for a server's router, with its message limits.
    pub(super) fn into_server(self) -> EnrolmentServer<Self> {
        EnrolmentServer::new(self)
            .max_decoding_message_size(ENROLMENT_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(ENROLMENT_MESSAGE_BYTES_MAX)
    }

    /// Checks that the token exists, before anything is done for the caller. The majority is asked as rarely as for
    /// unknown principals, because anybody can invent tokens.
    async fn check_token(&self, digest: &[u8; 32]) -> Result<()> {
        let has = |state: &MetaState| state.has_join_token(digest);
        if self.coordinator.read_meta(has)? {
            return Ok(());
        }
        // The token may be newer than this node's catalogue.
        match self.coordinator.callers().catch_up_for_stranger().await {
            CaughtUp::Done => {}
            // The majority, and therefore another node, may know the token.
            CaughtUp::NoMajority => return Err(CallFailure::GrantsUnknown),
            // A node with a good token asks again, and must not be turned away because others invent some.
            CaughtUp::NotAsked => {
                let what = "too many nodes ask to join with tokens that are not known here yet: try again in a moment";
                return Err(CallFailure::Overloaded { what: what.to_owned() });
            }
        }
        if self.coordinator.read_meta(has)? {
            Ok(())
        } else {
            Err(CallFailure::Denied { what: BAD_TOKEN.to_owned() })
        }
    }

    async fn enrol_now(
        &self,
        caller: &Caller,
        request: v1::EnrolRequest,
        deadline: Instant,
    ) -> Result<v1::EnrolResponse> {
        if request.protocol != PEER_PROTOCOL {
            let what = format!(
                "protocol is {}, but this cluster speaks {PEER_PROTOCOL}: bring both to one release",
                request.protocol
            );
            return Err(CallFailure::Invalid { what });
        }
        let digest = *blake3::hash(request.secret.as_bytes()).as_bytes();
        let checked = self.check_token(&digest).await;
        checked.inspect_err(|failure| note_denial(caller, &request.address, failure))?;
        let versions = VersionRange::of_wire(request.oldest_version, request.newest_version);
        self.coordinator.releases().check_release(versions, deadline).await?;
        let Some(signer) = self.coordinator.net()?.node_signer() else {
            return if request.is_passed_on {
                Ok(v1::EnrolResponse::default())
            } else {
                self.pass_on(request, deadline).await
            };
        };
        let v1::EnrolRequest { address, nonce, request, .. } = request;
        let host = host(&address)?;
        let key = signer.check(&request, host).map_err(|error| invalid(&error))?;
        let key = *blake3::hash(&key).as_bytes();
        let now_ms = self.coordinator.seed().wall_ms();
        let applicant = Applicant { address: address.clone(), nonce, digest, key, now_ms };
        let admitted = self.admit(applicant, deadline).await;
        let node = admitted.inspect_err(|failure| note_denial(caller, &address, failure))?;
        audit::granted(caller, &format!("node={} address={}", node.0, audit::word(&address)));
        self.sign(signer, &request, node, host)
    }

    /// Admits a node and returns its number. A repeated request gets the number that the first one got, but only with
    /// the address of the first one: a certificate is for the host of the address, and one node must not get those of
    /// others. The catalogue does not compare the addresses, because nodes of older builds, which apply the same
    /// log, would admit where this one refuses.
    async fn admit(&self, applicant: Applicant, deadline: Instant) -> Result<NodeId> {
        let address = applicant.address.clone();
        let command = MetaCommand::AdmitNode(applicant);
        let node = match self.coordinator.meta_propose(command, deadline).await? {
            MetaReply::Node(node) => node,
            other => {
                return Err(CallFailure::Storage { what: format!("an enrolment gave {other:?}") });
            }
        };
        // This node has applied the command, so it knows the address.
        let is_recorded =
            self.coordinator.read_meta(|state| state.node_address(node) == Some(&*address))?;
        if is_recorded {
            Ok(node)
        } else {
            Err(MetaError::BadJoinToken { what: OTHER_ADDRESS.to_owned() }.into())
        }
    }

    fn sign(
        &self,
        signer: &NodeSigner,
        request: &[u8],
        node: NodeId,
        host: &str,
    ) -> Result<v1::EnrolResponse> {
        let cluster = self.coordinator.cluster_id();
        let identity = NodeIdentity { cluster, node: node.0 };
        let signed = signer.sign(request, identity, host, ISSUED_DAYS);
        let (certificate, authorities) = signed.map_err(|error| invalid(&error))?;
        let cluster_id = cluster_bytes(cluster);
        Ok(v1::EnrolResponse { node: node.0, cluster_id, certificate, authorities })
    }

    /// Forwards the request to the other nodes, one after the other, until one that has the authority's
    /// key answers.
    async fn pass_on(
        &self,
        request: v1::EnrolRequest,
        deadline: Instant,
    ) -> Result<v1::EnrolResponse> {
        let net = self.coordinator.net()?;
        let request = v1::EnrolRequest { is_passed_on: true, ..request };
        let cluster = self.coordinator.cluster_id();
        let mut busy = None;
        for (node, address) in self.coordinator.read_meta(addresses)? {
            let wanted = NodeIdentity { cluster, node: node.0 };
            if node == self.coordinator.node() || Instant::now() >= deadline {
                continue;
            }
            let Ok(channel) = channel_to(net, &address, Some(wanted)) else { continue };
            let mut client = EnrolmentClient::new(channel);
            match timeout(PASSED_ON_TIMEOUT, client.enrol(request.clone())).await {
                Ok(Ok(answer)) if answer.get_ref().certificate.is_empty() => {}
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if is_refusal(&status) => {
                    let what = status.message().to_owned();
                    return Err(MetaError::BadJoinToken { what }.into());
                }
                Ok(Err(status)) => {
                    tracing::info!(%node, %status, "an enrolment was not passed on");
                    // Not where the connection failed: a node that is away for long may be no signer at all.
                    if status.code() == tonic::Code::Unavailable && status.source().is_none() {
                        busy = Some(format!("{node}: {}", status.message()));
                    }
                }
                Err(_) => {
                    tracing::info!(%node, "an enrolment was not passed on: no answer in time");
                }
            }
        }
        Err(match busy {
            Some(what) => CallFailure::Overloaded { what },
            None => CallFailure::Invalid { what: NO_SIGNER.to_owned() },
        })
    }

    async fn renew_now(
        &self,
        caller: &Caller,
        identity: NodeIdentity,
        request: &[u8],
    ) -> Result<v1::EnrolResponse> {
        let Some(signer) = self.coordinator.net()?.node_signer() else {
            return Ok(v1::EnrolResponse::default());
        };
        let node = NodeId(identity.node);
        let address = self.coordinator.read_meta(|state| {
            state
                .node_address(node)
                .filter(|_| state.cluster() == Some(identity.cluster))
                .map(str::to_owned)
        })?;
        let address = address.ok_or(MetaError::UnknownNode { node })?;
        let signed = self.sign(signer, request, node, host(&address)?)?;
        audit::granted(caller, &format!("node={} address={}", node.0, audit::word(&address)));
        Ok(signed)
    }
}

/// Fails if no node has the authority's key, so that no token is of use. A node that does not answer may have it, and
/// so may one of an earlier build, which does not tell before it has seen a valid token. The one that has the key may
/// have joined a moment ago, so an old catalogue does not do.
pub(super) async fn check_signer(coordinator: &Coordinator, deadline: Instant) -> Result<()> {
    let net = coordinator.net()?;
    if net.node_signer().is_some() {
        return Ok(());
    }
    coordinator.meta_refresh(deadline).await?;
    let cluster = coordinator.cluster_id();
    let until = deadline.min(Instant::now() + PASSED_ON_TIMEOUT);
    let mut nodes = coordinator.read_meta(addresses)?;
    nodes.retain(|(node, _)| *node != coordinator.node());
    let ask = |(node, address): (NodeId, String)| async move {
        let wanted = NodeIdentity { cluster, node: node.0 };
        let Ok(channel) = channel_to(net, &address, Some(wanted)) else { return true };
        let mut client = EnrolmentClient::new(channel);
        let question = v1::EnrolRequest { is_passed_on: true, ..v1::EnrolRequest::default() };
        let answer = timeout_at(until, client.enrol(question)).await;
        !matches!(answer, Ok(Ok(answer)) if answer.get_ref().certificate.is_empty())
    };
    let mut answers: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
    while let Some(may_sign) = answers.next().await {
        if may_sign {
            return Ok(());
        }
    }
    Err(CallFailure::Invalid { what: TOKEN_WITHOUT_SIGNER.to_owned() })
}

/// The same text for every invalid token.
const BAD_TOKEN: &str =
    "the token for joining is unknown or expired: `umbel cluster token --join` draws another one";

const OTHER_ADDRESS: &str = "the node has joined with another address, and gets certificates for that one alone: let it start with that \
     address, or remove it from the cluster and let it join with another token and an empty data folder";

const TOKEN_WITHOUT_SIGNER: &str = "no node of the cluster has the authority's key, so no node can join by a token, and none was stored: set \
     tls_ca_key on one node and restart it, or make the joining node's certificate by hand (`umbel cluster certs node`) \
     and let it join without a token";

const NO_SIGNER: &str = "no node that answers has the authority's key: name it to one (tls_ca_key), or make the joining node's \
     certificate by hand (`umbel cluster certs node`) and let it join without a token";

/// Counts a refusal for want of a valid token, and writes it to the audit log. Only the node that decides does so, and
/// none that passes the request on.
fn note_denial(who: &Caller, address: &str, failure: &CallFailure) {
    let (CallFailure::Denied { .. } | CallFailure::Meta(MetaError::BadJoinToken { .. })) = failure
    else {
        return;
    };
    // Nobody has checked the address.
    let ordered = format!("address={}", audit::word(address));
    audit::enrolment_denied(who, &ordered, &failure.to_string());
}

fn invalid(error: &dyn std::fmt::Display) -> CallFailure {
    CallFailure::Invalid { what: error.to_string() }
}

/// The nodes of the cluster and their addresses.
fn addresses(state: &MetaState) -> Vec<(NodeId, String)> {
    let address =
        |(node, record): (NodeId, &NodeRecord)| Some((node, record.address()?.to_owned()));
    state.nodes().filter_map(address).collect()
}

/// The host of a node's address.
fn host(address: &str) -> Result<&str> {
    host_of(address).ok_or_else(|| invalid(&format!("address {address:?} is not HOST:PORT")))
}

/// Whether the other node refused the request, and did not just fail to answer it.
fn is_refusal(status: &Status) -> bool {
    use tonic::Code::{AlreadyExists, InvalidArgument, PermissionDenied, ResourceExhausted};
    matches!(status.code(), AlreadyExists | InvalidArgument | PermissionDenied | ResourceExhausted)
}

/// The methods of the service, which its trait boxes.
impl EnrolmentService {
    async fn enrol(&self, request: Request<v1::EnrolRequest>) -> Result<v1::EnrolResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        if *caller.connection() == PeerIdentity::Unchecked {
            let what = "without TLS nobody enrols: join without a token";
            return Err(invalid(&what));
        }
        let request = request.into_inner();
        let is_node = matches!(caller.connection(), PeerIdentity::Node | PeerIdentity::Member(_));
        if request.is_passed_on && is_node && self.coordinator.net()?.node_signer().is_none() {
            // Whatever the request is: another node asks for one that signs, see `check_signer`.
            return Ok(v1::EnrolResponse::default());
        }
        let _place = self.places.try_acquire().map_err(|_| CallFailure::Overloaded {
            what: format!("{ENROLMENTS_MAX} nodes are being enrolled here already"),
        })?;
        self.enrol_now(&caller, request, deadline).await
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<v1::EnrolResponse> {
        let caller = Caller::of(&request)?;
        let PeerIdentity::Member(identity) = *caller.connection() else {
            let what = "a certificate is renewed for the node that shows it, and this one does not say \
                        which node it is";
            audit::denied(&caller, None, what);
            return Err(CallFailure::Denied { what: what.to_owned() });
        };
        self.renew_now(&caller, identity, &request.into_inner().request).await
    }
}

service_methods! { EnrolmentService: enrolment_server::Enrolment => {
    enrol(v1::EnrolRequest) -> v1::EnrolResponse;
    renew(v1::RenewRequest) -> v1::EnrolResponse;
} }

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use umbel_filter::Kind;
    use umbel_node::Config;
    use umbel_node::testing::free_addresses;

    use super::*;
    use crate::test_node::{Node, config, create, deadline, start, start_alone};

    const DIGEST: [u8; 32] = [7; 32];

    fn service(node: &Node) -> EnrolmentService {
        EnrolmentService::new(node.coordinator(), Deadlines::new(Duration::from_secs(30)))
    }

    /// Otherwise it would be certified for the hosts of others until the token expires.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_that_has_joined_gets_no_certificate_for_another_address() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let service = service(&node);
        let now_ms = service.coordinator.seed().wall_ms();
        let expires_ms = now_ms + 600_000;
        let command = MetaCommand::PutJoinToken { digest: DIGEST, expires_ms, now_ms };
        service.coordinator.meta_propose(command, deadline()).await.unwrap();
        let applicant = |address: &str| {
            let address = address.to_owned();
            Applicant { address, nonce: 5, digest: DIGEST, key: [1; 32], now_ms }
        };
        let admitted = service.admit(applicant("127.0.0.1:9"), deadline()).await.unwrap();
        let again = service.admit(applicant("127.0.0.1:9"), deadline()).await;
        assert_eq!(again, Ok(admitted), "the answer may have been lost");
        for other in ["127.0.0.2:9", "127.0.0.1:10"] {
            let refused = service.admit(applicant(other), deadline()).await;
            let what = OTHER_ADDRESS.to_owned();
            let expected = CallFailure::Meta(MetaError::BadJoinToken { what });
            assert_eq!(refused, Err(expected), "{other}");
        }
        drop(service);
        node.shutdown().await;
    }

    /// A node that joined since may have the key: the nodes of an old catalogue are not all.
    #[tokio::test(flavor = "multi_thread")]
    async fn nodes_are_asked_for_the_key_by_the_newest_catalogue_alone() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let addresses = free_addresses(3);
        let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
            let (listen, initial_cluster) = (address.clone(), addresses.clone());
            start(Config { listen, initial_cluster, shards: 1, ..config(folder.path()) })
        });
        let mut nodes = join_all(starts).await;
        let alone = nodes.pop().unwrap();
        let coordinator = alone.coordinator();
        // It knows the cluster from here on.
        create(&coordinator, "seen", Kind::Blocked).await;
        for node in nodes {
            node.shutdown().await;
        }
        let soon = Instant::now() + Duration::from_secs(1);
        let checked = check_signer(&coordinator, soon).await;
        assert!(matches!(checked, Err(CallFailure::NoQuorum { .. })), "{checked:?}");
        drop(coordinator);
        alone.shutdown().await;
    }

    /// No try here is awaited, so the time between two is too short for the limit to allow each of them a question.
    /// The joining node asks again.
    #[tokio::test(flavor = "multi_thread")]
    async fn invented_tokens_seldom_ask_the_majority() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let service = service(&node);
        let mut refused = (0..1_000).filter_map(|_| service.check_token(&DIGEST).now_or_never());
        assert!(refused.any(|answer| matches!(answer, Err(CallFailure::Overloaded { .. }))));
        drop(service);
        node.shutdown().await;
    }
}
