//! Modes of the console.

/// Which users may change something from the console, besides viewing what they may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsoleMode {
    /// There is no console.
    Off,
    /// No user.
    ReadOnly,
    /// Users who have proved their identity.
    Proven,
    /// All users who may do it with other programs.
    Full,
}

impl ConsoleMode {
    const ALL: [Self; 4] = [Self::Off, Self::ReadOnly, Self::Proven, Self::Full];

    /// The name in settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadOnly => "read-only",
            Self::Proven => "proven",
            Self::Full => "full",
        }
    }

    /// The mode with this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
