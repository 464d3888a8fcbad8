//! What a tally costs on the wire.

/// Bits an entry that a tally is expected to cost: claims of what was dropped for another worker's records, and the
/// sizes that come back, with record and part where records have parts. Of the share `delta` of entries that several
/// workers hold, half are taken to be dropped (two hold each), evenly among all workers; headers are not counted.
/// Records are taken to be as far apart as their parts are, which is too far.
///
/// ```
/// use umbel_dedup_engine::tally_bits_per_entry;
/// assert_eq!(tally_bits_per_entry(0.0, 8, true, false), 0.0);
/// // One entry in a hundred is dropped for another worker's: two bytes each, and one for the size.
/// let bits = tally_bits_per_entry(0.02, 8, true, false);
/// assert!((0.2..0.25).contains(&bits), "{bits}");
/// ```
#[must_use]
pub fn tally_bits_per_entry(delta: f64, workers: u32, tells_sizes: bool, names_parts: bool) -> f64 {
    let dropped = delta / 2.0;
    if workers < 2 || dropped <= 0.0 {
        return 0.0;
    }
    // Claims of one worker on records of another one: so many places apart on average.
    let gap = f64::from(workers - 1) / dropped;
    // LEB128 of 1 + 2·gap: one more byte beyond each seven bits. Gaps are nearly exponential.
    let longer = |bits: i32| (-(2f64.powi(bits) - 1.0) / 2.0 / gap).exp();
    let claim = 1.0 + longer(7) + longer(14) + longer(21) + longer(28);
    let size = if tells_sizes || names_parts { 1.0 } else { 0.0 };
    let part = if names_parts { claim + 1.0 } else { 0.0 };
    8.0 * dropped * (claim + size + part)
}
