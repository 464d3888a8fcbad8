//! What a command's exit code says.

use std::process::ExitCode;

/// How a command ended, from the best to what outweighs all else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Exit {
    /// Every promise held.
    Held,
    /// A fault or a state that had to be seen never was, so nothing was shown about it.
    WithoutEffect,
    /// A run used up its memory or its time.
    Exceeded,
    /// A promise was broken.
    Violated,
    /// One seed made two different runs; nothing else counts then.
    NotDeterministic,
    /// The command could not be carried out as it was given.
    Usage,
}

impl Exit {
    /// The number that the process ends with.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Violated => 1,
            Self::Usage => 2,
            Self::NotDeterministic => 3,
            Self::WithoutEffect => 4,
            Self::Exceeded => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_help_text() {
        let codes = [
            (Exit::Held, 0),
            (Exit::Violated, 1),
            (Exit::Usage, 2),
            (Exit::NotDeterministic, 3),
            (Exit::WithoutEffect, 4),
            (Exit::Exceeded, 5),
        ];
        for (exit, code) in codes {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn the_worst_outweighs_the_rest() {
        let all = [Exit::Exceeded, Exit::NotDeterministic, Exit::Held, Exit::Violated];
        assert_eq!(all.into_iter().max(), Some(Exit::NotDeterministic));
        assert!(Exit::WithoutEffect < Exit::Exceeded);
    }
}
