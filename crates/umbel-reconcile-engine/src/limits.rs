//! All limits of a session, with their reasons. Each is checked before anything is allocated for it.

/// Largest item that a reconciliation session carries: both sides hold it in memory as a whole.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Largest body of a reconciliation frame: a side buffers this much before it knows that a frame is
/// complete.
pub const FRAME_BODY_BYTES_MAX: usize = 1 << 20;

/// Body size at which a reconciliation frame is cut: its ten bytes of framing are negligible, and little is
/// lost with a connection.
pub const FRAME_BODY_BYTES_CUT: usize = 1 << 16;

/// Largest body of the first frame of a side, which a listener buffers for each stranger: a Hello with the
/// estimator of a stored sketch has less than a quarter of this.
pub const FIRST_BODY_BYTES_MAX: usize = 4 << 10;

/// Most items that a reconciliation peer may claim to have: a table of them, at 40 bytes each, would take
/// 40 TiB, far beyond any machine.
pub const ITEM_COUNT_MAX: u64 = 1 << 40;

/// Most syndromes of the sketch in a Hello, the only sketch that is decoded unrequested: less than 0.1 ms.
pub const HELLO_SYNDROMES_MAX: u8 = 32;

/// Most items that a reconciliation session fetches at a time and sorts into one list.
pub const FETCH_ITEMS_MAX: usize = 1 << 17;

/// Bytes of items that a session fetches at a time, by their mean length: what it holds before it sends
/// them.
pub const FETCH_BYTES_MAX: u64 = 8 << 20;

/// Bytes that a session sends before it waits until they are written.
pub const SEND_BYTES_MAX: u64 = 2 << 20;

/// Bytes of the peer that a session buffers while it cannot process them.
pub const INBOX_BYTES_MAX: usize = 16 << 20;

/// Most attempts of a reconciliation session: the first frame's, the plan's, two more keys, the whole list.
pub const ATTEMPTS_MAX: u8 = 5;

/// Bytes of a session that are sent to a peer with a journal and not yet durable there. After a cut those
/// of both directions are sent again; with their frames they should be at most 64 kB.
pub const RESUME_WINDOW_BYTES: u64 = 30 << 10;

/// Longest piece of a resumable session's stream in one frame: four fill the window, so that the first is
/// durable when the last is sent.
pub const RESUME_PIECE_BYTES_MAX: usize = 8 << 10;

/// How much a side records of the end of what it sent, once its set has changed and it cannot regenerate
/// it: more than its window.
pub const RESUME_TAIL_BYTES_MAX: usize = 64 << 10;

/// Most coded symbols that an initiator may ask for, per item of both sets: an honest one asks for at most three, and
/// counts the items that went over during earlier attempts once more.
pub const CREDIT_PER_ITEM_MAX: u64 = 8;

/// Coded symbols that it may ask for in any case, however small the sets are.
pub const CREDIT_MIN: u64 = 64;

/// Most coded symbols of a sketch file: they decode 48 million differences, and take 1.5 GiB of memory.
pub const SKETCH_SYMBOLS_MAX: usize = 1 << 26;

/// Most positions of a reconciliation filter per item: twice those of the lowest rate that a plan has,
/// 2^-24.
pub const POSITIONS_PER_ITEM_MAX: u64 = 1 << 25;
