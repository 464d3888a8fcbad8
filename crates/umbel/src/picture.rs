//! Report pages: HTML with inline SVG, without scripts and without external resources.
//!
//! | module | what it draws |
//! |---|---|
//! | `markup` | elements, with all text escaped |
//! | `page` | the frame of a page: its style and its content security policy |
//! | `shapes` | bars, a strip of shares, a matrix |
//! | `tables` | tables, lists of figures, notes |
//! | `json_view` | nothing: it reads the fields of a report in JSON |
//! | `words` | numbers with their units, names of bounded length |
//!
//! All of it is pure. Names (of files, say) are untrusted input.

mod json_view;
mod markup;
mod page;
mod shapes;
mod tables;
#[cfg(test)]
mod texts;
mod words;

pub(crate) use json_view::JsonView;
pub(crate) use markup::Element;
pub(crate) use page::{Heading, page, section};
pub(crate) use shapes::{Matrix, Part, Tone, bar, matrix, strip};
pub(crate) use tables::{Cell, figures, folded, note, table};
#[cfg(test)]
pub(crate) use texts::texts;
pub(crate) use words::{duration, grouped, number_of, share, shortened, ten_thousandths};
