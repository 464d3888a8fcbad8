//! Nodes that are known, and which of them to call next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tower::Service;
use umbel_proto::v1::ShardMapRequest;
use umbel_proto::v1::access_client::AccessClient;
use umbel_proto::v1::admin_client::AdminClient;
use umbel_proto::v1::filters_client::FiltersClient;
use umbel_proto::v1::jobs_client::JobsClient;

use crate::connector::{Connector, Lost, TcpConnector, channel};
use crate::failure::{Failure, Origin};
use crate::limits::{
    AVOID_FIRST, AVOID_MAX, CONNECTION_WINDOW_BYTES, KEEP_ALIVE_INTERVAL, MESSAGE_BYTES_MAX,
    PATIENT_KEEP_ALIVE_INTERVAL, PATIENT_KEEP_ALIVE_TIMEOUT, STREAM_WINDOW_BYTES,
};
use crate::token::Bearer;

/// Addresses of nodes: `host:port`, several separated by commas.
///
/// ```
/// use umbel_client::Addresses;
///
/// let written = Addresses::from("10.0.0.1:7000, 10.0.0.2:7000");
/// assert_eq!(written, Addresses::from(vec!["10.0.0.1:7000", "10.0.0.2:7000"]));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses(Vec<String>);

impl From<&str> for Addresses {
    fn from(text: &str) -> Self {
        Self(text.split(',').map(|address| address.trim().to_owned()).collect())
    }
}

impl From<String> for Addresses {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl<S: Into<String>> From<Vec<S>> for Addresses {
    fn from(list: Vec<S>) -> Self {
        Self(list.into_iter().map(Into::into).collect())
    }
}

/// What was given in the place of an address; empty if nothing was.
#[derive(Debug)]
pub(crate) struct NoAddress(pub(crate) String);

/// How the client names itself to nodes, which take whoever names tonic alone for a client of a former release.
const USER_AGENT: &str = concat!("umbel-client/", env!("CARGO_PKG_VERSION"));

/// A channel whose calls say who asks.
type Authorized = InterceptedService<Channel, Bearer>;

/// A node to call.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) address: Arc<str>,
    loss_count: u32,
    channel: Channel,
    bearer: Bearer,
}

/// A node at the time when a call was sent to it.
#[derive(Clone)]
pub(crate) struct Called {
    pub(crate) address: Arc<str>,
    /// How many of its connections had been lost.
    loss_count: u32,
}

impl Node {
    pub(crate) fn called(&self) -> Called {
        Called { address: Arc::clone(&self.address), loss_count: self.loss_count }
    }

    pub(crate) fn filters(&self) -> FiltersClient<Authorized> {
        FiltersClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What is asked for by plain HTTP.
    pub(crate) fn pages(&self) -> Authorized {
        Authorized::new(self.channel.clone(), self.bearer.clone())
    }

    pub(crate) fn access(&self) -> AccessClient<Authorized> {
        AccessClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn jobs(&self) -> JobsClient<Authorized> {
        JobsClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn admin(&self) -> AdminClient<Authorized> {
        AdminClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// When connections are given up.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    /// Of the answer to a probe.
    pub(crate) probe: Duration,
}

/// All nodes that are known.
pub(crate) struct Nodes {
    timeouts: Timeouts,
    connector: Arc<dyn Connector>,
    /// What every call proves itself by.
    bearer: Bearer,
    state: Arc<Mutex<State>>,
}

struct State {
    nodes: BTreeMap<Arc<str>, Known>,
    /// Whose copies of replicated filters are used: the first one given, until it fails.
    home: Arc<str>,
    /// Counts calls, for turns.
    turn: usize,
    /// Whether any node has ever answered.
    has_answered: bool,
}

struct Known {
    endpoint: Endpoint,
    /// Made at the first call; it connects by itself, again and again.
    channel: Option<Channel>,
    /// The same for copies and changes, which nothing but their time ends.
    patient: Option<Channel>,
    /// Given by the caller, so never forgotten.
    is_given: bool,
    /// Failures since the last success.
    failure_count: u32,
    /// Set from a failure, or the loss of the connection, until the next answer: so long no call waits for the node while
    /// others are well.
    avoided_until: Option<Instant>,
    /// How many connections to it were lost.
    loss_count: u32,
    /// Exists while it is being asked, beside the calls, for a sign of life. A task that asks may end with its runtime.
    probe: Weak<()>,
    /// Whether it has ever answered.
    has_answered: bool,
    /// Whether a call was sent to it before it had ever answered.
    is_tried: bool,
}

impl Nodes {
    pub(crate) fn new(
        addresses: &Addresses,
        timeouts: Timeouts,
        connector: Option<Arc<dyn Connector>>,
        bearer: Bearer,
    ) -> Result<Self, NoAddress> {
        let mut nodes = BTreeMap::new();
        for address in &addresses.0 {
            let known =
                Known::new(address, timeouts, true).ok_or_else(|| NoAddress(address.clone()))?;
            nodes.insert(Arc::from(address.as_str()), known);
        }
        let Some(first) = addresses.0.first() else {
            return Err(NoAddress(String::new()));
        };
        let state = State { nodes, home: Arc::from(first.as_str()), turn: 0, has_answered: false };
        let connector = connector.unwrap_or_else(|| Arc::new(TcpConnector));
        Ok(Self { timeouts, connector, bearer, state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The preferred node if nothing is known against it, otherwise the next in turn of the best [`Rank`], or of
    /// nodes that are avoided the one whose time ends first. While a node is well, the others are probed beside the calls, so that no
    /// call waits for a connection that is never made.
    pub(crate) fn pick(&self, preferred: Option<&str>, last: Option<&str>) -> Node {
        self.choose(preferred, last, Known::may_be_tried)
    }

    /// As [`Self::pick`]; while any node is known to be well, the preferred one is taken only if it is `is_good`, too.
    fn choose(
        &self,
        preferred: Option<&str>,
        last: Option<&str>,
        is_good: impl Fn(&Known) -> bool,
    ) -> Node {
        let now = Instant::now();
        let mut state = self.state();
        state.turn = state.turn.wrapping_add(1);
        let state = &mut *state;
        let any_well = state.nodes.values().any(|known| known.is_well() && known.has_answered);
        if any_well {
            self.probe_others(state, now);
        }
        let address = preferred
            .filter(|address| Some(*address) != last)
            .and_then(|address| state.nodes.get_key_value(address))
            .filter(|(_, known)| known.is_well() && (is_good(known) || !any_well))
            .map(|(address, _)| address.clone());
        let address = address.unwrap_or_else(|| {
            let count = state.nodes.len();
            let start = state.turn % count;
            let in_turn = state.nodes.iter().cycle().skip(start).take(count);
            let chosen = in_turn.min_by_key(|(address, known)| {
                (known.rank(Some(&***address) == last), known.avoided_until)
            });
            chosen.expect("there is at least one node").0.clone()
        });
        let known = state.nodes.get_mut(&address).expect("the address was found in the list");
        known.is_tried = true;
        self.node(&address, known)
    }

    /// A node by its own connection.
    fn node(&self, address: &Arc<str>, known: &mut Known) -> Node {
        let connect = || {
            let (state, lost) = (Arc::downgrade(&self.state), Arc::clone(address));
            let lost: Lost = Arc::new(move || {
                if let Some(state) = state.upgrade() {
                    lock(&state).lost(&lost);
                }
            });
            channel(&known.endpoint, address, &self.connector, Some(lost))
        };
        let channel = alive(&mut known.channel, connect);
        let (address, bearer) = (Arc::clone(address), self.bearer.clone());
        Node { address, loss_count: known.loss_count, channel, bearer }
    }

    /// Asks nodes for a sign of life that have never answered, or were avoided for long enough: a call would wait for those
    /// that are gone.
    fn probe_others(&self, state: &mut State, now: Instant) {
        for (address, known) in &mut state.nodes {
            let is_due = known.avoided_until.map_or(!known.has_answered, |until| until <= now);
            if known.probe.strong_count() > 0 || !is_due {
                continue;
            }
            let probe = Arc::new(());
            known.probe = Arc::downgrade(&probe);
            let (node, state) = (self.node(address, known), Arc::downgrade(&self.state));
            let patience = self.timeouts.connect + self.timeouts.probe;
            tokio::spawn(async move {
                let mut admin = node.admin();
                let asked = admin.shard_map(ShardMapRequest {});
                let is_there = match tokio::time::timeout(patience, asked).await {
                    Ok(Ok(_)) => true,
                    // Whoever refuses is alive, but a node that is starting serves nobody yet.
                    Ok(Err(status)) => {
                        let failure = Failure::from_status(&status, "the node", &node.address);
                        failure.origin == Origin::Node && !failure.is_not_ready()
                    }
                    Err(_) => false,
                };
                let Some(state) = state.upgrade() else { return };
                lock(&state).probed(&node.called(), is_there);
                drop(probe);
            });
        }
    }

    /// A node that was picked, by a connection that waits long for a probe: for copies, behind which other calls would wait, and for
    /// what may not be sent again.
    pub(crate) fn patient(&self, node: Node) -> Node {
        let mut state = self.state();
        let Some(known) = state.nodes.get_mut(&node.address) else { return node };
        let connect = || {
            let endpoint = known.endpoint.clone();
            let endpoint = endpoint
                .http2_keep_alive_interval(PATIENT_KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(PATIENT_KEEP_ALIVE_TIMEOUT.max(self.timeouts.probe));
            channel(&endpoint, &node.address, &self.connector, None)
        };
        let channel = alive(&mut known.patient, connect);
        Node { channel, ..node }
    }

    /// The node that was picked so the last time, unless it is not well or was just called in
    /// vain; then another one, which is stayed with from now on.
    pub(crate) fn pick_home(&self, last: Option<&str>) -> Node {
        let home = Arc::clone(&self.state().home);
        let node = self.choose(Some(&home), last, |_| true);
        self.state().home = Arc::clone(&node.address);
        node
    }

    /// The node answered.
    pub(crate) fn succeeded(&self, called: &Called) {
        self.state().succeeded(called);
    }

    /// Whether any node has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.state().has_answered
    }

    /// Whether any node but this one is not avoided.
    pub(crate) fn other_node_is_well(&self, address: &str) -> bool {
        let state = self.state();
        state.nodes.iter().any(|(other, known)| &**other != address && known.is_well())
    }

    /// The node did not answer, or has no time.
    pub(crate) fn failed(&self, address: &str) {
        self.state().failed(address);
    }

    /// Takes over the list of nodes that live.
    pub(crate) fn learn(&self, addresses: &[Arc<str>]) {
        let mut state = self.state();
        state.nodes.retain(|address, known| known.is_given || addresses.contains(address));
        for address in addresses {
            if !state.nodes.contains_key(address)
                && let Some(known) = Known::new(address, self.timeouts, false)
            {
                state.nodes.insert(address.clone(), known);
            }
        }
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.state().nodes.keys().map(ToString::to_string).collect()
    }
}

impl State {
    /// An answer to a call that was sent before the loss of a connection says nothing of the node's state after it.
    fn succeeded(&mut self, called: &Called) {
        self.has_answered = true;
        if let Some(known) = self.nodes.get_mut(&called.address) {
            known.has_answered = true;
            if known.loss_count == called.loss_count {
                known.failure_count = 0;
                known.avoided_until = None;
            }
        }
    }

    fn failed(&mut self, address: &str) {
        if let Some(known) = self.nodes.get_mut(address) {
            let doubled = AVOID_FIRST * 2_u32.pow(known.failure_count.min(10));
            known.failure_count = known.failure_count.saturating_add(1);
            known.avoided_until = Some(Instant::now() + doubled.min(AVOID_MAX));
        }
    }

    /// It gave a sign of life, or none. Failures are forgotten with a call that succeeds: a node may be there and do nothing.
    fn probed(&mut self, called: &Called, is_there: bool) {
        let Some(known) = self.nodes.get_mut(&called.address) else { return };
        if !is_there {
            self.failed(&called.address);
        } else if known.loss_count == called.loss_count {
            known.avoided_until = None;
            known.has_answered = true;
        }
    }

    /// Its connection ended. If calls failed with it, they have said so.
    fn lost(&mut self, address: &str) {
        let Some(known) = self.nodes.get_mut(address) else { return };
        known.loss_count = known.loss_count.wrapping_add(1);
        if known.is_well() {
            self.failed(address);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No code that can panic runs while the list is half changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The channel that is kept, or a new one. The task behind a channel ends with the runtime of the channel's first call, which
/// a client may outlive; such a channel is replaced before a call goes to it.
fn alive(kept: &mut Option<Channel>, connect: impl FnOnce() -> Channel) -> Channel {
    let channel = kept.take().filter(is_alive).unwrap_or_else(connect);
    kept.insert(channel).clone()
}

/// Whether there is a task behind a channel. Without one it is never ready, and says so at once.
fn is_alive(channel: &Channel) -> bool {
    let mut asked = channel.clone();
    let mut context = Context::from_waker(Waker::noop());
    let ready = Service::<http::Request<Body>>::poll_ready(&mut asked, &mut context);
    !matches!(ready, Poll::Ready(Err(_)))
}

/// Which node is called rather than another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It answers.
    Well,
    /// It was never called.
    Unknown,
    /// It answers, but the call that is to be made was sent there in vain.
    LastWell,
    /// It failed.
    Avoided,
    /// It failed, by this call.
    LastAvoided,
}

impl Known {
    /// Whether a call may be sent to the node without knowing that it answers. One is sent: others would wait behind it for the
    /// connection, and each for a connect timeout of its own if none can be made.
    const fn may_be_tried(&self) -> bool {
        self.has_answered || !self.is_tried
    }

    fn rank(&self, is_last: bool) -> Rank {
        match (self.is_well(), is_last) {
            (true, false) if self.has_answered => Rank::Well,
            (true, false) => Rank::Unknown,
            (true, true) => Rank::LastWell,
            (false, false) => Rank::Avoided,
            (false, true) => Rank::LastAvoided,
        }
    }

    /// Whether it answered when it was last called, as far as anybody called it.
    fn is_well(&self) -> bool {
        self.avoided_until.is_none()
    }

    /// None if the address is none.
    fn new(address: &str, timeouts: Timeouts, is_given: bool) -> Option<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let uri = endpoint.uri();
        if uri.port_u16().is_none() || uri.authority()?.as_str() != address {
            return None;
        }
        let endpoint = endpoint
            .user_agent(USER_AGENT)
            .ok()?
            .connect_timeout(timeouts.connect)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(timeouts.probe)
            .keep_alive_while_idle(true);
        Some(Self {
            endpoint,
            channel: None,
            patient: None,
            is_given,
            failure_count: 0,
            avoided_until: None,
            loss_count: 0,
            probe: Weak::new(),
            has_answered: false,
            is_tried: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts =
        Timeouts { connect: Duration::from_secs(1), probe: Duration::from_secs(1) };

    fn nodes(text: &str) -> Nodes {
        Nodes::new(&text.into(), TIMEOUTS, None, Bearer::default()).unwrap()
    }

    /// A call to a node that has lost no connection.
    fn called(address: &str) -> Called {
        Called { address: Arc::from(address), loss_count: 0 }
    }

    fn succeeded(nodes: &Nodes, address: &str) {
        nodes.succeeded(&called(address));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "a", "a:1,,b:2", "a:1/x", "http://a:1", "a:99999", "a b:1"] {
            let made = Nodes::new(&text.into(), TIMEOUTS, None, Bearer::default());
            assert!(matches!(made, Err(NoAddress(_))), "{text:?}");
        }
        assert!(
            Nodes::new(&Vec::<String>::new().into(), TIMEOUTS, None, Bearer::default()).is_err()
        );
        assert_eq!(nodes("[::1]:7000, b:1").addresses(), ["[::1]:7000", "b:1"]);
    }

    #[tokio::test]
    async fn turns_preference_and_avoidance() {
        let nodes = nodes("a:1,b:1,c:1");
        let mut turns: Vec<String> =
            (0..3).map(|_| nodes.pick(None, None).address.to_string()).collect();
        turns.sort();
        assert_eq!(turns, ["a:1", "b:1", "c:1"]);
        assert_eq!(&*nodes.pick(Some("b:1"), None).address, "b:1");
        assert_ne!(&*nodes.pick(Some("b:1"), Some("b:1")).address, "b:1");
        nodes.failed("b:1");
        assert!((0..9).all(|_| &*nodes.pick(Some("b:1"), None).address != "b:1"));
        nodes.failed("a:1");
        nodes.failed("a:1");
        nodes.failed("c:1");
        nodes.failed("c:1");
        assert_eq!(&*nodes.pick(None, None).address, "b:1", "it is back first");
        succeeded(&nodes, "c:1");
        assert_eq!(&*nodes.pick(None, None).address, "c:1");
        assert_eq!(&*nodes.pick(None, Some("c:1")).address, "c:1", "the others do not answer");
        nodes.failed("c:1");
        assert_ne!(&*nodes.pick(None, Some("c:1")).address, "c:1");
    }

    #[tokio::test]
    async fn nodes_that_never_answered_get_calls_only_while_none_is_well() {
        let nodes = nodes("a:1,b:1,c:1");
        succeeded(&nodes, "b:1");
        assert!((0..9).all(|_| &*nodes.pick(None, None).address == "b:1"));
        // One call goes to a leader, the next ones do not wait behind it.
        assert_eq!(&*nodes.pick(Some("a:1"), None).address, "a:1");
        assert_eq!(&*nodes.pick(Some("a:1"), None).address, "b:1");
        // After a call in vain, another node is tried.
        assert_ne!(&*nodes.pick(None, Some("b:1")).address, "b:1");
        nodes.state().probed(&called("a:1"), true);
        assert!((0..9).any(|_| &*nodes.pick(None, None).address == "a:1"));
        nodes.failed("a:1");
        nodes.failed("b:1");
        assert_eq!(&*nodes.pick(None, None).address, "c:1");
    }

    #[tokio::test]
    async fn an_answer_that_came_before_the_connection_was_lost_does_not_end_the_avoidance() {
        let nodes = nodes("a:1,b:1");
        succeeded(&nodes, "b:1");
        let before = nodes.pick(Some("a:1"), None).called();
        nodes.state().lost("a:1");
        nodes.succeeded(&before);
        assert_eq!(&*nodes.pick(Some("a:1"), None).address, "b:1");
        nodes.state().probed(&before, true);
        assert_eq!(&*nodes.pick(Some("a:1"), None).address, "b:1");
        let after = Called { loss_count: 1, ..before };
        nodes.state().probed(&after, true);
        assert_eq!(&*nodes.pick(Some("a:1"), None).address, "a:1");
    }

    #[tokio::test]
    async fn home_is_the_first_given_and_moves_only_if_it_fails() {
        let nodes = nodes("c:1,a:1,b:1");
        let home = |last: Option<&str>| nodes.pick_home(last).address.to_string();
        assert!((0..9).all(|_| home(None) == "c:1"));
        nodes.failed("c:1");
        let next = home(None);
        assert_ne!(next, "c:1");
        succeeded(&nodes, "c:1");
        assert!((0..9).all(|_| home(None) == next), "it does not go back");
        assert_ne!(home(Some(&next)), next, "another try goes elsewhere");
    }

    #[test]
    fn learned_nodes_come_and_go_and_given_ones_stay() {
        let nodes = nodes("a:1");
        nodes.learn(&["b:1".into(), "no address".into()]);
        assert_eq!(nodes.addresses(), ["a:1", "b:1"]);
        nodes.learn(&["c:1".into()]);
        assert_eq!(nodes.addresses(), ["a:1", "c:1"]);
    }
}
