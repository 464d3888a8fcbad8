//! The measured error rate of a filter, when it will be full, and signs that somebody fills it on
//! purpose.

use serde_json::{Value, json};
use umbel_client::InfoResponse;
use umbel_client::proto::MeasuredRate;

use super::show::rate_text;

/// The facts that the cluster reports; forecasts that it does not make are left out.
pub(super) fn rows(info: &InfoResponse) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    rows.extend(info.measured.as_ref().map(|measured| ("rate measured", measured_text(measured))));
    if let Some(per_second) = info.new_per_second {
        let until = |seconds: Option<f64>| {
            seconds.map_or("not in sight".to_owned(), |seconds| format!("in {seconds:.0} s"))
        };
        rows.extend([
            ("new a second", format!("{per_second:.1}")),
            ("at capacity", until(info.seconds_to_capacity)),
            ("at planned rate", until(info.seconds_to_rate)),
        ]);
        rows.extend(info.seconds_to_growth.map(|seconds| ("grows", until(Some(seconds)))));
    }
    rows.extend(info.unexplained_one_count.map(|count| ("ones beyond chance", count.to_string())));
    rows
}

/// The share of random items that were reported as present, bounds for the true rate, and the number of
/// items.
fn measured_text(measured: &MeasuredRate) -> String {
    let MeasuredRate { probe_count, present_count, rate_low, rate_high } = *measured;
    let (low, high) = (rate_text(rate_low), rate_text(rate_high));
    format!("{}, {low} to {high}, of {probe_count}", rate_text(share(present_count, probe_count)))
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The same as members of a JSON object.
pub(super) fn members(info: &InfoResponse) -> [(&'static str, Value); 6] {
    let measured = info.measured.as_ref().map(|measured| {
        json!({
            "probes": measured.probe_count,
            "present": measured.present_count,
            "rate": share(measured.present_count, measured.probe_count),
            "rate_low": measured.rate_low,
            "rate_high": measured.rate_high,
        })
    });
    [
        ("measured", json!(measured)),
        ("new_per_second", json!(info.new_per_second)),
        ("seconds_to_capacity", json!(info.seconds_to_capacity)),
        ("seconds_to_rate", json!(info.seconds_to_rate)),
        ("seconds_to_growth", json!(info.seconds_to_growth)),
        ("unexplained_ones", json!(info.unexplained_one_count)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_outlooks_are_shown() {
        let nothing = InfoResponse::default();
        assert!(rows(&nothing).is_empty());
        assert!(members(&nothing).iter().all(|(_, value)| value.is_null()));
        let info = InfoResponse {
            measured: Some(MeasuredRate {
                probe_count: 10_000,
                present_count: 98,
                rate_low: 0.0072,
                rate_high: 0.0131,
            }),
            new_per_second: Some(12.34),
            seconds_to_capacity: Some(99.6),
            unexplained_one_count: Some(7),
            seconds_to_growth: Some(60.0),
            ..nothing
        };
        let expected = [
            ("rate measured", "0.009800, 0.007200 to 0.013100, of 10000"),
            ("new a second", "12.3"),
            ("at capacity", "in 100 s"),
            ("at planned rate", "not in sight"),
            ("grows", "in 60 s"),
            ("ones beyond chance", "7"),
        ];
        assert_eq!(rows(&info), expected.map(|(name, text)| (name, text.to_owned())));
        assert_eq!(members(&info)[0].1["rate"], 0.0098);
    }
}
