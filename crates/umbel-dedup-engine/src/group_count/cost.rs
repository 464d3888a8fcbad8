//! The cost model of counting groups.

/// Expected bits per entry to count groups: claims on other workers' records, and the sizes in the answers,
/// with record and part if records have parts. Headers are not counted. Assumptions: of the share `delta` of
/// entries that several workers have, half are dropped (each is at two workers), evenly among all workers;
/// record numbers are as far apart as record ids, which is an overestimate.
///
/// ```
/// use umbel_dedup_engine::group_count_bits_per_entry;
/// assert_eq!(group_count_bits_per_entry(0.0, 8, true, false), 0.0);
/// // One entry in a hundred is dropped for another worker's: two bytes for each claim, one for each size.
/// let bits = group_count_bits_per_entry(0.02, 8, true, false);
/// assert!((0.2..0.25).contains(&bits), "{bits}");
/// ```
#[must_use]
pub fn group_count_bits_per_entry(
    delta: f64,
    workers: u32,
    sends_sizes: bool,
    names_parts: bool,
) -> f64 {
    let dropped = delta / 2.0;
    if workers < 2 || dropped <= 0.0 {
        return 0.0;
    }
    // Mean gap, in record ids, between the claims of one worker on another one's records.
    let gap = f64::from(workers - 1) / dropped;
    // LEB128 of 1 + 2·gap: one more byte for every seven bits. Gaps are nearly exponentially distributed.
    let longer = |bits: i32| (-(2f64.powi(bits) - 1.0) / 2.0 / gap).exp();
    let claim = 1.0 + longer(7) + longer(14) + longer(21) + longer(28);
    let size = if sends_sizes || names_parts { 1.0 } else { 0.0 };
    let part = if names_parts { claim + 1.0 } else { 0.0 };
    8.0 * dropped * (claim + size + part)
}
