//! Elements of HTML and SVG. All text in them is escaped here and nowhere else.

use std::fmt::{self, Display, Write};

/// Elements without content, which have no end tag.
const VOID: [&str; 1] = ["meta"];

/// An element with its attributes and content.
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    content: String,
}

impl Element {
    /// An empty element.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: String::new(), content: String::new() }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, attribute: &'static str, value: impl Display) -> Self {
        let _ = write!(self.attributes, " {attribute}=\"");
        let _ = write!(Escaped(&mut self.attributes), "{value}");
        self.attributes.push('"');
        self
    }

    /// Appends a text to the content.
    pub(crate) fn text(mut self, text: impl Display) -> Self {
        let _ = write!(Escaped(&mut self.content), "{text}");
        self
    }

    /// Appends an element to the content, if there is one.
    pub(crate) fn child(mut self, child: impl Into<Option<Self>>) -> Self {
        if let Some(child) = child.into() {
            let _ = write!(self.content, "{child}");
        }
        self
    }

    /// Appends elements to the content.
    pub(crate) fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// Appends one of the program's own style sheets, unescaped. It never contains input.
    pub(super) fn style(mut self, sheet: &'static str) -> Self {
        self.content.push_str(sheet);
        self
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, attributes, content } = self;
        if VOID.contains(name) {
            return write!(f, "<{name}{attributes}>");
        }
        write!(f, "<{name}{attributes}>{content}</{name}>")
    }
}

/// Escapes what is written through it, for the text of an element as well as for an attribute in double
/// quotes.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Shown as escapes: they could hide a part of a name, or reverse its direction.
                _ if char.is_control() || is_invisible(char) => {
                    write!(self.0, "{}", char.escape_unicode())?;
                }
                _ => self.0.push(char),
            }
        }
        Ok(())
    }
}

/// Whether a character is invisible but changes the text around it: direction marks, line separators and
/// zero-width characters.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped_and_children_are_not() {
        let name = "<img src=x onerror=\"alert('1')\">&amp;\u{202e}txt\n";
        let shown =
            "&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp;\\u{202e}txt\\u{a}";
        let inner = Element::new("b").text(name);
        let outer = Element::new("td").with("title", name).child(inner).child(None);
        assert_eq!(outer.to_string(), format!("<td title=\"{shown}\"><b>{shown}</b></td>"));
    }

    #[test]
    fn an_element_without_content_has_no_end_tag() {
        let meta = Element::new("meta").with("charset", "utf-8");
        assert_eq!(meta.to_string(), "<meta charset=\"utf-8\">");
        assert_eq!(Element::new("td").to_string(), "<td></td>");
    }
}
