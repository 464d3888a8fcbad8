//! The machine's disk.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::{Disk, File, PortFuture, WriteError};

/// Unsynced writes up to this size run on the calling thread: a switch to another thread takes some 20
/// µs, as long as copying 64 KiB.
const SHORT_WRITE_BYTES: usize = 64 << 10;

/// Permissions of folders, which contain keys.
const FOLDER_MODE: u32 = 0o700;

/// Permissions of files.
const FILE_MODE: u32 = 0o600;

/// All permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Name of the file whose lock keeps other processes from using the folder.
const LOCK_NAME: &str = "LOCK";

/// A folder of the machine. Most calls run on tokio's pool for blocking work.
#[derive(Clone, Debug)]
pub struct RealDisk {
    folder: PathBuf,
}

impl RealDisk {
    /// Uses a folder, and creates it first, durably, if it does not exist.
    ///
    /// # Errors
    /// If the folder can neither be found nor created.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let unsynced = make_folders_durably(folder, |above| fs::File::open(above)?.sync_all())?;
        let folder = folder.canonicalize()?;
        if let Some(error) = unsynced {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "a folder above cannot be synced: a power loss may remove a new data folder");
        }
        let metadata = fs::metadata(&folder)?;
        if let Err(error) = narrow(&metadata, |mode| fs::set_permissions(&folder, mode)) {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "others may enter the data folder; its new files they cannot read");
        }
        Ok(Self { folder })
    }

    /// The full path of a relative path; paths that lead out of the folder are refused.
    fn place(&self, path: &str) -> io::Result<PathBuf> {
        let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || path.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("path {path:?} leads out of the data folder"),
            ));
        }
        Ok(self.folder.join(path))
    }
}

/// Creates a folder and its missing parents, for their owner only.
fn make_folders(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// The same, and syncs the folders above those that it created, so that these are there after a power loss; and always
/// that above the last one, as an earlier start may have ended before it did. Returns the error of a sync: the folder is
/// there, and the folder above it may be one that this process must not read.
fn make_folders_durably(
    folder: &Path,
    mut sync: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<Option<io::Error>> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing = folder.ancestors().take_while(is_missing).count();
    make_folders(folder)?;
    let above = folder.ancestors().skip(1).take(missing.max(1));
    let synced = above.map(|above| {
        // The folder above a relative name is the one that the process works in.
        sync(if above.as_os_str().is_empty() { Path::new(".") } else { above })
    });
    Ok(synced.filter_map(Result::err).last())
}

/// Removes the permissions of others, if they have any.
fn narrow(
    metadata: &fs::Metadata,
    set: impl FnOnce(fs::Permissions) -> io::Result<()>,
) -> io::Result<()> {
    let mode = metadata.permissions().mode();
    match mode & OTHERS {
        0 => Ok(()),
        _ => set(fs::Permissions::from_mode(mode & 0o7777 & !OTHERS)),
    }
}

/// Runs blocking work on tokio's pool.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl Disk for RealDisk {
    fn open<'a>(
        &'a self,
        path: &'a str,
        create: bool,
    ) -> PortFuture<'a, io::Result<Arc<dyn File>>> {
        Box::pin(async move {
            let path = self.place(path)?;
            let file = blocking(move || {
                let mut options = fs::File::options();
                let options = options.read(true).write(true).create(create).truncate(create);
                let file = options.mode(FILE_MODE).open(path)?;
                // The file may come from an older build or another user; failing to narrow its
                // permissions is not an error.
                let _ = narrow(&file.metadata()?, |mode| file.set_permissions(mode));
                Ok(file)
            })
            .await?;
            Ok(Arc::new(RealFile { file: Arc::new(file) }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            let path = self.place(folder)?;
            blocking(move || {
                let entries = match fs::read_dir(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    entries => entries?,
                };
                let mut names = Vec::new();
                for entry in entries {
                    // A name that is not UTF-8 does not belong to the node.
                    if let Ok(name) = entry?.file_name().into_string() {
                        names.push(name);
                    }
                }
                names.sort_unstable();
                Ok(names)
            })
            .await
        })
    }

    fn make_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.place(folder)?;
            blocking(move || make_folders(&path)).await
        })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (from, to) = (self.place(from)?, self.place(to)?);
            blocking(move || fs::rename(from, to)).await
        })
    }

    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.place(path)?;
            blocking(move || fs::remove_file(path)).await
        })
    }

    fn remove_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.place(folder)?;
            // POSIX allows either of the last two for a folder that contains something.
            let stays = [
                io::ErrorKind::NotFound,
                io::ErrorKind::DirectoryNotEmpty,
                io::ErrorKind::AlreadyExists,
            ];
            blocking(move || match fs::remove_dir(path) {
                Err(error) if stays.contains(&error.kind()) => Ok(()),
                removed => removed,
            })
            .await
        })
    }

    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.place(folder)?;
            blocking(move || fs::File::open(path)?.sync_all()).await
        })
    }

    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            let path = self.folder.clone();
            blocking(move || {
                let stat = rustix::fs::statvfs(path)?;
                // Free space for unprivileged users, in fragments.
                Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
            })
            .await
        })
    }

    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>> {
        Box::pin(async move {
            let path = self.folder.join(LOCK_NAME);
            let file = blocking(move || {
                let mut options = fs::File::options();
                let options = options.write(true).create(true).truncate(false);
                let file = options.mode(FILE_MODE).open(path)?;
                match file.try_lock() {
                    Ok(()) => Ok(file),
                    Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(fs::TryLockError::Error(error)) => Err(error),
                }
            })
            .await?;
            // The system releases the lock with the file, also when the process is killed.
            Ok(Box::new(file) as Box<dyn Send + Sync>)
        })
    }
}

/// An open file of the machine.
struct RealFile {
    file: Arc<fs::File>,
}

/// Reads until so many bytes are read, or the file ends.
fn read_up_to(file: &fs::File, offset: u64, byte_count: usize) -> io::Result<Bytes> {
    // The buffer is no larger than the file, whatever length the caller asks for.
    let left = file.metadata()?.len().saturating_sub(offset);
    let byte_count = byte_count.min(usize::try_from(left).unwrap_or(usize::MAX));
    // Not filled with zeros first: a log of gigabytes is read at a start.
    let mut bytes = Vec::<u8>::with_capacity(byte_count);
    while bytes.len() < byte_count {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // A vector may have more room than was asked for.
    bytes.truncate(byte_count);
    Ok(bytes.into())
}

impl File for RealFile {
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || read_up_to(&file, offset, byte_count)))
    }

    fn read_pieces(&self, pieces: Vec<(u64, usize)>) -> PortFuture<'_, io::Result<Vec<Bytes>>> {
        let file = Arc::clone(&self.file);
        let read = move |(offset, byte_count)| read_up_to(&file, offset, byte_count);
        // One switch to another thread, however many pieces.
        Box::pin(blocking(move || pieces.into_iter().map(read).collect()))
    }

    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>> {
        if bytes.len() <= SHORT_WRITE_BYTES {
            // Into the page cache: faster than starting the work on another thread.
            return Box::pin(std::future::ready(self.file.write_all_at(&bytes, offset)));
        }
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || file.write_all_at(&bytes, offset)))
    }

    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let work = move || {
                file.write_all_at(&bytes, offset).map_err(WriteError::Write)?;
                file.sync_data().map_err(WriteError::Sync)
            };
            tokio::task::spawn_blocking(work)
                .await
                // It is unknown whether the work reached the sync.
                .unwrap_or_else(|error| Err(WriteError::Sync(io::Error::other(error))))
        })
    }

    fn sync(&self) -> PortFuture<'_, io::Result<()>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || file.sync_data()))
    }

    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || file.set_len(byte_count)))
    }

    fn len(&self) -> PortFuture<'_, io::Result<u64>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || Ok(file.metadata()?.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_keeps_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(&folder.path().join("deep/data")).unwrap();
        assert!(disk.list("wal").await.unwrap().is_empty());
        disk.make_folder("wal/old").await.unwrap();

        let file = disk.open("wal/b", true).await.unwrap();
        file.write_and_sync(2, Bytes::from_static(b"cde")).await.unwrap();
        file.write_at(0, Bytes::from_static(b"ab")).await.unwrap();
        assert_eq!(file.read_at(1, 1 << 40).await.unwrap(), &b"bcde"[..]);
        assert!(file.read_at(9, 4).await.unwrap().is_empty());
        let pieces = file.read_pieces(vec![(3, 2), (0, 1), (9, 4)]).await.unwrap();
        assert_eq!(pieces, [&b"de"[..], b"a", b""]);
        file.set_len(3).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(file.len().await.unwrap(), 3);

        disk.rename("wal/b", "wal/a").await.unwrap();
        disk.sync_folder("wal").await.unwrap();
        disk.sync_folder("").await.unwrap();
        assert_eq!(disk.list("wal").await.unwrap(), ["a", "old"]);
        // An open file stays readable after its name was removed.
        disk.remove("wal/a").await.unwrap();
        assert_eq!(file.read_at(0, 8).await.unwrap(), &b"abc"[..]);
        assert!(disk.free_bytes().await.unwrap() > 0);
        // A folder goes once it is empty.
        for names in [&["old"][..], &[], &[]] {
            disk.remove_folder("wal").await.unwrap();
            assert_eq!(disk.list("wal").await.unwrap(), names);
            disk.remove_folder("wal/old").await.unwrap();
        }
        assert!(disk.list("").await.unwrap().is_empty());
    }

    #[test]
    fn the_folders_above_created_ones_are_synced() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("deep");
        for expected in [vec![deep.as_path(), parent.path()], vec![deep.as_path()]] {
            let mut synced = Vec::new();
            let sync = |above: &Path| {
                synced.push(above.to_owned());
                Ok(())
            };
            assert!(make_folders_durably(&deep.join("data"), sync).unwrap().is_none());
            assert_eq!(synced, expected);
        }
        let fails = |_: &Path| Err(io::ErrorKind::StorageFull.into());
        assert!(make_folders_durably(&deep.join("other"), fails).unwrap().is_some());
    }

    /// Other users of the machine cannot read the keys, whatever the umask.
    #[tokio::test]
    async fn only_the_owner_gets_in() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        let disk = RealDisk::open(&path).unwrap();
        disk.make_folder("snapshots/0").await.unwrap();
        drop(disk.open("snapshots/0/1.snap", true).await.unwrap());
        let _guard = disk.lock().await.unwrap();
        assert_eq!(["", "snapshots", "snapshots/0"].map(mode), [0o700; 3]);
        assert_eq!(["snapshots/0/1.snap", "LOCK"].map(mode), [0o600; 2]);

        // Permissions that an older build or a user granted to others are removed on use.
        let open_up = |name: &str, mode: u32| {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        open_up("", 0o755);
        open_up("snapshots/0/1.snap", 0o644);
        let disk = RealDisk::open(&path).unwrap();
        drop(disk.open("snapshots/0/1.snap", false).await.unwrap());
        assert_eq!((mode(""), mode("snapshots/0/1.snap")), (0o700, 0o600));
    }

    #[tokio::test]
    async fn one_process_at_a_time_and_no_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        let guard = disk.lock().await.unwrap();
        let error = disk.lock().await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        disk.lock().await.unwrap();

        for path in ["../x", "/etc/passwd", "a/../../x", "./x", "a\0b"] {
            let error = disk.open(path, true).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
