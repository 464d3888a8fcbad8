//! Conversions of windows between messages and the node's types.

use umbel_coordinator::sizes::FilterSize;
use umbel_engine::meta::FilterSettings;
use umbel_engine::shard::{LateItems, WindowRules, WindowTime};
use umbel_filter::Kind;
use umbel_proto::v1;

use super::invalid;
use crate::errors::Result;

/// The kind and the size of a new filter with this window, if any.
pub(super) fn with_window(
    kind: Option<Kind>,
    size: FilterSize,
    window: Option<v1::Window>,
) -> Result<(Kind, FilterSize)> {
    let Some(window) = window else { return Ok((kind.unwrap_or(Kind::Blocked), size)) };
    if let Some(kind) = kind.filter(|&kind| kind != Kind::Window) {
        return Err(invalid(format!("kind is {kind} and window is set, expected one of them")));
    }
    let FilterSize::Rate(rate) = size else {
        let what = "memory_bytes and window are set: a window is planned by false_positive_rate";
        return Err(invalid(what.to_owned()));
    };
    Ok((Kind::Window, FilterSize::Window { rate, rules: rules_of(window)? }))
}

fn rules_of(window: v1::Window) -> Result<WindowRules> {
    let v1::Window { slice_ms, slice_count, event_time, late, refresh, manual } = window;
    let late = match v1::LateItems::try_from(late) {
        Ok(v1::LateItems::Unspecified | v1::LateItems::Reject) => LateItems::Reject,
        Ok(v1::LateItems::Drop) => LateItems::Drop,
        Ok(v1::LateItems::Oldest) => LateItems::Oldest,
        Err(_) => {
            let what = format!("window.late is {late}, which this release does not know");
            return Err(invalid(what));
        }
    };
    let time = match (manual, event_time) {
        (false, false) => WindowTime::Ingest,
        (false, true) => WindowTime::Event,
        (true, false) => WindowTime::Manual,
        (true, true) => {
            let what = "window.manual and window.event_time are set, expected one of them";
            return Err(invalid(what.to_owned()));
        }
    };
    let rules = WindowRules { slice_ms, slice_count, time, late, refresh };
    rules.check().map_err(|what| invalid(format!("window: {what}")))?;
    Ok(rules)
}

/// The window of a filter; None if it has none.
pub(super) fn window_to_proto(settings: &FilterSettings) -> Option<v1::Window> {
    let rules = settings.shape.window_rules()?;
    let late = match rules.late {
        LateItems::Reject => v1::LateItems::Reject,
        LateItems::Drop => v1::LateItems::Drop,
        LateItems::Oldest => v1::LateItems::Oldest,
    };
    Some(v1::Window {
        slice_ms: rules.slice_ms,
        slice_count: rules.slice_count,
        event_time: rules.time == WindowTime::Event,
        late: late.into(),
        refresh: rules.refresh,
        manual: rules.time == WindowTime::Manual,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: v1::Window = v1::Window {
        slice_ms: 3_600_000,
        slice_count: 24,
        event_time: true,
        late: 2,
        refresh: false,
        manual: false,
    };

    #[test]
    fn a_window_makes_the_kind_and_comes_back() {
        let (kind, size) = with_window(None, FilterSize::Rate(0.001), Some(WINDOW)).unwrap();
        let FilterSize::Window { rate: 0.001, rules } = size else { panic!("{size:?}") };
        assert_eq!((kind, rules.late, rules.slice_count), (Kind::Window, LateItems::Drop, 24));
        assert_eq!(
            with_window(Some(Kind::Window), FilterSize::Rate(0.001), Some(WINDOW)).unwrap().1,
            size
        );
        let manual = v1::Window { manual: true, event_time: false, slice_ms: 0, ..WINDOW };
        let size = with_window(None, FilterSize::Rate(0.001), Some(manual)).unwrap().1;
        let FilterSize::Window { rules, .. } = size else { panic!("{size:?}") };
        assert_eq!(rules.time, WindowTime::Manual);
        let plain = with_window(None, FilterSize::Rate(0.001), None).unwrap();
        assert_eq!(plain, (Kind::Blocked, FilterSize::Rate(0.001)));
    }

    #[test]
    fn windows_that_are_none_are_named() {
        let message =
            |kind, size, window| with_window(kind, size, Some(window)).unwrap_err().to_string();
        let rate = FilterSize::Rate(0.001);
        assert!(message(Some(Kind::Classic), rate, WINDOW).contains("kind is classic"));
        assert!(message(None, FilterSize::Bytes(9), WINDOW).contains("memory_bytes"));
        assert!(message(None, rate, v1::Window { late: 9, ..WINDOW }).contains("window.late is 9"));
        let both = message(None, rate, v1::Window { manual: true, ..WINDOW });
        assert!(both.starts_with("window.manual and window.event_time"), "{both}");
        for window in [
            v1::Window { slice_ms: 0, ..WINDOW },
            v1::Window { slice_count: 0, ..WINDOW },
            v1::Window { slice_count: 1_000_000, ..WINDOW },
            v1::Window { manual: true, event_time: false, ..WINDOW },
        ] {
            let text = message(None, rate, window);
            assert!(text.starts_with("window: ") && text.contains("expected"), "{text}");
        }
    }
}
