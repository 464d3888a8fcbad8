//! Tables of numbers, lists of figures and notes.

use super::markup::Element;

/// A cell of a table.
pub(crate) struct Cell(Element);

impl Cell {
    /// A number with its unit, right-aligned.
    pub(crate) fn number(text: impl Into<String>) -> Self {
        Self(Element::new("td").with("class", "number").text(text.into()))
    }

    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self(Element::new("td").text(text.into()))
    }

    /// The name of a file or another text that users wrote, as the header of its row.
    pub(crate) fn name(text: impl Into<String>) -> Self {
        let name = Element::new("span").with("class", "code").text(text.into());
        Self(Element::new("th").with("scope", "row").child(name))
    }

    /// A text that users wrote, in the middle of a row.
    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self(Element::new("td").child(Element::new("span").with("class", "code").text(text.into())))
    }

    /// A text of the program, as the header of its row.
    pub(crate) fn head(text: impl Into<String>) -> Self {
        Self(Element::new("th").with("scope", "row").text(text.into()))
    }

    /// Adds a picture below the text of the cell.
    pub(crate) fn above(self, picture: Element) -> Self {
        Self(self.0.child(picture))
    }
}

/// A table: column headers, right-aligned where they begin with `*`; the rows; and optionally a row for
/// all others and one of sums. It scrolls horizontally if it is wider than the page.
pub(crate) fn table(
    caption: &'static str,
    heads: &[&'static str],
    rows: impl IntoIterator<Item = Vec<Cell>>,
    (others, sums): (Option<Vec<Cell>>, Option<Vec<Cell>>),
) -> Element {
    let head = |head: &&'static str| {
        let (name, class) = match head.strip_prefix('*') {
            Some(name) => (name, "number"),
            None => (*head, ""),
        };
        Element::new("th").with("scope", "col").with("class", class).text(name)
    };
    let row =
        |cells: Vec<Cell>| Element::new("tr").children(cells.into_iter().map(|Cell(cell)| cell));
    let body = Element::new("tbody").children(rows.into_iter().map(row));
    let others = others.map(|cells| row(cells).with("class", "others"));
    let sums = sums.map(|cells| Element::new("tfoot").child(row(cells)));
    let table = Element::new("table")
        .child(Element::new("caption").text(caption))
        .child(Element::new("thead").child(Element::new("tr").children(heads.iter().map(head))))
        .child(body.child(others))
        .child(sums);
    scrolling(caption, table)
}

/// Wraps content that may be wider than the page in a region that scrolls, with the keyboard too.
fn scrolling(name: &'static str, content: Element) -> Element {
    let region = Element::new("div").with("class", "scroll").with("role", "region");
    region.with("tabindex", "0").with("aria-label", name).child(content)
}

/// A list of figures, each with its name and an optional remark.
pub(crate) fn figures(
    figures: impl IntoIterator<Item = (&'static str, String, String)>,
) -> Element {
    let figure = |(name, value, beside): (&'static str, String, String)| {
        let beside =
            (!beside.is_empty()).then(|| Element::new("dd").with("class", "beside").text(beside));
        Element::new("div")
            .child(Element::new("dt").text(name))
            .child(Element::new("dd").text(value))
            .child(beside)
    };
    Element::new("dl").with("class", "figures").children(figures.into_iter().map(figure))
}

/// A picture that scrolls if it is wider than the page, above a table that the reader can unfold.
pub(crate) fn folded(name: &'static str, picture: Element, behind: Element) -> [Element; 2] {
    let details = Element::new("details")
        .child(Element::new("summary").text("The same as a table"))
        .child(behind);
    [scrolling(name, picture), details]
}

/// A note.
pub(crate) fn note(text: impl Into<String>) -> Element {
    Element::new("p").with("class", "note").text(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_heads_of_rows_and_columns() {
        let rows = [vec![Cell::name("<a>"), Cell::number("1")]];
        let sums = vec![Cell::head("all"), Cell::number("1")];
        let table = table("Files", &["file", "*items"], rows, (None, Some(sums))).to_string();
        assert_eq!(
            table,
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Files\"><table>\
             <caption>Files</caption><thead><tr><th scope=\"col\" class=\"\">file</th>\
             <th scope=\"col\" class=\"number\">items</th></tr></thead><tbody><tr>\
             <th scope=\"row\"><span class=\"code\">&lt;a&gt;</span></th>\
             <td class=\"number\">1</td></tr></tbody><tfoot><tr><th scope=\"row\">all</th>\
             <td class=\"number\">1</td></tr></tfoot></table></div>"
        );
    }
}
