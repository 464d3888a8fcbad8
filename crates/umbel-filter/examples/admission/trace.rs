//! Requests whose popularity is Zipf's, from a seed.

/// How much less often the next ranks are asked for.
const EXPONENT: f64 = 0.9;
/// Requests between two moves of the ranking.
const MOVE_EVERY: u64 = 10_000;

/// A source of requests.
pub(crate) struct Trace {
    /// Sums of r^−s over the ranks, for finding a rank by bisection.
    sums: Vec<f64>,
    /// Ranks by which each object moves up when the ranking moves.
    moved: u64,
}

impl Trace {
    pub(crate) fn new(object_count: u64, moved: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| (rank as f64).powf(-EXPONENT);
        let sums = (1..=object_count).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { sums: sums.collect(), moved }
    }

    /// Objects in the order in which they are asked for. Those that move out of the ranking do not come
    /// again; others come in at its end.
    pub(crate) fn requests(&self, request_count: u64) -> impl Iterator<Item = u64> + '_ {
        let whole = self.sums.last().copied().unwrap_or_default();
        let mut state = 1_u64;
        (0..request_count).map(move |at| {
            // 53 bits are what the fraction of a double has.
            let share = (split_mix(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
            let rank = self.sums.partition_point(|&sum| sum <= share * whole) as u64;
            rank + at / MOVE_EVERY * self.moved
        })
    }
}

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
