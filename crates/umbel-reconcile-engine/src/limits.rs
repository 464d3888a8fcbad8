//! Every limit of a session, named, with its reason. Each is checked before anything is allocated for it.

/// Largest item that a reconciliation session carries: it is held whole by both sides.
pub const RECONCILE_ITEM_BYTES_MAX: usize = 16 << 20;

/// Largest body of a reconciliation frame: what a side holds before it knows that a frame is whole.
pub const RECONCILE_FRAME_BODY_BYTES_MAX: usize = 1 << 20;

/// Where a reconciliation frame is cut: its ten bytes around are nothing then, and what is lost with a connection is little.
pub const RECONCILE_FRAME_BODY_BYTES_CUT: usize = 1 << 16;

/// Most items that a reconciliation peer may claim to have: a table of a terabyte at 16 bytes each is far beyond any node.
pub const RECONCILE_ITEM_COUNT_MAX: u64 = 1 << 40;

/// Most syndromes of the sketch in a Hello, the only sketch that is decoded unasked: less than 0.1 ms.
pub const RECONCILE_HELLO_SYNDROMES_MAX: u8 = 32;

/// Most items that a reconciliation session fetches at a time, and sorts into one list.
pub const RECONCILE_FETCH_ITEMS_MAX: usize = 1 << 17;

/// Bytes of items that it fetches at a time, by their mean length: what one side holds that it is about to send.
pub const RECONCILE_FETCH_BYTES_MAX: u64 = 8 << 20;

/// Bytes that it sends before it waits until they are on their way.
pub const RECONCILE_SEND_BYTES_MAX: u64 = 2 << 20;

/// Bytes of its peer that it keeps while it does something else.
pub const RECONCILE_INBOX_BYTES_MAX: usize = 16 << 20;

/// Most attempts of a reconciliation session: the first frame's, the plan's, two more keys, the whole list.
pub const RECONCILE_ATTEMPTS_MAX: u8 = 5;

/// Bytes of a session that are on their way to a peer with a journal, and not yet durable there: those of both directions
/// are what travels again after a cut, and shall be at most 64 kB with the frames around them.
pub const RECONCILE_RESUME_WINDOW_BYTES: u64 = 30 << 10;

/// Longest piece of a resumable session's stream in one frame: four fill the window, so that the first is durable when the
/// last is sent.
pub const RECONCILE_RESUME_PIECE_BYTES_MAX: usize = 8 << 10;

/// What a side keeps of the end of what it sent, once its set has changed and cannot say it again: its window and more.
pub const RECONCILE_RESUME_TAIL_BYTES_MAX: usize = 64 << 10;

/// Most coded symbols of a sketch file: they decode 48 million differences, and are 1.5 GiB in memory.
pub const RECONCILE_SKETCH_SYMBOLS_MAX: usize = 1 << 26;

/// Most positions of a reconciliation filter for each item: twice those of the lowest rate that a plan has, 2^-24.
pub const RECONCILE_POSITIONS_PER_ITEM_MAX: u64 = 1 << 25;
