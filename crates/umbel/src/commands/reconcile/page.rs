//! The report page of a comparison: how much differs, and the traffic beside its lower bound; drawn from
//! the JSON report alone, so that the two always agree.

use crate::picture::{
    Cell, Element, Heading, JsonView, Part, Tone, bar, duration, figures, grouped, note, number_of,
    page, section, share, shortened, strip, table,
};
use crate::units::size;
use serde_json::Value;

/// Kinds of traffic, in order, with their labels.
const PHASES: [(&str, &str); 10] = [
    ("hello", "Greetings and digests"),
    ("estimator", "Estimate of the difference"),
    ("filter", "Filters"),
    ("sketch", "Sketches of the difference"),
    ("list", "Lists of hashes"),
    ("request", "Questions for items"),
    ("items", "Items that one side lacks"),
    ("control", "Agreement"),
    ("contents", "Contents of files"),
    ("resume", "Around a session that can go on"),
];

/// The page of a comparison that has succeeded.
pub(super) fn page_of(report: &Value) -> String {
    let report = JsonView::new(report);
    let differing = report.count("/difference/only_a") + report.count("/difference/only_b");
    let all = report.count("/items/a") + report.count("/difference/only_b");
    let finding = match differing {
        0 => format!("Both sets are equal: {}", items(report.count("/items/a"))),
        _ => format!("{} of {} are in one set alone", grouped(differing), items(all)),
    };
    let source = format!("umbel reconcile {}", env!("CARGO_PKG_VERSION"));
    let heading = Heading { source, finding, lead: lead(report) };
    let content = [
        Some(sets(report, all)),
        Some(key_figures(report)),
        beside_the_bound(report),
        by_phase(report),
        Some(progress(report)),
        Some(footer(report)),
    ];
    page(heading, content.into_iter().flatten())
}

fn items(count: u64) -> String {
    number_of(count, "item", "items")
}

/// All bytes of the session, in both directions.
fn travelled(report: JsonView<'_>) -> u64 {
    report.count("/bytes_sent") + report.count("/bytes_received")
}

/// The same without contents of files and the overhead of resumable sessions, to which the lower bound
/// does not apply.
fn compared_bytes(report: JsonView<'_>) -> u64 {
    let beside = report.count("/bytes_by_phase/contents") + report.count("/bytes_by_phase/resume");
    travelled(report).saturating_sub(beside)
}

fn lead(report: JsonView<'_>) -> String {
    let sets = format!(
        "A has {}, B has {}.",
        items(report.count("/items/a")),
        items(report.count("/items/b"))
    );
    if !report.is_there("/bytes_by_phase") {
        let read = size(report.number("/bytes_received"));
        return format!(
            "{sets} Compared by a sketch, of which {read} were read; nothing travelled."
        );
    }
    let rounds = number_of(report.count("/rounds"), "round", "rounds");
    let bytes = size(travelled(report) as f64);
    format!("{sets} {bytes} travelled in {rounds}, both ways and all together.")
}

fn sets(report: JsonView<'_>, all: u64) -> Element {
    let (only_a, only_b) = (report.count("/difference/only_a"), report.count("/difference/only_b"));
    let both = all.saturating_sub(only_a).saturating_sub(only_b);
    let part = |name: &str, amount, tone| Part {
        name: format!("{} {name} ({})", grouped(amount), share(amount, all)),
        amount,
        tone,
    };
    let parts = [
        part("only in A", only_a, Tone::Main),
        part("in both", both, Tone::Track),
        part("only in B", only_b, Tone::Soft),
    ];
    strip("sets", "Items of A and of B", all, &parts)
}

fn key_figures(report: JsonView<'_>) -> Element {
    let none = String::new;
    let count = |path: &str| grouped(report.count(path));
    let mut all = vec![
        ("In A", count("/items/a"), none()),
        ("In B", count("/items/b"), none()),
        ("Only in A", count("/difference/only_a"), none()),
        ("Only in B", count("/difference/only_b"), none()),
    ];
    if report.is_there("/difference/changed") {
        let beside = "counted on both sides".into();
        all.push(("In two versions", count("/difference/changed"), beside));
    }
    for (name, path) in [
        ("Added here", "/applied/added"),
        ("Replaced here", "/applied/replaced"),
        ("Removed here", "/applied/removed"),
        ("Conflicts", "/applied/conflicts"),
    ] {
        if report.count(path) > 0 {
            all.push((name, count(path), none()));
        }
    }
    if report.is_there("/bytes_by_phase") {
        let sent = size(report.number("/bytes_sent"));
        let received = size(report.number("/bytes_received"));
        let beside = format!("{sent} sent, {received} received");
        all.push(("Travelled", size(travelled(report) as f64), beside));
    }
    if report.number("/ratio") > 0.0 {
        let beside = "of what travelled to the bound".into();
        all.push(("Ratio", format!("{:.2}", report.number("/ratio")), beside));
    }
    let cpu = format!("{} of processor", duration(report.number("/cpu_seconds")));
    all.push(("Time", duration(report.number("/wall_seconds")), cpu));
    figures(all)
}

/// Traffic beside its lower bound: the fewest bytes with which each side learns what it lacks if items
/// are random bits.
fn beside_the_bound(report: JsonView<'_>) -> Option<Element> {
    if !report.is_there("/lower_bound_bytes") {
        return None;
    }
    let (bound, session) = (report.count("/lower_bound_bytes"), compared_bytes(report));
    let most = bound.max(session).max(report.count("/predicted_bytes"));
    let row = |name: &str, bytes: u64, tone| {
        let ratio = match bound {
            0 => "–".to_owned(),
            _ => format!("{:.2}", bytes as f64 / bound as f64),
        };
        vec![
            Cell::head(name).above(bar(most, &[(bytes, tone)])),
            Cell::number(grouped(bytes)),
            Cell::number(ratio),
        ]
    };
    let mut rows = vec![row("Bound", bound, Tone::Soft)];
    if report.count("/predicted_bytes") > 0 {
        rows.push(row("Forecast, before it began", report.count("/predicted_bytes"), Tone::Other));
    }
    rows.push(row("Travelled", session, Tone::Main));
    let words = "The bound is what information theory asks for where items are of random bits: k of all items of w bits \
                 take k (w − log2 k + 1.4427) bits. Beside it stands what this session took, without contents of files. \
                 Texts that pack well may take less, and so may counts alone (--quiet).";
    let heads = ["", "*Bytes", "*Ratio"];
    let table = table("Bytes beside the bound", &heads, rows, (None, None));
    Some(section("What travelled, beside the bound", [note(words), table]))
}

fn by_phase(report: JsonView<'_>) -> Option<Element> {
    let phases = report.at("/bytes_by_phase");
    if !phases.is_there("") {
        return None;
    }
    let bytes = |name: &str| phases.count(&format!("/{name}"));
    let all = travelled(report);
    let rows = PHASES.iter().filter(|(name, _)| bytes(name) > 0).map(|(name, what)| {
        vec![
            Cell::head(*what).above(bar(all, &[(bytes(name), Tone::Main)])),
            Cell::number(grouped(bytes(name))),
            Cell::number(share(bytes(name), all)),
        ]
    });
    let sums = vec![Cell::head("All"), Cell::number(grouped(all)), Cell::number(share(all, all))];
    let heads = ["For", "*Bytes", "*Share"];
    let table = table("Bytes by what they were for", &heads, rows, (None, Some(sums)));
    Some(section("What the bytes were for", [table]))
}

/// The plan and the progress of the session.
fn progress(report: JsonView<'_>) -> Element {
    let mut rows = vec![("Plan", shortened(report.text("/plan")))];
    for (name, path) in [
        ("Keys tried", "/attempts"),
        ("Rounds", "/rounds"),
        ("Difference, as estimated", "/estimated_difference"),
        ("Coded symbols", "/coded_symbols"),
        ("Went on after a cut", "/resumed/times"),
    ] {
        if report.count(path) > 0 {
            rows.push((name, grouped(report.count(path))));
        }
    }
    let rows = rows.into_iter().flat_map(|(name, text)| {
        let value = Element::new("dd").with("class", "code").text(text);
        [Element::new("dt").text(name), value]
    });
    let list = Element::new("dl").with("class", "settings").children(rows);
    section("How it went", [list])
}

fn footer(report: JsonView<'_>) -> Element {
    let verified = if report.is_so("/verified") {
        "Verified: both sides computed the same digest of all items."
    } else {
        "Not verified beyond counts and symbols: not all items are known here."
    };
    let text = format!(
        "{verified} --report FILE has the same numbers for programs; no item is in this page."
    );
    Element::new("footer").text(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::texts;
    use serde_json::json;

    fn report() -> Value {
        json!({
            "verified": true, "items": { "a": 1000, "b": 990 },
            "difference": { "only_a": 25, "only_b": 15, "changed": 5 },
            "applied": { "added": 15, "replaced": 0, "removed": 0, "conflicts": 0 },
            "plan": "part q=5", "attempts": 1, "rounds": 3, "estimated_difference": 44,
            "bytes_sent": 500, "bytes_received": 1500,
            "bytes_by_phase": {
                "hello": 100, "estimator": 200, "filter": 0, "sketch": 400, "list": 0, "request": 0, "items": 260,
                "control": 40, "contents": 1000, "resume": 0,
            },
            "resumed": { "times": 0, "bytes_again": 0 },
            "predicted_bytes": 900, "lower_bound_bytes": 500, "ratio": 2.0, "wall_seconds": 0.25, "cpu_seconds": 0.1,
        })
    }

    #[test]
    fn a_page_says_what_the_report_says() {
        let texts = texts(&page_of(&report()));
        for words in [
            "40 of 1,015 items are in one set alone",
            "A has 1,000 items, B has 990 items. 1.95 KiB travelled in 3 rounds",
            "25 only in A (2.46 %)\n975 in both (96.06 %)\n15 only in B (1.48 %)",
            "In two versions\n5",
            "Added here\n15",
            "Ratio\n2.00",
            "Bound\n500\n1.00",
            "Forecast, before it began\n900\n1.80",
            "Travelled\n1,000\n2.00",
            "Contents of files\n1,000\n50.00 %",
            "All\n2,000\n100 %",
            "Verified: both sides computed the same digest",
        ] {
            assert!(texts.contains(words), "{words:?} is not in\n{texts}");
        }
        assert!(!texts.contains("Replaced here"), "{texts}");
    }

    #[test]
    fn equal_sets_and_sketches_have_pages_too() {
        let offline = json!({
            "verified": false, "items": { "a": 7, "b": 7 }, "difference": { "only_a": 0, "only_b": 0 },
            "plan": "sketch file", "coded_symbols": 12, "bytes_sent": 0, "bytes_received": 150,
            "wall_seconds": 0.01, "cpu_seconds": 0.01,
        });
        let texts = texts(&page_of(&offline));
        for words in [
            "Both sets are equal: 7 items",
            "of which 150 bytes were read; nothing travelled.",
            "7 in both (100 %)",
            "Coded symbols\n12",
            "Not verified beyond counts and symbols",
        ] {
            assert!(texts.contains(words), "{words:?} is not in\n{texts}");
        }
        for section in ["beside the bound", "What the bytes were for"] {
            assert!(!texts.contains(section), "{section}");
        }
    }

    #[test]
    fn a_plan_like_markup_is_text() {
        let mut report = report();
        report["plan"] = json!("<script>&");
        let page = page_of(&report);
        assert!(page.contains("&lt;script&gt;&amp;") && !page.contains("<script"), "{page}");
    }
}
