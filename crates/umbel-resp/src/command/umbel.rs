//! Parses the arguments of Umbel's own commands.

use super::{AnswerForm, Command, Items, Parsed, RequestName};
use crate::arguments::{Arguments, is_word};
use crate::limits::KEYS_MAX;
use crate::number::natural;
use crate::refusal::Refusal;
use crate::table;

/// A command that Redis does not have.
#[derive(Clone, Copy, Debug)]
pub enum UmbelCommand<'a> {
    /// `UMBEL.CREATE`: creates a filter of any kind.
    Create {
        /// Its name.
        key: &'a [u8],
        /// Its settings.
        new: CreateFilter<'a>,
    },
    /// `UMBEL.INFO`: describes a filter with all its figures.
    Info {
        /// The filter.
        key: &'a [u8],
    },
    /// `UMBEL.WHERE`: tells which shard keeps an item, and which nodes have it.
    Where {
        /// The filter, and one item, which need not have been inserted.
        of: Items<'a>,
    },
    /// `UMBEL.ADDAT`: inserts items with this time, in milliseconds since the Unix epoch, into a window.
    InsertAt {
        /// The items and their filter.
        items: Items<'a>,
        /// The time.
        at_ms: u64,
    },
    /// `UMBEL.MERGE`, `UMBEL.INTERSECT`: combines filters into one of their shape and key.
    PutTogether {
        /// The filter that receives the result.
        target: &'a [u8],
        /// The others; at least one.
        sources: Arguments<'a>,
        /// Whether only the intersection of the sources is added.
        is_intersection: bool,
        /// The request id that the client has given, if any; only of a merge.
        request: Option<RequestName>,
    },
    /// `UMBEL.ESTIMATE`: estimates about two filters.
    Estimate {
        /// Which estimate.
        of: SetEstimate,
        /// One filter.
        ours: &'a [u8],
        /// The other one.
        theirs: &'a [u8],
    },
    /// `UMBEL.RESET`: clears a filter, in all its shards at one moment.
    Reset(&'a [u8]),
    /// `UMBEL.ROTATE`: ends the current slice of a manual window, in all its shards at one moment.
    Rotate(&'a [u8]),
}

/// An estimate about two sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetEstimate {
    /// The number of items in either.
    Union,
    /// The number of items in both.
    Intersection,
    /// The number in both divided by the number in either, from 0 to 1.
    Jaccard,
}

/// The filter that `UMBEL.CREATE` creates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CreateFilter<'a> {
    /// With these settings.
    Planned {
        /// The kind's name.
        kind: &'a [u8],
        /// Planned number of items.
        capacity: u64,
        /// Its size.
        size: NewSize,
        /// Whether each node has a complete copy.
        is_replicated: bool,
    },
    /// A window, which forgets items.
    Window {
        /// Planned number of items of the whole window.
        capacity: u64,
        /// Probability that an absent item is reported as present, above 0 and below 1.
        error_rate: f64,
        /// Its slices.
        window: NewWindow,
        /// Whether each node has a complete copy.
        is_replicated: bool,
    },
    /// With the shape and the key of the filter of this name.
    Like(&'a [u8]),
}

/// The settings of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewWindow {
    /// Number of slices besides the current one.
    pub slice_count: u32,
    /// What ends a slice.
    pub end: WindowEnd,
    /// What happens to items whose time is before the window.
    pub late: LatePolicy,
    /// Whether a repeated insert renews an item.
    pub refresh: bool,
}

/// What ends a slice of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowEnd {
    /// `UMBEL.ROTATE`.
    Rotation,
    /// Time.
    Time {
        /// Length of a slice in milliseconds; at least 1.
        slice_ms: u64,
        /// Whether inserts give the time of their items.
        is_of_event: bool,
    },
}

/// What happens to items whose time is before the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatePolicy {
    /// The insert is refused.
    Reject,
    /// They are reported as present and not inserted.
    Drop,
    /// They are inserted into the oldest slice.
    Oldest,
}

/// The size of a new filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NewSize {
    /// The size that this error rate needs; above 0 and below 1.
    ErrorRate(f64),
    /// This many bytes over all shards.
    Bytes(u64),
    /// A chain of RedisBloom's with this error rate, above 0 and below 1.
    Chain {
        /// The error rate of the whole chain.
        error_rate: f64,
        /// How many times larger each further link is; 0 if there are to be no further links.
        expansion: u32,
    },
}

pub(crate) fn session(_arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Session)
}

pub(crate) fn info(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Umbel(UmbelCommand::Info { key: arguments.at(1) }))
}

pub(crate) fn find_place(arguments: Arguments<'_>) -> Parsed<'_> {
    let of = Items::of(arguments, AnswerForm::List);
    Ok(Command::Umbel(UmbelCommand::Where { of }))
}

pub(crate) fn reset(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Umbel(UmbelCommand::Reset(arguments.at(1))))
}

pub(crate) fn rotate(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Umbel(UmbelCommand::Rotate(arguments.at(1))))
}

pub(crate) fn insert_at(arguments: Arguments<'_>) -> Parsed<'_> {
    let time = arguments.at(2);
    let at_ms = natural(time).ok_or_else(|| {
        Refusal::bad_value("time", time, "milliseconds since 1970, a whole number")
    })?;
    let items = Items { key: arguments.at(1), items: arguments.from(3), form: AnswerForm::List };
    Ok(Command::Umbel(UmbelCommand::InsertAt { items, at_ms }))
}

pub(crate) fn merge(arguments: Arguments<'_>) -> Parsed<'_> {
    put_together(arguments, false)
}

pub(crate) fn intersect(arguments: Arguments<'_>) -> Parsed<'_> {
    put_together(arguments, true)
}

fn put_together(arguments: Arguments<'_>, is_intersection: bool) -> Parsed<'_> {
    let (target, sources) = (arguments.at(1), arguments.from(2).at_most(KEYS_MAX, "keys")?);
    // A filter of this name is still a source in any other place.
    if sources.len().checked_sub(2).is_some_and(|at| is_word(sources.at(at), "FPRMAX") && at > 0) {
        return Err(Refusal::NoRateLimit);
    }
    let request = None;
    Ok(Command::Umbel(UmbelCommand::PutTogether { target, sources, is_intersection, request }))
}

pub(crate) fn estimate(arguments: Arguments<'_>) -> Parsed<'_> {
    let name = arguments.at(1);
    let of = if is_word(name, "UNION") {
        SetEstimate::Union
    } else if is_word(name, "INTERSECTION") {
        SetEstimate::Intersection
    } else if is_word(name, "JACCARD") {
        SetEstimate::Jaccard
    } else {
        return Err(Refusal::bad_value("estimate", name, "UNION, INTERSECTION or JACCARD"));
    };
    let (ours, theirs) = (arguments.at(2), arguments.at(3));
    Ok(Command::Umbel(UmbelCommand::Estimate { of, ours, theirs }))
}

pub(crate) fn request(arguments: Arguments<'_>) -> Parsed<'_> {
    let name = arguments.at(1);
    let mut name = request_name(name)
        .ok_or_else(|| Refusal::bad_value("SESSION:SEQUENCE", name, "as 7:1, two whole numbers"))?;
    let mut inner = arguments.from(2);
    if is_word(inner.at(0), "BELOW") {
        let below = inner.at(1);
        name.acknowledged_below = natural(below)
            .ok_or_else(|| Refusal::bad_value("BELOW", below, "a SEQUENCE, a whole number"))?;
        inner = inner.from(2);
    }
    if inner.is_empty() {
        return Err(Refusal::Arity { command: "umbel.request" });
    }
    let spec = table::find(inner)?;
    if !matches!(spec.name, "bf.add" | "bf.madd" | "bf.insert" | "sadd" | "umbel.merge") {
        return Err(Refusal::RequestCommand { command: spec.name });
    }
    match spec.parse(inner)? {
        Command::Insert(mut insert) => {
            insert.request = Some(name);
            Ok(Command::Insert(insert))
        }
        Command::Umbel(UmbelCommand::PutTogether { target, sources, is_intersection, .. }) => {
            let request = Some(name);
            let merge = UmbelCommand::PutTogether { target, sources, is_intersection, request };
            Ok(Command::Umbel(merge))
        }
        _ => Err(Refusal::RequestCommand { command: spec.name }),
    }
}

/// `SESSION:SEQUENCE`.
fn request_name(text: &[u8]) -> Option<RequestName> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let (session, sequence) = (natural(text.get(..colon)?)?, natural(text.get(colon + 1..)?)?);
    Some(RequestName { session, sequence, acknowledged_below: 0 })
}
