//! Sinks for outputs: standard output, a file or an object. A file or object gets its name at the commit of the job.
//!
//! A file is written under a temporary name in the same directory, synced, and renamed at the commit. An object is uploaded
//! in parts, and the upload is completed at the commit. So a job that ends earlier leaves no output that looks complete.
//! Output with a name that ends in `.gz`, `.zst`, `.xz`, `.bz2` or `.lz4` is compressed.

use crate::error::{Context, DedupError, Result};
use lz4_flex::frame::{BlockSize, FrameInfo};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use umbel_files::{
    ANY_NEW_FILE, Likeness, OWNER_ONLY, PartialFile, is_device, open_device, refuse_existing_file,
};
use umbel_objects::{KeptUpload, PendingObject, Upload};
use umbel_records::Compression;

/// zstd level of outputs: the library's default.
const ZSTD_LEVEL: i32 = 3;

/// xz level of outputs: the default of `xz(1)`.
const XZ_LEVEL: u32 = 6;

/// Where compressed bytes are written.
enum Target {
    File(File),
    Object(Box<Upload>),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Object(upload) => upload.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Object(upload) => upload.flush(),
        }
    }
}

enum Encoder {
    Plain(Target),
    Gzip(flate2::write::GzEncoder<Target>),
    Zstd(zstd::Encoder<'static, Target>),
    Xz(liblzma::write::XzEncoder<Target>),
    Bzip2(bzip2::write::BzEncoder<Target>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Target>>),
}

impl Encoder {
    fn new(file: Target, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::Plain => Self::Plain(file),
            Compression::Gzip => {
                Self::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
            }
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(file, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Compression::Xz => Self::Xz(liblzma::write::XzEncoder::new(file, XZ_LEVEL)),
            Compression::Bzip2 => {
                Self::Bzip2(bzip2::write::BzEncoder::new(file, bzip2::Compression::best()))
            }
            Compression::Lz4 => {
                let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
                Self::Lz4(Box::new(lz4_flex::frame::FrameEncoder::with_frame_info(info, file)))
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Xz(encoder) => encoder.write_all(bytes),
            Self::Bzip2(encoder) => encoder.write_all(bytes),
            Self::Lz4(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<Target> {
        match self {
            Self::Plain(file) => Ok(file),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Xz(encoder) => encoder.finish(),
            Self::Bzip2(encoder) => encoder.finish(),
            Self::Lz4(encoder) => encoder.finish().map_err(Into::into),
        }
    }
}

/// An output that is being written.
pub(crate) struct Sink {
    name: String,
    encoder: Encoder,
    aside: Aside,
    /// The modification time to set, if the content is that of another file.
    modified: Option<SystemTime>,
    /// Whether the last record had no end byte: it is written before the next record.
    unterminated: bool,
    /// Whether the reader of a direct output has closed it: further bytes are left out, and the job goes on.
    is_closed: bool,
}

/// The temporary name of an output before the commit.
enum Aside {
    /// None: standard output and devices are written directly.
    Nowhere,
    /// A temporary file.
    File(FileAside),
    /// An upload to a store.
    Store,
}

impl Aside {
    /// Whether this error means that the reader of a direct output has closed it.
    fn is_closed_by(&self, error: &io::Error) -> bool {
        matches!(self, Self::Nowhere) && is_closed_pipe(error)
    }
}

/// A complete and durable output before the commit.
pub(crate) struct Complete {
    /// What is to be committed; nothing of an output that was written directly.
    pub(super) finished: Option<Finished>,
    /// Whether the output was written directly, and its reader closed it before the end.
    pub(crate) was_closed: bool,
}

/// An output before the commit that outlives the process.
pub(crate) enum Kept {
    /// A temporary file.
    File(PathBuf),
    /// An upload to a store.
    Upload(KeptUpload),
}

/// What is to be committed.
pub(super) enum Finished {
    File(FileAside),
    Object(PendingObject),
}

/// A file under its temporary name.
pub(super) struct FileAside {
    pub(super) partial: PartialFile,
    /// The final name.
    pub(super) path: PathBuf,
    /// Whether it may replace a file that has this name by the commit.
    pub(super) replaces: bool,
}

impl Complete {
    /// An output that was written directly, and whose reader closed it before the end.
    pub(crate) const fn closed() -> Self {
        Self { finished: None, was_closed: true }
    }

    /// Fails if the reader of a direct output has closed it before the end.
    ///
    /// # Errors
    ///
    /// [`DedupError::ClosedPipe`].
    pub(crate) fn read_to_its_end(self) -> Result<Self> {
        if self.was_closed { Err(DedupError::ClosedPipe) } else { Ok(self) }
    }

    /// Makes the temporary file or the upload outlive the process, and returns it with its final name, if there is one.
    pub(crate) fn keep(self) -> Option<(Kept, PathBuf)> {
        match self.finished? {
            Finished::File(file) => Some((Kept::File(file.partial.keep()), file.path)),
            Finished::Object(object) => {
                let path = PathBuf::from(object.address().to_string());
                Some((Kept::Upload(object.keep()?), path))
            }
        }
    }
}

impl Sink {
    const fn new(name: String, encoder: Encoder, aside: Aside) -> Self {
        Self { name, encoder, aside, modified: None, unterminated: false, is_closed: false }
    }

    /// Standard output.
    pub(crate) fn stdout() -> Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        let encoder = Encoder::Plain(Target::File(File::from(file)));
        Ok(Self::new("standard output".to_owned(), encoder, Aside::Nowhere))
    }

    /// A file with this name, compressed according to its extension.
    ///
    /// # Errors
    ///
    /// A [`UsageError`](umbel_files::UsageError) if the file exists and may not be replaced; otherwise the
    /// system's error, with the path.
    pub(crate) fn file(path: &Path, overwrite: bool) -> Result<Self> {
        Self::packed_file(path, Compression::of_name(path), overwrite)
    }

    /// A file with this name and compression.
    ///
    /// # Errors
    ///
    /// As for [`Sink::file`].
    pub(crate) fn packed_file(
        path: &Path,
        compression: Compression,
        overwrite: bool,
    ) -> Result<Self> {
        let replaces = overwrite || is_dangling(path);
        if !overwrite {
            refuse_existing_file(path)?;
        }
        // A file that replaces another has its permissions.
        let like = std::fs::metadata(path).ok().and_then(|metadata| Likeness::of(&metadata));
        Self::file_aside(path, compression, like, replaces, PartialFile::beside)
    }

    /// An object with this name and compression.
    ///
    /// # Errors
    ///
    /// The store's error, with the name.
    pub(crate) fn object(path: &Path, compression: Compression, upload: Upload) -> Result<Self> {
        let name = path.display().to_string();
        let encoder = Encoder::new(Target::Object(Box::new(upload)), compression);
        let encoder = encoder.with_context(|| format!("{name}: cannot create"))?;
        Ok(Self::new(name, encoder, Aside::Store))
    }

    /// A file with this final name. An existing file is replaced at the commit, or else the output is refused.
    /// `create` creates the temporary file, with the given permissions, to which it is written. At no time can
    /// more users read it than `like` allows.
    ///
    /// # Errors
    ///
    /// The system's error, with the path.
    pub(crate) fn file_aside(
        path: &Path,
        compression: Compression,
        like: Option<Likeness>,
        replaces: bool,
        create: impl FnOnce(&Path, u32) -> io::Result<(PartialFile, File)>,
    ) -> Result<Self> {
        if !is_device(path) {
            return Self::new_file(path, compression, like, replaces, create);
        }
        let name = path.display().to_string();
        let cannot = || format!("{name}: cannot create");
        let file = open_device(path).with_context(cannot)?;
        let encoder = Encoder::new(Target::File(file), compression).with_context(cannot)?;
        Ok(Self::new(name, encoder, Aside::Nowhere))
    }

    /// As [`Sink::file_aside`], for a path that is not a device and must not become one.
    ///
    /// # Errors
    ///
    /// The system's error, with the path.
    pub(crate) fn new_file(
        path: &Path,
        compression: Compression,
        like: Option<Likeness>,
        replaces: bool,
        create: impl FnOnce(&Path, u32) -> io::Result<(PartialFile, File)>,
    ) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = || format!("{name}: cannot create");
        let mode = if like.is_some() { OWNER_ONLY } else { ANY_NEW_FILE };
        let (partial, file) = create(path, mode).with_context(|| {
            // The file that is there may be writable: its folder is not.
            let beside = if path.exists() { " a file beside it" } else { "" };
            format!("{name}: cannot create{beside}")
        })?;
        if let Some(like) = like {
            like.give(&file).with_context(cannot)?;
        }
        let encoder = Encoder::new(Target::File(file), compression).with_context(cannot)?;
        let aside = FileAside { partial, path: path.to_owned(), replaces };
        Ok(Self::new(name, encoder, Aside::File(aside)))
    }

    /// Sets the file's modification time, because its content is that of an input of this time.
    pub(crate) fn set_modified(&mut self, time: SystemTime) {
        self.modified = Some(time);
    }

    /// Writes bytes. Once the reader of a direct output has closed it, they are left out without an error: the
    /// other outputs of the job do not depend on that reader.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match self.encoder.write_all(bytes) {
            Err(error) if self.aside.is_closed_by(&error) => self.is_closed = true,
            outcome => outcome.map_err(|error| explain(&self.name, self.is_direct(), error))?,
        }
        Ok(())
    }

    /// Whether it is written directly, without a temporary name.
    fn is_direct(&self) -> bool {
        matches!(self.aside, Aside::Nowhere)
    }

    /// Fails if the reader of a direct output has closed it. Whoever writes nothing else may end then.
    ///
    /// # Errors
    ///
    /// [`DedupError::ClosedPipe`].
    pub(crate) fn check_reader(&self) -> Result<()> {
        if self.is_closed { Err(DedupError::ClosedPipe) } else { Ok(()) }
    }

    /// Writes whole records. If the last one has no end byte, it is added before the next record.
    pub(crate) fn write_records(&mut self, bytes: &[u8], record_end: u8) -> Result<()> {
        if let Some(last) = bytes.last() {
            if self.unterminated {
                self.write(&[record_end])?;
            }
            self.unterminated = *last != record_end;
            self.write(bytes)?;
        }
        Ok(())
    }

    /// Writes what is buffered, and makes the output durable.
    pub(crate) fn complete(self) -> Result<Complete> {
        let is_direct = self.is_direct();
        let Self { name, encoder, aside, modified, is_closed, .. } = self;
        if is_closed {
            return Ok(Complete::closed());
        }
        let finish = || match (encoder.finish()?, aside) {
            (Target::File(file), Aside::File(aside)) => {
                if let Some(time) = modified {
                    file.set_modified(time)?;
                }
                file.sync_all()?;
                Ok(Some(Finished::File(aside)))
            }
            (Target::Object(upload), _) => {
                Ok(Some(Finished::Object(upload.complete().map_err(io::Error::other)?)))
            }
            (Target::File(_), _) => Ok(None),
        };
        match finish() {
            Ok(finished) => Ok(Complete { finished, was_closed: false }),
            Err(error) if is_direct && is_closed_pipe(&error) => Ok(Complete::closed()),
            Err(error) => Err(explain(&name, is_direct, error)),
        }
    }
}

fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn explain(name: &str, is_direct: bool, error: io::Error) -> DedupError {
    let stands = if is_direct {
        "what was written there is not complete"
    } else {
        "nothing was put under its name"
    };
    DedupError::from(error).context(format!("{name}: cannot write; {stands}"))
}

/// Whether this path is a link to nothing. It counts as no file, so an output replaces it without being asked to.
pub(crate) fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

/// The temporary name of a file: in the same directory, hidden, with the writer in the name.
pub(crate) fn path_aside(path: &Path, writer: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{writer}.partial"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::super::commit::commit;
    use super::*;
    use crate::error::chain_text;
    use std::io::Read;

    #[test]
    fn a_file_appears_at_the_commit_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.txt");
        let mut sink = Sink::file(&path, false).unwrap();
        sink.write_records(b"a\nb", b'\n').unwrap();
        sink.write_records(b"c", b'\n').unwrap();
        let complete = sink.complete().unwrap();
        assert!(!path.exists());
        commit(complete).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a\nb\nc");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(Sink::file(&path, false).err().unwrap().is_usage());
        drop(Sink::file(&path, true).unwrap());
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn names_choose_the_compression() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.gz");
        let mut sink = Sink::file(&path, false).unwrap();
        sink.write(b"hello").unwrap();
        commit(sink.complete().unwrap()).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_full_device_is_an_error_that_names_it() {
        let full = Path::new("/dev/full");
        if full.exists() {
            let error = Sink::file(full, false).unwrap().write(b"x").unwrap_err();
            assert!(chain_text(&error).starts_with("/dev/full: cannot write"));
        }
    }
}
