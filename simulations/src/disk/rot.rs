//! Bits that flip for good while no process has the disk.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::tree::{Inode, Tree};
use crate::plan::DiskPart;

/// Where the node keeps its log, its snapshots, its identity.
const LOG_FOLDER: &str = "wal";
const SNAPSHOT_FOLDER: &str = "snapshots";
const IDENTITY_NAME: &str = "identity";

/// A file that may rot below an offset.
struct Target {
    path: String,
    inode: Inode,
    limit: usize,
}

/// Flips up to so many bits of a part of the disk, each once, and says which.
pub(super) fn flip_bits(
    tree: &mut Tree,
    part: DiskPart,
    bit_count: u32,
    rng: &mut ChaCha8Rng,
) -> Vec<String> {
    let targets = targets(tree, part);
    let mut places = Vec::new();
    for target in &targets {
        let Ok(file) = tree.file(target.inode) else { continue };
        places.extend(file.stable_offsets(target.limit).into_iter().map(|offset| (target, offset)));
    }
    let possible = places.len() * 8;
    let wanted = usize::try_from(bit_count).unwrap_or(usize::MAX).min(possible);
    let mut chosen = BTreeSet::new();
    while chosen.len() < wanted {
        chosen.insert(rng.random_range(0..possible));
    }
    let mut flipped = Vec::new();
    for index in chosen {
        let (Target { path, inode, .. }, offset) = places[index / 8];
        let bit = u8::try_from(index % 8).expect("below 8");
        if let Ok(file) = tree.file(*inode) {
            file.flip(offset, bit);
            flipped.push(format!("{path}: offset {offset}, bit {bit}"));
        }
    }
    flipped
}

/// Cuts so many bytes off the newest segment of the log, at most as many as it has.
pub(super) fn cut_log(tree: &mut Tree, byte_count: u32) -> usize {
    let newest = whole_files(tree, LOG_FOLDER, |name| name.ends_with(".log"));
    let Some(newest) = newest.into_iter().max_by(|one, other| one.path.cmp(&other.path)) else {
        return 0;
    };
    let Ok(file) = tree.file(newest.inode) else { return 0 };
    let cut = usize::try_from(byte_count).unwrap_or(usize::MAX).min(file.len());
    file.put_right();
    file.set_len(file.len() - cut);
    // Nothing of it comes back with the next power loss.
    let _ = file.sync();
    cut
}

fn targets(tree: &mut Tree, part: DiskPart) -> Vec<Target> {
    match part {
        DiskPart::Log => segments(tree),
        DiskPart::Snapshots => {
            let groups = tree.list(SNAPSHOT_FOLDER).unwrap_or_default();
            let folders = groups.iter().map(|group| format!("{SNAPSHOT_FOLDER}/{group}"));
            folders
                .flat_map(|folder| whole_files(tree, &folder, |n| n.ends_with(".snap")))
                .collect()
        }
        DiskPart::Identity => whole_files(tree, "", |name| name == IDENTITY_NAME),
    }
}

fn whole_files(tree: &Tree, folder: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<Target> {
    let files = tree.files_in(folder, false).into_iter().filter(|(name, _)| is_wanted(name));
    let path = |name| if folder.is_empty() { name } else { format!("{folder}/{name}") };
    files.map(|(name, inode)| Target { path: path(name), inode, limit: usize::MAX }).collect()
}

/// Older segments as a whole, newer ones up to their last durable write. Which one is the newest may
/// change with the next power loss; so all count from the first that may be.
fn segments(tree: &mut Tree) -> Vec<Target> {
    let newest = |durable| {
        let names = tree.files_in(LOG_FOLDER, durable).into_iter().map(|(name, _)| name);
        names.filter(|name| name.ends_with(".log")).max()
    };
    let newest = newest(false).min(newest(true)).unwrap_or_default();
    let newest = format!("{LOG_FOLDER}/{newest}");
    let mut segments = whole_files(tree, LOG_FOLDER, |name| name.ends_with(".log"));
    for segment in segments.iter_mut().filter(|segment| segment.path >= newest) {
        segment.limit = tree.file(segment.inode).map_or(0, |file| file.last_synced_start());
    }
    segments
}
