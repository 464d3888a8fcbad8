//! Whether output is for a terminal, how wide it is, and whether it has colours.

use clap::ColorChoice;
use std::io::IsTerminal as _;

/// Columns if the width is unknown.
const COLUMNS: usize = 80;

/// Output is drawn for at least this many columns.
const COLUMNS_MIN: usize = 40;

/// How output is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// Whether it is tables and pictures for people; else lines for programs.
    pub(super) is_for_people: bool,
    /// Whether escape sequences colour it.
    pub(super) has_colours: bool,
    /// Columns of the terminal.
    pub(super) columns: usize,
}

/// A foreground colour, by its ANSI code; every terminal has these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Colour(u8);

impl Colour {
    /// For errors.
    pub(super) const ALARM: Self = Self(31);
    /// For what is in progress.
    pub(super) const CHANGE: Self = Self(33);
    /// For background.
    pub(super) const QUIET: Self = Self(90);

    /// The colour of one of several things to be told apart. Colours repeat after five; red and yellow
    /// have other meanings.
    pub(super) const fn of(number: usize) -> Self {
        const ALL: [u8; 5] = [32, 34, 35, 36, 94];
        Self(ALL[number % ALL.len()])
    }
}

impl Look {
    /// How standard output is drawn: as `choice` says; if that is `auto`, the environment and the
    /// terminal decide.
    pub(super) fn of(choice: ColorChoice) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let is_terminal = std::io::stdout().is_terminal();
        let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        Self::chosen(choice, variable, is_terminal, columns)
    }

    fn chosen(
        choice: ColorChoice,
        variable: impl Fn(&str) -> String,
        is_terminal: bool,
        columns: Option<usize>,
    ) -> Self {
        let is_wanted = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
        Self {
            is_for_people: is_terminal || choice == ColorChoice::Always,
            has_colours: match choice {
                ColorChoice::Always => true,
                ColorChoice::Never => false,
                ColorChoice::Auto => is_terminal && is_wanted,
            },
            columns: columns.unwrap_or(COLUMNS).max(COLUMNS_MIN),
        }
    }

    /// A text in a colour, if there are colours.
    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        if self.has_colours && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", colour.0)
        } else {
            text.to_owned()
        }
    }
}

/// A text from outside, with control characters replaced, so that a terminal cannot take them as
/// commands.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(choice: ColorChoice, set: (&str, &str), is_terminal: bool) -> Look {
        let variable = |name: &str| if name == set.0 { set.1.to_owned() } else { String::new() };
        Look::chosen(choice, variable, is_terminal, None)
    }

    #[test]
    fn the_flag_comes_before_the_environment_and_that_before_the_terminal() {
        use ColorChoice::{Always, Auto, Never};
        let colours = |choice, set, is_terminal| look(choice, set, is_terminal).has_colours;
        assert!(colours(Auto, ("TERM", "xterm"), true) && !colours(Auto, ("TERM", "xterm"), false));
        assert!(!colours(Auto, ("TERM", "dumb"), true) && !colours(Auto, ("NO_COLOR", "1"), true));
        assert!(colours(Auto, ("NO_COLOR", ""), true), "as no-color.org has it");
        assert!(colours(Always, ("NO_COLOR", "1"), false) && !colours(Never, ("", ""), true));
        assert!(
            !look(Auto, ("", ""), false).is_for_people && look(Never, ("", ""), true).is_for_people
        );
    }

    #[test]
    fn without_colours_a_text_is_itself() {
        let plain = look(ColorChoice::Never, ("", ""), true);
        assert_eq!(plain.paint(Colour::ALARM, "a"), "a");
        let painted = look(ColorChoice::Always, ("", ""), true);
        assert_eq!(painted.paint(Colour::ALARM, "a"), "\x1b[31ma\x1b[0m");
        assert_eq!(harmless("a\x1b[2Jb\n"), "a?[2Jb?");
    }
}
