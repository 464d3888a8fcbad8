//! Permanent damage of the disk's content while no process uses it.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::tree::{Inode, Tree};
use crate::plan::DiskPart;

/// Where the node keeps its log, its snapshots, its identity.
const LOG_FOLDER: &str = "wal";
const SNAPSHOT_FOLDER: &str = "snapshots";
const IDENTITY_NAME: &str = "identity";

/// A file whose bytes below an offset may rot.
struct Target {
    path: String,
    inode: Inode,
    limit: usize,
}

/// Flips up to `bit_count` distinct bits in a part of the disk, and returns a description of each.
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

/// Cuts `byte_count` bytes off the newest log segment, or all that it has, and returns how many were cut.
pub(super) fn cut_log(tree: &mut Tree, byte_count: u32) -> usize {
    let newest = whole_files(tree, LOG_FOLDER, |name| name.ends_with(".log"));
    let Some(newest) = newest.into_iter().max_by(|one, other| one.path.cmp(&other.path)) else {
        return 0;
    };
    let Ok(file) = tree.file(newest.inode) else { return 0 };
    let cut = usize::try_from(byte_count).unwrap_or(usize::MAX).min(file.len());
    file.put_right();
    file.set_len(file.len() - cut);
    // Synced, so that the next power loss does not restore any of it.
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

/// The log segments. Older ones may rot as a whole, the newest one only below its last durable write. The
/// next power loss may change which one is the newest, so this limit applies from the first that may be.
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
