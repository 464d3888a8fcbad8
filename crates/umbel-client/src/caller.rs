//! Makes a call, with retries until it is answered, refused or late.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Request, Response, Status};
use umbel_proto::v1::{Applied, ErrorCode};

use crate::failure::{Failure, Origin, Weighed};
use crate::limits::ANSWER_GRACE;
use crate::nodes::{Called, Node, Nodes};
use crate::options::ClientOptions;
use crate::session::SessionSlot;
use crate::shard_map::ShardMapCache;

/// Hears why a request waits for nodes that serve nobody yet.
type TellWait = Box<dyn Fn(&Failure) + Send + Sync>;

/// State shared by all handles of a client.
pub(crate) struct Caller {
    pub(crate) options: ClientOptions,
    pub(crate) nodes: Nodes,
    pub(crate) map: ShardMapCache,
    pub(crate) session: SessionSlot,
    /// Set once, by [`Client::tell_waits`](crate::Client::tell_waits).
    pub(crate) told: OnceLock<TellWait>,
    /// Number of pauses so far, so that no two draw the same random number.
    pause_count: AtomicU64,
    begun: Instant,
}

/// The properties of a call that its retries depend on.
pub(crate) struct CallPolicy<'a> {
    /// The name of its target in errors.
    pub(crate) target: &'a str,
    pub(crate) repeat: Repeat,
    pub(crate) first: First,
}

impl<'a> CallPolicy<'a> {
    /// Of a call that does no harm if it is repeated, at the next node in turn.
    pub(crate) const fn freely(target: &'a str) -> Self {
        Self { target, repeat: Repeat::Freely, first: First::InTurn }
    }

    /// Of a change that does no harm if it is repeated, at the next node in turn.
    pub(crate) const fn order(target: &'a str) -> Self {
        Self { target, repeat: Repeat::Order, first: First::InTurn }
    }

    /// Of a call that is repeated only if nothing was changed, at the next node in turn.
    pub(crate) const fn if_unchanged(target: &'a str) -> Self {
        Self { target, repeat: Repeat::IfUnchanged, first: First::InTurn }
    }
}

/// Makes a call about the cluster or the catalogue: this method of this service, with this message.
macro_rules! ask {
    ($client:expr, $policy:expr, $service:ident.$method:ident, $message:expr) => {
        $client
            .caller
            .simple(&$policy, $message, |node, request| async move {
                node.$service().$method(request).await
            })
            .await
    };
}

pub(crate) use ask;

/// The node that is called first; after a failure, any other node may be next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// The next one in turn.
    InTurn,
    /// The leader of the shard that holds this upper half of a hash.
    LeaderOf(u64),
    /// The home node: the one whose copies of replicated filters this client uses.
    Home,
}

/// When a call may be repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Always: it is idempotent, and an outcome that is unknown is its caller's own affair, or does not matter.
    Freely,
    /// Always: it is idempotent. But it changes the cluster, so that an unknown outcome has to be told.
    Order,
    /// Only if the attempts so far changed nothing.
    IfUnchanged,
}

/// The state of a request over all its attempts.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) attempt_count: u32,
    /// Whether an attempt may have been applied, or may still be applied later.
    pub(crate) may_be_applied: bool,
    last: Option<Arc<str>>,
}

impl Progress {
    /// Makes the failure of an attempt tell what all attempts so far have done.
    fn tell(&self, failure: &mut Failure) {
        failure.attempt_count = self.attempt_count;
        if self.may_be_applied && failure.applied != Applied::Partly {
            failure.applied = Applied::Unknown;
        }
        // Nodes do not know whether an earlier attempt was applied; here it is known.
        if is_session_lost(failure) && !self.may_be_applied {
            failure.applied = Applied::No;
        }
    }
}

/// Why a call ended without an answer.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Whether a later retry may succeed.
    pub(crate) is_transient: bool,
    /// The call's rule of repetition, on which it depends whether an unknown outcome does harm.
    pub(crate) repeat: Repeat,
}

impl Caller {
    pub(crate) fn new(nodes: Nodes, options: ClientOptions) -> Self {
        Self {
            options,
            nodes,
            map: ShardMapCache::default(),
            session: SessionSlot::default(),
            told: OnceLock::new(),
            pause_count: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }

    /// Sends a request until it is answered, within the time and the number of attempts of the options.
    pub(crate) async fn call<R, F, A>(
        &self,
        policy: &CallPolicy<'_>,
        progress: &mut Progress,
        mut send: F,
    ) -> Result<R, Failed>
    where
        F: FnMut(Node, Duration) -> A,
        A: Future<Output = Result<Response<R>, Status>>,
    {
        let begun = Instant::now();
        let deadline = begun + self.options.timeout;
        let mut attempts_left = self.options.attempt_count_max.max(1);
        let mut tried: u32 = 0;
        let mut gravest: Option<Weighed> = None;
        loop {
            let node = self.pick(policy.first, progress.last.as_deref()).await;
            let node = match policy.repeat {
                Repeat::Freely | Repeat::Order => node,
                // On an ordinary connection, a missed keep-alive could end the call with an unknown
                // outcome.
                Repeat::IfUnchanged => self.nodes.patient(node),
            };
            let patience = self
                .options
                .attempt_timeout
                .min(deadline.saturating_duration_since(Instant::now()))
                .max(Duration::from_millis(1));
            progress.attempt_count = progress.attempt_count.saturating_add(1);
            let called = node.called();
            let sent = tokio::time::timeout(patience + ANSWER_GRACE, send(node, patience)).await;
            let mut failure = match sent {
                Ok(Ok(answer)) => {
                    self.nodes.succeeded(&called);
                    progress.last = None;
                    return Ok(answer.into_inner());
                }
                Ok(Err(status)) => Failure::from_status(&status, policy.target, &called.address),
                Err(_) => Failure::silence(policy.target, &called.address, patience + ANSWER_GRACE),
            };
            let is_transient = failure.is_transient();
            self.note(&failure, &called, is_transient, progress);
            let is_open = policy.repeat != Repeat::Freely && leaves_open(&failure);
            let stays_unchanged =
                policy.repeat != Repeat::IfUnchanged || !progress.may_be_applied || !is_transient;
            progress.tell(&mut failure);
            attempts_left -= 1;
            let pause = self.pause(tried, self.wish(&failure, &called));
            tried += 1;
            let is_late = Instant::now() + pause >= deadline;
            // A node that hangs up on this client counts as unreachable.
            let is_nobody_there = (failure.origin == Origin::Connect || failure.is_broken())
                && tried as usize >= self.nodes.addresses().len()
                && !self.nodes.has_answered()
                && begun.elapsed() + pause >= self.options.first_contact_timeout;
            let is_over = attempts_left == 0 || is_late || is_nobody_there;
            if !is_transient || !stays_unchanged || is_over {
                // A refusal takes nothing back that an earlier attempt may have done.
                let earlier = gravest.filter(|earlier| is_transient || earlier.is_open);
                let Weighed { failure, .. } = Weighed { failure, is_open }.or_graver(earlier);
                return Err(Failed { failure, is_transient, repeat: policy.repeat });
            }
            self.tell_wait(&failure, &called);
            gravest = Some(Weighed { failure, is_open }.or_graver(gravest));
            tokio::time::sleep(pause).await;
        }
    }

    /// Tells of a pause after the answer of a node that found no majority, or is not ready, unless another node may be.
    fn tell_wait(&self, failure: &Failure, called: &Called) {
        let is_told = failure.lacks_majority()
            || (failure.is_not_ready() && !self.nodes.other_node_is_well(&called.address));
        if let Some(tell) = self.told.get().filter(|_| is_told) {
            tell(failure);
        }
    }

    async fn pick(&self, first: First, last: Option<&str>) -> Node {
        match first {
            First::InTurn => self.nodes.pick(None, last),
            First::LeaderOf(hi) => {
                let leader = self.shard_map().await.and_then(|map| map.leader_of(hi));
                self.nodes.pick(leader.as_deref(), last)
            }
            First::Home => self.nodes.pick_home(last),
        }
    }

    fn note(
        &self,
        failure: &Failure,
        called: &Called,
        is_transient: bool,
        progress: &mut Progress,
    ) {
        if failure.blames_node() {
            self.nodes.failed(&called.address);
        } else if !is_transient {
            // A node that refuses is alive.
            self.nodes.succeeded(called);
        }
        if is_transient {
            progress.last = Some(Arc::clone(&called.address));
            // Requests for keyed filters do not need the map, but the set of nodes may have changed.
            self.map.distrust();
        }
        progress.may_be_applied |= leaves_open(failure);
    }

    /// The pause that the node asked for. A node that is not ready speaks for itself alone: the next attempt goes to another
    /// one, without that pause.
    fn wish(&self, failure: &Failure, called: &Called) -> Option<Duration> {
        let speaks_for_all =
            !failure.is_not_ready() || !self.nodes.other_node_is_well(&called.address);
        failure.retry_after.filter(|_| speaks_for_all)
    }

    /// The pause after an attempt: a random time between half of the doubled pause and all of it, so that
    /// many clients do not retry at once, and no shorter than the node's wish.
    fn pause(&self, tried: u32, wish: Option<Duration>) -> Duration {
        let doubled = self.options.pause_first.saturating_mul(2_u32.saturating_pow(tried));
        let longest = doubled.min(self.options.pause_max);
        let count = self.pause_count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let drawn = scramble(nanos ^ count.rotate_left(48)) >> 54; // 0 to 1,023
        let drawn = longest / 2048 * drawn as u32;
        (longest / 2 + drawn).max(wish.unwrap_or_default())
    }

    /// Makes a call about the cluster or the catalogue.
    pub(crate) async fn simple<Q, R, F, A>(
        self: &Arc<Self>,
        policy: &CallPolicy<'_>,
        message: Q,
        send: F,
    ) -> Result<R, Failed>
    where
        Q: Clone,
        F: FnMut(Node, Request<Q>) -> A,
        A: Future<Output = Result<Response<R>, Status>>,
    {
        self.keep_map_fresh();
        self.request(policy, message, send).await
    }

    /// The same without a look at the shard map, for calls whose answers bring one.
    pub(crate) async fn request<Q, R, F, A>(
        &self,
        policy: &CallPolicy<'_>,
        message: Q,
        mut send: F,
    ) -> Result<R, Failed>
    where
        Q: Clone,
        F: FnMut(Node, Request<Q>) -> A,
        A: Future<Output = Result<Response<R>, Status>>,
    {
        let mut progress = Progress::default();
        let sent = self.call(policy, &mut progress, |node, patience| {
            let mut request = Request::new(message.clone());
            // The channel ends the call then, too. A node gives up earlier by as much, and says why.
            request.set_timeout(patience + ANSWER_GRACE);
            send(node, request)
        });
        sent.await
    }
}

/// Whether the failed attempt may have been applied, or may be applied later.
fn leaves_open(failure: &Failure) -> bool {
    failure.applied != Applied::No && !is_session_lost(failure)
}

/// Whether the cluster has forgotten the session, or the answer to the request's first attempt. Such an
/// attempt itself changes nothing.
pub(crate) fn is_session_lost(failure: &Failure) -> bool {
    matches!(failure.cause, ErrorCode::SessionExpired | ErrorCode::RequestExpired)
}

/// The finaliser of `SplitMix64`, which spreads similar numbers.
const fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
