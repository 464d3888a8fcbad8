//! Every limit of the engine, named, with its reason. Each is checked before anything is allocated for it.

/// Most workers of one duplicate-detection job. The exchange opens workers² streams; above this a two-hop grid is
/// due, which is another protocol.
pub const DEDUP_WORKERS_MAX: u32 = 1024;

/// Most cells (hash ranges that are exchanged one at a time) of a job: 1,024 workers with 64 cells each, and sixteen
/// times that for jobs whose cells must be small.
pub const DEDUP_CELLS_MAX: u32 = 1 << 20;

/// Bits of a [`Place`](crate::dedup::Place) that number the chunk: 16 million chunks are a petabyte at 64 MiB each.
pub const PLACE_CHUNK_BITS: u32 = 24;

/// Bits of a [`Place`](crate::dedup::Place) that number the item in its chunk.
pub const PLACE_ITEM_BITS: u32 = 40;

/// Most refinement bits: beyond 24 they cost more than settling a survivor ever saves (r* ≈ log2(128·ln 2) = 6.5).
pub const REFINE_BITS_MAX: u32 = 24;

/// A frame is cut when its payload has grown to this: large enough that the header is nothing, small enough that
/// 1,024 peers with two frames each stay below 2 GiB.
pub const FRAME_PAYLOAD_BYTES_CUT: usize = 1 << 20;

/// Largest payload accepted from a peer. Only a frame of items can pass the cut: it holds at least one whole item,
/// and the largest record that umbel reads is 1 GiB.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = (1 << 30) + FRAME_PAYLOAD_BYTES_CUT;

/// Most entries of one worker in one cell. A cell is meant to be worked on in cache; this leaves room for inputs
/// whose size was guessed a thousand times too small, and keeps every index in 32 bits.
pub const CELL_ENTRIES_MAX: usize = 1 << 28;

/// Frames a worker keeps for later when they arrive before its own orders, a peer. A sender has at most this many
/// frames unacknowledged.
pub const EARLY_FRAMES_PER_PEER_MAX: usize = 4;

/// Longest name of a filter. Long enough for a path or an address, short enough for a line of a list.
pub const FILTER_NAME_BYTES_MAX: usize = 1024;

/// Most shards of a cluster. Each costs its nodes a few tasks and a heartbeat; 1,024 keep 32 cores busy on 32 nodes.
pub const SHARD_COUNT_MAX: u32 = 1024;

/// Most replicas of a shard: four may fail.
pub const REPLICA_COUNT_MAX: u32 = 9;

/// Most items of one request: 64 Ki hashes are 1 MiB in a log, and their answers 8 KiB.
pub const REQUEST_ITEMS_MAX: usize = 1 << 16;

/// Largest slice of one filter in one shard: it must travel in a snapshot and be copied while others wait.
pub const SLICE_BYTES_MAX: u64 = 256 << 20;

/// Largest filter over all shards.
pub const FILTER_BYTES_MAX: u64 = 64 << 30;

/// Largest replicated filter: a copy is copied in memory for a snapshot, and whole over the network for a node that joins.
pub const REPLICATED_BYTES_MAX: u64 = 1 << 30;

/// Most filters of a cluster: the catalogue is held by every node and travels whole in a snapshot.
pub const FILTER_COUNT_MAX: usize = 10_000;

/// Most nodes of a cluster: every one is a member of the meta group.
pub const NODE_COUNT_MAX: usize = 256;

/// Bytes that a shard spends at most to remember its answers. At n/8 bytes a request of n items these are the last
/// 250 million items, or 300,000 requests of one item each.
pub const REPLAY_BYTES_MAX: usize = 32 << 20;

/// Most sessions that a shard knows; the one that was quiet for the longest is forgotten first.
pub const REPLAY_SESSIONS_MAX: usize = 1 << 16;

/// Most requests of one session that a shard remembers; a client with more on their way than this loses first answers.
pub const REPLAY_REQUESTS_PER_SESSION_MAX: usize = 4096;

/// Most nodes of a hypercube: twelve rounds. Above it a node's table of what all others know grows past what a message
/// should carry.
pub const CUBE_NODE_COUNT_MAX: u32 = 4096;

/// Bytes that the list of one delta frame may take when it is read: eight times the payload limit of a frame.
pub const DELTA_LIST_BYTES_MAX: u64 = 512 << 20;

/// Most entries of a replica's delta log, whatever is configured: 2 GiB.
pub const DELTA_LOG_ENTRIES_MAX: usize = 1 << 28;

/// Most marks of a replica's delta log. Each holds what the copy knew, 16 bytes a node; a partner that missed more
/// sweeps than there are marks gets what its last answer left out, or the whole filter.
pub const DELTA_MARKS_MAX: usize = 32;

/// Most nodes of which a copy keeps counts: all of a cube, and as many that have left.
pub const KNOWLEDGE_NODES_MAX: usize = 2 * CUBE_NODE_COUNT_MAX as usize;

/// Most hashes of a sample of distinct items, k. The relative error of a count is 1/√(k−2): 3.1 % at 1,024, 6.3 % at
/// 256; of an overlap that is a tenth of the union, 9.9 % and 19.8 %. A hash travels only once, so over a life of 10^9
/// items a sample costs a link k·(1 + ln(10^9/k)) hashes: 121 kB at 1,024, 33 kB at 256, and both are nothing beside
/// the 8 GB of changes. Held are 16 bytes a hash: 16 KiB a node and filter, 4 MiB a filter in the largest cluster.
pub const SAMPLE_HASHES_MAX: usize = 1024;

/// Most nodes of which every pair's overlap is estimated at once: 496 pairs, a few microseconds each.
pub const OVERLAP_NODES_MAX: usize = 32;
