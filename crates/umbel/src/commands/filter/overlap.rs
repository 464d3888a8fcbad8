//! `umbel filter overlap`: estimates how many items two filters have in common.

use crate::printer::{facts, print};
use anyhow::Result;
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::{Estimate, OverlapResponse};

/// Prints how many items each of two filters has, and how many are in either and in both.
///
/// # Errors
///
/// If the call to the cluster fails, or standard output cannot be written.
pub(super) async fn run(client: &Client, one: &str, other: &str, json: bool) -> Result<()> {
    let overlap = client.overlap(one, other).await?;
    print(json, &overlap_json(&overlap), || {
        facts(&[
            ("items of the first", text(overlap.ours)),
            ("items of the second", text(overlap.theirs)),
            ("in either", text(overlap.either)),
            ("in both", text(overlap.both)),
            (
                "Jaccard index",
                jaccard(&overlap).map_or("unknown".into(), |index| format!("{index:.4}")),
            ),
        ])
    })
}

/// An estimate and its standard error. The estimate of the intersection may be slightly negative and is
/// shown as 0.
fn text(estimate: Option<Estimate>) -> String {
    match estimate {
        Some(Estimate { item_count, standard_error }) => {
            format!("{:.0} ± {standard_error:.0}", item_count.max(0.0))
        }
        None => "full".to_owned(),
    }
}

/// The share of items in both filters among those in either; None if an estimate is missing or both are
/// empty.
fn jaccard(overlap: &OverlapResponse) -> Option<f64> {
    let (both, either) = (overlap.both?.item_count, overlap.either?.item_count);
    (either > 0.0).then(|| (both / either).clamp(0.0, 1.0))
}

fn overlap_json(overlap: &OverlapResponse) -> Value {
    let estimate = |estimate: Option<Estimate>| {
        estimate.map(|Estimate { item_count, standard_error }| {
            json!({ "items": item_count, "standard_error": standard_error })
        })
    };
    json!({
        "first": estimate(overlap.ours),
        "second": estimate(overlap.theirs),
        "either": estimate(overlap.either),
        "both": estimate(overlap.both),
        "jaccard": jaccard(overlap),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_shown_with_their_errors() {
        let of = |item_count| Some(Estimate { item_count, standard_error: 3.4 });
        let overlap = OverlapResponse {
            ours: of(100.0),
            theirs: of(200.2),
            either: of(250.0),
            both: of(50.0),
        };
        assert_eq!(text(overlap.theirs), "200 ± 3");
        assert_eq!(jaccard(&overlap), Some(0.2));
        assert_eq!(overlap_json(&overlap)["both"]["items"], 50.0);
        let apart = OverlapResponse { both: of(-0.7), ..overlap };
        assert_eq!((text(apart.both), jaccard(&apart)), ("0 ± 3".to_owned(), Some(0.0)));
        let full = OverlapResponse { either: None, ..overlap };
        assert_eq!((text(full.either), jaccard(&full)), ("full".to_owned(), None));
    }
}
