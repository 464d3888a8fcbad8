//! The options of a session.

/// How items become symbols. Both sides must agree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SymbolKind {
    /// Any bytes, by a keyed hash of 32 to 64 bits.
    Hashed = 0,
    /// 64-bit ids, by a keyed permutation: a decoded symbol is the id, and needs no request.
    Id64 = 1,
    /// Records with a key: 40 bits of the key's hash and 24 of the value's, so that a changed record is
    /// recognized as such.
    Keyed = 2,
}

impl SymbolKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Hashed, Self::Id64, Self::Keyed];

    /// The byte that stands for it in frames and sketch files.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this code.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// What happens with the difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// A dry run: the difference is found and verified; neither set changes.
    Compare,
    /// The initiator takes what only the responder has.
    Pull,
    /// The responder takes what only the initiator has.
    Push,
    /// Both take what they lack.
    TwoWay,
}

impl Direction {
    /// All of them, in the order of their codes. The order is part of the protocol.
    pub const ALL: [Self; 4] = [Self::Compare, Self::Pull, Self::Push, Self::TwoWay];

    /// Whether the responder's set grows.
    #[must_use]
    pub const fn to_responder(self) -> bool {
        matches!(self, Self::Push | Self::TwoWay)
    }

    /// Whether the initiator's set grows.
    #[must_use]
    pub const fn to_initiator(self) -> bool {
        matches!(self, Self::Pull | Self::TwoWay)
    }
}

/// What the plan minimises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Optimize {
    /// Bytes on the wire.
    Bytes,
    /// Round trips, at twice the bytes: a stream of coded symbols instead of sketches that are extended on
    /// demand.
    Time,
}

/// What happens to a record that differs on both sides when both take what they lack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum OnConflict {
    /// Both sides keep their version.
    #[default]
    Report,
    /// The version of A wins.
    A,
    /// The version of B wins.
    B,
}

/// What an initiator wants. The responder learns it from the first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aim {
    /// What happens with the difference.
    pub direction: Direction,
    /// What the plan minimises.
    pub optimize: Optimize,
    /// Whether a [`Direction::Compare`] session transfers the contents of what only the responder has, and
    /// not only symbols. Other directions transfer the contents that are taken.
    pub want_items: bool,
    /// Whether the responder gets the difference too: in a [`Direction::Compare`] session to show it, in a
    /// [`Direction::Push`] session to remove what only it has. Other directions send it anyway, or never.
    pub notify_responder: bool,
    /// The difference that an earlier session with this peer found, if any: above fifteen, the first frame
    /// carries an estimator instead of a sketch that could not be decoded.
    pub expected_difference: Option<u64>,
    /// Which version wins in a [`Direction::TwoWay`] session. The responder follows it, so that both sides
    /// keep the same version.
    pub on_conflict: OnConflict,
    /// Whether the initiator's set is B.
    pub is_b: bool,
}

impl Aim {
    /// A session in this direction that minimises bytes and wants nothing more.
    #[must_use]
    pub const fn new(direction: Direction) -> Self {
        Self {
            direction,
            optimize: Optimize::Bytes,
            want_items: false,
            notify_responder: false,
            expected_difference: None,
            on_conflict: OnConflict::Report,
            is_b: false,
        }
    }
}

/// Which half of the session this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionRole {
    /// Begins the session, chooses the plan, decodes.
    Initiator(Aim),
    /// Answers; encodes what is requested.
    Responder {
        /// Whether items may be pushed here: if not, `Push` and `TwoWay` sessions are refused.
        accept_items: bool,
        /// A [`Direction::TwoWay`] session with another rule is refused; with [`OnConflict::Report`] none is.
        on_conflict: OnConflict,
    },
}

/// Limits of a session. A session ends with an error before it allocates anything for a peer that would
/// exceed one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most bytes on the wire, of both directions together.
    pub bytes_max: u64,
    /// Most differences, of both sides together.
    pub diff_max: u64,
    /// Largest item, at most [`ITEM_BYTES_MAX`](crate::limits::ITEM_BYTES_MAX).
    pub item_bytes_max: usize,
    /// Whether the other set may be far larger than this one: if not, it may have at most four times as
    /// many items and a million more.
    pub allow_skew: bool,
}

impl Default for Limits {
    /// A tebibyte, any difference, the largest items, no skew.
    fn default() -> Self {
        Self {
            bytes_max: 1 << 40,
            diff_max: u64::MAX,
            item_bytes_max: crate::limits::ITEM_BYTES_MAX,
            allow_skew: false,
        }
    }
}

/// The options of a session.
///
/// ```
/// use umbel_reconcile_engine::{Direction, SymbolKind, Options, SessionRole};
///
/// let options = Options::initiator(SymbolKind::Id64, Direction::TwoWay, 7);
/// assert_eq!(options.nonce, 7);
/// let SessionRole::Initiator(aim) = options.role else { panic!() };
/// assert!(aim.direction.to_responder() && aim.direction.to_initiator());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which half of the session this is.
    pub role: SessionRole,
    /// How items become symbols.
    pub kind: SymbolKind,
    /// Identifies what is reconciled; a responder refuses another dataset.
    pub dataset_id: u64,
    /// Keeps apart what must not be reconciled, such as the copies of two clusters, by their ids; zeros where
    /// nothing is kept apart. Sides with different domains never agree. It is not secret, and proves nothing.
    pub domain: [u8; 16],
    /// Drawn by the driver for this session alone, after its snapshot is frozen, so that nobody can choose
    /// items that collide.
    pub nonce: u64,
    /// Limits of the session.
    pub limits: Limits,
}

impl Options {
    /// An initiator without a domain, with default limits, that minimises bytes.
    #[must_use]
    pub fn initiator(kind: SymbolKind, direction: Direction, nonce: u64) -> Self {
        Self::open(SessionRole::Initiator(Aim::new(direction)), kind, nonce)
    }

    /// A responder without a domain, with default limits, that accepts items.
    #[must_use]
    pub fn responder(kind: SymbolKind, nonce: u64) -> Self {
        let on_conflict = OnConflict::Report;
        Self::open(SessionRole::Responder { accept_items: true, on_conflict }, kind, nonce)
    }

    fn open(role: SessionRole, kind: SymbolKind, nonce: u64) -> Self {
        Self { role, kind, dataset_id: 0, domain: [0; 16], nonce, limits: Limits::default() }
    }
}
