//! Runs in parallel; each thread waits for one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Has `jobs` threads work on the items that `next` returns, until it returns None.
pub(crate) fn work<T>(
    jobs: usize,
    next: &(dyn Fn() -> Option<T> + Sync),
    work_on: &(dyn Fn(T) + Sync),
) {
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work_on(item);
                }
            });
        }
    });
}

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found<T> {
    /// The lowest number for which something was found.
    pub(crate) number: u64,
    /// What was found.
    pub(crate) what: T,
}

/// Finds the lowest number from `first` to `last`, both included, for which `look` returns something. The
/// result does not depend on the number of threads. No number above a known find is started.
pub(crate) fn find_lowest<T: Send, E: Send>(
    jobs: usize,
    first: u64,
    last: u64,
    look: &(dyn Fn(u64) -> Result<Option<T>, E> + Sync),
) -> Result<Option<Found<T>>, E> {
    let upcoming = AtomicU64::new(first);
    let lowest: Mutex<Option<(u64, Result<T, E>)>> = Mutex::new(None);
    let bound = || {
        let lowest = lowest.lock().unwrap_or_else(PoisonError::into_inner);
        lowest.as_ref().map_or(last, |(number, _)| last.min(number.saturating_sub(1)))
    };
    let next = || {
        let number = upcoming.fetch_add(1, Ordering::Relaxed);
        (number <= bound()).then_some(number)
    };
    work(jobs, &next, &|number| {
        let Some(seen) = look(number).transpose() else { return };
        let mut lowest = lowest.lock().unwrap_or_else(PoisonError::into_inner);
        if lowest.as_ref().is_none_or(|(known, _)| number < *known) {
            *lowest = Some((number, seen));
        }
    });
    let lowest = lowest.into_inner().unwrap_or_else(PoisonError::into_inner);
    lowest.map(|(number, seen)| seen.map(|what| Found { number, what })).transpose()
}

/// Processors that this process may use.
pub(crate) fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        #[test]
        fn finds_what_a_look_at_one_after_the_other_finds(
            hits in prop::collection::btree_set(1_u64..60, 0..5),
            jobs in 1_usize..5,
            last in 1_u64..60,
        ) {
            let look = |number| Ok::<_, Infallible>(hits.contains(&number).then_some(number * 2));
            let found = find_lowest(jobs, 1, last, &look).unwrap();
            let expected = (1..=last).find(|number| hits.contains(number));
            prop_assert_eq!(
                found,
                expected.map(|number| Found { number, what: number * 2 })
            );
        }
    }

    #[test]
    fn does_not_begin_what_lies_above_a_find() {
        let begun = Mutex::new(Vec::new());
        let look = |number| {
            begun.lock().unwrap().push(number);
            Ok::<_, Infallible>((number == 3).then_some(()))
        };
        assert_eq!(find_lowest(1, 1, 100, &look).unwrap().unwrap().number, 3);
        assert_eq!(*begun.lock().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn an_error_ends_the_search() {
        let look = |number: u64| if number == 4 { Err("no process") } else { Ok(None::<()>) };
        assert_eq!(find_lowest(2, 1, 100, &look), Err("no process"));
    }

    #[test]
    fn every_item_is_worked_on_once() {
        let (upcoming, sum) = (AtomicU64::new(0), AtomicU64::new(0));
        let next = || Some(upcoming.fetch_add(1, Ordering::Relaxed)).filter(|&item| item < 100);
        work(4, &next, &|item| {
            sum.fetch_add(item, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 4_950);
    }
}
