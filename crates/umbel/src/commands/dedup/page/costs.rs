//! The costs of a job: time and bytes by phase, and the traffic between workers.

use super::words::phase;
use crate::picture::{
    Cell, Element, JsonView, Tone, bar, duration, grouped, note, section, share, table,
    ten_thousandths,
};
use crate::units::size;

/// The phases in their order.
const PHASES: [&str; 6] = ["open", "local", "exchange", "compare", "ask", "output"];

/// Kinds of work that threads do, in order, with their labels.
const WORK: [(&str, &str); 6] = [
    ("read", "Reading and unpacking"),
    ("hash", "Cutting records and hashing"),
    ("partition", "Sorting into hash ranges"),
    ("settle", "Comparing hashes"),
    ("pick", "Choosing what stays"),
    ("write", "Packing and writing"),
];

/// Kinds of frames that workers exchange, in order, with their labels.
const FRAMES: [(&str, &str); 11] = [
    ("sample", "Sample, to plan by"),
    ("filter", "Filters of hashes"),
    ("verdict1", "Answers to filters"),
    ("refine", "More bits of those that collided"),
    ("verdict2", "Answers to these"),
    ("settle", "Whole hashes of what is left"),
    ("verdict3", "Answers to these"),
    ("items", "Items, to compare their bytes"),
    ("verdict4", "Answers to these"),
    ("claims", "What was dropped for what"),
    ("sizes", "Sizes of groups"),
];

/// Time and bytes by phase.
pub(super) fn phases(summary: JsonView<'_>) -> Element {
    let times = summary.at("/run/phase_wall_s");
    let time = |name: &str| times.number(&format!("/{name}"));
    let there: Vec<&str> =
        PHASES.into_iter().filter(|name| times.is_there(&format!("/{name}"))).collect();
    let all: u64 = there.iter().map(|name| ten_thousandths(time(name))).sum();
    let rows = there.iter().map(|name| {
        let spent = ten_thousandths(time(name));
        vec![
            Cell::head(phase(name)).above(bar(all, &[(spent, Tone::Main)])),
            Cell::number(duration(time(name))),
            Cell::number(share(spent, all)),
            Cell::number(bytes_of(summary, name)),
        ]
    });
    let heads = ["Phase", "*Time", "*Share", "*Bytes"];
    let sums = vec![
        Cell::head("The whole job"),
        Cell::number(duration(summary.number("/run/wall_s"))),
        Cell::number(""),
        Cell::number(""),
    ];
    let by_phase = table("Time and bytes by phase", &heads, rows, (None, Some(sums)));
    let threads = summary.count("/run/threads");
    let work = summary.at("/run/thread_s");
    let spent = |name: &str| ten_thousandths(work.number(&format!("/{name}")));
    let all: u64 = WORK.iter().map(|(name, _)| spent(name)).sum();
    let rows =
        WORK.iter().filter(|(name, _)| work.is_there(&format!("/{name}"))).map(|(name, what)| {
            vec![
                Cell::head(*what).above(bar(all, &[(spent(name), Tone::Main)])),
                Cell::number(duration(work.number(&format!("/{name}")))),
                Cell::number(share(spent(name), all)),
            ]
        });
    let by_thread =
        table("Time of all threads by work", &["Work", "*Time", "*Share"], rows, (None, None));
    let words = format!(
        "Items were {} altogether. Threads: {}; those that wait for a disk or for each other count where they wait.",
        size(summary.number("/files/all/item_bytes")),
        grouped(threads),
    );
    section("Time and bytes", [note(words), by_phase, by_thread])
}

/// The bytes of a phase, as far as the summary has them.
fn bytes_of(summary: JsonView<'_>, phase: &str) -> String {
    let read = || size(summary.number("/files/all/stored_bytes"));
    match phase {
        "local" | "output" if summary.is_there("/files/all") => format!("{} read", read()),
        "exchange" if summary.count("/plan/workers") > 1 => {
            format!("{} sent", size(summary.number("/exchange/network_bytes")))
        }
        _ => "–".to_owned(),
    }
}

/// The traffic between workers; None if there was one worker.
pub(super) fn exchange(summary: JsonView<'_>) -> Option<Element> {
    let workers = summary.count("/plan/workers");
    if workers < 2 {
        return None;
    }
    let entries = summary.number("/plan/n");
    let bits = |section: &str, name: &str| summary.number(&format!("/exchange/{section}/{name}"));
    let most = FRAMES.iter().map(|(name, _)| bits("bits_per_item", name)).fold(0.0, f64::max);
    let rows =
        FRAMES.iter().filter(|(name, _)| bits("bits_per_item", name) > 0.0).map(|(name, what)| {
            let each = bits("bits_per_item", name);
            let least = match bits("entropy_bits_per_item", name) {
                0.0 => "–".to_owned(),
                least => format!("{least:.2}"),
            };
            vec![
                Cell::head(*what)
                    .above(bar(ten_thousandths(most), &[(ten_thousandths(each), Tone::Main)])),
                Cell::number(size((each * entries / 8.0).round())),
                Cell::number(format!("{each:.2}")),
                Cell::number(least),
            ]
        });
    let heads = ["Frames", "*Bytes", "*Bits an item", "*Entropy"];
    let words = format!(
        "{} workers sent each other {}; {:.2} bits an item were forecast. Entropy is the least that \
         could say the same.",
        grouped(workers),
        size(summary.number("/exchange/network_bytes")),
        summary.number("/exchange/predicted_bits_per_item"),
    );
    let table = table("Frames by kind, also those that a worker keeps", &heads, rows, (None, None));
    Some(section("Exchange between workers", [note(words), table]))
}
