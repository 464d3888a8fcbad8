//! Finds fields: one pass over the record validates all of it and stores the positions of the requested
//! values.
//!
//! The paths form a tree, so that paths with a common start share the search. Of fields with the same
//! name, the last one counts, with everything below it.

use std::ops::Range;

use super::cursor::Cursor;
use super::text::StringText;
use crate::KeyPath;
use crate::json::Result;

/// For each path, the range of its value in the record, in bytes; `None` if it is missing.
pub(crate) type Found = [Option<Range<usize>>];

/// The requested paths. `nodes[0]` is the record itself.
#[derive(Debug)]
pub(crate) struct PathTree {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<Child>,
    /// Numbers of the paths that end at this node.
    paths: Vec<usize>,
}

#[derive(Debug)]
struct Child {
    name: String,
    /// The name as an index into an array, if it is a number.
    index: Option<usize>,
    node: usize,
}

impl PathTree {
    /// The tree of `paths`, numbered in their order.
    pub(crate) fn new(paths: &[KeyPath]) -> Self {
        let mut tree = Self { nodes: vec![Node::default()] };
        for (number, path) in paths.iter().enumerate() {
            let node = path.fields().iter().fold(0, |node, field| tree.child(node, field));
            tree.nodes[node].paths.push(number);
        }
        tree
    }

    /// The child of `node` with this name, created if there is none.
    fn child(&mut self, node: usize, name: &str) -> usize {
        if let Some(child) = self.nodes[node].children.iter().find(|child| child.name == name) {
            return child.node;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
        self.nodes[node].children.push(Child { name: name.to_owned(), index, node: new });
        new
    }

    /// Validates the value at the cursor and stores in `found`, which has one element per path, where
    /// the values are.
    pub(crate) fn find(&self, cursor: &mut Cursor<'_>, found: &mut Found) -> Result<()> {
        found.fill(None);
        self.walk(cursor, 0, 0, found)
    }

    fn walk(
        &self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        node: usize,
        found: &mut Found,
    ) -> Result<()> {
        let start = cursor.at();
        let Node { children, paths } = &self.nodes[node];
        match cursor.peek() {
            Some(b'{') if !children.is_empty() => {
                let depth = cursor.enter(depth)?;
                let mut is_first = true;
                while let Some(name) = cursor.next_field(&mut is_first)? {
                    let child = children.iter().find(|child| is_named(child, name));
                    self.walk_or_skip(cursor, depth, child, found)?;
                }
            }
            Some(b'[') if !children.is_empty() => {
                let depth = cursor.enter(depth)?;
                let mut is_first = true;
                let mut index = 0;
                while cursor.next_element(&mut is_first)? {
                    let child = children.iter().find(|child| child.index == Some(index));
                    self.walk_or_skip(cursor, depth, child, found)?;
                    index += 1;
                }
            }
            _ => cursor.skip_value(depth)?,
        }
        for &path in paths {
            found[path] = Some(start..cursor.at());
        }
        Ok(())
    }

    fn walk_or_skip(
        &self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        child: Option<&Child>,
        found: &mut Found,
    ) -> Result<()> {
        match child {
            None => cursor.skip_value(depth),
            Some(child) => {
                // An earlier field of this name does not count.
                self.forget_below(child.node, found);
                self.walk(cursor, depth, child.node, found)
            }
        }
    }

    fn forget_below(&self, node: usize, found: &mut Found) {
        for child in &self.nodes[node].children {
            for &path in &self.nodes[child.node].paths {
                found[path] = None;
            }
            self.forget_below(child.node, found);
        }
    }
}

fn is_named(child: &Child, name: StringText<'_>) -> bool {
    if !name.has_escapes {
        return child.name.as_bytes() == name.raw;
    }
    // Escapes in names are rare, so a buffer passed through all calls would not pay.
    let mut unescaped = Vec::new();
    name.unescape_into(&mut unescaped);
    child.name.as_bytes() == unescaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(record: &str, paths: &[&str]) -> Vec<Option<String>> {
        let paths: Vec<KeyPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let mut found = vec![None; paths.len()];
        let mut cursor = Cursor::new(record.as_bytes());
        PathTree::new(&paths).find(&mut cursor, &mut found).unwrap();
        found.into_iter().map(|span| span.map(|span| record[span].to_owned())).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    #[test]
    fn fields_and_elements_are_found() {
        let record = r#"{"user": {"id": 7, "tags": ["x", {"0": true}]}, "0": null}"#;
        assert_eq!(
            find(record, &["user.id", "user.tags.0", "user.tags.1.0", "0", "user.id"]),
            some(&["7", "\"x\"", "true", "null", "7"])
        );
        assert_eq!(find(record, &["user.tags"]), some(&[r#"["x", {"0": true}]"#]));
        assert_eq!(
            find(record, &["user.tags.2", "id", "user.id.x", "user.tags.00"]),
            [const { None }; 4]
        );
        assert_eq!(find(r#"{"\u0061": 1}"#, &["a"]), some(&["1"]));
        assert_eq!(find("[[1, 2], 3]", &["0.1", "1"]), some(&["2", "3"]));
        assert_eq!(find("5", &["a"]), [None]);
    }

    #[test]
    fn the_last_of_equal_names_counts_with_all_below_it() {
        assert_eq!(find(r#"{"a": 1, "a": 2}"#, &["a"]), some(&["2"]));
        assert_eq!(find(r#"{"a": {"b": 1}, "a": {"c": 2}}"#, &["a.b"]), [None]);
        assert_eq!(find(r#"{"a": {"b": 1}, "a": 3}"#, &["a.b", "a"]), [None, Some("3".to_owned())]);
        assert_eq!(find(r#"{"a": 3, "a": {"b": 1}}"#, &["a.b"]), some(&["1"]));
    }
}
