//! The loops for the processor at hand, chosen at run time, and all `unsafe` code of the project.
//!
//! x86-64 has two versions beside the scalar one: AVX2, and AVX-512 with its population count. On
//! other processors the scalar loops are compiled for what every one of them has (NEON on aarch64).
//! What is unsafe, and why it holds:
//!
//! * calling a function that is compiled for an instruction set: after the processor said that it
//!   has it;
//! * loading and storing whole lines: from references to whole lines;
//! * prefetching: any address may be prefetched;
//! * a slice of lines as a slice of words: a line is eight words and nothing else;
//! * `madvise`: on memory that is ours and not yet initialised.
#![expect(unsafe_code, reason = "vector instructions, prefetch and huge pages; the only module")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::mem::MaybeUninit;

use super::{BitLoop, LINE_WORDS, Line, scalar};
use crate::block_map::BlockMap;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::lanes::LaneSets;

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(all(test, target_arch = "x86_64"))]
mod wide_test;

/// How many items ahead of the current one a batch asks for its line in the second cache. The first
/// cache can wait for a dozen or two lines at once, the second for several times as many, and that
/// number is what bounds random accesses: measured, 9.5 ns a line with requests of the first cache,
/// 4.2 with those of the second, 3.6 with both.
const FAR_DISTANCE: usize = 96;

/// How many items ahead the line is taken on to the first cache.
const NEAR_DISTANCE: usize = 8;

/// Arrays up to 2^14 lines, 1 MiB, lie in the second cache, where asking early costs more than it
/// saves.
const FAR_LINE_COUNT_MIN: usize = 1 << 14;

/// Array size from which huge pages are asked for: two of them, so that one fits in whole.
const HUGE_PAGES_BYTES_MIN: usize = 2 * HUGE_PAGE_BYTES;

/// Size of a huge page on x86-64, and on aarch64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Runs a loop in the widest version that the processor has.
macro_rules! widest {
    ($name:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        match x86::Level::detect() {
            // SAFETY: the processor has the instruction set.
            x86::Level::Avx512 => return unsafe { x86::avx512::$name($($argument),*) },
            // SAFETY: the processor has the instruction set.
            x86::Level::Avx2 => return unsafe { x86::avx2::$name($($argument),*) },
            x86::Level::Scalar => {}
        }
        scalar::$name($($argument),*)
    }};
}

/// One answer a hash; all hashes lie in the map's range, and both slices are equally long.
pub(crate) fn contains_batch(
    lines: &[Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    present: &mut [bool],
) {
    widest!(contains_batch(lines, map, sets, hashes, present));
}

/// One outcome a hash; all hashes lie in the map's range, and both slices are equally long.
pub(crate) fn insert_batch(
    lines: &mut [Line],
    map: BlockMap,
    sets: &LaneSets,
    hashes: &[ItemHash],
    outcomes: &mut [Insertion],
) {
    widest!(insert_batch(lines, map, sets, hashes, outcomes));
}

/// Whether the item's bits in its block are all set.
#[inline]
pub(crate) fn contains(line: &Line, sets: &LaneSets, seed: u32) -> bool {
    widest!(contains_one(line, sets, seed))
}

/// Sets the item's bits in its block.
#[inline]
pub(crate) fn insert(line: &mut Line, sets: &LaneSets, seed: u32) -> Insertion {
    widest!(insert_one(line, sets, seed))
}

/// The item's bits in its block.
#[inline]
pub(crate) fn mask(sets: &LaneSets, seed: u32) -> Line {
    widest!(mask(sets, seed))
}

/// Number of ones.
pub(crate) fn count_ones(words: &[u64]) -> u64 {
    widest!(count_ones(words))
}

/// ORs the second slice into the first, as far as both go, and returns how many bits it newly set.
pub(crate) fn or(ours: &mut [u64], theirs: &[u64]) -> u64 {
    widest!(or(ours, theirs))
}

/// ANDs the second slice into the first, as far as both go, and returns how many bits it cleared.
pub(crate) fn and(ours: &mut [u64], theirs: &[u64]) -> u64 {
    widest!(and(ours, theirs))
}

/// Runs a loop with the processor's instructions for bits, where it has them.
#[inline]
pub(crate) fn with_bits<L: BitLoop>(bit_loop: L) -> L::Output {
    widest!(with_bits(bit_loop))
}

/// Whether an array is so large that prefetching pays.
#[inline(always)]
pub(crate) const fn is_far<T>(lines: &[T]) -> bool {
    lines.len() >= FAR_LINE_COUNT_MIN
}

/// Asks for a line in the second cache. Does nothing where there is no such line.
#[inline(always)]
pub(crate) fn prefetch_far<T>(array: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let address = array.as_ptr().wrapping_add(index);
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, index);
}

/// Asks for a line in the first cache. Does nothing where there is no such line.
#[inline(always)]
pub(crate) fn prefetch_near<T>(array: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let address = array.as_ptr().wrapping_add(index);
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, index);
}

/// So many lines of zeros, or None if there is no memory for them.
pub(crate) fn zeroed_lines(count: usize) -> Option<Vec<Line>> {
    allocated(count, Line::default)
}

/// So many lines, on huge pages where the system has them, or None if there is no memory for them.
pub(crate) fn allocated<T>(count: usize, line: impl FnMut() -> T) -> Option<Vec<T>> {
    let mut lines = Vec::new();
    lines.try_reserve_exact(count).ok()?;
    advise_huge_pages(lines.spare_capacity_mut());
    lines.resize_with(count, line);
    Some(lines)
}

/// Asks the system to back fresh memory with huge pages. It may refuse: then nothing changes but
/// the time of an access.
fn advise_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    #[cfg(target_os = "linux")]
    if size_of_val(memory) >= HUGE_PAGES_BYTES_MIN {
        let range = memory.as_mut_ptr_range();
        let end = range.end.addr() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let start = range.start.addr().next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: whole pages inside memory that is borrowed mutably, and the advice changes no
        // byte of it.
        unsafe {
            libc::madvise(range.start.with_addr(start).cast(), end - start, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// The lines' words, in order.
#[inline]
pub(crate) fn words(lines: &[Line]) -> &[u64] {
    // SAFETY: a line is an array of LINE_WORDS words in memory (repr(C), 64 bytes, aligned to more
    // than a word), so the slice covers the same bytes for the same lifetime.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * LINE_WORDS) }
}

/// The lines' words, in order.
#[inline]
pub(crate) fn words_mut(lines: &mut [Line]) -> &mut [u64] {
    // SAFETY: as in `words`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE_WORDS) }
}
