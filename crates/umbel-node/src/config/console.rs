//! What the console may be used for.

/// Who may do something from the console, beside looking at what it may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConsoleMode {
    /// There is no console.
    Off,
    /// Nobody.
    ReadOnly,
    /// Who has proved who it is.
    Proven,
    /// Everybody who may do it by other programs.
    Full,
}

impl ConsoleMode {
    const ALL: [Self; 4] = [Self::Off, Self::ReadOnly, Self::Proven, Self::Full];

    /// Its name in settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadOnly => "read-only",
            Self::Proven => "proven",
            Self::Full => "full",
        }
    }

    /// The mode of a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
