//! Parses the arguments of a command, and names the one that is not UTF-8 where it has to be: clap says only that there is
//! one.

use clap::error::{Error, ErrorKind};
use clap::{Arg, Command, Parser};
use std::ffi::OsString;

/// Parses arguments, the first of which is the name of the program.
///
/// # Errors
///
/// As for [`Parser::try_parse_from`].
pub(crate) fn parse<P: Parser>(args: &[OsString]) -> Result<P, Error> {
    P::try_parse_from(args).map_err(|error| match error.kind() {
        ErrorKind::InvalidUtf8 => named::<P>(args).unwrap_or(error),
        _ => error,
    })
}

/// The same error with the name of the argument.
fn named<P: Parser>(args: &[OsString]) -> Option<Error> {
    let odd: Vec<usize> = (1..args.len()).filter(|at| args[*at].to_str().is_none()).collect();
    // Arguments are parsed from the first one on, so those up to the one that is meant are refused alike, and fewer are
    // not. Paths may be anything.
    let is_before = |at: &usize| match P::try_parse_from(&args[..=*at]) {
        Err(error) => error.kind() != ErrorKind::InvalidUtf8,
        Ok(_) => true,
    };
    let at = *odd.get(odd.partition_point(is_before))?;
    let mut whole = P::command();
    whole.build();
    let mut command = &mut whole;
    let mut option = "";
    for word in args[1..at].iter().map(|word| word.to_str().unwrap_or_default()) {
        option = if takes_next(command, word) { word } else { "" };
        if command.find_subcommand(word).is_some() {
            command = command.find_subcommand_mut(word)?;
        }
    }
    let space = if option.is_empty() { "" } else { " " };
    let text = format!("`{option}{space}{}` is not UTF-8, which it has to be", args[at].display());
    Some(command.error(ErrorKind::InvalidUtf8, text))
}

/// Whether this word is an option of the command whose value is the next word.
fn takes_next(command: &Command, word: &str) -> bool {
    let long = word.strip_prefix("--");
    // Several options of one letter may stand in one word; a value can follow the last one.
    let short = word.strip_prefix('-').and_then(|letters| letters.chars().last());
    let is_named = |arg: &Arg| match long {
        Some(long) => {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }
        None => short.is_some() && arg.get_short() == short,
    };
    command
        .get_arguments()
        .any(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set() && is_named(arg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// Parses words in which `?` stands for a byte that is no UTF-8.
    fn parsed(line: &str) -> Result<Cli, Error> {
        let word = |word: &str| {
            let bytes: Vec<u8> =
                word.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
            OsStr::from_bytes(&bytes).to_owned()
        };
        let args: Vec<OsString> = line.split(' ').map(word).collect();
        parse(&args)
    }

    /// Regression: clap said "invalid UTF-8 was detected in one or more arguments".
    #[test]
    fn an_argument_that_has_to_be_text_is_named() {
        for (line, named) in [
            ("umbel dedup in --include ?.txt", "--include ?.txt"),
            ("umbel dedup in? --exclude a --exclude b? --key c?", "--exclude b?"),
            ("umbel dedup in --key=a?", "--key=a?"),
            ("umbel dedup in --key ? -o out?", "--key ?"),
            ("umbel dedup in? -o out? --keep best:a?", "--keep best:a?"),
            ("umbel dedup in? --quiet --normalize ?", "--normalize ?"),
            ("umbel dedup in --index-bits ? in?", "--index-bits ?"),
            ("umbel reconcile --kv --key a? x? y?", "--key a?"),
            ("umbel reconcile x? y? --listen ?", "--listen ?"),
            ("umbel reconcile x y --ids=?", "--ids=?"),
            ("umbel filter create a?", "a?"),
            ("umbel?", ""),
        ] {
            let error = parsed(line).err().unwrap();
            let shown = error.to_string();
            let named = named.replace('?', "\u{fffd}");
            if named.is_empty() {
                assert_ne!(error.kind(), ErrorKind::InvalidUtf8, "{shown}");
            } else {
                let said = format!("error: `{named}` is not UTF-8, which it has to be\n\nUsage: ");
                assert!(shown.starts_with(&said), "{line}: {shown}");
                let words: Vec<&str> = line.split(' ').take(2).collect();
                assert!(shown.contains(&format!("Usage: {} ", words.join(" "))), "{shown}");
            }
        }
        assert!(parsed("umbel dedup in? -o out? --scratch ? --reference ?").is_ok());
        assert!(parsed("umbel reconcile x? y? --resume ?").is_ok());
    }

    #[test]
    fn other_errors_stay() {
        let said = parsed("umbel dedup in? --no-such ?").err().unwrap().to_string();
        assert!(said.contains("unexpected argument '--no-such'"), "{said}");
    }
}
