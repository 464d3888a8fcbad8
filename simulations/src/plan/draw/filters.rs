//! Draws the partitioned filters of a plan.

use super::dice::Dice;
use crate::plan::{FilterKind, FilterPlan};

/// False positive rates in millionths.
const RATES_PPM: [u32; 5] = [100, 300, 1_000, 3_000, 10_000];

/// Kinds of filters; half of the windows become manual ones.
const KINDS: [FilterKind; 9] = [
    FilterKind::Classic,
    FilterKind::Blocked,
    FilterKind::Counting,
    FilterKind::Scalable,
    FilterKind::Window,
    FilterKind::Aging,
    FilterKind::Stable,
    FilterKind::Cuckoo,
    FilterKind::Quotient,
];

/// Kinds that can be merged.
const MERGING_KINDS: [FilterKind; 2] = [FilterKind::Classic, FilterKind::Blocked];

/// One to four filters. The first two or three of them may have the same shape.
pub(super) fn draw(dice: &mut Dice) -> Vec<FilterPlan> {
    let count = dice.count(1, 4);
    let mut filters: Vec<FilterPlan> = (0..count).map(|number| one(dice, number)).collect();
    if count >= 2 && dice.one_in(3) {
        filters[0] =
            FilterPlan { kind: *dice.pick(&MERGING_KINDS), public: true, ..filters[0].clone() };
        // With three of one shape, two can be intersected into the third.
        let alike = if count > 2 && dice.one_in(2) { 3 } else { 2 };
        for number in 1..alike {
            filters[number] =
                FilterPlan { name: filters[number].name.clone(), ..filters[0].clone() };
        }
    }
    filters
}

fn one(dice: &mut Dice, number: u32) -> FilterPlan {
    let kind = match *dice.pick(&KINDS) {
        FilterKind::Window if dice.one_in(2) => FilterKind::ManualWindow,
        kind => kind,
    };
    FilterPlan {
        name: format!("f{number}"),
        kind,
        capacity: dice.spread(100, 10_000),
        rate_ppm: *dice.pick(&RATES_PPM),
        public: dice.one_in(3),
        replicated: false,
    }
}

impl FilterPlan {
    /// Whether the filters of these two plans can be merged: they have the same shape, are of a kind that
    /// can be merged, and use the same hashing, as public ones do.
    pub(crate) fn merges_with(&self, other: &Self) -> bool {
        let Self { name, kind, capacity, rate_ppm, public, replicated: _ } = self;
        *public
            && MERGING_KINDS.contains(kind)
            && *name != other.name
            && (kind, capacity, rate_ppm, public)
                == (&other.kind, &other.capacity, &other.rate_ppm, &other.public)
    }
}
