//! Parses the options of `UMBEL.CREATE`. An error names the option that is wrong.

use super::Command;
use super::bloom::expansion_in_range;
use super::umbel::{CreateFilter, LatePolicy, NewSize, NewWindow, UmbelCommand, WindowEnd};
use crate::arguments::{Arguments, is_word};
use crate::number::{float, integer};
use crate::refusal::{Refusal, shown};

/// Default number of slices of a time window.
const SLICES_DEFAULT: u32 = 24;

/// Default number of slices of a manual window: items from before the last rotation are kept, those from
/// before the rotation preceding it are gone.
const MANUAL_SLICES_DEFAULT: u32 = 1;

/// Options that have a value.
const WITH_VALUE: [&str; 10] =
    ["KIND", "CAPACITY", "ERROR", "BYTES", "EXPANSION", "LIKE", "WINDOW", "SLICES", "TIME", "LATE"];

/// Options that have none.
const WITHOUT_VALUE: [&str; 3] = ["REPLICATED", "REFRESH", "FIXED"];

/// Options that describe a window further.
const OF_WINDOWS: [&str; 4] = ["SLICES", "TIME", "LATE", "REFRESH"];

/// Options that no window has.
const NOT_OF_WINDOWS: [&str; 4] = ["KIND", "BYTES", "FIXED", "EXPANSION"];

pub(crate) fn create(arguments: Arguments<'_>) -> Result<Command<'_>, Refusal> {
    let new = CreateOptions::read(arguments.from(2))?.filter()?;
    Ok(Command::Umbel(UmbelCommand::Create { key: arguments.at(1), new }))
}

/// Options of `UMBEL.CREATE`, not yet checked against each other.
#[derive(Default)]
struct CreateOptions<'a> {
    /// The names of all that are given, in their order.
    given: Vec<&'static str>,
    kind: &'a [u8],
    capacity: u64,
    error_rate: f64,
    bytes: u64,
    /// How many times larger each further link of a chain is; 0 if the filter is fixed.
    expansion: u32,
    like: &'a [u8],
    /// The window's length in milliseconds; None for a manual window.
    window_ms: Option<u64>,
    slices: u32,
    late: Option<LatePolicy>,
}

impl<'a> CreateOptions<'a> {
    fn read(arguments: Arguments<'a>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut at = 0;
        while let Some(word) = arguments.get(at) {
            at += 1;
            let is_it = |option: &&str| is_word(word, option);
            if let Some(option) = WITHOUT_VALUE.into_iter().find(is_it) {
                options.once(option)?;
            } else if let Some(option) = WITH_VALUE.into_iter().find(is_it) {
                let value = arguments.get(at).ok_or(Refusal::CreateValueMissing { option })?;
                at += 1;
                options.once(option)?;
                options.read_value(option, value)?;
            } else {
                return Err(Refusal::CreateUnknown { option: shown(word) });
            }
        }
        Ok(options)
    }

    /// Notes that an option is given, which it may be once.
    fn once(&mut self, option: &'static str) -> Result<(), Refusal> {
        if self.has(option) {
            return Err(Refusal::CreateTwice { option });
        }
        self.given.push(option);
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        self.given.contains(&option)
    }

    /// Parses an option with a value.
    fn read_value(&mut self, option: &'static str, value: &'a [u8]) -> Result<(), Refusal> {
        let bad = |expected: &'static str| Refusal::bad_value(option, value, expected);
        match option {
            "KIND" => self.kind = value,
            "CAPACITY" => self.capacity = count(option, value)?,
            "ERROR" => {
                let rate = float(value).filter(|&rate| rate > 0.0 && rate < 1.0);
                self.error_rate = rate.ok_or_else(|| bad("a number above 0 and below 1"))?;
            }
            "BYTES" => self.bytes = count(option, value)?,
            "EXPANSION" => {
                let expansion = integer(value).and_then(expansion_in_range);
                self.expansion = expansion.ok_or_else(|| bad("a whole number from 0 to 32768"))?;
            }
            "LIKE" => self.like = value,
            "WINDOW" if is_word(value, "MANUAL") => self.window_ms = None,
            "WINDOW" => {
                let window_ms = count(option, value);
                let wanted = "MANUAL, or milliseconds: a whole number of at least 1";
                self.window_ms = Some(window_ms.map_err(|_| bad(wanted))?);
            }
            "SLICES" => {
                let slices = u32::try_from(count(option, value)?);
                self.slices = slices.map_err(|_| bad("a number below 4294967296"))?;
            }
            "TIME" if is_word(value, "EVENT") => {}
            "TIME" => return Err(bad("EVENT")),
            _ => self.late = Some(late_items(value).ok_or_else(|| bad("REJECT, DROP or OLDEST"))?),
        }
        Ok(())
    }

    /// The filter that the options describe.
    fn filter(self) -> Result<CreateFilter<'a>, Refusal> {
        if self.has("LIKE") {
            self.exclude("LIKE", |option| option != "LIKE")?;
            return Ok(CreateFilter::Like(self.like));
        }
        let is_replicated = self.has("REPLICATED");
        if self.has("WINDOW") {
            self.exclude("WINDOW", |option| NOT_OF_WINDOWS.contains(&option))?;
            self.need(&["CAPACITY", "ERROR"])?;
            let (capacity, error_rate, window) = (self.capacity, self.error_rate, self.window()?);
            return Ok(CreateFilter::Window { capacity, error_rate, window, is_replicated });
        }
        if let Some(&option) = self.given.iter().find(|option| OF_WINDOWS.contains(option)) {
            return Err(Refusal::CreateNeeds { option, other: "WINDOW" });
        }
        if !self.has("KIND") {
            return Err(Refusal::CreateMissing { option: "KIND, WINDOW or LIKE" });
        }
        self.need(&["CAPACITY"])?;
        let (kind, capacity, size) = (self.kind, self.capacity, self.size()?);
        Ok(CreateFilter::Planned { kind, capacity, size, is_replicated })
    }

    /// The size of a filter that is no window.
    fn size(&self) -> Result<NewSize, Refusal> {
        if self.has("FIXED") {
            self.exclude("FIXED", |option| option == "EXPANSION")?;
        }
        if let Some(chain) = ["FIXED", "EXPANSION"].into_iter().find(|option| self.has(option)) {
            self.exclude(chain, |option| matches!(option, "BYTES" | "REPLICATED"))?;
            self.need(&["ERROR"])?;
            let (error_rate, expansion) = (self.error_rate, self.expansion);
            return Ok(NewSize::Chain { error_rate, expansion });
        }
        match (self.has("ERROR"), self.has("BYTES")) {
            (true, true) => Err(Refusal::CreateConflict { option: "BYTES", other: "ERROR" }),
            (true, false) => Ok(NewSize::ErrorRate(self.error_rate)),
            (false, true) => Ok(NewSize::Bytes(self.bytes)),
            (false, false) => Err(Refusal::CreateMissing { option: "ERROR or BYTES" }),
        }
    }

    fn window(&self) -> Result<NewWindow, Refusal> {
        let is_of_event = self.has("TIME");
        let slices = self.has("SLICES").then_some(self.slices);
        let (slice_count, end) = match self.window_ms {
            None if is_of_event => {
                return Err(Refusal::CreateConflict { option: "TIME", other: "WINDOW MANUAL" });
            }
            None => (slices.unwrap_or(MANUAL_SLICES_DEFAULT), WindowEnd::Rotation),
            Some(window_ms) => {
                let slice_count = slices.unwrap_or(SLICES_DEFAULT);
                if !window_ms.is_multiple_of(slice_count.into()) {
                    return Err(Refusal::UnevenSlices { window_ms, slice_count });
                }
                let slice_ms = window_ms / u64::from(slice_count);
                (slice_count, WindowEnd::Time { slice_ms, is_of_event })
            }
        };
        if self.late.is_some() && !is_of_event {
            return Err(Refusal::CreateNeeds { option: "LATE", other: "TIME EVENT" });
        }
        let (late, refresh) = (self.late.unwrap_or(LatePolicy::Reject), self.has("REFRESH"));
        Ok(NewWindow { slice_count, end, late, refresh })
    }

    /// Refuses options that cannot be together with another one.
    fn exclude(
        &self,
        other: &'static str,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<(), Refusal> {
        match self.given.iter().find(|&&option| is_excluded(option)) {
            Some(&option) => Err(Refusal::CreateConflict { option, other }),
            None => Ok(()),
        }
    }

    /// Refuses options without one of these.
    fn need(&self, needed: &[&'static str]) -> Result<(), Refusal> {
        match needed.iter().find(|&&option| !self.has(option)) {
            Some(&option) => Err(Refusal::CreateMissing { option }),
            None => Ok(()),
        }
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
fn count(option: &'static str, value: &[u8]) -> Result<u64, Refusal> {
    let number = integer(value).and_then(|number| u64::try_from(number).ok());
    let bad = || Refusal::bad_value(option, value, "a whole number of at least 1");
    number.filter(|&number| number > 0).ok_or_else(bad)
}
