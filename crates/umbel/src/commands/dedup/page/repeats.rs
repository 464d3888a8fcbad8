//! Repeats by file, which files repeat which, and the sizes of groups of equal records.

use super::words::Noun;
use crate::picture::{
    Cell, Element, JsonView, Matrix, Tone, bar, folded, grouped, matrix, note, number_of, section,
    share, shortened, table,
};
use std::cmp::Reverse;

/// Most pairs of files or directories that are listed in the table below the matrix.
const PAIRS_NAMED_MAX: usize = 50;

/// Repeats by file.
pub(super) fn by_file(summary: JsonView<'_>, noun: Noun) -> Option<Element> {
    let files = summary.at("/files");
    if !files.is_there("/count") {
        return None;
    }
    if summary.count("/dropped/input") == 0 {
        return Some(section("Repeats by file", [note("No file repeats itself or another.")]));
    }
    let named = files.list("/named").filter(|file| repeats_of(*file) > 0);
    let rows: Vec<Vec<Cell>> = named.map(|file| row(Cell::name(name_of(file)), file)).collect();
    let shown = rows.len() as u64;
    let rest = files.count("/count") - shown;
    let others = (rest > 0).then(|| {
        let counts = files.at("/others/counts");
        let without = files.list("/named").skip(rows.len());
        let items = without.map(|file| file.count("/items")).sum::<u64>() + counts.count("/items");
        let name = number_of(rest, "other file", "other files");
        let repeats = [counts.count("/repeats_of_others"), counts.count("/repeats_within")];
        cells(Cell::head(name), items, repeats)
    });
    let sums = row(Cell::head("All files"), files.at("/all"));
    let heads = ["File", noun_head(noun), "*Repeats", "*Share"];
    let caption = "Files with the most repeats";
    let words = "A dark bar is the share that repeats another file, a light one the share that repeats the file itself.";
    let table = table(caption, &heads, rows, (others, Some(sums)));
    Some(section("Repeats by file", [note(words), table]))
}

fn noun_head(noun: Noun) -> &'static str {
    match noun.many {
        "lines" => "*Lines",
        "paragraphs" => "*Paragraphs",
        "files" => "*Files",
        _ => "*Records",
    }
}

/// The name of a file; if there are several workers, with the one that has read it.
fn name_of(file: JsonView<'_>) -> String {
    let name = shortened(file.text("/file"));
    if file.is_there("/worker") { of_worker(file.count("/worker"), &name) } else { name }
}

fn of_worker(worker: u64, name: &str) -> String {
    format!("worker {worker}: {name}")
}

fn repeats_of(file: JsonView<'_>) -> u64 {
    file.count("/repeats_within") + file.count("/repeats_of_others")
}

fn row(name: Cell, file: JsonView<'_>) -> Vec<Cell> {
    let repeats = [file.count("/repeats_of_others"), file.count("/repeats_within")];
    cells(name, file.count("/items"), repeats)
}

fn cells(name: Cell, items: u64, [of_others, within]: [u64; 2]) -> Vec<Cell> {
    let picture = bar(items, &[(of_others, Tone::Main), (within, Tone::Soft)]);
    let repeats = of_others + within;
    vec![
        name.above(picture),
        Cell::number(grouped(items)),
        Cell::number(grouped(repeats)),
        Cell::number(share(repeats, items)),
    ]
}

/// Which files or directories repeat which; None if there is only one, or nothing is repeated.
pub(super) fn overlap(summary: JsonView<'_>, noun: Noun) -> Option<Element> {
    let overlap = summary.at("/overlap");
    let workers: Vec<u64> = overlap.list("/workers").map(|worker| worker.count("")).collect();
    let named = |(at, name): (usize, JsonView<'_>)| match workers.get(at) {
        Some(worker) => of_worker(*worker, name.text("")),
        None => name.text("").to_owned(),
    };
    let mut names: Vec<String> = overlap.list("/names").enumerate().map(named).collect();
    let counts: Vec<Vec<u64>> = overlap
        .list("/dropped")
        .map(|row| row.list("").map(|cell| cell.count("")).collect())
        .collect();
    let is_one = counts.len() < 2;
    if is_one || summary.count("/dropped/input") == 0 {
        return None;
    }
    let (one, many) = match overlap.text("/by") {
        "directory" => ("directory", "directories"),
        _ => ("file", "files"),
    };
    let others = overlap.count("/others");
    let mut words = format!(
        "Row by row: how many {} of a {one} repeat one that was kept in the {one} of the column. The diagonal is what \
         a {one} repeats of itself. The darker the more: each shade is twice as many as the one before.",
        noun.many
    );
    if others > 0 {
        let shown = names.len();
        words.push_str(&format!(
            " The {shown} {many} with the most repeats have rows of their own; all others share the last one."
        ));
        names.push(number_of(others, &format!("other {one}"), &format!("other {many}")));
    }
    let mut pairs: Vec<(u64, usize, usize)> = Vec::new();
    for (row, counts) in counts.iter().enumerate() {
        let there = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        pairs.extend(there.map(|(column, &count)| (count, row, column)));
    }
    pairs.sort_by_key(|&(count, row, column)| (Reverse(count), row, column));
    let described = match pairs.first() {
        Some(&(count, row, column)) => format!(
            "{} by {}. The most, {}, are in row {} and column {}.",
            names.len(),
            names.len(),
            noun.number(count),
            row + 1,
            column + 1,
        ),
        None => String::new(),
    };
    let shown = Matrix { title: "What repeats what", described, names: &names, counts: &counts };
    let parts = folded("What repeats what", matrix("overlap", &shown), pair_table(&pairs, &names));
    Some(section("What repeats what", std::iter::once(note(words)).chain(parts)))
}

fn pair_table(pairs: &[(u64, usize, usize)], names: &[String]) -> Element {
    let (named, rest) = pairs.split_at(pairs.len().min(PAIRS_NAMED_MAX));
    let name = |at: usize| shortened(&names[at]);
    let row = |&(count, row, column): &(u64, usize, usize)| {
        let kept = Cell::code(name(column));
        vec![Cell::name(name(row)), kept, Cell::number(grouped(count))]
    };
    let others = (!rest.is_empty()).then(|| {
        let count = rest.iter().map(|(count, ..)| count).sum();
        let name = number_of(rest.len() as u64, "other pair", "other pairs");
        vec![Cell::head(name), Cell::text(""), Cell::number(grouped(count))]
    });
    let sum = pairs.iter().map(|(count, ..)| count).sum();
    let sums = vec![Cell::head("All"), Cell::text(""), Cell::number(grouped(sum))];
    let heads = ["Repeats in", "One of these was kept in", "*Repeats"];
    table("Pairs with the most repeats", &heads, named.iter().map(row), (others, Some(sums)))
}

/// The sizes of groups; None if there are none.
pub(super) fn groups(summary: JsonView<'_>, noun: Noun) -> Option<Element> {
    if summary.count("/groups/count") == 0 {
        return None;
    }
    let all: u64 = summary.list("/groups/histogram").map(repeats_in).sum();
    let rows = summary.list("/groups/histogram").map(|class| {
        let (from, to) = (class.count("/size_min"), class.count("/size_max"));
        let times = Cell::head(format!("{} to {} times", grouped(from), grouped(to)));
        let repeats = repeats_in(class);
        vec![
            times.above(bar(all, &[(repeats, Tone::Main)])),
            Cell::number(grouped(class.count("/groups"))),
            Cell::number(grouped(repeats)),
            Cell::number(share(repeats, all)),
        ]
    });
    let count = summary.count("/groups/count");
    let sums = vec![
        Cell::head("All groups"),
        Cell::number(grouped(count)),
        Cell::number(grouped(all)),
        Cell::number(share(all, all)),
    ];
    let words = format!(
        "A group is a {} that was kept and all that repeat it. {}; the largest has {}.",
        noun.one,
        number_of(count, "group", "groups"),
        noun.number(summary.count("/groups/largest")),
    );
    let heads = ["Stood", "*Groups", "*Repeats", "*Share of repeats"];
    let sizes = table("Groups by size", &heads, rows, (None, Some(sums)));
    let content = [note(words), sizes, examples(summary)];
    Some(section("How often the same stood", content))
}

/// Records in groups of this size class, without the one kept in each group.
fn repeats_in(class: JsonView<'_>) -> u64 {
    class.count("/records").saturating_sub(class.count("/groups"))
}

fn examples(summary: JsonView<'_>) -> Element {
    let has_parts = summary.list("/most_repeated").any(|group| group.is_there("/part"));
    let rows = summary.list("/most_repeated").map(|group| {
        let mut cells = vec![Cell::name(name_of(group))];
        cells.push(Cell::number(grouped(group.count("/record"))));
        if has_parts {
            cells.push(Cell::number(grouped(group.count("/part"))));
        }
        cells.push(Cell::number(grouped(group.count("/size"))));
        cells
    });
    let heads: &[&str] = if has_parts {
        &["Kept in", "*Record", "*Paragraph", "*Stood, times"]
    } else {
        &["Kept in", "*Record", "*Stood, times"]
    };
    table("The largest groups, 20 at most", heads, rows, (None, None))
}
