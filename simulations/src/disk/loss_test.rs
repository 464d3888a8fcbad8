//! What power losses leave, compared with slow models that enumerate every legal result.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use tokio::runtime::Builder;

use super::SimDisk;
use super::content::Content;
use crate::plan::LossMode;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Length(usize),
    Sync,
    FailSync,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = (any::<u8>(), 0..700_usize).prop_map(|(byte, count)| vec![byte; count]);
    prop_oneof![
        5 => (0..1300_usize, bytes).prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        2 => (0..1300_usize).prop_map(Step::Length),
        3 => Just(Step::Sync),
        1 => Just(Step::FailSync),
    ]
}

/// A model of a file: its durable content, and the steps that are not durable.
#[derive(Clone, Default)]
struct Twin {
    durable: Vec<u8>,
    pending: Vec<Step>,
}

fn write(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    for (place, byte) in (offset..).zip(bytes) {
        while file.len() <= place {
            file.push(0);
        }
        file[place] = *byte;
    }
}

fn apply(file: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(offset, bytes) => write(file, *offset, bytes),
        Step::Length(length) => file.resize(*length, 0),
        Step::Sync | Step::FailSync => {}
    }
}

impl Twin {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Sync => {
                for step in std::mem::take(&mut self.pending) {
                    apply(&mut self.durable, &step);
                }
            }
            Step::FailSync => self.pending.clear(),
            Step::Write(_, bytes) if bytes.is_empty() => {}
            step => self.pending.push(step.clone()),
        }
    }

    /// All contents that a power loss may leave.
    fn legal(&self, mode: LossMode) -> BTreeSet<Vec<u8>> {
        match mode {
            LossMode::All => BTreeSet::from([self.durable.clone()]),
            LossMode::Prefix => {
                let mut file = self.durable.clone();
                let mut all = BTreeSet::from([file.clone()]);
                for step in &self.pending {
                    apply(&mut file, step);
                    all.insert(file.clone());
                }
                all
            }
            LossMode::Subset => {
                let mut all = BTreeSet::from([(self.durable.clone(), BTreeSet::new())]);
                for step in &self.pending {
                    all = all.into_iter().flat_map(|one| branches(one, step)).collect();
                }
                all.into_iter().map(|(file, _)| file).collect()
            }
        }
    }
}

/// A file's content, and the sectors that were written back before the last of their writes.
type Branch = (Vec<u8>, BTreeSet<usize>);

fn branches((file, stopped): Branch, step: &Step) -> BTreeSet<Branch> {
    let mut all = BTreeSet::from([(file.clone(), stopped.clone())]);
    let (offset, bytes) = match step {
        Step::Write(offset, bytes) => (*offset, &bytes[..]),
        Step::Length(length) => {
            let mut kept = file;
            kept.resize(*length, 0);
            all.insert((kept, stopped));
            return all;
        }
        Step::Sync | Step::FailSync => return all,
    };
    if file.len() < offset + bytes.len() {
        let mut longer = file;
        longer.resize(offset + bytes.len(), 0);
        all.insert((longer, stopped));
    }
    let sectors: BTreeSet<usize> =
        (offset..offset + bytes.len()).map(|place| place / 512).collect();
    for sector in sectors {
        let from = offset.max(sector * 512);
        let to = (offset + bytes.len()).min(sector * 512 + 512);
        let mut next = BTreeSet::new();
        for (mut file, mut stopped) in all {
            if !stopped.contains(&sector) {
                let mut lost = stopped.clone();
                lost.insert(sector);
                next.insert((file.clone(), lost));
                write(&mut file, from, &bytes[from - offset..to - offset]);
            } else {
                stopped.insert(sector);
            }
            next.insert((file, stopped));
        }
        all = next;
    }
    all
}

fn run(steps: &[Step]) -> (Content, Twin) {
    let (mut content, mut twin) = (Content::default(), Twin::default());
    for step in steps {
        twin.take(step);
        // More pending steps would take the twin too long.
        if twin.pending.len() > 3 {
            twin.take(&Step::Sync);
            content.sync();
        }
        match step {
            Step::Write(offset, bytes) => content.write(*offset, bytes.clone().into()),
            Step::Length(length) => content.set_len(*length),
            Step::Sync => drop(content.sync()),
            Step::FailSync => content.fail_sync(),
        }
        if twin.pending.is_empty() && !content.pending().is_empty() {
            content.sync();
        }
    }
    (content, twin)
}

const MODES: [LossMode; 3] = [LossMode::All, LossMode::Prefix, LossMode::Subset];

proptest! {
    #[test]
    fn what_is_left_is_legal(seed: u64, steps in proptest::collection::vec(step(), 1..12)) {
        let (content, twin) = run(&steps);
        prop_assert_eq!(content.durable().bytes(), &twin.durable);
        for mode in MODES {
            let mut content = content.clone();
            let seen = content.current().bytes().to_vec();
            let loss = content.lose(mode, &mut ChaCha8Rng::seed_from_u64(seed));
            let left = content.current().bytes();
            prop_assert_eq!(left, content.durable().bytes());
            prop_assert!(content.pending().is_empty());
            prop_assert!(twin.legal(mode).contains(left), "{:?}", mode);
            let long = seen.len().max(left.len());
            let lost = (0..long).filter(|place| seen.get(*place) != left.get(*place)).count();
            prop_assert_eq!(loss.lost_bytes, lost as u64);
            prop_assert_eq!(loss.is_torn, lost > 0 && left != twin.durable);
        }
    }
}

#[test]
fn everything_legal_happens_and_nothing_else() {
    let steps = [
        Step::Write(0, vec![1; 600]),
        Step::Sync,
        Step::Write(500, vec![2; 20]),
        Step::Write(300, vec![3; 1]),
        Step::Length(1100),
    ];
    let (content, twin) = run(&steps);
    for (mode, expected_count) in MODES.into_iter().zip([1, 4, 12]) {
        let seen: BTreeSet<Vec<u8>> = (0..500)
            .map(|seed| {
                let mut content = content.clone();
                content.lose(mode, &mut ChaCha8Rng::seed_from_u64(seed));
                content.current().bytes().to_vec()
            })
            .collect();
        assert_eq!(seen, twin.legal(mode));
        assert_eq!(seen.len(), expected_count, "{mode:?}");
    }
    // A content that the checks above must reject: a sector's second write without its first.
    let mut wrong = twin.durable.clone();
    apply(&mut wrong, &steps[3]);
    assert!(MODES.iter().all(|mode| !twin.legal(*mode).contains(&wrong)));
}

/// Changes of names in two folders. Files are identified by the number that they contain.
#[derive(Clone, Debug)]
enum NameStep {
    Create(usize),
    Rename(usize, usize),
    Remove(usize),
    SyncFolder(usize),
}

const FOLDERS: [&str; 2] = ["p", "q"];
const NAMES: [&str; 5] = ["p/a", "p/b", "p/c", "q/a", "q/b"];

fn folder_of(name: usize) -> usize {
    usize::from(name >= 3)
}

fn name_step() -> impl Strategy<Value = NameStep> {
    let name = 0..NAMES.len();
    prop_oneof![
        3 => name.clone().prop_map(NameStep::Create),
        3 => (name.clone(), name.clone()).prop_map(|(from, to)| NameStep::Rename(from, to)),
        2 => name.prop_map(NameStep::Remove),
        2 => (0..FOLDERS.len()).prop_map(NameStep::SyncFolder),
    ]
}

/// File numbers by name. All steps of one change are applied atomically.
type Names = BTreeMap<usize, u8>;
type NameChange = Vec<(usize, Option<u8>)>;

fn apply_names(names: &mut Names, change: &NameChange) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(*name, *file),
            None => names.remove(name),
        };
    }
}

/// Marks the changes that a sync of a folder makes durable: those in the folder, and those that precede a
/// durable one in one of its folders.
fn harden(changes: &mut [(NameChange, bool)], folder: usize) {
    let touches = |change: &NameChange, folder| change.iter().any(|(n, _)| folder_of(*n) == folder);
    for (change, is_durable) in changes.iter_mut() {
        *is_durable |= touches(change, folder);
    }
    loop {
        let before = changes.to_vec();
        for early in 0..changes.len() {
            let is_needed = before[early + 1..].iter().any(|(late, is_durable)| {
                let shared = (0..2).any(|f| touches(late, f) && touches(&before[early].0, f));
                *is_durable && shared
            });
            changes[early].1 |= is_needed;
        }
        if before == changes {
            return;
        }
    }
}

async fn names_on(disk: &SimDisk) -> Names {
    let mounted = disk.mount();
    let mut names = Names::new();
    for (name, path) in NAMES.iter().enumerate() {
        if let Ok(file) = mounted.open(path, false).await {
            names.insert(name, file.read_at(0, 1).await.unwrap()[0]);
        }
    }
    names
}

async fn run_names(disk: &SimDisk, steps: &[NameStep]) -> Vec<(NameChange, bool)> {
    let mounted = disk.mount();
    for folder in FOLDERS {
        mounted.make_folder(folder).await.unwrap();
    }
    mounted.sync_folder("").await.unwrap();
    let (mut names, mut changes) = (Names::new(), Vec::new());
    for (number, step) in (1..).zip(steps) {
        let change = match step {
            NameStep::Create(name) if !names.contains_key(name) => {
                let file = mounted.open(NAMES[*name], true).await.unwrap();
                file.write_and_sync(0, vec![number].into()).await.unwrap();
                vec![(*name, Some(number))]
            }
            NameStep::Rename(from, to) if from != to && names.contains_key(from) => {
                mounted.rename(NAMES[*from], NAMES[*to]).await.unwrap();
                vec![(*from, None), (*to, Some(names[from]))]
            }
            NameStep::Remove(name) if names.contains_key(name) => {
                mounted.remove(NAMES[*name]).await.unwrap();
                vec![(*name, None)]
            }
            NameStep::SyncFolder(folder) => {
                mounted.sync_folder(FOLDERS[*folder]).await.unwrap();
                harden(&mut changes, *folder);
                continue;
            }
            _ => continue,
        };
        apply_names(&mut names, &change);
        changes.push((change, false));
    }
    changes
}

/// The names if, of the changes that are not durable, only the first `kept_count` survived.
fn names_after(changes: &[(NameChange, bool)], mut kept_count: usize) -> Names {
    let mut names = Names::new();
    for (change, is_durable) in changes {
        if *is_durable {
            apply_names(&mut names, change);
        } else if kept_count > 0 {
            kept_count -= 1;
            apply_names(&mut names, change);
        }
    }
    names
}

proptest! {
    #[test]
    fn names_survive_as_a_prefix(
        seed: u64,
        steps in proptest::collection::vec(name_step(), 1..25),
        mode in proptest::sample::select(MODES.to_vec()),
    ) {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let disk = SimDisk::new(seed);
        let changes = runtime.block_on(run_names(&disk, &steps));
        let pending_count = changes.iter().filter(|(_, is_durable)| !is_durable).count();
        let loss = disk.power_loss(mode);
        let lost_count = usize::try_from(loss.lost_names).unwrap();
        prop_assert!(lost_count <= pending_count);
        let expected = names_after(&changes, pending_count - lost_count);
        prop_assert_eq!(runtime.block_on(names_on(&disk)), expected);
        // Everything left is durable, so a second power loss has no effect.
        prop_assert_eq!(disk.power_loss(mode), super::Loss::default());
    }

    /// A log: bytes that were appended and synced survive every sequence of events.
    #[test]
    fn synced_bytes_stay(
        seed: u64,
        steps in proptest::collection::vec((0..5_u8, 1..900_usize), 1..30),
    ) {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let disk = SimDisk::new(seed);
        let mut synced: Vec<u8> = Vec::new();
        let open = |create| {
            let mounted = disk.mount();
            runtime.block_on(async {
                let file = mounted.open("log", create).await.unwrap();
                mounted.sync_folder("").await.unwrap();
                file
            })
        };
        let mut file = open(true);
        for (number, (what, count)) in (1..).zip(steps) {
            let bytes = Bytes::from(vec![number; count]);
            match what {
                0 | 1 => {
                    let write = file.write_and_sync(synced.len() as u64, bytes.clone());
                    runtime.block_on(write).unwrap();
                    synced.extend(bytes);
                }
                2 => runtime.block_on(file.write_at(synced.len() as u64, bytes)).unwrap(),
                3 => {
                    disk.crash();
                    file = open(false);
                }
                _ => {
                    disk.power_loss(MODES[count % 3]);
                    file = open(false);
                }
            }
            let got = runtime.block_on(file.read_at(0, synced.len())).unwrap();
            prop_assert_eq!(&got[..], &synced[..]);
        }
    }
}

/// Whether a folder that was removed is back after a power loss.
async fn comes_back(seed: u64, is_synced: bool) -> bool {
    let disk = SimDisk::new(seed);
    let mounted = disk.mount();
    mounted.make_folder("a/b").await.unwrap();
    for folder in ["", "a"] {
        mounted.sync_folder(folder).await.unwrap();
    }
    mounted.remove_folder("a/b").await.unwrap();
    assert!(mounted.list("a").await.unwrap().is_empty());
    if is_synced {
        mounted.sync_folder("a").await.unwrap();
    }
    disk.power_loss(LossMode::All);
    let names = disk.mount().list("a").await.unwrap();
    names == ["b"]
}

#[test]
fn a_folder_is_gone_for_good_once_the_one_above_is_synced() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let count =
        |is_synced| (0..32).filter(|&seed| runtime.block_on(comes_back(seed, is_synced))).count();
    assert_eq!(count(true), 0);
    assert!((1..32).contains(&count(false)), "each of both happens");
}
