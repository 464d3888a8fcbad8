//! The report page of a job: what repeats what, drawn from the summary alone, so that the two always
//! agree.

mod costs;
mod repeats;
mod words;

use crate::picture::{
    Element, Heading, JsonView, Part, Tone, duration, figures, grouped, number_of, page, section,
    share, shortened, strip,
};
use crate::units::size;
use serde_json::Value;
use words::{Noun, compared_by, kept_rule};

/// Most inputs, keys and the like that are listed by name.
const NAMED_MAX: usize = 8;

/// The page of a finished job.
pub(crate) fn page_of(summary: &Value) -> String {
    let summary = JsonView::new(summary);
    let noun = Noun::of(summary);
    let content = [
        Some(shares(summary, noun)),
        Some(key_figures(summary)),
        repeats::by_file(summary, noun),
        repeats::overlap(summary, noun),
        repeats::groups(summary, noun),
        Some(costs::phases(summary)),
        costs::exchange(summary),
        Some(settings(summary)),
        Some(footer()),
    ];
    page(heading(summary, noun), content.into_iter().flatten())
}

fn heading(summary: JsonView<'_>, noun: Noun) -> Heading {
    let (items, repeats) = (summary.count("/items"), summary.count("/dropped/input"));
    let counted = noun.number(items);
    let finding = match (items, repeats) {
        (0, _) => format!("No {} to compare", noun.many),
        (_, 0) => format!("No repeats among {counted}"),
        _ => format!("{} of {counted} repeat others", share(repeats, items)),
    };
    let files = if summary.is_there("/files/count") {
        let count = number_of(summary.count("/files/count"), "file", "files");
        format!(" in {count} ({})", size(summary.number("/files/all/stored_bytes")))
    } else {
        String::new()
    };
    let what =
        if summary.is_so("/spec/annotates") { "is the one that others repeat" } else { "stays" };
    let lead = format!(
        "{}{files}. {} of equal {many} {what}; {many} are equal if {} are.",
        number_of(summary.count("/records"), "record", "records"),
        kept_rule(summary.text("/keep")),
        compared_by(summary.text("/level")),
        many = noun.many,
    );
    Heading { source: format!("umbel dedup {}", env!("CARGO_PKG_VERSION")), finding, lead }
}

/// Shares of the items that were compared.
fn shares(summary: JsonView<'_>, noun: Noun) -> Element {
    let items = summary.count("/items");
    let part = |name: &str, amount: u64, tone| Part {
        name: format!("{} {name} ({})", grouped(amount), share(amount, items)),
        amount,
        tone,
    };
    let distinct = summary.count("/distinct");
    let mut parts = if summary.is_there("/files/all") {
        vec![
            part("repeat another file", summary.count("/files/all/repeats_of_others"), Tone::Main),
            part("repeat their own file", summary.count("/files/all/repeats_within"), Tone::Soft),
        ]
    } else {
        vec![part("repeat others", summary.count("/dropped/input"), Tone::Main)]
    };
    let known = summary.count("/dropped/reference");
    if summary.is_there("/references") {
        parts.push(part("known to references", known, Tone::Other));
    }
    parts.push(part("distinct", distinct, Tone::Track));
    strip("shares", &format!("Shares of {}", noun.number(items)), items, &parts)
}

fn key_figures(summary: JsonView<'_>) -> Element {
    let kept = summary.count("/distinct") + summary.count("/exempt");
    let names_distinct = summary.is_so("/spec/annotates") || summary.is_there("/written");
    let count = |path: &str| grouped(summary.count(path));
    let none = String::new;
    let of_them = |path: &str| share(summary.count(path), summary.count("/items"));
    let mut all = vec![
        ("Records", count("/records"), none()),
        (if names_distinct { "Distinct" } else { "Kept" }, grouped(kept), none()),
        ("Repeats", count("/dropped/input"), of_them("/dropped/input")),
    ];
    if summary.is_there("/written") {
        all.push(("Written", count("/written"), "chosen by how often they stood".into()));
    }
    if summary.count("/exempt") > 0 {
        all.push(("Not compared", count("/exempt"), "kept as they are".into()));
    }
    if summary.is_there("/references") {
        let wrong = summary.number("/references/expected_wrong_drops");
        let beside = format!("{wrong:.1e} wrongly, in expectation");
        all.push(("Known before", count("/dropped/reference"), beside));
    }
    if summary.count("/dropped/missing_key") > 0 {
        all.push(("Without a key", count("/dropped/missing_key"), "dropped".into()));
    }
    if summary.count("/bad/total") > 0 {
        all.push(("Bad records", count("/bad/total"), "left out".into()));
    }
    if summary.count("/groups/largest") > 0 {
        let beside = "the most often repeated one".into();
        all.push(("Largest group", count("/groups/largest"), beside));
    }
    let (wall, cpu) = (summary.number("/run/wall_s"), summary.number("/run/cpu_s"));
    all.push(("Time", duration(wall), format!("{} of processor", duration(cpu))));
    let memory = size(summary.number("/run/rss_bytes_max/0"));
    let scratch = size(summary.number("/run/scratch_bytes_max/0"));
    all.push(("Memory", memory, format!("{scratch} of scratch disk")));
    figures(all)
}

/// The options of the job.
fn settings(summary: JsonView<'_>) -> Element {
    let spec = summary.at("/spec");
    let mut rows = vec![
        ("Inputs", some_of(spec.list("/inputs"))),
        ("Compared", spec.text("/granularity").to_owned()),
    ];
    let mut row = |name, text: String| {
        if !text.is_empty() {
            rows.push((name, text));
        }
    };
    row("Keys", some_of(spec.list("/key")));
    row("Not looked at", some_of(spec.list("/normalise")));
    row("Scope", spec.text("/scope").to_owned());
    row("Stays", shortened(summary.text("/keep")));
    row("Output", shortened(spec.text("/output")));
    row("Memory allowed", size(spec.number("/memory_bytes")));
    row("Seed", summary.text("/seed").to_owned());
    let rows = rows.into_iter().flat_map(|(name, text)| {
        let value = Element::new("dd").with("class", "code").text(text);
        [Element::new("dt").text(name), value]
    });
    let list = Element::new("dl").with("class", "settings").children(rows);
    section("What was asked for", [list])
}

/// The first elements of a list, and the number of the others.
fn some_of<'a>(list: impl Iterator<Item = JsonView<'a>>) -> String {
    let all: Vec<&str> = list.map(|summary| summary.text("")).collect();
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(|name| shortened(name)).collect();
    let named = named.join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {} more", grouped(more as u64)),
    }
}

fn footer() -> Element {
    let text = "Drawn from the summary of the job: --summary FILE has the same numbers for programs. Records are named \
                by file and number; nothing of what stands in them is in this page. Of long names the middle is left \
                out.";
    Element::new("footer").text(text)
}

#[cfg(test)]
#[path = "page_test.rs"]
mod tests;
