//! Shapes of SVG. Colours are classes of the page's style, so that both schemes have them.

use super::markup::Element;

/// How a part of a picture is coloured: one colour in two strengths, and greys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// What the picture is about.
    Main,
    /// The lesser part of that.
    Soft,
    /// Something else that is not there any more.
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

/// A bar of parts of a whole, beside the numbers that it shows.
pub(crate) fn bar(whole: u64, parts: &[(u64, Tone)]) -> Element {
    let svg = Element::new("svg").with("class", "bar").with("aria-hidden", "true");
    svg.child(rect("0".into(), "100%".into(), Tone::Track)).children(rects(whole, parts))
}

/// Parts from the left to the right.
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
    /// What it is, with its number.
    pub(crate) name: String,
    /// How much of the whole.
    pub(crate) amount: u64,
    /// Its colour.
    pub(crate) tone: Tone,
}

/// A strip as wide as the page that shows shares of a whole, with its key. `id` is its own in the page.
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
}
