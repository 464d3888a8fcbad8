//! The plan: which stages a session goes through, chosen by a cost model, and its encoding.
//!
//! No method is smallest everywhere. Costs are in bits; k sorted w-bit values coded as gaps cost list(k, w)
//! = k·max(1.5, w − log2 k + 1.5):
//!
//! | stage | bits |
//! |---|---|
//! | part: 2^q PinSketches of mean μ | 2^q·(T(μ)·(h − q) + 4), T by [`growth`](super::growth) |
//! | riblt: coded symbols | 1.4·d·(h + 32) |
//! | list: all symbols of the responder | list(n_R, h) |
//! | whole: all its items | list(n_R, w) |
//! | filter of n items at rate f, before one of the former | n·(H2(f)/(−ln(1 − f)) + 0.035) |
//!
//! and requests and items in addition. A filter of the responder's items leaves a·f1 of the a items that
//! only the initiator has to the next stage, one of the initiator's leaves b·f2 of the responder's b.

use super::error::SessionFrameError;
use super::growth::{ESTIMATE_DEVIATION, Occupancy};
use super::options::{Optimize, SymbolKind};
use super::wire::{Reader, put_varint};

/// Largest mean of differences per bucket. 16 to 24 take few multiplications and few bytes; larger buckets
/// take fewer bytes still.
const BUCKET_MEAN_MAX: f64 = 40.0;

/// The same for differences where decoding would take seconds.
const BUCKET_MEAN_MAX_LARGE: f64 = 22.0;

/// Difference above which decoding time matters.
const LARGE_DIFFERENCE: f64 = 50_000.0;

/// Rounds of syndromes that a plan assumes.
pub(crate) const GROWTH_ROUNDS: u32 = 4;

/// log2 of the largest number of buckets.
pub(crate) const BUCKET_BITS_MAX: u8 = 24;

/// Fewest bits of a remainder: with fewer, a random overfull bucket could pass for one with few
/// differences.
pub(crate) const REMAINDER_BITS_MIN: u8 = 24;

/// Fewest bits of a symbol.
pub(crate) const SYMBOL_BITS_MIN: u8 = 32;

/// Lowest filter rate, in quarter bits: f = 2^-24.
pub(crate) const FILTER_QUARTERS_MAX: u8 = 96;

/// Largest share of the unfiltered cost at which a filter is worth its round trip.
const FILTER_GAIN: f64 = 0.97;

/// The last stage of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// Partitioned PinSketch; a single sketch if there is one bucket.
    Part,
    /// Coded symbols.
    Riblt,
    /// All symbols.
    List,
    /// All items.
    Whole,
}

/// The initiator's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) attempt: u8,
    pub(crate) stage: Stage,
    /// h, bits of a symbol.
    pub(crate) symbol_bits: u8,
    /// q, log2 of the number of buckets.
    pub(crate) bucket_bits: u8,
    /// Initial number of syndromes of each bucket.
    pub(crate) syndrome_count: u8,
    /// Rates of the filters in quarter bits, f = 2^(−e/4); 0 for no filter. After a filter, another plan
    /// follows.
    pub(crate) filter_quarters: [u8; 2],
    /// Bits of a symbol in a request for items.
    pub(crate) request_bits: u8,
    /// Initial credit of coded symbols.
    pub(crate) credit: u64,
}

const STAGES: [Stage; 4] = [Stage::Part, Stage::Riblt, Stage::List, Stage::Whole];

impl Plan {
    pub(crate) fn put(&self, body: &mut Vec<u8>) {
        let at = STAGES.iter().position(|stage| *stage == self.stage);
        let stage = at.and_then(|at| u8::try_from(at).ok()).expect("four stages");
        let [e1, e2] = self.filter_quarters;
        body.extend_from_slice(&[self.attempt, stage, self.symbol_bits, self.bucket_bits]);
        body.extend_from_slice(&[self.syndrome_count, e1, e2, self.request_bits]);
        put_varint(body, self.credit);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, SessionFrameError> {
        let attempt = reader.u8("attempt")?;
        let number = reader.u8("stage")?;
        let unknown = SessionFrameError::Field { field: "stage", got: number.into() };
        let stage = *STAGES.get(usize::from(number)).ok_or(unknown)?;
        let mut byte_within = |field: &'static str, min: u8, max: u8| {
            let got = reader.u8(field)?;
            if (min..=max).contains(&got) {
                Ok(got)
            } else {
                Err(SessionFrameError::Field { field, got: got.into() })
            }
        };
        let symbol_bits = byte_within("symbol bits", 8, 64)?;
        let bucket_bits = byte_within("bucket bits", 0, BUCKET_BITS_MAX)?;
        if symbol_bits < bucket_bits + 8 {
            return Err(SessionFrameError::Field { field: "bucket bits", got: bucket_bits.into() });
        }
        let syndrome_count = byte_within("syndrome count", 0, 128)?;
        let filter_quarters = [
            byte_within("filter rate", 0, FILTER_QUARTERS_MAX)?,
            byte_within("filter rate", 0, FILTER_QUARTERS_MAX)?,
        ];
        let request_bits = byte_within("request bits", 1, symbol_bits)?;
        let credit = reader.varint("credit")?;
        Ok(Self {
            attempt,
            stage,
            symbol_bits,
            bucket_bits,
            syndrome_count,
            filter_quarters,
            request_bits,
            credit,
        })
    }

    /// A textual description.
    pub(crate) fn describe(&self) -> String {
        let Self { symbol_bits: h, bucket_bits: q, syndrome_count: t, .. } = self;
        let stage = match self.stage {
            Stage::Part => format!("part q={q} h={h} t={t}"),
            Stage::Riblt => format!("riblt h={h}"),
            Stage::List => format!("list h={h}"),
            Stage::Whole => "whole".to_owned(),
        };
        match self.filter_quarters {
            [0, 0] => stage,
            [e1, e2] => {
                format!("filter 2^-{}, 2^-{} + {stage}", f64::from(e1) / 4.0, f64::from(e2) / 4.0)
            }
        }
    }
}

/// The inputs of the cost model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) kind: SymbolKind,
    pub(crate) optimize: Optimize,
    pub(crate) initiator_count: u64,
    pub(crate) responder_count: u64,
    /// d, the difference as far as it is known.
    pub(crate) difference: f64,
    /// Relative standard deviation of the difference.
    pub(crate) deviation: f64,
    /// Mean bits of the responder's items.
    pub(crate) item_bits: f64,
    /// Whether the responder's items are transferred.
    pub(crate) wants_contents: bool,
    /// Whether a side receives symbols in place of the items that a filter shows.
    pub(crate) sends_symbols: bool,
    pub(crate) attempt: u8,
    /// Bits of a symbol, if an earlier filter has fixed them.
    pub(crate) symbol_bits: Option<u8>,
    /// Fewest bits of a symbol: 32, fewer in tests that force collisions, and more after a failed attempt.
    pub(crate) symbol_bits_min: u8,
}

/// A plan and its expected cost, without the items that every plan sends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Priced {
    pub(crate) plan: Plan,
    pub(crate) bits: f64,
}

fn log2_of(count: f64) -> f64 {
    count.max(1.0).log2()
}

/// Bits of k sorted w-bit values.
pub(crate) fn list_bits(count: f64, width: f64) -> f64 {
    count * (width - log2_of(count) + 1.5).max(1.5)
}

/// Bits of a one-hash filter per item, at rate f.
fn filter_bits(rate: f64) -> f64 {
    let entropy = -rate * rate.log2() - (1.0 - rate) * (1.0 - rate).log2();
    entropy / -(-rate).ln_1p() + 0.035
}

/// The rate f of a filter.
pub(crate) fn rate_of(quarters: u8) -> f64 {
    if quarters == 0 { 1.0 } else { (-f64::from(quarters) / 4.0).exp2() }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped before")]
fn to_u8(value: f64, min: u8, max: u8) -> u8 {
    value.clamp(min.into(), max.into()) as u8
}

impl Situation {
    /// a and b: the numbers of items that only the initiator and only the responder have.
    pub(crate) fn sides(&self) -> (f64, f64) {
        let skew = self.initiator_count as f64 - self.responder_count as f64;
        let d = self.difference.max(skew.abs());
        (f64::midpoint(d, skew), f64::midpoint(d, -skew))
    }

    /// h: such that a harmful collision, of one of `difference` symbols with one of the n others, has a
    /// probability of at most 2^-7.
    fn symbol_bits(&self, difference: f64) -> u8 {
        if let Some(bits) = self.symbol_bits {
            return bits;
        }
        if self.kind != SymbolKind::Hashed {
            return 64;
        }
        if self.symbol_bits_min < SYMBOL_BITS_MIN {
            return self.symbol_bits_min;
        }
        let largest = self.initiator_count.max(self.responder_count) as f64;
        let bits = (log2_of(largest) + log2_of(difference)).ceil() + 7.0;
        to_u8(bits, self.symbol_bits_min, 64)
    }

    /// Bits of a symbol in a request: items requested in vain cost less than whole symbols would.
    fn request_bits(&self, symbol_bits: u8) -> u8 {
        to_u8(log2_of(self.responder_count as f64).ceil() + 8.0, 1, symbol_bits)
    }

    fn request_cost(&self, count: f64, symbol_bits: u8) -> f64 {
        if self.kind == SymbolKind::Id64 {
            return 0.0;
        }
        // A request for no more than the sum of the items has whole symbols: no other item may be in the sum.
        let bits = if self.wants_contents { self.request_bits(symbol_bits) } else { symbol_bits };
        list_bits(count, bits.into())
    }

    fn plan(&self, stage: Stage, symbol_bits: u8) -> Plan {
        Plan {
            attempt: self.attempt,
            stage,
            symbol_bits,
            bucket_bits: 0,
            syndrome_count: 0,
            filter_quarters: [0, 0],
            request_bits: self.request_bits(symbol_bits),
            credit: 0,
        }
    }

    /// The best partition for `difference` differences.
    fn part(&self, difference: f64) -> Priced {
        let largest_mean =
            if difference > LARGE_DIFFERENCE { BUCKET_MEAN_MAX_LARGE } else { BUCKET_MEAN_MAX };
        let fewest = to_u8((difference / largest_mean).log2().ceil(), 0, BUCKET_BITS_MAX);
        let most = match self.symbol_bits {
            Some(bits) => bits.saturating_sub(REMAINDER_BITS_MIN).min(BUCKET_BITS_MAX),
            None => BUCKET_BITS_MAX,
        };
        let fewest = fewest.min(most);
        let options = fewest..=(fewest + 2).min(most);
        let priced = options.map(|bucket_bits| self.part_of(difference, bucket_bits));
        let cheaper =
            |best: Priced, found: Priced| if found.bits < best.bits { found } else { best };
        priced.reduce(cheaper).expect("one number of buckets at least")
    }

    fn part_of(&self, difference: f64, bucket_bits: u8) -> Priced {
        let bucket_count = (1u64 << bucket_bits) as f64;
        let least = (bucket_bits + REMAINDER_BITS_MIN).min(64);
        let least = match (self.symbol_bits, self.symbol_bits_min) {
            (Some(bits), _) => bits,
            (None, 0..SYMBOL_BITS_MIN) => bucket_bits + 8,
            (None, _) => least,
        };
        let symbol_bits = self.symbol_bits(difference).max(least);
        let occupancy = Occupancy::new(difference.max(0.5) / bucket_count, self.deviation);
        let growth = occupancy.grow(0, GROWTH_ROUNDS);
        let remainder_bits = f64::from(symbol_bits - bucket_bits);
        let mut plan = self.plan(Stage::Part, symbol_bits);
        plan.bucket_bits = bucket_bits;
        plan.syndrome_count = u8::try_from(growth.next).unwrap_or(128);
        Priced { plan, bits: bucket_count * (growth.mean * remainder_bits + 4.0) }
    }

    /// Coded symbols for `difference` differences.
    fn riblt(&self, difference: f64) -> Priced {
        let mut symbol_bits = self.symbol_bits(difference);
        if self.symbol_bits.is_none() && symbol_bits >= SYMBOL_BITS_MIN {
            // Sums are sent as whole bytes.
            symbol_bits = symbol_bits.next_multiple_of(8);
        }
        let mut plan = self.plan(Stage::Riblt, symbol_bits);
        let first = (1.5 * difference).max(32.0);
        #[expect(clippy::cast_possible_truncation, reason = "d <= 2^41")]
        let credit = first as u64;
        plan.credit = credit;
        let symbol_bytes = f64::from(symbol_bits.div_ceil(8));
        Priced { plan, bits: 8.0 * first * (symbol_bytes + 4.0) }
    }

    fn list(&self) -> Priced {
        let (_, b) = self.sides();
        let symbol_bits = self.symbol_bits(self.difference);
        let bits = list_bits(self.responder_count as f64, symbol_bits.into());
        let request = self.request_cost(b, symbol_bits);
        Priced { plan: self.plan(Stage::List, symbol_bits), bits: bits + request }
    }

    /// All items, which include those that the initiator lacks.
    fn whole(&self) -> Option<Priced> {
        if !self.wants_contents || self.kind == SymbolKind::Id64 {
            return None;
        }
        let (_, b) = self.sides();
        let n = self.responder_count as f64;
        let bits = list_bits(n, self.item_bits) - list_bits(b, self.item_bits);
        Some(Priced { plan: self.plan(Stage::Whole, self.symbol_bits(self.difference)), bits })
    }

    /// A sketch stage without filters.
    pub(crate) fn residual(&self, difference: f64) -> Priced {
        match self.optimize {
            Optimize::Bytes => self.part(difference),
            Optimize::Time => self.riblt(difference),
        }
    }

    /// The cheapest plan.
    pub(crate) fn choose(&self) -> Priced {
        let (_, b) = self.sides();
        let mut sketch = self.residual(self.difference);
        sketch.bits += self.request_cost(b, sketch.plan.symbol_bits);
        let mut best = sketch;
        if let Some(filtered) = self.best_filters(sketch)
            && filtered.bits < FILTER_GAIN * best.bits
        {
            best = filtered;
        }
        for other in [Some(self.list()), self.whole()].into_iter().flatten() {
            if other.bits < best.bits {
                best = other;
            }
        }
        best
    }

    /// The whole list, used when everything else failed.
    pub(crate) fn last_resort(&self) -> Priced {
        let mut priced = self.list();
        if self.symbol_bits_min >= SYMBOL_BITS_MIN {
            priced.plan.symbol_bits = 64;
            priced.plan.request_bits = 64;
        }
        priced
    }

    /// Extra cost of filters: a decoded symbol that is an id, or that only has to be known, costs nothing
    /// more, but what a filter finds must be sent. And two lists of ids are longer than one.
    fn pushed_bits(&self, f1: f64, f2: f64) -> f64 {
        let (a, b) = self.sides();
        let width = f64::from(self.symbol_bits(self.difference));
        let list_cost = match (self.kind, self.wants_contents) {
            (SymbolKind::Id64, _) | (_, false) => list_bits(b * (1.0 - f2), width),
            _ => 0.0,
        };
        if self.kind != SymbolKind::Id64 {
            return list_cost;
        }
        list_cost + list_bits(a * (1.0 - f1), width) + list_bits(a * f1, width)
            - list_bits(a, width)
    }

    /// The best rates of filters before a sketch; its bits per difference are assumed constant.
    fn best_filters(&self, sketch: Priced) -> Option<Priced> {
        let (a, b) = self.sides();
        let (n_i, n_r) = (self.initiator_count as f64, self.responder_count as f64);
        let per_difference = self.residual(self.difference).bits / self.difference.max(1.0);
        let request = self.request_cost(b, sketch.plan.symbol_bits) / b.max(1.0);
        let quarters = || (0..=FILTER_QUARTERS_MAX).filter(|&e| e != 1);
        let mut best: Option<Priced> = None;
        for e1 in quarters() {
            let f1 = rate_of(e1);
            let cost_1 = if e1 == 0 { 0.0 } else { filter_bits(f1) * n_r };
            if cost_1 >= sketch.bits {
                continue;
            }
            for e2 in quarters() {
                let f2 = rate_of(e2);
                let left = n_i - a * (1.0 - f1);
                let cost_2 = if e2 == 0 { 0.0 } else { filter_bits(f2) * left };
                let residual = (a * f1 + b * f2) * per_difference + b * f2 * request;
                let bits = cost_1 + cost_2 + residual + self.pushed_bits(f1, f2);
                if (e1, e2) != (0, 0) && best.is_none_or(|best| bits < best.bits) {
                    let plan = Plan { filter_quarters: [e1, e2], ..sketch.plan };
                    best = Some(Priced { plan, bits });
                }
            }
        }
        // If no symbols are sent for filtered items, the symbols can be as short as the remaining
        // differences allow.
        let mut best = best?;
        let [f1, f2] = best.plan.filter_quarters.map(rate_of);
        let left = self.residual((a * f1 + b * f2).max(1.0)).plan;
        if !self.sends_symbols {
            (best.plan.symbol_bits, best.plan.request_bits) = (left.symbol_bits, left.request_bits);
        }
        best.plan.bucket_bits = left.bucket_bits;
        Some(best)
    }
}

/// The estimate d̂, limited to what the counts allow.
pub(crate) fn clamp_difference(estimate: f64, initiator_count: u64, responder_count: u64) -> f64 {
    let least = initiator_count.abs_diff(responder_count).max(16) as f64;
    let most = initiator_count.saturating_add(responder_count).max(16) as f64;
    estimate.clamp(least.min(most), most)
}

/// Relative standard deviation to assume for d.
pub(crate) const fn estimate_deviation(is_exact: bool) -> f64 {
    if is_exact { 0.0 } else { ESTIMATE_DEVIATION }
}
