//! The gRPC service `Access`: principals, their rights and quotas.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Request;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{
    ClusterVerb, FilterVerb, Grant, MetaCommand, MetaError, MetaState, Principal, PrincipalName,
    Proof, Quota, Rates, Rights, Usage,
};
use umbel_node::failure::CallFailure;
use umbel_node::limits::CLIENT_MESSAGE_BYTES_MAX;
use umbel_ports::PeerIdentity;
use umbel_proto::v1;
use umbel_proto::v1::access_server::{self, AccessServer};

use super::audit;
use super::caller::Caller;
use super::deadlines::Deadlines;
use super::limits::ACCESS_MESSAGE_BYTES_MAX;
use super::service_methods::service_methods;
use crate::errors::Result;

/// Serves the requests about principals.
pub(super) struct AccessService {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
}

impl AccessService {
    pub(super) fn new(coordinator: Arc<Coordinator>, deadlines: Deadlines) -> Self {
        Self { coordinator, deadlines }
    }

    /// The proof that the principal has at present.
    fn proof_of(&self, name: &PrincipalName) -> Result<Proof> {
        let proof = |state: &MetaState| state.principal(name.as_str()).map(|known| known.proof);
        let what = || format!("there is no principal named {name} whose proof could be kept");
        self.coordinator
            .read_meta(proof)?
            .ok_or_else(|| MetaError::BadPrincipal { what: what() }.into())
    }

    /// Proposes the change and returns when this node has applied it, so that the next request to this
    /// node sees it.
    async fn change(&self, command: MetaCommand, deadline: Instant) -> Result<()> {
        self.coordinator.meta_propose(command, deadline).await?;
        self.coordinator.meta_refresh(deadline).await
    }

    /// The service for a server's router, with its message limits.
    pub(super) fn into_server(self) -> AccessServer<Self> {
        AccessServer::new(self)
            .max_decoding_message_size(ACCESS_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
    }
}

fn invalid(what: String) -> CallFailure {
    CallFailure::Invalid { what }
}

fn name_of(field: &str, name: String) -> Result<PrincipalName> {
    PrincipalName::new(name).ok_or_else(|| {
        invalid(format!("{field}: a principal's name has 1 to 128 letters, digits, -, _ and ."))
    })
}

/// Without TLS no client can show a certificate: adding the first administrator that way would lock out
/// the caller.
fn check_provable(proof: Proof, connection: &PeerIdentity) -> Result<()> {
    if proof == Proof::Certificate && *connection == PeerIdentity::Unchecked {
        let what = "principal.token_digest is empty, but without TLS nobody can show a certificate: \
                    give the principal a token, or call over TLS";
        return Err(invalid(what.to_owned()));
    }
    Ok(())
}

fn filter_verb(number: i32) -> Result<FilterVerb> {
    let is_it = |verb: &FilterVerb| filter_verb_to_proto(*verb) as i32 == number;
    let what = || format!("principal.grants.verbs has {number}, which is no verb");
    FilterVerb::ALL.into_iter().find(is_it).ok_or_else(|| invalid(what()))
}

fn cluster_verb(number: i32) -> Result<ClusterVerb> {
    let is_it = |verb: &ClusterVerb| cluster_verb_to_proto(*verb) as i32 == number;
    let what = || format!("principal.cluster_verbs has {number}, which is no verb");
    ClusterVerb::ALL.into_iter().find(is_it).ok_or_else(|| invalid(what()))
}

const fn filter_verb_to_proto(verb: FilterVerb) -> v1::FilterVerb {
    match verb {
        FilterVerb::Read => v1::FilterVerb::Read,
        FilterVerb::Insert => v1::FilterVerb::Insert,
        FilterVerb::Remove => v1::FilterVerb::Remove,
        FilterVerb::Manage => v1::FilterVerb::Manage,
        FilterVerb::Export => v1::FilterVerb::Export,
    }
}

const fn cluster_verb_to_proto(verb: ClusterVerb) -> v1::ClusterVerb {
    match verb {
        ClusterVerb::Admin => v1::ClusterVerb::Admin,
        ClusterVerb::Backup => v1::ClusterVerb::Backup,
        ClusterVerb::Jobs => v1::ClusterVerb::Jobs,
        ClusterVerb::Metrics => v1::ClusterVerb::Metrics,
    }
}

fn from_proto(
    principal: Option<v1::Principal>,
    created_ms: u64,
) -> Result<(PrincipalName, Principal)> {
    let principal = principal.ok_or_else(|| invalid("principal is not set".to_owned()))?;
    let v1::Principal { name, token_digest, grants, cluster_verbs, expires_ms, .. } = principal;
    let name = name_of("principal.name", name)?;
    let proof = match &token_digest[..] {
        [] => Proof::Certificate,
        digest => {
            let digest = digest.try_into().map_err(|_| {
                let length = digest.len();
                invalid(format!("principal.token_digest has 32 bytes or none, not {length}"))
            })?;
            Proof::Token { digest }
        }
    };
    let grant = |v1::Grant { pattern, verbs }| {
        let verbs = verbs.into_iter().map(filter_verb).collect::<Result<_, _>>()?;
        Ok::<_, CallFailure>(Grant { pattern, verbs })
    };
    let grants = grants.into_iter().map(grant).collect::<Result<_, _>>()?;
    let cluster = cluster_verbs.into_iter().map(cluster_verb).collect::<Result<_, _>>()?;
    let expires_ms = (expires_ms != 0).then_some(expires_ms);
    if expires_ms.is_some_and(|expires_ms| expires_ms <= created_ms) {
        return Err(invalid("principal.expires_ms has passed already".to_owned()));
    }
    let rights = Rights { grants, cluster };
    Ok((name, Principal { proof, rights, created_ms, expires_ms }))
}

fn quota_from_proto(quota: Option<v1::Quota>) -> Quota {
    let v1::Quota { filters, memory_bytes, calls_per_second, items_per_second, bytes_per_second } =
        quota.unwrap_or_default();
    let rates = Rates { calls: calls_per_second, items: items_per_second, bytes: bytes_per_second };
    Quota { filter_count: filters, memory_bytes, rates }
}

const fn quota_to_proto(quota: Quota) -> v1::Quota {
    let Quota { filter_count, memory_bytes, rates: Rates { calls, items, bytes } } = quota;
    v1::Quota {
        filters: filter_count,
        memory_bytes,
        calls_per_second: calls,
        items_per_second: items,
        bytes_per_second: bytes,
    }
}

const fn usage_to_proto(usage: Usage) -> v1::Usage {
    v1::Usage { filters: usage.filter_count, memory_bytes: usage.memory_bytes }
}

/// A principal with its quota and its usage.
fn described(state: &MetaState, name: &PrincipalName, principal: &Principal) -> v1::Principal {
    let text = name.as_str();
    v1::Principal {
        quota: Some(quota_to_proto(state.quota(text))),
        usage: Some(usage_to_proto(state.usage(Some(text)))),
        ..to_proto(name, principal)
    }
}

fn to_proto(name: &PrincipalName, principal: &Principal) -> v1::Principal {
    let Principal { proof, rights: Rights { grants, cluster }, created_ms, expires_ms } = principal;
    let grant = |Grant { pattern, verbs }: &Grant| v1::Grant {
        pattern: pattern.clone(),
        verbs: verbs.iter().map(|&verb| filter_verb_to_proto(verb).into()).collect(),
    };
    v1::Principal {
        name: name.to_string(),
        token_digest: Vec::new().into(),
        grants: grants.iter().map(grant).collect(),
        cluster_verbs: cluster.iter().map(|&verb| cluster_verb_to_proto(verb).into()).collect(),
        created_ms: *created_ms,
        expires_ms: expires_ms.unwrap_or(0),
        by_certificate: *proof == Proof::Certificate,
        ..v1::Principal::default()
    }
}

/// What a request about a principal orders, for the audit log.
fn put_order(asked: &v1::PutPrincipalRequest) -> String {
    let v1::PutPrincipalRequest { principal, replace, keep_proof } = asked;
    let Some(v1::Principal { name, grants, cluster_verbs, expires_ms, .. }) = principal else {
        return String::new();
    };
    let of_cluster = |&number: &i32| {
        cluster_verb(number).map_or_else(|_| number.to_string(), |verb| verb.name().to_owned())
    };
    let of_filters = |&number: &i32| {
        filter_verb(number).map_or_else(|_| number.to_string(), |verb| verb.name().to_owned())
    };
    let granted = |v1::Grant { pattern, verbs }: &v1::Grant| {
        format!(" {}={}", audit::word(pattern), audit::list(verbs.iter().map(of_filters)))
    };
    let grants: Vec<String> = grants.iter().map(granted).collect();
    format!(
        "principal={} replace={replace} keep_proof={keep_proof} expires_ms={expires_ms} cluster={}{}",
        audit::word(name),
        audit::list(cluster_verbs.iter().map(of_cluster)),
        grants.concat()
    )
}

/// What a request about a quota orders, for the audit log.
fn quota_order(asked: &v1::SetQuotaRequest) -> String {
    let v1::SetQuotaRequest { principal, change, from_none } = asked;
    let unset = v1::Quota::default();
    let v1::Quota { filters, memory_bytes, calls_per_second, items_per_second, bytes_per_second } =
        change.as_ref().unwrap_or(&unset);
    let limits = [
        ("filters", filters),
        ("memory_bytes", memory_bytes),
        ("calls_per_second", calls_per_second),
        ("items_per_second", items_per_second),
        ("bytes_per_second", bytes_per_second),
    ];
    let set = |(name, limit): (&str, &Option<u64>)| limit.map(|limit| format!(" {name}={limit}"));
    let set: Vec<String> = limits.into_iter().filter_map(set).collect();
    // No name is that of the cluster.
    format!("principal={} from_none={from_none}{}", audit::word(principal), set.concat())
}

/// The methods of the service, which its trait boxes.
impl AccessService {
    async fn put(
        &self,
        request: Request<v1::PutPrincipalRequest>,
    ) -> Result<v1::PutPrincipalResponse> {
        audit::note(&request, put_order);
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let v1::PutPrincipalRequest { principal, replace, keep_proof } = request.into_inner();
        let created_ms = self.coordinator.seed().wall_ms();
        let (name, mut principal) = from_proto(principal, created_ms)?;
        if keep_proof {
            self.coordinator.meta_refresh(deadline).await?;
            principal.proof = self.proof_of(&name)?;
        }
        check_provable(principal.proof, caller.connection())?;
        let command = MetaCommand::PutPrincipal { name, principal, replace };
        self.change(command, deadline).await?;
        Ok(v1::PutPrincipalResponse {})
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokePrincipalRequest>,
    ) -> Result<v1::RevokePrincipalResponse> {
        audit::note(&request, |asked| format!("principal={}", audit::word(&asked.name)));
        let deadline = self.deadlines.of_meta(&request);
        let name = name_of("name", request.into_inner().name)?;
        let command = MetaCommand::DropPrincipal { name };
        self.change(command, deadline).await?;
        Ok(v1::RevokePrincipalResponse {})
    }

    async fn set_quota(
        &self,
        request: Request<v1::SetQuotaRequest>,
    ) -> Result<v1::SetQuotaResponse> {
        audit::note(&request, quota_order);
        let deadline = self.deadlines.of_meta(&request);
        let v1::SetQuotaRequest { principal, change, from_none } = request.into_inner();
        let of = if principal.is_empty() { None } else { Some(name_of("principal", principal)?) };
        let change = quota_from_proto(change);
        let command = MetaCommand::SetQuota { of: of.clone(), change, from_none };
        self.change(command, deadline).await?;
        let name = of.as_ref().map(PrincipalName::as_str);
        self.coordinator.read_meta(|state| {
            let quota = name.map_or_else(|| state.cluster_quota(), |name| state.quota(name));
            v1::SetQuotaResponse {
                quota: Some(quota_to_proto(quota)),
                usage: Some(usage_to_proto(state.usage(name))),
            }
        })
    }

    async fn list_principals(
        &self,
        request: Request<v1::ListPrincipalsRequest>,
    ) -> Result<v1::ListPrincipalsResponse> {
        let deadline = self.deadlines.of_meta(&request);
        self.coordinator.meta_refresh(deadline).await?;
        let principals = self.coordinator.read_meta(|state| {
            let principals = state.principals();
            principals.map(|(name, principal)| described(state, name, principal)).collect()
        })?;
        Ok(v1::ListPrincipalsResponse { principals })
    }

    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Result<v1::WhoAmIResponse> {
        let caller = Caller::of(&request)?;
        let principal = caller.principal();
        self.coordinator.read_meta(|state| v1::WhoAmIResponse {
            connection: caller.connection().to_string(),
            principal: principal.map(|(name, principal)| described(state, &name, &principal)),
            is_guarded: state.is_guarded(),
        })
    }
}

service_methods! { AccessService: access_server::Access => {
    put(v1::PutPrincipalRequest) -> v1::PutPrincipalResponse as "put_principal";
    revoke(v1::RevokePrincipalRequest) -> v1::RevokePrincipalResponse as "revoke_principal";
    set_quota(v1::SetQuotaRequest) -> v1::SetQuotaResponse;
    list_principals(v1::ListPrincipalsRequest) -> v1::ListPrincipalsResponse;
    who_am_i(v1::WhoAmIRequest) -> v1::WhoAmIResponse;
} }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_a_proof_where_it_can_be_shown() {
        let client = PeerIdentity::Client("alice".into());
        assert!(check_provable(Proof::Certificate, &client).is_ok());
        assert!(check_provable(Proof::Certificate, &PeerIdentity::Unchecked).is_err());
        let token = Proof::Token { digest: [7; 32] };
        assert!(check_provable(token, &PeerIdentity::Unchecked).is_ok());
    }
    /// A verb that is missing from `ALL` would be refused as no verb.
    #[test]
    fn every_verb_of_the_protocol_is_known() {
        for number in 1..=16 {
            let is_filter_verb = v1::FilterVerb::try_from(number).is_ok();
            assert_eq!(filter_verb(number).is_ok(), is_filter_verb, "filter verb {number}");
            let is_cluster_verb = v1::ClusterVerb::try_from(number).is_ok();
            assert_eq!(cluster_verb(number).is_ok(), is_cluster_verb, "cluster verb {number}");
        }
        assert!(filter_verb(0).is_err() && cluster_verb(0).is_err(), "0 is no verb");
    }
}
