//! Parses the arguments of Umbel's own commands.

use super::bloom::expansion_in_range;
use super::{AnswerForm, Command, Items, RequestName};
use crate::arguments::{Arguments, is_word};
use crate::limits::KEYS_MAX;
use crate::number::{float, integer, natural};
use crate::refusal::Refusal;
use crate::table;

type Parsed<'a> = Result<Command<'a>, Refusal>;

/// Default number of slices of a time window.
const SLICES_DEFAULT: u32 = 24;

/// Default number of slices of a manual window: items from before the last rotation are kept, those from
/// before the rotation preceding it are gone.
const MANUAL_SLICES_DEFAULT: u32 = 1;

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
    let of = Items { key: arguments.at(1), items: arguments.from(2), form: AnswerForm::List };
    Ok(Command::Umbel(UmbelCommand::Where { of }))
}

pub(crate) fn reset(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Umbel(UmbelCommand::Reset(arguments.at(1))))
}

pub(crate) fn rotate(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Umbel(UmbelCommand::Rotate(arguments.at(1))))
}

pub(crate) fn insert_at(arguments: Arguments<'_>) -> Parsed<'_> {
    let at_ms = natural(arguments.at(2)).ok_or(Refusal::NotInteger)?;
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
        return Err(Refusal::EstimateOption);
    };
    let (ours, theirs) = (arguments.at(2), arguments.at(3));
    Ok(Command::Umbel(UmbelCommand::Estimate { of, ours, theirs }))
}

pub(crate) fn request(arguments: Arguments<'_>) -> Parsed<'_> {
    let mut name = request_name(arguments.at(1)).ok_or(Refusal::RequestName)?;
    let mut inner = arguments.from(2);
    if is_word(inner.at(0), "BELOW") {
        name.acknowledged_below = natural(inner.at(1)).ok_or(Refusal::RequestName)?;
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

pub(crate) fn create(arguments: Arguments<'_>) -> Parsed<'_> {
    let options = CreateOptions::read(arguments.from(2))?;
    let new = options.filter().ok_or(Refusal::CreateOption)?;
    Ok(Command::Umbel(UmbelCommand::Create { key: arguments.at(1), new }))
}

/// Options of `UMBEL.CREATE`, not yet checked against each other.
#[derive(Clone, Copy, Default)]
struct CreateOptions<'a> {
    kind: Option<&'a [u8]>,
    capacity: Option<u64>,
    size: Option<NewSize>,
    like: Option<&'a [u8]>,
    /// How many times larger each further link of a chain is; 0 if the filter is fixed.
    expansion: Option<u32>,
    is_replicated: bool,
    /// The window's length in milliseconds; the inner None stands for a manual window.
    window: Option<Option<u64>>,
    slices: Option<u64>,
    is_of_event: bool,
    late: Option<LatePolicy>,
    refresh: bool,
}

impl<'a> CreateOptions<'a> {
    fn read(arguments: Arguments<'a>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut at = 0;
        while let Some(option) = arguments.get(at) {
            if is_word(option, "REPLICATED") {
                options.is_replicated = true;
                at += 1;
            } else if is_word(option, "REFRESH") {
                options.refresh = true;
                at += 1;
            } else if is_word(option, "FIXED") {
                if options.expansion.replace(0).is_some() {
                    return Err(Refusal::CreateOption);
                }
                at += 1;
            } else {
                let value = arguments.get(at + 1).ok_or(Refusal::CreateOption)?;
                if options.read_value(option, value)? {
                    return Err(Refusal::CreateOption);
                }
                at += 2;
            }
        }
        Ok(options)
    }

    /// Parses an option with a value. Returns true if there is no such option, or it was given before.
    fn read_value(&mut self, option: &[u8], value: &'a [u8]) -> Result<bool, Refusal> {
        Ok(if is_word(option, "KIND") {
            self.kind.replace(value).is_some()
        } else if is_word(option, "CAPACITY") {
            self.capacity.replace(count(value)?).is_some()
        } else if is_word(option, "ERROR") {
            let rate = float(value).filter(|&rate| rate > 0.0 && rate < 1.0);
            let rate = rate.ok_or(Refusal::ErrorRateRange)?;
            self.size.replace(NewSize::ErrorRate(rate)).is_some()
        } else if is_word(option, "BYTES") {
            self.size.replace(NewSize::Bytes(count(value)?)).is_some()
        } else if is_word(option, "EXPANSION") {
            let expansion = integer(value).ok_or(Refusal::BadExpansion)?;
            let expansion = expansion_in_range(expansion).ok_or(Refusal::ExpansionRange)?;
            self.expansion.replace(expansion).is_some()
        } else if is_word(option, "LIKE") {
            self.like.replace(value).is_some()
        } else if is_word(option, "WINDOW") {
            let window = if is_word(value, "MANUAL") { None } else { Some(count(value)?) };
            self.window.replace(window).is_some()
        } else if is_word(option, "SLICES") {
            self.slices.replace(count(value)?).is_some()
        } else if is_word(option, "TIME") {
            !is_word(value, "EVENT") || std::mem::replace(&mut self.is_of_event, true)
        } else if is_word(option, "LATE") {
            self.late.replace(late_items(value).ok_or(Refusal::CreateOption)?).is_some()
        } else {
            true
        })
    }

    /// The filter that the options describe; None if they contradict each other.
    fn filter(self) -> Option<CreateFilter<'a>> {
        let Self { kind, capacity, like, is_replicated, .. } = self;
        let size = match (self.size, self.expansion) {
            (size, None) => size,
            (Some(NewSize::ErrorRate(error_rate)), Some(expansion)) if !is_replicated => {
                Some(NewSize::Chain { error_rate, expansion })
            }
            (_, Some(_)) => return None,
        };
        let is_plain = self.slices.is_none() && !self.is_of_event && self.late.is_none();
        match (kind, capacity, size, like, self.window) {
            (Some(kind), Some(capacity), Some(size), None, None) if is_plain && !self.refresh => {
                Some(CreateFilter::Planned { kind, capacity, size, is_replicated })
            }
            (None, Some(capacity), Some(NewSize::ErrorRate(error_rate)), None, Some(window_ms)) => {
                let window = self.window(window_ms)?;
                Some(CreateFilter::Window { capacity, error_rate, window, is_replicated })
            }
            (None, None, None, Some(like), None) if is_plain && !self.refresh && !is_replicated => {
                Some(CreateFilter::Like(like))
            }
            _ => None,
        }
    }

    fn window(self, window_ms: Option<u64>) -> Option<NewWindow> {
        let Self { slices, is_of_event, late, refresh, .. } = self;
        let slices = slices.map(u32::try_from).transpose().ok()?;
        let (slice_count, end) = match window_ms {
            None if is_of_event => return None,
            None => (slices.unwrap_or(MANUAL_SLICES_DEFAULT), WindowEnd::Rotation),
            Some(window_ms) => {
                let slice_count = slices.unwrap_or(SLICES_DEFAULT);
                if !window_ms.is_multiple_of(slice_count.into()) {
                    return None;
                }
                let slice_ms = window_ms / u64::from(slice_count);
                (slice_count, WindowEnd::Time { slice_ms, is_of_event })
            }
        };
        if late.is_some() && !is_of_event {
            return None;
        }
        Some(NewWindow { slice_count, end, late: late.unwrap_or(LatePolicy::Reject), refresh })
    }
}

fn late_items(name: &[u8]) -> Option<LatePolicy> {
    let all = [
        ("REJECT", LatePolicy::Reject),
        ("DROP", LatePolicy::Drop),
        ("OLDEST", LatePolicy::Oldest),
    ];
    all.into_iter().find(|(known, _)| is_word(name, known)).map(|(_, late)| late)
}

/// Parses a number of at least 1.
fn count(text: &[u8]) -> Result<u64, Refusal> {
    let number = integer(text).and_then(|number| u64::try_from(number).ok());
    number.filter(|&number| number > 0).ok_or(Refusal::NotInteger)
}
