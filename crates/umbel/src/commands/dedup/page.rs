//! The page of a job: what was repeated where, drawn from the summary alone, so that page and summary agree.

mod costs;
mod repeats;
mod words;

use crate::picture::{
    Element, Heading, Part, Told, Tone, duration, figures, grouped, number_of, page, section,
    share, shortened, strip,
};
use crate::units::size;
use serde_json::Value;
use words::{Noun, compared_by, kept_rule};

/// Most inputs, keys and the like that are named one by one.
const NAMED_MAX: usize = 8;

/// The page of a finished job.
pub(crate) fn page_of(summary: &Value) -> String {
    let told = Told::new(summary);
    let noun = Noun::of(told);
    let content = [
        Some(shares(told, noun)),
        Some(key_figures(told)),
        repeats::by_file(told, noun),
        repeats::overlap(told, noun),
        repeats::groups(told, noun),
        Some(costs::phases(told)),
        costs::exchange(told),
        Some(settings(told)),
        Some(footer()),
    ];
    page(heading(told, noun), content.into_iter().flatten())
}

fn heading(told: Told<'_>, noun: Noun) -> Heading {
    let (items, repeats) = (told.count("/items"), told.count("/dropped/input"));
    let counted = noun.number(items);
    let finding = match (items, repeats) {
        (0, _) => format!("No {} to compare", noun.many),
        (_, 0) => format!("No repeats among {counted}"),
        _ => format!("{} of {counted} repeat others", share(repeats, items)),
    };
    let files = match told.is_there("/files/count") {
        true => {
            let count = number_of(told.count("/files/count"), "file", "files");
            format!(" in {count} ({})", size(told.number("/files/all/stored_bytes")))
        }
        false => String::new(),
    };
    let what = match told.is_so("/spec/annotates") {
        true => "is the one that others repeat",
        false => "stays",
    };
    let lead = format!(
        "{}{files}. {} of equal {many} {what}; {many} are equal if {} are.",
        number_of(told.count("/records"), "record", "records"),
        kept_rule(told.text("/keep")),
        compared_by(told.text("/level")),
        many = noun.many,
    );
    Heading { source: format!("umbel dedup {}", env!("CARGO_PKG_VERSION")), finding, lead }
}

/// Shares of the items that were compared.
fn shares(told: Told<'_>, noun: Noun) -> Element {
    let items = told.count("/items");
    let part = |name: &str, amount: u64, tone| Part {
        name: format!("{} {name} ({})", grouped(amount), share(amount, items)),
        amount,
        tone,
    };
    let distinct = told.count("/distinct");
    let mut parts = match told.is_there("/files/all") {
        true => vec![
            part("repeat another file", told.count("/files/all/repeats_of_others"), Tone::Main),
            part("repeat their own file", told.count("/files/all/repeats_within"), Tone::Soft),
        ],
        false => vec![part("repeat others", told.count("/dropped/input"), Tone::Main)],
    };
    let known = told.count("/dropped/reference");
    if told.is_there("/references") {
        parts.push(part("known to references", known, Tone::Other));
    }
    parts.push(part("distinct", distinct, Tone::Track));
    strip("shares", &format!("Shares of {}", noun.number(items)), items, &parts)
}

fn key_figures(told: Told<'_>) -> Element {
    let kept = told.count("/distinct") + told.count("/exempt");
    let is_told = told.is_so("/spec/annotates") || told.is_there("/written");
    let count = |path: &str| grouped(told.count(path));
    let none = String::new;
    let of_them = |path: &str| share(told.count(path), told.count("/items"));
    let mut all = vec![
        ("Records", count("/records"), none()),
        (if is_told { "Distinct" } else { "Kept" }, grouped(kept), none()),
        ("Repeats", count("/dropped/input"), of_them("/dropped/input")),
    ];
    if told.is_there("/written") {
        all.push(("Written", count("/written"), "chosen by how often they stood".into()));
    }
    if told.count("/exempt") > 0 {
        all.push(("Not compared", count("/exempt"), "kept as they are".into()));
    }
    if told.is_there("/references") {
        let wrong = told.number("/references/expected_wrong_drops");
        let beside = format!("{wrong:.1e} wrongly, in expectation");
        all.push(("Known before", count("/dropped/reference"), beside));
    }
    if told.count("/dropped/missing_key") > 0 {
        all.push(("Without a key", count("/dropped/missing_key"), "dropped".into()));
    }
    if told.count("/bad/total") > 0 {
        all.push(("Bad records", count("/bad/total"), "left out".into()));
    }
    if told.count("/groups/largest") > 0 {
        let beside = "the most often repeated one".into();
        all.push(("Largest group", count("/groups/largest"), beside));
    }
    let (wall, cpu) = (told.number("/run/wall_s"), told.number("/run/cpu_s"));
    all.push(("Time", duration(wall), format!("{} of processor", duration(cpu))));
    let memory = size(told.number("/run/rss_bytes_max/0"));
    let scratch = size(told.number("/run/scratch_bytes_max/0"));
    all.push(("Memory", memory, format!("{scratch} of scratch disk")));
    figures(all)
}

/// The options of the job.
fn settings(told: Told<'_>) -> Element {
    let spec = told.at("/spec");
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
    row("Stays", shortened(told.text("/keep")));
    row("Output", shortened(spec.text("/output")));
    row("Memory allowed", size(spec.number("/memory_bytes")));
    row("Seed", told.text("/seed").to_owned());
    let rows = rows.into_iter().flat_map(|(name, text)| {
        let value = Element::new("dd").with("class", "code").text(text);
        [Element::new("dt").text(name), value]
    });
    let list = Element::new("dl").with("class", "settings").children(rows);
    section("What was asked for", [list])
}

/// The first of a list, and how many more there are.
fn some_of<'a>(list: impl Iterator<Item = Told<'a>>) -> String {
    let all: Vec<&str> = list.map(|told| told.text("")).collect();
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
