//! Which filters a plan has.

use super::dice::Dice;
use crate::plan::{FilterKind, FilterPlan};

/// Rates of false positives, in millionths.
const RATES_PPM: [u32; 5] = [100, 300, 1_000, 3_000, 10_000];

/// Kinds; half of the windows are manual.
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

/// Kinds that merge.
const MERGING_KINDS: [FilterKind; 2] = [FilterKind::Classic, FilterKind::Blocked];

/// One to four filters, of which the first two, or three, may be of one shape.
pub(super) fn draw(dice: &mut Dice) -> Vec<FilterPlan> {
    let count = dice.count(1, 4);
    let mut filters: Vec<FilterPlan> = (0..count).map(|number| one(dice, number)).collect();
    if count >= 2 && dice.one_in(3) {
        filters[0] =
            FilterPlan { kind: *dice.pick(&MERGING_KINDS), public: true, ..filters[0].clone() };
        // With three of one shape two are intersected, too.
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
    /// Whether filters can be merged that are made of these plans: both of one shape, of a kind that
    /// merges, and hashed alike, as public ones are.
    pub(crate) fn merges_with(&self, other: &Self) -> bool {
        let Self { name, kind, capacity, rate_ppm, public, replicated: _ } = self;
        *public
            && MERGING_KINDS.contains(kind)
            && *name != other.name
            && (kind, capacity, rate_ppm, public)
                == (&other.kind, &other.capacity, &other.rate_ppm, &other.public)
    }
}
