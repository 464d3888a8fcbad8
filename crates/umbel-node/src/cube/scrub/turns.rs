//! Decides which copy is compared with which partner next: every copy once per interval, with its
//! partners in turn; and soon with all partners if a copy had lost something.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::{FilterId, NodeId};
use umbel_ports::{Purpose, Seed, locked};

use super::asking::compare;
use super::{CopyScrubs, Due};
use crate::cube::copies::Copies;
use crate::cube::copy::Copy;

/// Shortest pause between two comparisons that this node initiates by itself: with many filters and a
/// short interval, other work still gets time.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Pause before a failed comparison that is due is retried; doubles with each further try.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Tries of such a comparison. After that the partner is probably away for longer, and is compared in
/// its regular turn.
const TRIES_MAX: u32 = 6;

impl CopyScrubs {
    /// Schedules comparisons with all partners except `except`, after this copy had lost bits that
    /// `except` still had: the others may lack them too, and no delta would carry them.
    pub(super) fn compare_soon(&self, filter: FilterId, partners: Vec<NodeId>, except: NodeId) {
        let due = Due { at: Instant::now(), try_count: 0 };
        let others = partners.into_iter().filter(|&partner| partner != except);
        locked(&self.due).extend(others.map(|partner| ((filter, partner), due)));
        self.is_due.notify_one();
    }

    /// Takes a comparison that is due now; otherwise returns when the next one is due, if any.
    fn take_due(&self) -> Result<(FilterId, NodeId, Due), Option<Instant>> {
        let mut waiting = locked(&self.due);
        let first = waiting.iter().min_by_key(|(pair, due)| (due.at, **pair));
        let Some((&pair, &due)) = first else { return Err(None) };
        if due.at > Instant::now() {
            return Err(Some(due.at));
        }
        waiting.remove(&pair);
        Ok((pair.0, pair.1, due))
    }

    fn try_again(&self, filter: FilterId, partner: NodeId, due: Due) {
        let try_count = due.try_count + 1;
        if try_count < TRIES_MAX {
            let at = Instant::now() + RETRY_PAUSE * 2_u32.pow(due.try_count);
            locked(&self.due).entry((filter, partner)).or_insert(Due { at, try_count });
        }
    }
}

/// Compares copies for ever: each of them once per interval or, without an interval, only those that
/// are due.
pub(crate) async fn take_turns(copies: Arc<Copies>, interval: Option<Duration>) {
    let mut turn = copies.member.seed().number(Purpose::Scrub);
    let mut next_at = interval.map(|interval| Instant::now() + pause(&copies, interval));
    loop {
        let scrubs = copies.scrubs();
        let due_at = match scrubs.take_due() {
            Ok((filter, partner, due)) => {
                compare_due(&copies, filter, partner, due).await;
                tokio::time::sleep(PAUSE_MIN).await;
                continue;
            }
            Err(at) => at,
        };
        let wake_at = [next_at, due_at].into_iter().flatten().min();
        let woken = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = scrubs.is_due.notified() => continue,
            () = woken => {}
        }
        if let (Some(at), Some(interval)) = (next_at, interval)
            && at <= Instant::now()
        {
            if let Some((copy, partner)) = chosen(&copies, turn) {
                // The outcome is counted and logged; the next turn is another copy's.
                let _ = compare(&copies, &copy, copy.generation(), partner).await;
            }
            turn = turn.wrapping_add(1);
            next_at = Some(Instant::now() + pause(&copies, interval));
        }
    }
}

async fn compare_due(copies: &Copies, filter: FilterId, partner: NodeId, due: Due) {
    let Some(copy) = copies.get(filter) else { return };
    if !copy.partners().contains(&partner) {
        return;
    }
    if compare(copies, &copy, copy.generation(), partner).await.is_err() {
        copies.scrubs().try_again(filter, partner, due);
    }
}

/// The copy and partner for a turn: copies in sequence, and in the next round the next partner.
fn chosen(copies: &Copies, turn: u64) -> Option<(Arc<Copy>, NodeId)> {
    let all = copies.all();
    let (round, copy) = (turn / all.len().max(1) as u64, turn % all.len().max(1) as u64);
    let copy = all.get(usize::try_from(copy).ok()?)?;
    let partners = copy.partners();
    let partner = usize::try_from(round % partners.len().max(1) as u64).ok()?;
    Some((Arc::clone(copy), *partners.get(partner)?))
}

/// How long until the next turn.
fn pause(copies: &Copies, interval: Duration) -> Duration {
    turn_pause(copies.member.seed(), interval, copies.all().len())
}

/// How long until the next of `count` turns in an interval: the turn's share of the interval times a
/// random factor between 0.5 and 1.5, so that nodes that started together do not compare together.
pub(crate) fn turn_pause(seed: &dyn Seed, interval: Duration, count: usize) -> Duration {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    let share = (interval / count).max(PAUSE_MIN);
    let spread = u64::try_from(share.as_micros()).unwrap_or(u64::MAX).max(1);
    share / 2 + Duration::from_micros(seed.number(Purpose::Scrub) % spread)
}
