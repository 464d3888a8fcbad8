//! How fast a stable filter forgets, as two numbers and as one.

/// Most cells that an insert lowers: 64 words, so that an insert has a bound. Plans for rates of 10 %
/// to 0.01 % lower 75 to 357.
pub const STABLE_LOWERED_MAX: u32 = 1_024;

/// Values of a cell.
const CELL_VALUES: u64 = 16;

/// How a stable filter forgets: the [pace](crate::BlockShape::with_pace) of its shape.
///
/// ```
/// use umbel_filter::StablePace;
///
/// let pace = StablePace { lowered_cells: 141, cell_max: 15 };
/// assert_eq!(pace.number(), 141 * 16 + 15);
/// assert_eq!(StablePace::of_number(141 * 16 + 15), Some(pace));
/// assert_eq!(StablePace::of_number(15), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StablePace {
    /// Cells that an insert lowers, P, 1 to [`STABLE_LOWERED_MAX`].
    pub lowered_cells: u32,
    /// What an insert sets its own cells to, Max, 1 to [`COUNTER_MAX`](crate::COUNTER_MAX).
    pub cell_max: u32,
}

impl StablePace {
    /// As one number: 16 · P + Max.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.lowered_cells as u64 * CELL_VALUES + self.cell_max as u64
    }

    /// The pace with this number, if it is one.
    #[must_use]
    pub const fn of_number(number: u64) -> Option<Self> {
        let (lowered, cell_max) = (number / CELL_VALUES, number % CELL_VALUES);
        if lowered == 0 || lowered > STABLE_LOWERED_MAX as u64 || cell_max == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "both are small")]
        let (lowered_cells, cell_max) = (lowered as u32, cell_max as u32);
        Some(Self { lowered_cells, cell_max })
    }
}
