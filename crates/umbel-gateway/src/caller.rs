//! The caller of a request: what its connection and token prove, and what the cluster grants for that.
//!
//! Handlers obtain filter names only from [`Caller::filter`], so that no handler can forget the check of
//! the caller's rights.

use std::fmt;
use std::sync::Arc;

use tonic::Request;
use umbel_coordinator::rates::Amounts;
use umbel_coordinator::{Coordinator, StrangerLog};
use umbel_engine::NodeId;
use umbel_engine::meta::{
    ClusterVerb, FilterName, FilterVerb, MetaState, Principal, PrincipalName, Proof, Rights,
};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_ports::channel::PeerAddress;
use umbel_ports::{NodeIdentity, PeerIdentity};
use umbel_proto::v1;
use umbel_step::planted::{self, Planted};

use super::audit::{self, AuditNote, Called};
use super::credential::Credential;
use crate::errors::Result;

#[cfg(test)]
mod caller_test;

/// What a call requires of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nothing: load balancers and kubelets prove no identity.
    Nothing,
    /// That the caller has proved its identity.
    Somebody,
    /// A verb on some filter; the handler checks it again for the filter's name.
    Filter(FilterVerb),
    /// Any verb on some filter, for calls that only serve calls about filters.
    SomeFilter,
    /// A verb on the cluster.
    Cluster(ClusterVerb),
    /// To be a node, or a verb on the cluster.
    NodeOr(ClusterVerb),
    /// To be a node.
    Node,
}

/// The caller of a request.
#[derive(Clone)]
pub(super) struct Caller {
    connection: PeerIdentity,
    /// Where it calls from, for the audit log.
    from: Option<PeerAddress>,
    /// What it calls, for the audit log.
    called: Option<Called>,
    /// What the line of the audit log about the call will say; None if the call is not audited.
    note: Option<AuditNote>,
    standing: CallerStanding,
    coordinator: Arc<Coordinator>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum CallerStanding {
    /// A node, or a client of a cluster without principals.
    Unlimited,
    /// A principal. Its rights are looked up at every check, and count only while its proof is the one
    /// that the caller has shown.
    Principal(Proved),
    /// A caller without a valid proof, with the reason. Nothing else that the connection may prove counts.
    Nobody(&'static str),
    /// This node does not know the cluster's principals yet.
    Unknown,
}

/// A principal and what proved it. The name alone is not enough: with another token it may have other rights.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Proved {
    name: PrincipalName,
    proof: Proof,
}

/// The token is not valid: the answer does not reveal whether a principal of its name exists.
const BAD_TOKEN: &str = "its token is unknown, revoked or expired";

const NO_PROOF: &str = "it has shown neither a token (--token-file) nor a client's certificate (umbel:client:NAME; --tls-cert \
     and --tls-key; `umbel cluster certs client` makes them)";

const NO_TOKEN: &str =
    "it has shown no token: --token-file FILE names one, `umbel access add` makes it";

const NO_PRINCIPAL: &str = "no principal of this name proves itself by a certificate; `umbel access add NAME --certificate` adds \
     one";

const GENERIC_NODE: &str = "this cluster asks for certificates that say which node it is (require_node_identity), and this one \
     says umbel:node: `umbel cluster certs node --identity` makes such ones";

const NO_MEMBER: &str = "that node was removed from the cluster, or never was in it: with an empty data folder, and \
     with TLS a certificate of its own, it may join again";

const OTHER_CLUSTER: &str = "its certificate is for another cluster than this one";

impl Proved {
    /// The principal that a credential proves.
    fn by_token(state: &MetaState, now_ms: u64, shown: Credential<'_>) -> Option<Self> {
        let Credential::Token { name, secret } = shown else { return None };
        let &Principal { proof: Proof::Token { digest }, .. } = valid(state, now_ms, name)? else {
            return None;
        };
        // Hashes are compared in constant time.
        let is_right = blake3::hash(secret.as_bytes()) == digest;
        let name = is_right.then(|| PrincipalName::new(name)).flatten()?;
        Some(Self { name, proof: Proof::Token { digest } })
    }

    /// The principal that a client's certificate with this name proves.
    fn by_certificate(state: &MetaState, now_ms: u64, name: &str) -> Option<Self> {
        let principal = valid(state, now_ms, name)?;
        let name = (principal.proof == Proof::Certificate).then(|| PrincipalName::new(name))??;
        Some(Self { name, proof: Proof::Certificate })
    }

    /// The principal as it is now; None if it is gone, has expired, or has another proof now.
    fn find<'a>(&self, state: &'a MetaState, now_ms: u64) -> Option<&'a Principal> {
        let found = valid(state, now_ms, self.name.as_str())?;
        (found.proof == self.proof).then_some(found)
    }
}

/// Without TLS nodes prove nothing, and anybody who reaches the port may act as one.
const fn may_be_node(connection: &PeerIdentity) -> bool {
    matches!(connection, PeerIdentity::Node | PeerIdentity::Member(_) | PeerIdentity::Unchecked)
}

impl Need {
    /// Whether the connection alone does not decide: then the node must know the cluster's grants.
    pub(super) fn asks_for_grants(self, connection: &PeerIdentity) -> bool {
        match self {
            Self::Nothing | Self::Node => false,
            Self::NodeOr(_) => !may_be_node(connection),
            Self::Somebody | Self::Filter(_) | Self::SomeFilter | Self::Cluster(_) => {
                !matches!(connection, PeerIdentity::Node | PeerIdentity::Member(_))
            }
        }
    }
}

fn valid<'a>(state: &'a MetaState, now_ms: u64, name: &str) -> Option<&'a Principal> {
    state.principal(name).filter(|principal| !principal.is_expired(now_ms))
}

impl CallerStanding {
    /// The standing that follows from the catalogue; `state` is None while this node does not know the
    /// cluster yet.
    fn of(
        connection: &PeerIdentity,
        shown: Credential<'_>,
        state: Option<&MetaState>,
        now_ms: u64,
    ) -> Self {
        use Credential::None as Nothing;
        let is_guarded = state.map(MetaState::is_guarded);
        match (connection, shown, is_guarded, state) {
            (PeerIdentity::Node, ..) => Self::Unlimited,
            (PeerIdentity::Member(member), ..) => Self::of_member(*member, state),
            (_, shown, Some(true), Some(state)) if shown != Nothing => {
                let proved = Proved::by_token(state, now_ms, shown);
                proved.map_or(Self::Nobody(BAD_TOKEN), Self::Principal)
            }
            (PeerIdentity::Unchecked | PeerIdentity::Client(_), Nothing, None, _) => {
                Self::Unlimited
            }
            (_, shown, None, _) if shown != Nothing => Self::Unknown,
            (PeerIdentity::Anonymous, ..) => Self::Nobody(NO_PROOF),
            (PeerIdentity::Unchecked, _, Some(true), _) => Self::Nobody(NO_TOKEN),
            (PeerIdentity::Client(name), _, Some(true), Some(state)) => {
                let proved = Proved::by_certificate(state, now_ms, name);
                proved.map_or(Self::Nobody(NO_PRINCIPAL), Self::Principal)
            }
            // The cluster has no principals yet, so it limits nobody.
            (PeerIdentity::Unchecked | PeerIdentity::Client(_), ..) => Self::Unlimited,
        }
    }

    /// The standing of a certificate that names its node and its cluster.
    fn of_member(member: NodeIdentity, state: Option<&MetaState>) -> Self {
        let node = NodeId(member.node);
        match state {
            Some(state) if state.cluster() != Some(member.cluster) => Self::Nobody(OTHER_CLUSTER),
            Some(state) if state.is_live(node) => Self::Unlimited,
            Some(state) if state.is_no_member(node) => Self::Nobody(NO_MEMBER),
            // The certificate's node may be newer than this node's catalogue.
            _ => Self::Unknown,
        }
    }
}

impl Caller {
    /// Identifies the sender of a request by its connection and the credential that it presents.
    pub(super) fn identify(
        connection: &PeerIdentity,
        shown: Credential<'_>,
        coordinator: &Arc<Coordinator>,
        needs_member: bool,
    ) -> Self {
        let now_ms = coordinator.seed().wall_ms();
        let with = |state: Option<&MetaState>| CallerStanding::of(connection, shown, state, now_ms);
        let is_generic = *connection == PeerIdentity::Node;
        let standing = match coordinator.read_meta(|state| with(Some(state))) {
            Ok(standing) => standing,
            Err(_) => with(None),
        };
        let standing = if is_generic && needs_member {
            CallerStanding::Nobody(GENERIC_NODE)
        } else {
            standing
        };
        let (connection, coordinator) = (connection.clone(), Arc::clone(coordinator));
        Self { connection, from: None, called: None, note: None, standing, coordinator }
    }

    /// The same caller, which calls from this address.
    pub(super) fn at(self, from: Option<PeerAddress>) -> Self {
        Self { from, ..self }
    }

    /// The address that it calls from, if that is known.
    pub(super) const fn address(&self) -> Option<&PeerAddress> {
        self.from.as_ref()
    }

    /// The same caller, which calls this.
    pub(super) fn calling(self, called: Option<Called>) -> Self {
        Self { called, ..self }
    }

    /// Sets what the caller calls next.
    pub(super) fn call_next(&mut self, called: Option<Called>) {
        self.called = called;
    }

    /// What it calls, if that is known.
    pub(super) const fn called(&self) -> Option<&Called> {
        self.called.as_ref()
    }

    /// The same caller of a call that is audited.
    pub(super) fn noting(self, note: AuditNote) -> Self {
        Self { note: Some(note), ..self }
    }

    /// Where the call notes what its line of the audit log says, if it is audited.
    pub(super) const fn note(&self) -> Option<&AuditNote> {
        self.note.as_ref()
    }

    /// Limits the lines of the log that strangers cause.
    pub(super) fn stranger_log(&self) -> &StrangerLog {
        self.coordinator.callers().stranger_log()
    }

    /// A caller while this node does not know, or cannot learn, what the cluster grants to whom.
    pub(super) fn without_grants(
        connection: &PeerIdentity,
        coordinator: &Arc<Coordinator>,
    ) -> Self {
        let standing = match connection {
            PeerIdentity::Node | PeerIdentity::Member(_) => CallerStanding::Unlimited,
            _ => CallerStanding::Unknown,
        };
        let (connection, coordinator) = (connection.clone(), Arc::clone(coordinator));
        Self { connection, from: None, called: None, note: None, standing, coordinator }
    }

    /// A node of a cluster that is not formed.
    #[cfg(test)]
    pub(super) fn node() -> Self {
        let coordinator = Arc::new(Coordinator::without_cluster());
        Self::identify(&PeerIdentity::Node, Credential::None, &coordinator, false)
    }

    /// The caller of a request that has passed the gate.
    ///
    /// # Errors
    /// `CallFailure::Denied` if the request has not passed the gate, and so has no caller.
    pub(super) fn of<T>(request: &Request<T>) -> Result<Self> {
        let what = "the call has not passed the gate: this is a bug of umbel";
        let denied = || CallFailure::Denied { what: what.to_owned() };
        request.extensions().get().cloned().ok_or_else(denied)
    }

    /// Whether the caller's proof is unknown here, but may be known elsewhere: its principal may just
    /// have been added through another node.
    pub(super) fn may_be_new(&self) -> bool {
        matches!(self.standing, CallerStanding::Nobody(BAD_TOKEN | NO_PRINCIPAL))
    }

    /// Takes what the call uses from the principal's rates: calls, items, bytes.
    ///
    /// # Errors
    /// If the rates are used up.
    pub(super) fn take(&self, amounts: Amounts) -> Result<()> {
        match &self.standing {
            CallerStanding::Principal(proved) => {
                self.coordinator.callers().take(&proved.name, amounts)
            }
            _ => Ok(()),
        }
    }

    /// Checks the items of a request and takes them from the principal's rates before any item is hashed.
    ///
    /// # Errors
    /// If the items are invalid, or the principal has used up its rates.
    pub(super) fn items(&self, items: Option<v1::Items>) -> Result<ItemBatch> {
        self.questions(items, 1)
    }

    /// The same for a request about several filters: each filter hashes and looks up every item, so the
    /// items count once for each filter.
    ///
    /// # Errors
    /// As [`items`](Self::items).
    pub(super) fn questions(
        &self,
        items: Option<v1::Items>,
        filter_count: usize,
    ) -> Result<ItemBatch> {
        let items = ItemBatch::from_proto(items)?;
        self.take([0, (items.len() * filter_count) as u64, items.byte_count()])?;
        Ok(items)
    }

    /// What the connection proves.
    pub(super) const fn connection(&self) -> &PeerIdentity {
        &self.connection
    }

    /// Whether this node knows too little to decide.
    pub(super) fn is_unknown(&self) -> bool {
        self.standing == CallerStanding::Unknown
    }

    /// Why this node knows too little to decide.
    pub(super) fn why_unknown(&self) -> CallFailure {
        match self.coordinator.read_meta(|_| ()) {
            Ok(()) => CallFailure::GrantsUnknown,
            Err(failure) => failure,
        }
    }

    /// Whether the caller has proved its identity.
    pub(super) const fn is_somebody(&self) -> bool {
        matches!(self.standing, CallerStanding::Unlimited | CallerStanding::Principal(_))
    }

    /// Whether the caller has presented a proof: a token or a certificate.
    pub(super) fn has_proof(&self) -> bool {
        match &self.standing {
            CallerStanding::Principal(_) => true,
            CallerStanding::Unlimited => self.connection != PeerIdentity::Unchecked,
            CallerStanding::Nobody(_) | CallerStanding::Unknown => false,
        }
    }

    /// Whether the caller has the verb on filters, by their names.
    pub(super) fn allowed(&self, verb: FilterVerb) -> impl Fn(&str) -> bool + use<> {
        let rights = self.rights_now();
        move |name| rights.as_ref().is_none_or(|rights| rights.may(verb, name))
    }

    /// The owner of the caller's sessions; empty if the caller is no principal.
    pub(super) fn owner(&self) -> String {
        match &self.standing {
            CallerStanding::Principal(proved) => proved.name.as_str().to_owned(),
            _ => String::new(),
        }
    }

    /// A key that differs between callers that may see different things, also between tokens of one name.
    pub(super) fn viewer(&self) -> String {
        match &self.standing {
            CallerStanding::Principal(Proved { name, proof }) => format!("{name} {proof:?}"),
            _ => String::new(),
        }
    }

    /// The owner of filters that the caller creates; None if the caller is no principal.
    pub(super) fn principal_name(&self) -> Option<PrincipalName> {
        match &self.standing {
            CallerStanding::Principal(proved) => Some(proved.name.clone()),
            _ => None,
        }
    }

    /// The principal whose rights the caller has.
    pub(super) fn principal(&self) -> Option<(PrincipalName, Principal)> {
        let CallerStanding::Principal(proved) = &self.standing else { return None };
        let now_ms = self.coordinator.seed().wall_ms();
        let found = |state: &MetaState| proved.find(state, now_ms).cloned();
        Some((proved.name.clone(), self.coordinator.read_meta(found).ok()??))
    }

    /// Checks the rights that the caller has now; they may have been revoked since it passed the gate.
    fn has(&self, is_granted: impl FnOnce(&Rights) -> bool) -> bool {
        match &self.standing {
            CallerStanding::Unlimited => true,
            CallerStanding::Principal(proved) => {
                let now_ms = self.coordinator.seed().wall_ms();
                let found = self.coordinator.read_meta(|state| {
                    proved.find(state, now_ms).is_some_and(|found| is_granted(&found.rights))
                });
                found.unwrap_or(false)
            }
            CallerStanding::Nobody(_) | CallerStanding::Unknown => false,
        }
    }

    /// Whether the caller may make a call with this need. The handler checks a filter's name again.
    pub(super) fn may(&self, need: Need) -> bool {
        // Without TLS nodes prove nothing, and anybody who reaches the port may act as one.
        let is_node = match self.connection {
            PeerIdentity::Unchecked => true,
            // A node that is newer than this node's catalogue may call: its calls may bring the missing
            // entries.
            PeerIdentity::Node | PeerIdentity::Member(_) => {
                !matches!(self.standing, CallerStanding::Nobody(_))
            }
            PeerIdentity::Anonymous | PeerIdentity::Client(_) => false,
        };
        match need {
            Need::Nothing => true,
            Need::Somebody => self.is_somebody(),
            Need::Node => is_node,
            Need::NodeOr(verb) => is_node || self.has(|rights| rights.may_with_cluster(verb)),
            Need::Cluster(verb) => self.has(|rights| rights.may_with_cluster(verb)),
            Need::Filter(verb) => self.has(|rights| rights.may_somewhere(verb)),
            Need::SomeFilter => self.has(Rights::may_anything_somewhere),
        }
    }

    /// The filter that a field names, if the caller has the verb on that name, whether or not it exists.
    ///
    /// # Errors
    /// If the text is not a valid filter name; if the caller lacks the right.
    pub(super) fn filter(&self, verb: FilterVerb, field: &str, name: String) -> Result<FilterName> {
        let name = FilterName::new(name)
            .map_err(|error| CallFailure::Invalid { what: format!("{field}: {error}") })?;
        let is_open = planted::on(Planted::GateLeftOpen) && verb == FilterVerb::Manage;
        if is_open || self.has(|rights| rights.may(verb, name.as_str())) {
            return Ok(name);
        }
        let verb = verb.name();
        let what = format!(
            "{self} has no right to {verb} filters of this name: a grant of {verb} is needed"
        );
        let ordered = format!("verb={verb} filter={}", audit::word(name.as_str()));
        audit::denied(self, Some(&ordered), &what);
        Err(CallFailure::Denied { what })
    }

    /// The filters of a list of names, if the caller has the verb on each of them.
    ///
    /// # Errors
    /// As [`filter`](Self::filter), for the first name that is refused.
    pub(super) fn filters(
        &self,
        verb: FilterVerb,
        field: &str,
        names: Vec<String>,
    ) -> Result<Vec<FilterName>> {
        let names = names.into_iter().enumerate();
        names.map(|(at, name)| self.filter(verb, &format!("{field}[{at}]"), name)).collect()
    }

    /// Checks a rename, beyond the verb that both names need: each verb that the caller has on the new name is
    /// needed on the old one, because the filter's items get under that name what the caller may do with it.
    ///
    /// # Errors
    /// If the caller would gain a verb on the filter.
    pub(super) fn check_rename(&self, name: &FilterName, new_name: &FilterName) -> Result<()> {
        for verb in FilterVerb::ALL {
            if self.has(|rights| rights.may(verb, new_name.as_str())) {
                self.filter(verb, "name", name.as_str().to_owned())?;
            }
        }
        Ok(())
    }

    /// Which filters a list shows to the caller.
    pub(super) fn visible(&self) -> impl Fn(&str) -> bool + use<> {
        let rights = self.rights_now();
        move |name| rights.as_ref().is_none_or(|rights| rights.may_see(name))
    }

    /// Which filters the caller may read, for pages that show many without naming one.
    pub(super) fn readable(&self) -> impl Fn(&str) -> bool + use<> {
        self.allowed(FilterVerb::Read)
    }

    /// The rights as they are now; None for callers without limits.
    fn rights_now(&self) -> Option<Rights> {
        match &self.standing {
            CallerStanding::Unlimited => None,
            _ => Some(self.principal().map(|(_, principal)| principal.rights).unwrap_or_default()),
        }
    }

    /// Whether the connection's certificate is a node's.
    const fn shows_node(&self) -> bool {
        matches!(self.connection, PeerIdentity::Node | PeerIdentity::Member(_))
    }

    /// Why the caller is refused.
    pub(super) fn refusal(&self, need: Need) -> String {
        match (&self.standing, need) {
            (CallerStanding::Nobody(why), _) if need != Need::Node || self.shows_node() => {
                format!("the caller is {self}: {why}")
            }
            (CallerStanding::Unknown, _) => self.why_unknown().to_string(),
            (_, Need::Node) => format!(
                "this call is for nodes of the cluster, whose certificates say umbel:node; the caller is \
                 {self}"
            ),
            (_, Need::Filter(verb)) => {
                format!("{self} has no right to {} any filter", verb.name())
            }
            (_, Need::SomeFilter) => format!("{self} has no right on any filter"),
            (_, Need::Cluster(verb) | Need::NodeOr(verb)) => {
                format!("{self} has not the verb {} of the cluster", verb.name())
            }
            (_, Need::Nothing | Need::Somebody) => format!("{self} may not do that"),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.standing {
            CallerStanding::Principal(proved) => write!(f, "principal {}", proved.name),
            _ => write!(f, "{}", self.connection),
        }
    }
}
