//! Shapes of SVG. Colours are classes of the page's style, which defines them for the light and the dark
//! scheme.

use super::markup::Element;
use super::words::{number_of, shortened_to};

/// Side of a square of a matrix, in pixels.
const SQUARE: usize = 20;

/// Most characters of a name beside a matrix; longer names are shortened.
const LABEL_CHARS_MAX: usize = 32;

/// Width of a character beside a matrix, in pixels: that of the widest font that the style names.
const LABEL_CHAR_WIDTH: usize = 7;

/// The colour of a part of a picture: one colour in two strengths, and greys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// What the picture shows.
    Main,
    /// The less important part of that.
    Soft,
    /// Something else that was removed.
    Other,
    /// The rest.
    Track,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Soft => "soft",
            Self::Other => "other",
            Self::Track => "track",
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.3}%", 100.0 * part as f64 / whole.max(1) as f64)
}

fn rect(x: String, width: String, tone: Tone) -> Element {
    let rect = Element::new("rect").with("class", tone.class()).with("x", x);
    rect.with("width", width).with("height", "100%")
}

/// A bar of parts of a whole. It is hidden from screen readers, because the numbers that it shows stand
/// beside it.
pub(crate) fn bar(whole: u64, parts: &[(u64, Tone)]) -> Element {
    let svg = Element::new("svg").with("class", "bar").with("aria-hidden", "true");
    svg.child(rect("0".into(), "100%".into(), Tone::Track)).children(rects(whole, parts))
}

/// Rectangles for the parts, from left to right.
fn rects(whole: u64, parts: &[(u64, Tone)]) -> Vec<Element> {
    let mut before = 0;
    let mut rects = Vec::new();
    for &(part, tone) in parts.iter().filter(|(part, _)| *part > 0) {
        rects.push(rect(percent(before, whole), percent(part, whole), tone));
        before += part;
    }
    rects
}

/// A part of a strip.
pub(crate) struct Part {
    /// What the part is, with its number.
    pub(crate) name: String,
    /// Its amount, in the unit of the whole.
    pub(crate) amount: u64,
    /// Its colour.
    pub(crate) tone: Tone,
}

/// A strip of the page's width that shows shares of a whole, with a legend. `id` is unique in the page.
pub(crate) fn strip(id: &'static str, title: &str, whole: u64, parts: &[Part]) -> Element {
    let names: Vec<&str> = parts.iter().map(|part| &part.name[..]).collect();
    let (titled, described) = (format!("{id}-title"), format!("{id}-desc"));
    let svg = Element::new("svg")
        .with("class", "strip")
        .with("role", "img")
        .with("aria-labelledby", format!("{titled} {described}"))
        .child(Element::new("title").with("id", titled).text(title))
        .child(Element::new("desc").with("id", described).text(names.join("; ")));
    let amounts: Vec<(u64, Tone)> = parts.iter().map(|part| (part.amount, part.tone)).collect();
    let svg = svg.children(rects(whole, &amounts));
    let square = |tone| {
        let svg = Element::new("svg").with("aria-hidden", "true");
        svg.child(rect("0".into(), "100%".into(), tone))
    };
    let key = parts.iter().map(|part| {
        let name = Element::new("span").text(&part.name);
        Element::new("li").child(square(part.tone)).child(name)
    });
    let key = Element::new("ul").with("class", "key").children(key);
    Element::new("div").child(svg).child(key)
}

/// Counts for pairs of names, to be drawn as a matrix.
pub(crate) struct Matrix<'a> {
    /// What the matrix shows.
    pub(crate) title: &'a str,
    /// The same in more words, for screen readers.
    pub(crate) described: String,
    /// The names of the rows, which are those of the columns too.
    pub(crate) names: &'a [String],
    /// Counts, row by row: one row and one column per name.
    pub(crate) counts: &'a [Vec<u64>],
}

/// A matrix of squares: the larger the count, the darker, with one shade per power of two. Rows are
/// labelled with names and numbers, columns with their numbers.
pub(crate) fn matrix(id: &'static str, matrix: &Matrix<'_>) -> Element {
    let Matrix { title, described, names, counts } = matrix;
    let labels: Vec<String> =
        names.iter().map(|name| shortened_to(name, LABEL_CHARS_MAX)).collect();
    let label_chars = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let (left, top) = (label_chars * LABEL_CHAR_WIDTH + 36, 40);
    let side = names.len() * SQUARE;
    let (width, height) = (left + side.max(190) + 1, top + side + 1);
    let (titled, described_by) = (format!("{id}-title"), format!("{id}-desc"));
    let svg = Element::new("svg")
        .with("class", "matrix")
        .with("role", "img")
        .with("aria-labelledby", format!("{titled} {described_by}"))
        .with("width", width)
        .with("height", height)
        .with("viewBox", format!("0 0 {width} {height}"))
        .child(Element::new("title").with("id", titled).text(title))
        .child(Element::new("desc").with("id", described_by).text(described));
    let ground = Element::new("rect").with("class", "track").with("x", left).with("y", top);
    let svg = svg.child(ground.with("width", side).with("height", side));
    let svg = svg
        .child(label(left, 12, "start", "one of these was kept").with("class", "axis"))
        .child(label(left - 36, top - 8, "end", "repeats in").with("class", "axis"))
        .children(squares(counts, left, top));
    let lines = (0..=names.len()).flat_map(|at| {
        let (x, y) = (left + at * SQUARE, top + at * SQUARE);
        [line((x, top), (x, top + side)), line((left, y), (left + side, y))]
    });
    let numbers = labels.iter().enumerate().flat_map(|(at, name)| {
        let (number, middle) = (at + 1, at * SQUARE + SQUARE / 2);
        [
            label(left + middle, top - 8, "middle", &number.to_string()),
            label(left - 10, top + middle + 4, "end", &number.to_string()),
            label(left - 36, top + middle + 4, "end", name),
        ]
    });
    svg.children(lines).children(numbers)
}

fn label(x: usize, y: usize, anchor: &'static str, text: &str) -> Element {
    let label = Element::new("text").with("x", x).with("y", y);
    label.with("text-anchor", anchor).text(text)
}

fn line(from: (usize, usize), to: (usize, usize)) -> Element {
    let line = Element::new("line").with("x1", from.0).with("y1", from.1);
    line.with("x2", to.0).with("y2", to.1)
}

/// The squares of counts above zero, each with a tooltip.
fn squares(counts: &[Vec<u64>], left: usize, top: usize) -> Vec<Element> {
    let steps = |count: u64| count.checked_ilog2().map_or(0, |power| power + 1);
    let there = || counts.iter().flatten().copied().filter(|count| *count > 0);
    let least = steps(there().min().unwrap_or(0));
    let most = steps(there().max().unwrap_or(0));
    let mut squares = Vec::new();
    for (row, counts) in counts.iter().enumerate() {
        for (column, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let shade = f64::from(steps(count) - least + 1) / f64::from(most - least + 1);
            let shade = 0.1 + 0.9 * shade;
            let repeats = number_of(count, "repeat", "repeats");
            let word = format!("{repeats} in {}, of {}", row + 1, column + 1);
            let square = Element::new("rect")
                .with("class", "main")
                .with("x", left + column * SQUARE)
                .with("y", top + row * SQUARE)
                .with("width", SQUARE)
                .with("height", SQUARE)
                .with("fill-opacity", format!("{shade:.2}"))
                .child(Element::new("title").text(word));
            squares.push(square);
        }
    }
    squares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_parts_behind_each_other() {
        let bar = bar(200, &[(50, Tone::Main), (0, Tone::Other), (20, Tone::Soft)]).to_string();
        assert_eq!(
            bar,
            "<svg class=\"bar\" aria-hidden=\"true\">\
             <rect class=\"track\" x=\"0\" width=\"100%\" height=\"100%\"></rect>\
             <rect class=\"main\" x=\"0.000%\" width=\"25.000%\" height=\"100%\"></rect>\
             <rect class=\"soft\" x=\"25.000%\" width=\"10.000%\" height=\"100%\"></rect></svg>"
        );
    }

    #[test]
    fn a_bar_of_nothing_is_an_empty_track() {
        assert_eq!(bar(0, &[(0, Tone::Main)]).to_string().matches("<rect").count(), 1);
    }

    #[test]
    fn a_strip_says_what_it_shows() {
        let part = |name: &str, amount, tone| Part { name: name.to_owned(), amount, tone };
        let parts = [part("3 <kept>", 3, Tone::Track), part("1 repeat", 1, Tone::Main)];
        let strip = strip("all", "Of 4", 4, &parts).to_string();
        assert!(strip.contains("aria-labelledby=\"all-title all-desc\""), "{strip}");
        assert!(strip.contains("<title id=\"all-title\">Of 4</title>"), "{strip}");
        let desc = "<desc id=\"all-desc\">3 &lt;kept&gt;; 1 repeat</desc>";
        assert!(strip.contains(desc), "{strip}");
        assert!(strip.contains("x=\"75.000%\" width=\"25.000%\""), "{strip}");
    }

    #[test]
    fn squares_are_shaded_by_powers_of_two_and_empty_ones_are_left_out() {
        let names = ["a".to_owned(), "<b>".to_owned()];
        let counts = [vec![0, 1], vec![255, 0]];
        let shown =
            Matrix { title: "t", described: "d".to_owned(), names: &names, counts: &counts };
        let svg = matrix("m", &shown).to_string();
        assert_eq!(svg.matches("fill-opacity").count(), 2);
        assert!(svg.contains("fill-opacity=\"0.21\"><title>1 repeat in 1, of 2</title>"), "{svg}");
        assert!(
            svg.contains("fill-opacity=\"1.00\"><title>255 repeats in 2, of 1</title>"),
            "{svg}"
        );
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"), "{svg}");
    }
}
