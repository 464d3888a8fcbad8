//! A gate: instructions of the inner loops, each below a hard limit. Repeatable on busy machines.
//!
//! `cargo bench --bench instructions` runs every loop once under valgrind and fails when a limit is
//! passed. Needs valgrind, and the runner: `cargo install gungraun-runner --version 0.20.0`. Where
//! valgrind is missing it says so and counts nothing.
//!
//! Valgrind knows no AVX-512, so this counts the AVX2 loops. Cache misses are no instructions: a
//! loop may pass this gate and yet be slower. Limits are about a tenth above what was counted when
//! they were written; lower them when a loop gets better, and say why when you raise one.

use std::process::{Command, ExitCode};

/// What each loop may take, in instructions; the comment says how many that is for each thing.
mod limits {
    /// 4,096 hashes.
    pub(super) const BLOCKED_INSERT_BATCH: u64 = 212_000;
    /// 4,096 hashes.
    pub(super) const BLOCKED_CONTAINS_BATCH: u64 = 194_000;
    /// 4,096 gaps.
    pub(super) const RICE_ENCODE: u64 = 158_000;
    /// 4,096 gaps.
    pub(super) const RICE_DECODE: u64 = 300_000;
    /// 4,096 gaps, and the tables.
    pub(super) const ANS_ENCODE: u64 = 347_000;
    /// 4,096 gaps, and the tables.
    pub(super) const ANS_DECODE: u64 = 355_000;
    /// 1,024 lines.
    pub(super) const OR_MERGE: u64 = 33_000;
    /// 1,024 lines.
    pub(super) const POPCOUNT: u64 = 22_500;
}

/// The program that runs the loops under valgrind, of the same version as the library.
const RUNNER: &str = "gungraun-runner";
const RUNNER_VERSION: &str = "0.20.0";

fn main() -> ExitCode {
    if !runs("valgrind") {
        println!("instructions: skipped, there is no valgrind on this machine");
        return ExitCode::SUCCESS;
    }
    if option_env!("GUNGRAUN_RUNNER").is_none() && !runs(RUNNER) {
        eprintln!("instructions: cargo install {RUNNER} --version {RUNNER_VERSION} --locked");
        return ExitCode::FAILURE;
    }
    // Ends the process with an error if a limit is passed.
    gate::run();
    ExitCode::SUCCESS
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[allow(unused_qualifications, unreachable_pub, reason = "what the macros of gungraun expand to")]
mod gate {
    use std::hint::black_box;

    use gungraun::{
        Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group,
        main,
    };
    use umbel_bits::{
        AnsGapCode, BitReader, BitWriter, RiceCode, decode_positions, encode_positions,
    };
    use umbel_filter::{Blocked, Contains, HashRange, Insert, Insertion, ItemHash, words};
    use umbel_kernel_benchmark::keys::{fill_inserted, fill_queries, mix};

    use super::limits;

    const FILTER_ITEMS: u64 = 1 << 16;
    const FILTER_RATE: f64 = 0.01;
    const BATCH_KEYS: u64 = 4_096;

    const GAP_COUNT: u64 = 4_096;
    const MEAN_GAP: u64 = 48;

    /// 64 KiB.
    const WORD_COUNT: u64 = 8_192;

    pub(super) fn run() {
        main();
    }

    fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
        let mut config = LibraryBenchmarkConfig::default();
        config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
        config
    }

    /// A filter with half of its items, and a batch of the other half.
    fn filter_and_keys() -> (Blocked, Vec<ItemHash>) {
        let mut filter =
            Blocked::for_rate(HashRange::WHOLE, FILTER_ITEMS, FILTER_RATE).expect("a small filter");
        let half = FILTER_ITEMS / 2;
        let mut keys = Vec::new();
        fill_inserted(0..half, &mut keys);
        filter.insert_batch(&keys, &mut Vec::new()).expect("the whole hash space");
        fill_inserted(half..half + BATCH_KEYS, &mut keys);
        (filter, keys)
    }

    fn for_insert() -> (Blocked, Vec<ItemHash>, Vec<Insertion>) {
        let (filter, keys) = filter_and_keys();
        let outcomes = Vec::with_capacity(keys.len());
        (filter, keys, outcomes)
    }

    fn for_contains() -> (Blocked, Vec<ItemHash>, Vec<bool>) {
        let (filter, mut keys) = filter_and_keys();
        fill_queries(0..BATCH_KEYS, FILTER_ITEMS / 2, &mut keys);
        let present = Vec::with_capacity(keys.len());
        (filter, keys, present)
    }

    fn code() -> RiceCode {
        RiceCode::for_mean_gap(MEAN_GAP as f64)
    }

    fn positions() -> Vec<u64> {
        let mut list: Vec<u64> =
            (0..GAP_COUNT).map(|index| mix(index) % (GAP_COUNT * MEAN_GAP)).collect();
        list.sort_unstable();
        list
    }

    fn for_encode() -> (Vec<u64>, BitWriter) {
        let room = Vec::with_capacity(8 * positions().len());
        (positions(), BitWriter::with_buffer(room))
    }

    fn for_decode() -> (Vec<u8>, Vec<u64>) {
        let (positions, mut writer) = for_encode();
        encode_positions(code(), positions.iter().copied(), &mut writer);
        (writer.finish(), Vec::with_capacity(positions.len()))
    }

    fn ans() -> AnsGapCode {
        AnsGapCode::for_mean_gap(MEAN_GAP as f64)
    }

    fn for_ans_encode() -> (Vec<u64>, Vec<u8>) {
        (positions(), Vec::with_capacity(8 * positions().len()))
    }

    fn for_ans_decode() -> (Vec<u8>, Vec<u64>) {
        let (positions, mut bytes) = for_ans_encode();
        ans().encode_positions(positions.iter().copied(), &mut bytes);
        (bytes, Vec::with_capacity(positions.len()))
    }

    fn random_words() -> Vec<u64> {
        (0..WORD_COUNT).map(mix).collect()
    }

    fn two_words() -> (Vec<u64>, Vec<u64>) {
        (random_words(), (0..WORD_COUNT).map(|index| mix(index ^ WORD_COUNT)).collect())
    }

    // Each returns what it got, so that freeing it is not counted.

    #[library_benchmark(config = at_most(limits::BLOCKED_INSERT_BATCH))]
    #[bench::half_full(for_insert())]
    fn blocked_insert_batch(
        (mut filter, keys, mut outcomes): (Blocked, Vec<ItemHash>, Vec<Insertion>),
    ) -> (Blocked, Vec<ItemHash>, Vec<Insertion>) {
        black_box(&mut filter).insert_batch(black_box(&keys), &mut outcomes).expect("whole space");
        (filter, keys, outcomes)
    }

    #[library_benchmark(config = at_most(limits::BLOCKED_CONTAINS_BATCH))]
    #[bench::half_full(for_contains())]
    fn blocked_contains_batch(
        (filter, keys, mut present): (Blocked, Vec<ItemHash>, Vec<bool>),
    ) -> (Blocked, Vec<ItemHash>, Vec<bool>) {
        black_box(&filter).contains_batch(black_box(&keys), &mut present);
        (filter, keys, present)
    }

    #[library_benchmark(config = at_most(limits::RICE_ENCODE))]
    #[bench::mean_48(for_encode())]
    fn rice_encode((positions, mut writer): (Vec<u64>, BitWriter)) -> (Vec<u64>, BitWriter) {
        encode_positions(black_box(code()), black_box(&positions).iter().copied(), &mut writer);
        (positions, writer)
    }

    #[library_benchmark(config = at_most(limits::RICE_DECODE))]
    #[bench::mean_48(for_decode())]
    fn rice_decode((bytes, mut found): (Vec<u8>, Vec<u64>)) -> (Vec<u8>, Vec<u64>) {
        let (code, width) = (black_box(code()), GAP_COUNT * MEAN_GAP);
        let mut reader = BitReader::new(black_box(&bytes));
        decode_positions(&mut reader, code, GAP_COUNT, width, &mut found).expect("own codes");
        (bytes, found)
    }

    #[library_benchmark(config = at_most(limits::ANS_ENCODE))]
    #[bench::mean_48(for_ans_encode())]
    fn ans_encode((positions, mut bytes): (Vec<u64>, Vec<u8>)) -> (Vec<u64>, Vec<u8>) {
        black_box(ans()).encode_positions(black_box(&positions).iter().copied(), &mut bytes);
        (positions, bytes)
    }

    #[library_benchmark(config = at_most(limits::ANS_DECODE))]
    #[bench::mean_48(for_ans_decode())]
    fn ans_decode((bytes, mut found): (Vec<u8>, Vec<u64>)) -> (Vec<u8>, Vec<u64>) {
        let (code, width) = (black_box(ans()), GAP_COUNT * MEAN_GAP);
        code.decode_positions(black_box(&bytes), GAP_COUNT, width, &mut found).expect("own codes");
        (bytes, found)
    }

    #[library_benchmark(config = at_most(limits::OR_MERGE))]
    #[bench::kib_64(two_words())]
    fn or_merge((mut ours, theirs): (Vec<u64>, Vec<u64>)) -> (Vec<u64>, Vec<u64>) {
        black_box(words::or(black_box(&mut ours), black_box(&theirs)));
        (ours, theirs)
    }

    #[library_benchmark(config = at_most(limits::POPCOUNT))]
    #[bench::kib_64(random_words())]
    fn popcount(words: Vec<u64>) -> Vec<u64> {
        black_box(words::count_ones(black_box(&words)));
        words
    }

    library_benchmark_group!(
        name = loops,
        benchmarks = [
            blocked_insert_batch,
            blocked_contains_batch,
            rice_encode,
            rice_decode,
            ans_encode,
            ans_decode,
            or_merge,
            popcount
        ]
    );

    main!(library_benchmark_groups = loops);
}
