//! Without faults, the simulated disk behaves like a real folder.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use umbel_ports::{Disk, File, RealDisk};

use super::SimDisk;

/// Paths that are used for both files and folders, so that every mix-up of them is tested.
const PATHS: [&str; 9] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/x", "../a"];

#[derive(Clone, Debug)]
enum Step {
    Open(usize, bool),
    Close(usize),
    Read(usize, u64, usize),
    Write(usize, u64, Vec<u8>),
    WriteAndSync(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Sync(usize),
    List(usize),
    MakeFolder(usize),
    Rename(usize, usize),
    Remove(usize),
    RemoveFolder(usize),
    SyncFolder(usize),
    /// The process is killed and restarted; no written bytes are lost.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (path, file) = (0..PATHS.len(), 0..4_usize);
    let offset = 0..2000_u64;
    let bytes = proptest::collection::vec(any::<u8>(), 0..1500);
    prop_oneof![
        6 => (path.clone(), any::<bool>()).prop_map(|(path, create)| Step::Open(path, create)),
        1 => file.clone().prop_map(Step::Close),
        4 => (file.clone(), offset.clone(), 0..3000_usize).prop_map(|(f, o, n)| Step::Read(f, o, n)),
        4 => (file.clone(), offset.clone(), bytes.clone()).prop_map(|(f, o, b)| Step::Write(f, o, b)),
        2 => (file.clone(), offset.clone(), bytes).prop_map(|(f, o, b)| Step::WriteAndSync(f, o, b)),
        2 => (file.clone(), offset).prop_map(|(file, length)| Step::SetLen(file, length)),
        1 => file.prop_map(Step::Sync),
        2 => path.clone().prop_map(Step::List),
        3 => path.clone().prop_map(Step::MakeFolder),
        3 => (path.clone(), path.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => path.clone().prop_map(Step::Remove),
        2 => path.clone().prop_map(Step::RemoveFolder),
        1 => path.prop_map(Step::SyncFolder),
        1 => Just(Step::Restart),
    ]
}

type Files = Vec<Arc<dyn File>>;

/// The result of a call: its value, or the kind of its error.
fn shown<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    format!("{:?}", result.map_err(|error| error.kind()))
}

async fn take(disk: &dyn Disk, files: &mut Files, step: &Step) -> String {
    let file = |index: usize| files.get(index % files.len().max(1)).cloned();
    match step {
        Step::Open(path, create) => match disk.open(PATHS[*path], *create).await {
            Ok(file) => {
                files.push(file);
                "opened".to_owned()
            }
            Err(error) => format!("{:?}", error.kind()),
        },
        Step::Close(index) => {
            if *index < files.len() {
                files.remove(*index);
            }
            String::new()
        }
        Step::List(path) => shown(disk.list(PATHS[*path]).await),
        Step::MakeFolder(path) => shown(disk.make_folder(PATHS[*path]).await),
        Step::Rename(from, to) => shown(disk.rename(PATHS[*from], PATHS[*to]).await),
        Step::Remove(path) => shown(disk.remove(PATHS[*path]).await),
        Step::RemoveFolder(path) => shown(disk.remove_folder(PATHS[*path]).await),
        Step::SyncFolder(path) => shown(disk.sync_folder(PATHS[*path]).await),
        Step::Restart => String::new(),
        Step::Read(index, offset, count) => match file(*index) {
            Some(file) => shown(file.read_at(*offset, *count).await),
            None => String::new(),
        },
        Step::Write(index, offset, bytes) => match file(*index) {
            Some(file) => shown(file.write_at(*offset, bytes.clone().into()).await),
            None => String::new(),
        },
        Step::WriteAndSync(index, offset, bytes) => match file(*index) {
            Some(file) => {
                let result = file.write_and_sync(*offset, bytes.clone().into()).await;
                format!("{:?}", result.is_ok())
            }
            None => String::new(),
        },
        Step::SetLen(index, length) => match file(*index) {
            Some(file) => shown(file.set_len(*length).await) + &shown(file.len().await),
            None => String::new(),
        },
        Step::Sync(index) => match file(*index) {
            Some(file) => shown(file.sync().await),
            None => String::new(),
        },
    }
}

/// All folders and files with their contents.
async fn everything(disk: &dyn Disk) -> Vec<String> {
    let mut all = vec![shown(disk.list("").await)];
    for path in PATHS {
        let content = match disk.open(path, false).await {
            Ok(file) => shown(file.read_at(0, 10_000).await),
            Err(error) => format!("{:?}", error.kind()),
        };
        all.push(format!("{path} {content} {}", shown(disk.list(path).await)));
    }
    all
}

fn runtimes() -> (Runtime, Runtime) {
    let simulated = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let real = Builder::new_current_thread().build().unwrap();
    (simulated, real)
}

/// Whether a step's result is left to the system: renames of folders, renames of files over a folder
/// above them, and folder syncs of files.
fn is_undefined(folder: &std::path::Path, step: &Step) -> bool {
    match step {
        Step::Rename(from, to) => {
            let is_above =
                PATHS[*from].strip_prefix(PATHS[*to]).is_some_and(|r| r.starts_with('/'));
            folder.join(PATHS[*from]).is_dir() || is_above
        }
        Step::SyncFolder(path) => folder.join(PATHS[*path]).is_file(),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn equal_to_a_real_folder(seed: u64, steps in proptest::collection::vec(step(), 1..60)) {
        let (simulated, real) = runtimes();
        let folder = tempfile::tempdir().unwrap();
        let real_disk = RealDisk::open(folder.path()).unwrap();
        let disk = SimDisk::new(seed);
        let mut mounted = disk.mount();
        let (mut files, mut real_files) = (Files::new(), Files::new());
        for step in &steps {
            if is_undefined(folder.path(), step) {
                continue;
            }
            if matches!(step, Step::Restart) {
                disk.crash();
                mounted = disk.mount();
                files.clear();
                real_files.clear();
            }
            let got = simulated.block_on(take(&*mounted, &mut files, step));
            let expected = real.block_on(take(&real_disk, &mut real_files, step));
            prop_assert_eq!(got, expected, "{:?}", step);
        }
        let got = simulated.block_on(everything(&*mounted));
        prop_assert_eq!(got, real.block_on(everything(&real_disk)));
    }
}

#[test]
fn the_comparison_sees_one_byte() {
    let (simulated, real) = runtimes();
    let folder = tempfile::tempdir().unwrap();
    let real_disk = RealDisk::open(folder.path()).unwrap();
    let mounted = SimDisk::new(1).mount();
    let write = async |disk: &dyn Disk, bytes: &'static [u8]| {
        let file = disk.open("a", true).await.unwrap();
        file.write_at(3, Bytes::from_static(bytes)).await.unwrap();
        everything(disk).await
    };
    let expected = real.block_on(write(&real_disk, b"one"));
    assert_eq!(simulated.block_on(write(&*mounted, b"one")), expected);
    assert_ne!(simulated.block_on(write(&*mounted, b"onf")), expected);
}
