//! What memory allows: random lines read and written, and lines copied, as fast as we know how.
//!
//! A filter that touches one cache line an operation cannot be faster than this loop, which does
//! nothing else: it touches one word of a line at a random place. Lines lie on huge pages where the
//! system gives them, and are prefetched some places ahead; the best way counts. All `unsafe`
//! code of the benchmark is here.

#![expect(unsafe_code, reason = "huge pages, prefetches and a copy of uninterpreted lines")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hint::black_box;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::time_chunks_on;
use crate::keys::{fill_inserted, scale};

/// Bytes of a huge page, and the alignment that lets an array consist of them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;
const LINE_WORDS: usize = 8;

/// A loop over the keys of a chunk.
type Pass = fn(&[Line], &[u64]) -> u64;

/// Without prefetches, which is best in cache; with requests of the first cache some places ahead;
/// of the second, which can wait for more lines at once; and of both.
const READS: [Pass; 7] = [
    read::<0, 0>,
    read::<0, 16>,
    read::<0, 32>,
    read::<0, 64>,
    read::<64, 0>,
    read::<128, 0>,
    read::<96, 16>,
];
const WRITES: [Pass; 7] = [
    write::<0, 0>,
    write::<0, 16>,
    write::<0, 32>,
    write::<0, 64>,
    write::<64, 0>,
    write::<128, 0>,
    write::<96, 16>,
];

/// A cache line. Atomic, so that two threads may write; a relaxed load or store of a word is a
/// plain instruction.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Line([AtomicU64; LINE_WORDS]);

/// Lines on huge pages, all zeros at first and touched.
pub struct Lines {
    first: NonNull<Line>,
    count: usize,
    layout: Layout,
}

// SAFETY: it owns its lines as a boxed slice does, and lines are Send and Sync.
unsafe impl Send for Lines {}
// SAFETY: as above; shared access goes through atomics.
unsafe impl Sync for Lines {}

impl Lines {
    /// So many lines, at least one.
    #[must_use]
    pub fn new(count: u64) -> Self {
        let count = usize::try_from(count.max(1)).expect("an array in memory");
        let layout = Layout::array::<Line>(count)
            .and_then(|layout| layout.align_to(HUGE_PAGE_BYTES))
            .expect("an array in memory");
        // SAFETY: the layout is not empty.
        let Some(pages) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the pages are ours. Where the system has no huge pages the advice fails and
        // changes nothing, so its outcome does not matter.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(pages.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE);
        }
        // SAFETY: the block has that many bytes. Zeros are written after the advice, for it holds
        // only for pages that are not touched yet.
        unsafe { pages.write_bytes(0, layout.size()) };
        Self { first: pages.cast(), count, layout }
    }

    /// Overwrites all lines with those of `source`; exclusive access to both rules out a race.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(&mut self, source: &mut Self) {
        assert_eq!(self.count, source.count, "lines of source and target");
        // SAFETY: both have `count` lines, belong to different owners, and nobody else sees them.
        unsafe { source.first.copy_to_nonoverlapping(self.first, self.count) };
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        // SAFETY: `first` points to `count` lines of zeros or more, which are valid atomics.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and dropped once.
        unsafe { dealloc(self.first.as_ptr().cast(), self.layout) };
    }
}

/// Nanoseconds per random line that is read, on this many threads, `access_count` times.
#[must_use]
pub fn random_read(lines: &Lines, thread_count: u64, access_count: u64) -> f64 {
    best(&READS, lines, thread_count, access_count)
}

/// Nanoseconds per random line that is read, changed and written back.
#[must_use]
pub fn random_write(lines: &Lines, thread_count: u64, access_count: u64) -> f64 {
    best(&WRITES, lines, thread_count, access_count)
}

/// The fastest of the passes.
fn best(passes: &[Pass], lines: &Lines, thread_count: u64, access_count: u64) -> f64 {
    let time = |pass: &Pass| {
        let run = || {
            |keys: &[u64]| {
                black_box(pass(lines, black_box(keys)));
            }
        };
        time_chunks_on(thread_count, access_count, fill_inserted, run)
    };
    nanoseconds(passes.iter().map(time).min().unwrap_or_default(), access_count)
}

/// Reads one word of each key's line, prefetching so many keys before.
fn read<const FAR: usize, const NEAR: usize>(lines: &[Line], keys: &[u64]) -> u64 {
    pass::<FAR, NEAR>(lines, keys, |word| word.load(Ordering::Relaxed))
}

/// Changes one word of each key's line, prefetching so many keys before.
fn write<const FAR: usize, const NEAR: usize>(lines: &[Line], keys: &[u64]) -> u64 {
    pass::<FAR, NEAR>(lines, keys, |word| {
        let old = word.load(Ordering::Relaxed);
        word.store(old + 1, Ordering::Relaxed);
        old
    })
}

#[inline]
fn pass<const FAR: usize, const NEAR: usize>(
    lines: &[Line],
    keys: &[u64],
    access: impl Fn(&AtomicU64) -> u64,
) -> u64 {
    let line = |key: u64| {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of lines")]
        let index = scale(key, lines.len() as u64) as usize;
        &lines[index]
    };
    // Any of the words: always the first would make loads wait for stores to other lines whose
    // addresses end in the same 12 bits, which costs several nanoseconds in cache.
    #[expect(clippy::cast_possible_truncation, reason = "any bits do, but the high ones")]
    let word = |key: u64| &line(key).0[usize::from(key as u8) % LINE_WORDS];
    let mut sum = 0u64;
    keys.iter().take(FAR).for_each(|&key| prefetch_far(line(key)));
    for (at, &key) in keys.iter().enumerate() {
        if FAR > 0
            && let Some(&ahead) = keys.get(at + FAR)
        {
            prefetch_far(line(ahead));
        }
        if NEAR > 0
            && let Some(&ahead) = keys.get(at + NEAR)
        {
            prefetch_near(line(ahead));
        }
        sum = sum.wrapping_add(access(word(key)));
    }
    sum
}

/// Asks for a line in the second cache.
#[inline]
fn prefetch_far(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees; any address would do.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Asks for a line in the first cache.
#[inline]
fn prefetch_near(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees; any address would do.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Nanoseconds an operation.
#[must_use]
pub fn nanoseconds(time: Duration, operation_count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / operation_count as f64
}
