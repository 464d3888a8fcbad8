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
    /// The mode with this name in settings.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "read-only" => Some(Self::ReadOnly),
            "proven" => Some(Self::Proven),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}
