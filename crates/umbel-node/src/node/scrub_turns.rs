//! Decides which slice's replicas are compared next: every slice that this node leads, once per
//! interval.

use std::sync::Arc;
use std::time::Duration;

use umbel_engine::{FilterId, Generation};
use umbel_ports::Purpose;

use crate::cube::turn_pause;
use crate::local::Local;
use crate::shard_leader::ShardLeader;

/// Pause before each piece of 16 MiB in a scheduled comparison: a piece blocks the shard for some
/// milliseconds, half a per cent of this.
const PIECE_PAUSE: Duration = Duration::from_secs(1);

/// Compares for ever; never, if there is no interval.
pub(super) async fn take_turns(local: Arc<Local>, interval: Option<Duration>) {
    let Some(interval) = interval else { return std::future::pending().await };
    let mut turn = local.seed().number(Purpose::Scrub);
    loop {
        let slice_count = slices(&local).len();
        tokio::time::sleep(turn_pause(local.seed(), interval, slice_count)).await;
        let slices = slices(&local);
        if let Some((shard, filter, generation)) = chosen(&slices, turn) {
            let pause = PIECE_PAUSE.min(interval / 64);
            // The outcome is counted and logged; the next turn is another slice's.
            let _ = shard.scrub(*filter, *generation, pause).await;
        }
        turn = turn.wrapping_add(1);
    }
}

/// All slices of the shards that this node leads.
fn slices(local: &Local) -> Vec<(Arc<ShardLeader>, FilterId, Generation)> {
    let led = local.shards().into_iter().filter(|shard| shard.group().is_leader());
    led.flat_map(|shard| {
        let slices: Vec<_> = shard.group().replica().read_shard(|state| state.slices().collect());
        let of_shard = move |(filter, generation)| (Arc::clone(&shard), filter, generation);
        slices.into_iter().map(of_shard)
    })
    .collect()
}

fn chosen<T>(slices: &[T], turn: u64) -> Option<&T> {
    slices.get(usize::try_from(turn % slices.len().max(1) as u64).ok()?)
}
