//! Slices that are read while they change, beside frames that were all made at the beginning.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{CellCount, HashFunction, HashRange, ItemHash, ItemHasher, Kind};

use super::changed_positions::changed_kind;
use super::shard_test::{FIRST, insert_of, plan};
use super::{
    Bitmap, HashList, InsertPart, KeyName, PartError, RemovePart, SetOperation, ShardCommand,
    ShardOwner, ShardReply, ShardState, SliceCopy, SliceFrames, SliceReadError, SliceSpec,
    TimedInsert,
};
use crate::ids::{FilterId, Generation, ShardId};

pub(super) const FILTER: FilterId = FilterId(1);

/// Readers of one slice in a test.
const READERS_MAX: usize = 3;

/// A filter of the same shape, for merges.
const OTHER: FilterId = FilterId(2);

/// Holds a block of each kind that is read where it is.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

pub(super) struct Owner(pub(super) Mutex<ShardState>);

impl ShardOwner for Owner {
    fn read_state(&self, read: &mut dyn FnMut(&ShardState)) {
        read(&self.0.lock().unwrap());
    }
}

impl Owner {
    pub(super) fn apply(&self, command: &ShardCommand) {
        let mut state = self.0.lock().unwrap();
        let copies = state.shared_slices(command).into_iter().map(super::SharedSlice::copy);
        let copies = copies.collect();
        let released = state.take_copies(copies);
        state.apply(command);
        drop(released);
    }

    /// The address of the positions, which changes when they are copied.
    fn address(&self) -> usize {
        (&raw const *self.0.lock().unwrap().slices[&FILTER].filter).addr()
    }

    fn reader_count(&self) -> usize {
        self.0.lock().unwrap().slices[&FILTER].filter.reader_count()
    }

    pub(super) fn read(self: &Arc<Self>) -> SliceCopy {
        let owner: Arc<dyn ShardOwner> = Arc::clone(self) as _;
        self.0.lock().unwrap().read_slice(FILTER, FIRST, &owner).unwrap()
    }

    pub(super) fn insert(&self, first: u64, count: u64) {
        let command = insert_command(&self.0.lock().unwrap(), first, count);
        self.apply(&command);
    }
}

pub(super) fn items(first: u64, count: u64) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 1 };
    (first..first + count).map(|number| hasher.hash(&number.to_le_bytes())).collect()
}

pub(super) fn insert_command(state: &ShardState, first: u64, count: u64) -> ShardCommand {
    let part = InsertPart {
        filter: FILTER,
        generation: FIRST,
        request: None,
        proposed: Bitmap::ones(u32::try_from(count).unwrap()),
        hashes: HashList::from_hashes(&items(first, count)),
        growth_bytes: 64 << 20,
    };
    insert_of(state, part)
}

/// The kinds that are read where they are.
pub(super) fn read_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|&kind| changed_kind(kind).is_some())
}

pub(super) fn remove_command(first: u64, count: u64) -> ShardCommand {
    ShardCommand::Remove(RemovePart {
        filter: FILTER,
        generation: FIRST,
        request: None,
        hashes: HashList::from_hashes(&items(first, count)),
    })
}

/// A shard with two filters for so many items, of which the first has some.
pub(super) fn owner(kind: Kind, capacity: u64, item_count: u64) -> Arc<Owner> {
    let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    let shape = plan(kind, capacity, 0.01, CellCount::new(1).unwrap()).unwrap();
    let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 1 };
    for filter in [FILTER, OTHER] {
        let spec = SliceSpec { filter, generation: FIRST, shape, key };
        state.apply(&ShardCommand::CreateSlice(spec));
    }
    for first in (0..item_count).step_by(10_000) {
        let command = insert_command(&state, first, 10_000.min(item_count - first));
        state.apply(&command);
    }
    Arc::new(Owner(Mutex::new(state)))
}

fn frames_now(owner: &Owner, payload_bytes_max: usize) -> Vec<Vec<u8>> {
    let state = owner.0.lock().unwrap();
    state.export_frames(FILTER, FIRST, payload_bytes_max).unwrap().map(Result::unwrap).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64, u64),
    /// Another reader begins, if there is the slice, and room for one.
    Begin,
    /// A reader, of those that have begun, takes so many frames.
    Read(usize, usize),
    /// Somebody copies the state and gives it back at once.
    Clone,
    Merge,
    /// A repair clears every other block.
    Repair,
    Clear,
    Drop,
    LetGo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        16 => (0..60_000_u64, 1..120_u64).prop_map(|(first, count)| Step::Insert(first, count)),
        4 => (0..60_000_u64, 1_000..4_000_u64)
            .prop_map(|(first, count)| Step::Insert(first, count)),
        4 => (0..10_000_u64, 1..120_u64).prop_map(|(first, count)| Step::Remove(first, count)),
        3 => Just(Step::Begin),
        12 => (0..READERS_MAX, 0..5_usize).prop_map(|(reader, count)| Step::Read(reader, count)),
        1 => Just(Step::Clone),
        1 => Just(Step::Merge),
        1 => Just(Step::Repair),
        1 => Just(Step::Clear),
        1 => Just(Step::Drop),
        1 => Just(Step::LetGo),
    ];
    vec(step, 0..24)
}

fn take(owner: &Owner, step: &Step) {
    let command = match *step {
        Step::Insert(first, count) => insert_command(&owner.0.lock().unwrap(), first, count),
        Step::Remove(first, count) => remove_command(first, count),
        Step::Merge => ShardCommand::MergeSlices {
            target: FILTER,
            generation: FIRST,
            sources: vec![(OTHER, FIRST)],
            operation: SetOperation::Union,
        },
        Step::Clear => ShardCommand::ClearSlice { filter: FILTER, generation: Generation(2) },
        Step::Drop => ShardCommand::DropSlice(FILTER),
        Step::Clone => {
            drop(owner.0.lock().unwrap().clone());
            return;
        }
        Step::Repair => {
            let mut state = owner.0.lock().unwrap();
            let slice = state.slices.get_mut(&FILTER);
            if let Some(slice) = slice.filter(|slice| changed_kind(slice.kind()).is_some()) {
                let blocks: Vec<(u32, Vec<u64>)> = (0..slice.block_count())
                    .step_by(2)
                    .map(|block| (block, vec![0; 512]))
                    .collect();
                slice.write_blocks(&blocks, false);
            }
            return;
        }
        Step::LetGo => {
            owner.0.lock().unwrap().let_go_of_readers();
            return;
        }
        Step::Begin | Step::Read(..) => return,
    };
    owner.apply(&command);
}

/// A reader, and the frames that it has taken of those that there were.
struct Reader<'a> {
    copy: &'a SliceCopy,
    read: SliceFrames<'a>,
    frames: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

impl<'a> Reader<'a> {
    /// None if there is no slice, or another generation of it.
    fn begin(
        owner: &Arc<Owner>,
        copy: &'a OnceCell<SliceCopy>,
        payload_bytes_max: usize,
    ) -> Option<Self> {
        owner.0.lock().unwrap().check_slice(FILTER, FIRST).ok()?;
        let expected = frames_now(owner, payload_bytes_max);
        let copy = copy.get_or_init(|| owner.read());
        let read = copy.frames(payload_bytes_max).unwrap();
        Some(Self { copy, read, frames: Vec::new(), expected })
    }

    fn take(&mut self, count: usize) {
        self.frames.extend(self.read.by_ref().take(count).map(Result::unwrap));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The slow twins read all when the readers begin; another twin changes without a reader.
    #[test]
    fn what_is_read_by_pieces_is_what_there_was(
        kind in (0..Kind::ALL.len()).prop_map(|at| Kind::ALL[at]),
        growing_item_count in prop_oneof![Just(5_000_u64), Just(24_000), Just(25_000)],
        steps in steps(),
    ) {
        // Of those that grow, some do so at once, some soon, and the others fill their logs.
        let grows = matches!(kind, Kind::Scalable | Kind::RedisBloom);
        let (capacity, item_count) =
            if grows { (25_000, growing_item_count) } else { (200_000, 5_000) };
        let [ours, twin] = [(), ()].map(|()| owner(kind, capacity, item_count));
        // Several frames, as far as blocks permit it: pages of tables are large.
        let payload_bytes_max = match changed_kind(kind) {
            Some(_) if grows || kind == Kind::Blocked => 4 << 10,
            Some(_) => PAYLOAD_BYTES_MAX,
            None => 1 << 20,
        };
        let copies: [OnceCell<SliceCopy>; READERS_MAX] = Default::default();
        let mut readers: Vec<Reader<'_>> = Vec::new();
        for step in [Step::Begin].iter().chain(&steps) {
            match *step {
                Step::Begin => {
                    let begin = |copy| Reader::begin(&ours, copy, payload_bytes_max);
                    readers.extend(copies.get(readers.len()).and_then(begin));
                }
                Step::Read(reader, count) => {
                    let at = reader % readers.len();
                    readers[at].take(count);
                }
                _ => {
                    take(&ours, step);
                    take(&twin, step);
                }
            }
            for log in readers.iter().filter_map(|reader| reader.copy.log()) {
                prop_assert!(log.kept_bytes() <= log.bytes_max());
            }
        }
        for mut reader in readers {
            reader.take(usize::MAX);
            prop_assert_eq!(reader.frames, reader.expected);
        }
        let digests = [ours, twin].map(|owner| {
            let state = owner.0.lock().unwrap();
            state.digest()
        });
        prop_assert_eq!(digests[0], digests[1]);
    }
}

/// Of kinds whose changes are known, nothing is copied, and what was read is not kept.
#[test]
fn inserts_beside_a_reader_keep_positions_and_copy_nothing() {
    for kind in read_kinds() {
        let owner = owner(kind, 200_000, 20_000);
        let (expected, address) = (frames_now(&owner, PAYLOAD_BYTES_MAX), owner.address());
        let copy = owner.read();
        let log = Arc::clone(copy.log().unwrap());
        owner.insert(20_000, 20);
        let kept = log.kept_count();
        assert!((15..=20 * 16).contains(&kept), "{kind}: {kept}");
        owner.insert(20_000, 20);
        assert_eq!(log.kept_count(), kept, "{kind}");
        let frames: Vec<Vec<u8>> =
            copy.frames(PAYLOAD_BYTES_MAX).unwrap().map(Result::unwrap).collect();
        assert_eq!(frames, expected, "{kind}");
        assert_eq!(log.kept_count(), 0, "{kind}");
        owner.insert(20_020, 20);
        assert_eq!((log.kept_count(), owner.address()), (0, address), "{kind}");
        assert_eq!((log.has_ended(), owner.reader_count()), (false, 0), "{kind}");
        assert_ne!(frames_now(&owner, PAYLOAD_BYTES_MAX), expected, "{kind}");
    }
}

/// At half of the slice, so that the copy is of the other half.
#[test]
fn a_log_is_bounded_and_the_rest_is_copied_once_it_is_full() {
    for kind in read_kinds() {
        let owner = owner(kind, 200_000, 5_000);
        let (expected, address) = (frames_now(&owner, PAYLOAD_BYTES_MAX), owner.address());
        let copy = owner.read();
        let log = Arc::clone(copy.log().unwrap());
        assert!(log.bytes_max() > 75_000, "{kind}: {}", log.bytes_max());
        let mut read = copy.frames(PAYLOAD_BYTES_MAX).unwrap();
        let half = expected.len() / 2;
        let mut frames: Vec<Vec<u8>> = read.by_ref().take(half).map(Result::unwrap).collect();
        let (mut first, mut most) = (5_000, 0);
        while !log.has_ended() {
            owner.insert(first, 100);
            first += 100;
            most = most.max(log.kept_bytes());
        }
        let bytes_max = log.bytes_max();
        assert!((bytes_max * 3 / 4..=bytes_max).contains(&most), "{kind}: {most} of {bytes_max}");
        let rest: usize = expected.len() - half;
        let copied = log.copied_bytes();
        assert!(copied > 0 && copied <= rest * PAYLOAD_BYTES_MAX, "{kind}: {copied}");
        owner.insert(first, 100);
        assert_eq!((log.kept_bytes(), owner.address()), (0, address), "{kind}");
        frames.extend(read.map(Result::unwrap));
        assert!(frames == expected, "{kind}");
        assert_eq!(log.copied_bytes(), 0, "{kind}");
    }
}

#[test]
fn a_large_batch_ends_a_log_before_it_changes_anything() {
    let owner = owner(Kind::Blocked, 200_000, 20_000);
    let expected = frames_now(&owner, PAYLOAD_BYTES_MAX);
    let copy = owner.read();
    let log = Arc::clone(copy.log().unwrap());
    owner.insert(100_000, 60_000);
    assert!(log.has_ended());
    assert_eq!(log.kept_count(), 0);
    let frames: Vec<Vec<u8>> =
        copy.frames(PAYLOAD_BYTES_MAX).unwrap().map(Result::unwrap).collect();
    assert_eq!(frames, expected);
}

/// Of both what is kept and what is copied, nothing is left for when the state is locked.
#[test]
fn what_readers_need_is_kept_before_the_state_changes() {
    for kind in read_kinds() {
        let owner = owner(kind, 200_000, 20_000);
        let expected = frames_now(&owner, PAYLOAD_BYTES_MAX);
        let copy = owner.read();
        let log = Arc::clone(copy.log().unwrap());
        let mut state = owner.0.lock().unwrap();
        let few = insert_command(&state, 20_000, 20);
        assert!(state.has_readers(&few), "{kind}");
        assert!(state.shared_slices(&few).is_empty(), "{kind}");
        let kept = log.kept_count();
        assert!(kept > 0, "{kind}");
        state.apply(&few);
        assert_eq!(log.kept_count(), kept, "{kind}");
        let many = insert_command(&state, 100_000, 60_000);
        assert!(state.shared_slices(&many).is_empty(), "{kind}");
        assert!(log.has_ended() && log.copied_bytes() > 0, "{kind}");
        assert!(!state.has_readers(&many), "{kind}");
        // Never applied.
        drop(state);
        let frames: Vec<Vec<u8>> =
            copy.frames(PAYLOAD_BYTES_MAX).unwrap().map(Result::unwrap).collect();
        assert_eq!(frames, expected, "{kind}");
    }
}

/// The insert is refused, and changes nothing.
#[test]
fn a_time_for_a_filter_without_a_window_leaves_its_readers_alone() {
    let owner = owner(Kind::Blocked, 200_000, 20_000);
    let copy = owner.read();
    let ShardCommand::Insert(parts) = insert_command(&owner.0.lock().unwrap(), 20_000, 20) else {
        unreachable!("it has no window")
    };
    let timed = |part| TimedInsert { part, at_ms: Some(1) };
    let inserts = parts.into_iter().map(timed).collect();
    let reply = owner.0.lock().unwrap().apply(&ShardCommand::InsertTimed { now_ms: 1, inserts });
    let ShardReply::Inserted(answers) = reply else { panic!("{reply:?}") };
    assert!(matches!(answers[..], [Err(PartError::WrongKind { .. })]), "{answers:?}");
    assert!(!copy.log().unwrap().has_ended());
    assert_eq!(owner.reader_count(), 1);
}

#[test]
fn a_reader_has_what_it_needs_of_a_state_that_went() {
    for kind in read_kinds() {
        let owner = owner(kind, 200_000, 20_000);
        let expected = frames_now(&owner, PAYLOAD_BYTES_MAX);
        let copy = owner.read();
        let mut read = copy.frames(PAYLOAD_BYTES_MAX).unwrap();
        let mut frames = vec![read.next().unwrap().unwrap()];
        owner.insert(20_000, 20);
        let state = Arc::downgrade(&owner);
        drop(owner);
        assert!(state.upgrade().is_none(), "{kind}");
        frames.extend(read.map(Result::unwrap));
        assert_eq!(frames, expected, "{kind}");
    }
}

#[test]
fn a_reader_that_went_is_forgotten() {
    let owner = owner(Kind::Blocked, 200_000, 20_000);
    let address = owner.address();
    let copy = owner.read();
    let log = Arc::downgrade(copy.log().unwrap());
    drop(copy);
    owner.insert(100_000, 60_000);
    assert_eq!((owner.reader_count(), owner.address()), (0, address));
    assert!(log.upgrade().is_none());
}

#[test]
fn readers_of_a_slice_that_nobody_writes_are_forgotten() {
    let owner = owner(Kind::Blocked, 200_000, 20_000);
    for _ in 0..100 {
        drop(owner.read());
    }
    assert!(owner.reader_count() <= 1, "{}", owner.reader_count());
}

#[test]
fn frames_are_read_once() {
    let owner = owner(Kind::Blocked, 200_000, 20_000);
    let copy = owner.read();
    assert!(copy.frames(PAYLOAD_BYTES_MAX).unwrap().all(|frame| frame.is_ok()));
    let mut again = copy.frames(PAYLOAD_BYTES_MAX).unwrap();
    assert_eq!(again.next(), Some(Err(SliceReadError::Gone { filter: FILTER })));
    assert_eq!(again.next(), None);
}
