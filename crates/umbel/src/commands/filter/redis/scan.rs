//! Iterates over the contents of a server page by page. Pure: it returns the next request and takes the
//! answers' cursors and counts.

use super::answer::Most;

/// About how many values a page has. A server blocks other clients for about a millisecond to collect
/// them.
const PAGE_VALUES: u64 = 1_000;

/// Most values of a page of a scan. A server sends a small collection, or one of integers, as a single
/// page; its settings determine up to which size.
const SCANNED_VALUES_MAX: usize = 1 << 24;

/// Longest value that is skipped: the longest that Redis has.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Longest cursor: those of Redis have up to 20 digits, other servers use names of keys.
const CURSOR_BYTES_MAX: usize = 64 << 10;

/// Most consecutive empty pages: as many as it takes to scan the 2^32 keys that a server has at most.
const EMPTY_PAGES_MAX: u64 = (1 << 32) / PAGE_VALUES;

/// Most pages of a scan: as many as it takes to scan tables of 2^34 slots. A server has at most 2^32
/// keys, and a key 2^32 values, in a table of twice as many slots, and in a second one during a resize.
const PAGES_MAX: u64 = (1 << 34) / PAGE_VALUES;

/// Most items of a scan: twice the maximum of 2^32, since a scan may return an item repeatedly.
const ITEMS_MAX: u64 = 1 << 33;

/// The scan would not end, or a page is not what was requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ScanError(pub(super) String);

/// An iteration over a server's contents.
#[derive(Debug)]
pub(super) enum Scan {
    /// By cursors, until the server returns cursor 0.
    Cursor(CursorScan),
    /// By index, up to the list's length at the beginning.
    List {
        key: Vec<u8>,
        /// Index of the first value of the next page.
        at: u64,
        /// The length of the list.
        length: u64,
    },
}

/// The form of a page's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageForm {
    /// Whether a cursor precedes the list.
    pub(super) has_cursor: bool,
    /// Whether a value follows each item, which is skipped.
    pub(super) has_values: bool,
    /// Limits for the list and its items.
    pub(super) most: Most,
}

/// The state of a scan by cursors.
#[derive(Debug)]
pub(super) struct CursorScan {
    command: &'static str,
    key: Option<Vec<u8>>,
    pattern: Option<Vec<u8>>,
    has_values: bool,
    /// The cursor of the next page; `0` before the first page.
    cursor: Vec<u8>,
    is_done: bool,
    circle: Circle,
    empty_pages: u64,
    page_count: u64,
    item_count: u64,
}

/// Detects a cycle of cursors with one cursor in memory (R. P. Brent, "An improved Monte Carlo
/// factorization algorithm", 1980): each cursor is compared with the one that was kept at the last power
/// of two.
#[derive(Debug, Default)]
struct Circle {
    kept: Vec<u8>,
    steps: u64,
    limit: u64,
}

impl Circle {
    fn is_closed_by(&mut self, cursor: &[u8]) -> bool {
        if self.kept == cursor {
            return true;
        }
        if self.steps == self.limit {
            self.kept = cursor.to_vec();
            self.limit = (self.limit * 2).max(1);
            self.steps = 0;
        }
        self.steps += 1;
        false
    }
}

impl Scan {
    /// Over the names of the keys that match a pattern.
    pub(super) fn of_names(pattern: &[u8]) -> Self {
        Self::by_cursor("SCAN", None, Some(pattern.to_vec()), false)
    }

    /// Over the items of a key of this type; `length` is that of a list. None if the type has no items.
    pub(super) fn of_key(type_name: &str, key: &[u8], length: u64) -> Option<Self> {
        let by_cursor =
            |command, has_values| Self::by_cursor(command, Some(key.to_vec()), None, has_values);
        Some(match type_name {
            "set" => by_cursor("SSCAN", false),
            "zset" => by_cursor("ZSCAN", true),
            "hash" => by_cursor("HSCAN", true),
            "list" => Self::List { key: key.to_vec(), at: 0, length },
            _ => return None,
        })
    }

    fn by_cursor(
        command: &'static str,
        key: Option<Vec<u8>>,
        pattern: Option<Vec<u8>>,
        has_values: bool,
    ) -> Self {
        let (cursor, circle) = (b"0".to_vec(), Circle::default());
        let is_done = false;
        Self::Cursor(CursorScan {
            command,
            key,
            pattern,
            has_values,
            cursor,
            is_done,
            circle,
            empty_pages: 0,
            page_count: 0,
            item_count: 0,
        })
    }

    /// The next request; None at the end.
    pub(super) fn request(&self) -> Option<Vec<Vec<u8>>> {
        match self {
            Self::Cursor(cursor_scan) if cursor_scan.is_done => None,
            Self::Cursor(cursor_scan) => {
                let mut words = vec![cursor_scan.command.as_bytes().to_vec()];
                words.extend(cursor_scan.key.clone());
                words.push(cursor_scan.cursor.clone());
                if let Some(pattern) = &cursor_scan.pattern {
                    words.extend([b"MATCH".to_vec(), pattern.clone()]);
                }
                words.extend([b"COUNT".to_vec(), PAGE_VALUES.to_string().into_bytes()]);
                Some(words)
            }
            Self::List { at, length, .. } if at >= length => None,
            Self::List { key, at, length } => {
                let last = at.saturating_add(PAGE_VALUES).min(*length) - 1;
                let number = |number: u64| number.to_string().into_bytes();
                Some(vec![b"LRANGE".to_vec(), key.clone(), number(*at), number(last)])
            }
        }
    }

    /// The form of the answer to that request.
    pub(super) fn form(&self) -> PageForm {
        let (has_cursor, has_values, values) = match self {
            Self::Cursor(cursor_scan) => (true, cursor_scan.has_values, SCANNED_VALUES_MAX),
            #[expect(clippy::cast_possible_truncation, reason = "a small number")]
            Self::List { .. } => (false, false, PAGE_VALUES as usize),
        };
        let most = Most { bulk_bytes: VALUE_BYTES_MAX, values };
        PageForm { has_cursor, has_values, most }
    }

    /// The limits of a cursor.
    pub(super) const fn most_of_cursor() -> Most {
        Most { bulk_bytes: CURSOR_BYTES_MAX, values: 0 }
    }

    /// The number of items in a list of `value_count` values.
    ///
    /// # Errors
    ///
    /// If an item lacks its value.
    pub(super) fn items_of(form: PageForm, value_count: usize) -> Result<usize, ScanError> {
        if !form.has_values {
            Ok(value_count)
        } else if value_count.is_multiple_of(2) {
            Ok(value_count / 2)
        } else {
            Err(ScanError(format!("{value_count} values, which are no pairs")))
        }
    }

    /// Records that a page was received, with its number of items and the cursor of the next page.
    ///
    /// # Errors
    ///
    /// If the scan would not end.
    pub(super) fn took(&mut self, cursor: &[u8], item_count: usize) -> Result<(), ScanError> {
        match self {
            Self::Cursor(cursor_scan) => cursor_scan.took(cursor, item_count),
            Self::List { at, length, .. } => {
                *at += item_count as u64;
                // The list has become shorter.
                if item_count == 0 {
                    *length = *at;
                }
                Ok(())
            }
        }
    }
}

impl CursorScan {
    fn took(&mut self, cursor: &[u8], item_count: usize) -> Result<(), ScanError> {
        let shown = || String::from_utf8_lossy(cursor.get(..40).unwrap_or(cursor)).into_owned();
        if cursor == b"0" {
            self.is_done = true;
            return Ok(());
        }
        self.page_count += 1;
        self.item_count = self.item_count.saturating_add(item_count as u64);
        if self.page_count > PAGES_MAX || self.item_count > ITEMS_MAX {
            let (pages, items) = (self.page_count, self.item_count);
            let what = format!("{items} items in {pages} pages, more than there can be");
            return Err(ScanError(what));
        }
        if cursor.is_empty() {
            return Err(ScanError("a cursor that is empty".to_owned()));
        }
        if self.circle.is_closed_by(cursor) {
            return Err(ScanError(format!("cursor {:?} again: it does not go on", shown())));
        }
        self.empty_pages = if item_count == 0 { self.empty_pages + 1 } else { 0 };
        if self.empty_pages > EMPTY_PAGES_MAX {
            return Err(ScanError(format!("{} pages without anything in them", self.empty_pages)));
        }
        self.cursor = cursor.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(scan: &Scan) -> Option<String> {
        let words = scan.request()?;
        Some(String::from_utf8(words.join(&b' ')).unwrap())
    }

    #[test]
    fn a_scan_goes_from_cursor_to_cursor() {
        let mut scan = Scan::of_key("zset", b"k", 0).unwrap();
        assert!(scan.form().has_cursor && scan.form().has_values);
        assert_eq!(asked(&scan).as_deref(), Some("ZSCAN k 0 COUNT 1000"));
        scan.took(b"17", 3).unwrap();
        assert_eq!(asked(&scan).as_deref(), Some("ZSCAN k 17 COUNT 1000"));
        // An empty page is not necessarily the last one.
        scan.took(b"5", 0).unwrap();
        scan.took(b"0", 0).unwrap();
        assert_eq!(asked(&scan), None);
        let names = Scan::of_names(b"seen:*");
        assert_eq!(asked(&names).as_deref(), Some("SCAN 0 MATCH seen:* COUNT 1000"));
        assert!(!names.form().has_values);
        assert!(Scan::of_key("string", b"k", 0).is_none());
        assert_eq!(Scan::items_of(scan.form(), 6), Ok(3));
        assert!(Scan::items_of(scan.form(), 7).is_err());
    }

    #[test]
    fn a_list_is_read_to_where_it_ended_when_it_was_begun() {
        let mut scan = Scan::of_key("list", b"k", 2_500).unwrap();
        let mut asked_for = Vec::new();
        while let Some(words) = asked(&scan) {
            asked_for.push(words);
            scan.took(b"", if asked_for.len() < 3 { 1_000 } else { 500 }).unwrap();
        }
        assert_eq!(asked_for, ["LRANGE k 0 999", "LRANGE k 1000 1999", "LRANGE k 2000 2499"]);
        assert_eq!(asked(&Scan::of_key("list", b"k", 0).unwrap()), None);
        // A list that becomes shorter ends there.
        let mut scan = Scan::of_key("list", b"k", 2_500).unwrap();
        scan.took(b"", 10).unwrap();
        assert_eq!(asked(&scan).as_deref(), Some("LRANGE k 10 1009"));
        scan.took(b"", 0).unwrap();
        assert_eq!(asked(&scan), None);
    }

    /// A cycle of cursors is found before it was passed three times, whatever its length and whatever
    /// precedes it.
    #[test]
    fn cursors_that_go_round_are_found() {
        for (lead, circle) in [(0_u64, 1_u64), (0, 2), (1, 1), (7, 5), (100, 37), (3, 1_000)] {
            let mut scan = Scan::of_key("set", b"k", 0).unwrap();
            let cursors = (0..lead).map(|at| at + 1_000_000).chain((1..=circle).cycle());
            let most = 3 * (lead + circle) + 3;
            let taken = cursors
                .take(usize::try_from(most).unwrap())
                .position(|cursor| scan.took(cursor.to_string().as_bytes(), 1).is_err());
            let taken = taken.expect("it is found") as u64;
            assert!(taken >= lead + circle, "{lead} {circle}: {taken}");
        }
        // Distinct cursors are no cycle.
        let mut scan = Scan::of_key("set", b"k", 0).unwrap();
        for cursor in 1..10_000 {
            scan.took(cursor.to_string().as_bytes(), 1).unwrap();
        }
    }

    #[test]
    fn pages_without_anything_end_at_last() {
        let mut scan = Scan::of_names(b"*");
        let Scan::Cursor(cursor_scan) = &mut scan else { panic!("a scan") };
        cursor_scan.empty_pages = EMPTY_PAGES_MAX - 1;
        scan.took(b"1", 0).unwrap();
        scan.took(b"2", 1).unwrap();
        scan.took(b"3", 0).unwrap();
        let Scan::Cursor(cursor_scan) = &mut scan else { panic!("a scan") };
        cursor_scan.empty_pages = EMPTY_PAGES_MAX;
        assert!(scan.took(b"4", 0).unwrap_err().0.contains("pages without anything"));
        assert!(scan.took(b"", 0).is_err());
    }

    /// A scan ends even if all cursors differ and all pages have items.
    #[test]
    fn a_scan_of_more_than_there_can_be_ends() {
        let mut scan = Scan::of_names(b"*");
        let Scan::Cursor(cursor_scan) = &mut scan else { panic!("a scan") };
        cursor_scan.page_count = PAGES_MAX - 1;
        scan.took(b"1", 1).unwrap();
        let text = scan.took(b"2", 1).unwrap_err().0;
        assert!(text.ends_with("more than there can be"), "{text}");
        // The last page does not count against the limit.
        scan.took(b"0", 1).unwrap();
        let mut scan = Scan::of_key("set", b"k", 0).unwrap();
        let Scan::Cursor(cursor_scan) = &mut scan else { panic!("a scan") };
        cursor_scan.item_count = ITEMS_MAX - 1;
        scan.took(b"1", 1).unwrap();
        assert!(scan.took(b"2", 1).is_err());
    }
}
