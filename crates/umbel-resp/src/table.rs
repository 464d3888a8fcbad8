//! The table of commands: names, arity, flags, keys. A name that is not in it is an unknown command.

use crate::arguments::Arguments;
use crate::command::Command;
use crate::refusal::{Refusal, shown, unknown_command};

mod bloom;
mod build;
mod cuckoo;
mod diagnostics;
mod entries;
mod keyspace;
mod set;
mod subcommands;
mod umbel;

#[cfg(test)]
mod table_test;

/// The positions of a command's keys among its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// Index of the first key; the command's name is argument 0.
    pub first: usize,
    /// Index of the last key; negative indices count from the end, -1 is the last argument.
    pub last: isize,
    /// Distance from one key to the next.
    pub step: usize,
}

/// Documentation of a command for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandDocs {
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// The release that introduced it: of Redis, RedisBloom or Umbel.
    pub since: &'static str,
    /// `connection`, `generic`, `set`, `server`, `transactions`, `cluster` or `module`.
    pub group: &'static str,
    /// Its time complexity.
    pub complexity: &'static str,
}

/// A command or a subcommand.
#[derive(Debug)]
pub struct CommandSpec {
    /// The name in lower case; a subcommand's follows that of its command and a `|`.
    pub name: &'static str,
    /// Number of arguments with the name; if negative, at least that many.
    pub arity: i32,
    /// As `COMMAND` shows them.
    pub flags: &'static [&'static str],
    /// The positions of its keys; None if it has none.
    pub keys: Option<KeyRange>,
    /// As `COMMAND` shows them, with `@`.
    pub categories: &'static [&'static str],
    /// What `COMMAND DOCS` shows.
    pub docs: CommandDocs,
    /// Its subcommands, in the order in which they were added.
    pub subcommands: &'static [CommandSpec],
    parse: Parser,
}

/// A function that parses a command's arguments.
type Parser = for<'a> fn(Arguments<'a>) -> Result<Command<'a>, Refusal>;

impl CommandSpec {
    /// Parses the arguments.
    ///
    /// ```
    /// use umbel_resp::{Arguments, Command, Request, table};
    /// let request: Request = ["bf.add", "users", "alice"].iter().collect();
    /// let arguments = Arguments::new(&request);
    /// let command = table::find(arguments)?.parse(arguments)?;
    /// assert!(matches!(command, Command::Insert(insert) if insert.items.key == b"users"));
    /// # Ok::<(), umbel_resp::Refusal>(())
    /// ```
    ///
    /// # Errors
    /// If an argument is invalid for this command.
    pub fn parse<'a>(&self, arguments: Arguments<'a>) -> Result<Command<'a>, Refusal> {
        (self.parse)(arguments)
    }

    /// Whether the command changes filters.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// The keys among the arguments of this command.
    pub fn keys_of<'a>(
        &self,
        arguments: Arguments<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let count = arguments.len();
        let range = self.keys.unwrap_or(KeyRange { first: count, last: -1, step: 1 });
        let last = match usize::try_from(range.last) {
            Ok(last) => last.min(count.saturating_sub(1)),
            Err(_) => count.saturating_sub(range.last.unsigned_abs()),
        };
        (range.first..=last).step_by(range.step.max(1)).filter_map(move |at| arguments.get(at))
    }

    fn takes(&self, count: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_bytes().eq_ignore_ascii_case(name)
    }

    /// The name after the last `|`.
    pub(crate) fn last_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }
}

/// All commands; the most frequent ones come first.
#[must_use]
pub fn all() -> &'static [CommandSpec] {
    &entries::COMMANDS
}

/// The command of a name, in any case; for a subcommand, `COMMAND|SUBCOMMAND`.
///
/// ```
/// use umbel_resp::table;
/// assert_eq!(table::by_name(b"Client|Id").map(|spec| spec.arity), Some(2));
/// assert!(table::by_name(b"get").is_none());
/// ```
#[must_use]
pub fn by_name(name: &[u8]) -> Option<&'static CommandSpec> {
    let end = name.iter().position(|&byte| byte == b'|').unwrap_or(name.len());
    let command = all().iter().find(|spec| spec.is_named(name.get(..end).unwrap_or_default()))?;
    if end == name.len() {
        Some(command)
    } else {
        command.subcommands.iter().find(|spec| spec.is_named(name))
    }
}

/// The command or subcommand that these arguments begin with.
///
/// # Errors
/// If there is none, or the number of arguments is wrong for it.
pub fn find(arguments: Arguments<'_>) -> Result<&'static CommandSpec, Refusal> {
    let name = arguments.get(0).unwrap_or_default();
    let Some(command) = all().iter().find(|spec| spec.is_named(name)) else {
        return Err(unknown_command(name, arguments.from(1).iter()));
    };
    let mut found = command;
    if let (Some(name), false) = (arguments.get(1), command.subcommands.is_empty()) {
        let is_it = |spec: &&CommandSpec| spec.last_name().as_bytes().eq_ignore_ascii_case(name);
        found = command.subcommands.iter().find(is_it).ok_or_else(|| {
            let command = command.name.to_ascii_uppercase();
            Refusal::UnknownSubcommand { name: shown(name), command }
        })?;
    }
    if found.takes(arguments.len()) {
        Ok(found)
    } else {
        Err(Refusal::Arity { command: found.name })
    }
}
