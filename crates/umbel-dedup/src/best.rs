//! `--keep best:FIELD`: the rank of a record from a number in it.

use super::inputs::Source;
use umbel_dedup_engine::Rank;
use umbel_records::{Score, ScoreError, ScoreExtractor, ScoreValue};

/// The rank of a record without a number: after all that have one.
const UNRANKED: Rank = Rank(u64::MAX);

/// The field with the number, and the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BestField {
    /// A path into JSON records, or a column of a table or of Parquet.
    pub field: String,
    /// Whether the smallest number is the best; otherwise the largest is.
    pub smallest: bool,
}

impl BestField {
    /// The rank of a record with this number; the engine keeps the smallest rank.
    pub(crate) fn rank(&self, score: Option<Score>) -> Rank {
        match score {
            None => UNRANKED,
            Some(score) if self.smallest => Rank(score.image()),
            Some(score) => Rank(!score.image()),
        }
    }

    /// The number of a record with this rank as JSON; null if it has none, or one that JSON cannot express.
    pub(crate) fn json(&self, rank: Rank) -> serde_json::Value {
        if rank == UNRANKED {
            return serde_json::Value::Null;
        }
        let image = if self.smallest { rank.0 } else { !rank.0 };
        match Score::from_image(image).value() {
            ScoreValue::Integer(value) => value.into(),
            ScoreValue::Float(value) => value.into(),
        }
    }
}

impl std::fmt::Display for BestField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As the option is written: a field name that ends in a direction must be followed by one.
        let names_direction = [":min", ":max"].iter().any(|end| self.field.ends_with(end));
        let end = if self.smallest {
            ":min"
        } else if names_direction {
            ":max"
        } else {
            ""
        };
        write!(f, "best:{}{end}", self.field)
    }
}

/// Determines the ranks of the records of one source.
pub(crate) struct Ranker {
    best: BestField,
    extractor: ScoreExtractor,
}

impl Ranker {
    /// A ranker for this field; `None` for a table without records, and for Parquet, whose numbers are read with the rows.
    ///
    /// # Errors
    ///
    /// If records of the source have no such field.
    pub(crate) fn new(best: &BestField, source: &Source) -> Result<Option<Self>, ScoreError> {
        let extractor = source.score_extractor(&best.field)?;
        Ok(extractor.map(|extractor| Self { best: best.clone(), extractor }))
    }

    /// The rank of a record.
    pub(crate) fn rank(&mut self, record: &[u8]) -> Rank {
        self.best.rank(self.extractor.score(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_named_as_they_are_given() {
        for (field, smallest, name) in
            [("x", false, "best:x"), ("x", true, "best:x:min"), ("x:min", false, "best:x:min:max")]
        {
            assert_eq!(BestField { field: field.into(), smallest }.to_string(), name);
        }
    }

    #[test]
    fn the_best_has_the_smallest_rank_and_no_number_the_largest() {
        for smallest in [false, true] {
            let best = BestField { field: "x".into(), smallest };
            let rank = |value| best.rank(Score::of_float(value));
            let order = [f64::NEG_INFINITY, -3.0, 0.0, 2.5, f64::INFINITY].map(rank);
            assert!(order.is_sorted_by(|a, b| if smallest { a < b } else { a > b }));
            assert!(order.into_iter().all(|rank| rank < best.rank(None)));
            let numbers = [rank(2.5), rank(-3.0)].map(|rank| best.json(rank));
            assert_eq!(numbers, [serde_json::json!(2.5), serde_json::json!(-3)]);
            assert!(best.json(best.rank(None)).is_null() && best.json(order[4]).is_null());
        }
    }
}
