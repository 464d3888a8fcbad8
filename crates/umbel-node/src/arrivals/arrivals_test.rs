//! Rates of new items, and the forecasts based on them.

use super::*;

#[test]
fn each_generation_is_watched_from_its_first_batch_on() {
    let arrivals = Arrivals::default();
    let (first, second) = ((FilterId(1), Generation(1)), (FilterId(1), Generation(2)));
    for second in 0..=100 {
        arrivals.add_at(first, 50.0, second * 1_000);
    }
    let rate = arrivals.per_second_at(first, 100_000).unwrap();
    assert!((rate - 50.0).abs() < 1.0, "{rate}");
    assert_eq!(arrivals.per_second_at(second, 100_000), None);
    arrivals.add_at(second, 50.0, 100_000);
    assert_eq!(arrivals.per_second_at(second, 160_000), Some(0.0), "one batch is no rate");
    assert_eq!(arrivals.per_second_at(first, 160_000), None);
    arrivals.forget(FilterId(1));
    assert_eq!(arrivals.per_second_at(second, 160_000), None);
}

#[test]
fn filters_that_are_gone_take_no_memory() {
    let arrivals = Arrivals::default();
    for filter in 0..3 * FILTER_COUNT_MAX as u64 {
        arrivals.add_at((FilterId(filter), Generation(1)), 1.0, 0);
    }
    assert!(locked(&arrivals.rates).len() <= FILTER_COUNT_MAX);
}
