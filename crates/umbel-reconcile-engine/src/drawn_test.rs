//! Sessions in dialogues: the messages between two sides, with their sizes, and what each side finds.
//!
//! ```text
//! items ids               or `lines`, or `records` as key=value; both sets are empty then
//! both 1-100 250          items that both sides have; ranges only of ids
//! ours 1000               that only the initiator has
//! theirs 2000             that only the responder has
//! at most 5               differences that the initiator allows
//! session two-way         or `compare`, `pull`, `push`
//! ```
//!
//! Nonces are fixed, so the symbols of the items and all sizes are, too. To write what the commands bring about
//! into the files of `testdata`, and then to read it:
//!
//! ```text
//! UMBEL_WRITE_DRAWN=1 cargo test -p umbel-reconcile-engine drawn
//! ```

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;

use super::item::Item;
use super::message::Message;
use super::options::{Direction, Options, SymbolKind};
use super::testing::{Shuttle, Side};
use super::wire::FrameBuffer;

/// The player of the files.
#[path = "../../umbel-engine/src/drawn_test.rs"]
mod dialogue;

/// Of more items than these, only the number is drawn.
const SHOWN_MAX: usize = 8;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}`: expected a number"))
}

fn text_of(item: &Item) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match item {
        Item::Id(id) => id.to_string(),
        Item::Bytes(line) => text(line),
        Item::Keyed { key, value } => format!("{}={}", text(key), text(value)),
    }
}

fn list_of<'i>(items: impl IntoIterator<Item = &'i Item>) -> String {
    let texts: Vec<String> = items.into_iter().map(text_of).collect();
    match texts.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN_MAX => format!("{count} items"),
        _ => texts.join(" "),
    }
}

/// What a side found, and what it cost.
fn end_of(name: &str, side: &Side) -> String {
    let outcome = match side.result.as_ref().expect("done") {
        Ok(outcome) => outcome,
        Err(error) => return format!("{name}: {error}\n"),
    };
    let (here, there) = (outcome.only_here_count, outcome.only_there_count);
    let mut text = format!("{name}: verified, {here} only here, {there} only there");
    if let Some(items) = side.items_here() {
        write!(text, "; here {}", list_of(&items)).unwrap();
    }
    if !side.only_there.is_empty() {
        write!(text, "; there {}", list_of(&side.items_there())).unwrap();
    }
    let applied: BTreeSet<&Item> = side.applied.iter().collect();
    write!(text, "; takes {}", list_of(applied)).unwrap();
    let (rounds, sent) = (outcome.round_count, outcome.sent_bytes);
    writeln!(text, "; {rounds} rounds, {sent} bytes sent").unwrap();
    text
}

/// The sets of two sides.
struct Sets {
    kind: SymbolKind,
    ours: BTreeSet<Item>,
    theirs: BTreeSet<Item>,
    diff_max: u64,
}

impl Sets {
    fn new(kind: SymbolKind) -> Self {
        Self { kind, ours: BTreeSet::new(), theirs: BTreeSet::new(), diff_max: u64::MAX }
    }

    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["items", "ids"] => *self = Self::new(SymbolKind::Id64),
            ["items", "lines"] => *self = Self::new(SymbolKind::Hashed),
            ["items", "records"] => *self = Self::new(SymbolKind::Keyed),
            ["both", ref words @ ..] => {
                let items = self.items(words);
                self.ours.extend(items.iter().cloned());
                self.theirs.extend(items);
            }
            ["ours", ref words @ ..] => {
                let items = self.items(words);
                self.ours.extend(items);
            }
            ["theirs", ref words @ ..] => {
                let items = self.items(words);
                self.theirs.extend(items);
            }
            ["at", "most", diff_max] => self.diff_max = number(diff_max),
            ["session", "compare"] => return self.session(Direction::Compare),
            ["session", "pull"] => return self.session(Direction::Pull),
            ["session", "push"] => return self.session(Direction::Push),
            ["session", "two-way"] => return self.session(Direction::TwoWay),
            _ => panic!("`{line}`: unknown command"),
        }
        String::new()
    }

    fn items(&self, words: &[&str]) -> Vec<Item> {
        let items = words.iter().flat_map(|&word| match self.kind {
            SymbolKind::Id64 => {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                (number(first)..=number(last)).map(Item::Id).collect::<Vec<_>>()
            }
            SymbolKind::Hashed => vec![Item::Bytes(word.as_bytes().to_vec())],
            SymbolKind::Keyed => {
                let (key, value) = word.split_once('=').expect("key=value");
                vec![Item::Keyed { key: key.into(), value: value.into() }]
            }
        });
        items.collect()
    }

    /// Runs a session, and draws its messages in the order in which they were sent.
    fn session(&self, direction: Direction) -> String {
        let mut initiator = Options::initiator(self.kind, direction, 0x1111);
        initiator.limits.diff_max = self.diff_max;
        let responder = Options::responder(self.kind, 0x2222);
        let mut shuttle = Shuttle::new(initiator, responder, &self.ours, &self.theirs);
        let text = Rc::new(RefCell::new(String::new()));
        let drawn = Rc::clone(&text);
        let mut buffers = [FrameBuffer::default(), FrameBuffer::default()];
        shuttle.damage = Box::new(move |to_ours, bytes| {
            let buffer = &mut buffers[usize::from(to_ours)];
            buffer.push(&bytes);
            while let Some(frame) = buffer.next_frame().unwrap() {
                let name = Message::read(&frame).unwrap().name();
                let arrow = if to_ours { "<--" } else { "-->" };
                writeln!(drawn.borrow_mut(), "{arrow} {name}, {} bytes", frame.wire_bytes).unwrap();
            }
            vec![bytes]
        });
        shuttle.run();
        let mut text = text.take();
        if let Some(Ok(outcome)) = &shuttle.ours.result {
            shuttle.check(direction);
            if !outcome.plan.is_empty() {
                writeln!(text, "plan: {}", outcome.plan).unwrap();
            }
            let (total, bound) = (outcome.bytes.total(), outcome.lower_bound_bytes);
            writeln!(text, "{total} bytes in all, at least {bound} are needed").unwrap();
        }
        text + &end_of("ours", &shuttle.ours) + &end_of("theirs", &shuttle.theirs)
    }
}

#[test]
fn drawn_sessions_end_as_drawn() {
    for file in ["ids.txt", "lines.txt", "records.txt"] {
        let mut sets = Sets::new(SymbolKind::Id64);
        dialogue::check(file, |line| sets.play(line));
    }
}
