//! AVX2 and AVX-512 versions of the loops.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_and_si256, _mm256_cmpeq_epi32, _mm256_load_si256, _mm256_mullo_epi32,
    _mm256_or_si256, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_sllv_epi32, _mm256_srli_epi32,
    _mm256_store_si256, _mm256_testc_si256, _mm512_load_si512, _mm512_maskz_sllv_epi32,
    _mm512_mullo_epi32, _mm512_or_si512, _mm512_set1_epi32, _mm512_srli_epi32, _mm512_store_si512,
    _mm512_test_epi32_mask, _pdep_u64,
};
use std::sync::atomic::{AtomicU8, Ordering};

use super::{
    BitLoop, FAR_DISTANCE, Line, NEAR_DISTANCE, is_far, prefetch_far, prefetch_near, scalar,
};
use crate::block_map::BlockMap;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::lanes::{LaneSets, SALTS};

use super::super::Select;

/// Bits of a multiplied seed below the five that choose a bit of a lane.
const LANE_SHIFT: u32 = 27;

/// What the processor has.
#[derive(Clone, Copy)]
pub(super) enum Level {
    Scalar,
    Avx2,
    Avx512,
}

impl Level {
    /// The widest level. Asked once a call of a loop, or once an item outside batches, so the
    /// answer is kept in one byte.
    #[inline(always)]
    pub(super) fn detect() -> Self {
        match KNOWN.load(Ordering::Relaxed) {
            AVX512 => Self::Avx512,
            AVX2 => Self::Avx2,
            SCALAR => Self::Scalar,
            _ => Self::ask(),
        }
    }

    #[cold]
    fn ask() -> Self {
        // What every processor with AVX2 has.
        let has_bits = is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vpopcntdq")
            && has_bits;
        let has_avx2 = is_x86_feature_detected!("avx2") && has_bits;
        let (known, level) = match (has_avx512, has_avx2) {
            (true, _) => (AVX512, Self::Avx512),
            (false, true) => (AVX2, Self::Avx2),
            (false, false) => (SCALAR, Self::Scalar),
        };
        KNOWN.store(known, Ordering::Relaxed);
        level
    }
}

/// The level, once it is known; 0 before.
static KNOWN: AtomicU8 = AtomicU8::new(0);
const SCALAR: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;

/// One block at a time, in vector registers.
trait Kernel: Copy {
    /// # Safety
    /// The processor has the kernel's instruction set.
    unsafe fn line(self, sets: &LaneSets, seed: u32) -> Line;

    /// # Safety
    /// The processor has the kernel's instruction set.
    unsafe fn contains(self, line: &Line, sets: &LaneSets, seed: u32) -> bool;

    /// # Safety
    /// The processor has the kernel's instruction set.
    unsafe fn insert(self, line: &mut Line, sets: &LaneSets, seed: u32) -> Insertion;
}

/// Sixteen lanes in one register.
#[derive(Clone, Copy)]
struct Lanes16 {
    salts: __m512i,
}

impl Lanes16 {
    /// # Safety
    /// The processor has AVX-512F.
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: loads 64 bytes from an array of 64 bytes; the copy is aligned.
        Self { salts: unsafe { std::mem::transmute::<[u32; 16], __m512i>(SALTS) } }
    }

    /// The item's bits, and its lanes.
    #[inline(always)]
    unsafe fn mask(self, sets: &LaneSets, seed: u32) -> (__m512i, u16) {
        let lanes = sets.lanes(seed);
        // SAFETY: the caller's promise.
        let mask = unsafe {
            let products = _mm512_mullo_epi32(_mm512_set1_epi32(seed.cast_signed()), self.salts);
            let bits = _mm512_srli_epi32::<LANE_SHIFT>(products);
            _mm512_maskz_sllv_epi32(lanes, _mm512_set1_epi32(1), bits)
        };
        (mask, lanes)
    }
}

impl Kernel for Lanes16 {
    #[inline(always)]
    unsafe fn line(self, sets: &LaneSets, seed: u32) -> Line {
        // SAFETY: the caller's promise; a register and a line are the same 64 bytes.
        unsafe { std::mem::transmute::<__m512i, Line>(self.mask(sets, seed).0) }
    }

    #[inline(always)]
    unsafe fn contains(self, line: &Line, sets: &LaneSets, seed: u32) -> bool {
        // SAFETY: the caller's promise, and a line is 64 aligned bytes.
        unsafe {
            let (mask, lanes) = self.mask(sets, seed);
            let block = _mm512_load_si512(std::ptr::from_ref(line).cast());
            // Every lane of the item has one bit, so it is set exactly if the lane is not zero.
            _mm512_test_epi32_mask(block, mask) == lanes
        }
    }

    #[inline(always)]
    unsafe fn insert(self, line: &mut Line, sets: &LaneSets, seed: u32) -> Insertion {
        // SAFETY: the caller's promise, and a line is 64 aligned bytes.
        unsafe {
            let (mask, lanes) = self.mask(sets, seed);
            let block = _mm512_load_si512(std::ptr::from_ref(line).cast());
            let was_present = _mm512_test_epi32_mask(block, mask) == lanes;
            _mm512_store_si512(std::ptr::from_mut(line).cast(), _mm512_or_si512(block, mask));
            outcome(was_present)
        }
    }
}

/// Twice eight lanes.
#[derive(Clone, Copy)]
struct Lanes8 {
    salts: [__m256i; 2],
    lane_bits: [__m256i; 2],
}

impl Lanes8 {
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise; two registers are the array's 64 bytes.
        unsafe {
            let first = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let second = _mm256_setr_epi32(
                1 << 8,
                1 << 9,
                1 << 10,
                1 << 11,
                1 << 12,
                1 << 13,
                1 << 14,
                1 << 15,
            );
            let salts = std::mem::transmute::<[u32; 16], [__m256i; 2]>(SALTS);
            Self { salts, lane_bits: [first, second] }
        }
    }

    /// The item's bits in both halves of the block.
    // No closures and iterators here: a closure does not inherit the instruction set of the
    // function that it ends up in, and each intrinsic in it would become a call.
    #[inline(always)]
    unsafe fn mask(self, sets: &LaneSets, seed: u32) -> [__m256i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let lanes = _mm256_set1_epi32(i32::from(sets.lanes(seed)));
            let seed = _mm256_set1_epi32(seed.cast_signed());
            let [first, second] = self.salts;
            let [first_lanes, second_lanes] = self.lane_bits;
            [
                half_mask(lanes, first_lanes, seed, first),
                half_mask(lanes, second_lanes, seed, second),
            ]
        }
    }
}

/// The item's bits in eight lanes, given its lanes, these lanes' bits, its seed and their salts.
#[inline(always)]
unsafe fn half_mask(lanes: __m256i, lane_bits: __m256i, seed: __m256i, salts: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let products = _mm256_mullo_epi32(seed, salts);
        let bits = _mm256_srli_epi32::<{ LANE_SHIFT.cast_signed() }>(products);
        let chosen = _mm256_cmpeq_epi32(_mm256_and_si256(lanes, lane_bits), lane_bits);
        _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), bits), chosen)
    }
}

impl Kernel for Lanes8 {
    #[inline(always)]
    unsafe fn line(self, sets: &LaneSets, seed: u32) -> Line {
        // SAFETY: the caller's promise; two registers and a line are the same 64 bytes.
        unsafe { std::mem::transmute::<[__m256i; 2], Line>(self.mask(sets, seed)) }
    }

    #[inline(always)]
    unsafe fn contains(self, line: &Line, sets: &LaneSets, seed: u32) -> bool {
        // SAFETY: the caller's promise, and a line is 64 aligned bytes.
        unsafe {
            let [first, second] = self.mask(sets, seed);
            let block: *const __m256i = std::ptr::from_ref(line).cast();
            let in_first = _mm256_testc_si256(_mm256_load_si256(block), first);
            let in_second = _mm256_testc_si256(_mm256_load_si256(block.add(1)), second);
            in_first & in_second == 1
        }
    }

    #[inline(always)]
    unsafe fn insert(self, line: &mut Line, sets: &LaneSets, seed: u32) -> Insertion {
        // SAFETY: the caller's promise, and a line is 64 aligned bytes.
        unsafe {
            let [first, second] = self.mask(sets, seed);
            let block: *mut __m256i = std::ptr::from_mut(line).cast();
            let (in_first, in_second) = (_mm256_load_si256(block), _mm256_load_si256(block.add(1)));
            let was_present =
                _mm256_testc_si256(in_first, first) & _mm256_testc_si256(in_second, second) == 1;
            _mm256_store_si256(block, _mm256_or_si256(in_first, first));
            _mm256_store_si256(block.add(1), _mm256_or_si256(in_second, second));
            outcome(was_present)
        }
    }
}

#[inline(always)]
fn outcome(was_present: bool) -> Insertion {
    if was_present { Insertion::Present } else { Insertion::New }
}

/// Asks for the blocks of the items that are some places behind `at`.
#[inline(always)]
fn prefetch_ahead(lines: &[Line], map: BlockMap, hashes: &[ItemHash], at: usize) {
    if !is_far(lines) {
        return;
    }
    if let Some(&ahead) = hashes.get(at + FAR_DISTANCE) {
        prefetch_far(lines, scalar::line_of(map, ahead));
    }
    if let Some(&ahead) = hashes.get(at + NEAR_DISTANCE) {
        prefetch_near(lines, scalar::line_of(map, ahead));
    }
}

#[inline(always)]
fn prefetch_first(lines: &[Line], map: BlockMap, hashes: &[ItemHash]) {
    if is_far(lines) {
        for &hash in hashes.iter().take(FAR_DISTANCE) {
            prefetch_far(lines, scalar::line_of(map, hash));
        }
    }
}

/// # Safety
/// The processor has the kernel's instruction set.
#[inline(always)]
unsafe fn contains_all(
    kernel: impl Kernel,
    lines: &[Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    present: &mut [bool],
) {
    prefetch_first(lines, map, hashes);
    for (at, (&hash, present)) in hashes.iter().zip(present).enumerate() {
        prefetch_ahead(lines, map, hashes, at);
        let line = &lines[scalar::line_of(map, hash)];
        // SAFETY: the caller's promise.
        *present = unsafe { kernel.contains(line, sets, scalar::probe_seed(hash)) };
    }
}

/// # Safety
/// The processor has the kernel's instruction set.
#[inline(always)]
unsafe fn insert_all(
    kernel: impl Kernel,
    lines: &mut [Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    outcomes: &mut [Insertion],
) {
    prefetch_first(lines, map, hashes);
    for (at, (&hash, outcome)) in hashes.iter().zip(outcomes).enumerate() {
        prefetch_ahead(lines, map, hashes, at);
        let line = &mut lines[scalar::line_of(map, hash)];
        // SAFETY: the caller's promise.
        *outcome = unsafe { kernel.insert(line, sets, scalar::probe_seed(hash)) };
    }
}

/// Selects by depositing a bit. Only functions of a level make one.
#[derive(Clone, Copy)]
pub(super) struct Deposit(());

impl Select for Deposit {
    #[inline(always)]
    fn select(self, word: u64, rank: u32) -> u32 {
        // SAFETY: every level has the instruction.
        unsafe { _pdep_u64(1 << rank, word) }.trailing_zeros()
    }
}

/// The functions of one level. Each is safe to call on a processor with these features. The last
/// three are the scalar loops, which the compiler turns into vector code by itself.
macro_rules! level {
    ($level:ident, $kernel:ident, $features:literal) => {
        pub(in super::super) mod $level {
            use super::*;

            #[target_feature(enable = $features)]
            pub(in super::super) fn contains_batch(
                lines: &[Line],
                map: BlockMap,
                sets: &LaneSets,
                hashes: &[ItemHash],
                present: &mut [bool],
            ) {
                // SAFETY: this function is compiled for the kernel's instruction set.
                unsafe { contains_all($kernel::new(), lines, map, sets, hashes, present) }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn insert_batch(
                lines: &mut [Line],
                map: BlockMap,
                sets: &LaneSets,
                hashes: &[ItemHash],
                outcomes: &mut [Insertion],
            ) {
                // SAFETY: this function is compiled for the kernel's instruction set.
                unsafe { insert_all($kernel::new(), lines, map, sets, hashes, outcomes) }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn mask(sets: &LaneSets, seed: u32) -> Line {
                // SAFETY: this function is compiled for the kernel's instruction set.
                unsafe { $kernel::new().line(sets, seed) }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn contains_one(line: &Line, sets: &LaneSets, seed: u32) -> bool {
                // SAFETY: this function is compiled for the kernel's instruction set.
                unsafe { $kernel::new().contains(line, sets, seed) }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn insert_one(
                line: &mut Line,
                sets: &LaneSets,
                seed: u32,
            ) -> Insertion {
                // SAFETY: this function is compiled for the kernel's instruction set.
                unsafe { $kernel::new().insert(line, sets, seed) }
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn with_bits<L: BitLoop>(bit_loop: L) -> L::Output {
                bit_loop.run(Deposit(()))
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn count_ones(words: &[u64]) -> u64 {
                scalar::count_ones(words)
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn or(ours: &mut [u64], theirs: &[u64]) -> u64 {
                scalar::or(ours, theirs)
            }

            #[target_feature(enable = $features)]
            pub(in super::super) fn and(ours: &mut [u64], theirs: &[u64]) -> u64 {
                scalar::and(ours, theirs)
            }
        }
    };
}

level!(avx512, Lanes16, "avx512f,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt");
level!(avx2, Lanes8, "avx2,bmi1,bmi2,lzcnt,popcnt");
