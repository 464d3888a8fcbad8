//! Where output goes: standard output, or a file or an object that appears under its name only when all is done.
//!
//! A file is written aside, in the same directory, fsynced, and renamed at the commit of the whole job. Whatever ends
//! the job earlier leaves nothing that looks finished. An object is uploaded in parts, and put together at the commit.
//! A name that ends in `.gz`, `.zst`, `.xz`, `.bz2` or `.lz4` is compressed.

use crate::error::{Context, DedupError, Result};
use lz4_flex::frame::{BlockSize, FrameInfo};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use umbel_files::Likeness;
use umbel_files::UsageError;
use umbel_files::{ANY_NEW_FILE, OWNER_ONLY, PartialFile};
use umbel_objects::{KeptUpload, PendingObject, Upload};
use umbel_records::Compression;

/// zstd level of outputs: the library's default.
const ZSTD_LEVEL: i32 = 3;

/// xz level of outputs: the default of `xz(1)`.
const XZ_LEVEL: u32 = 6;

/// What takes the bytes, once they are packed.
enum Place {
    File(File),
    Object(Box<Upload>),
}

impl Write for Place {
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
    Plain(Place),
    Gzip(flate2::write::GzEncoder<Place>),
    Zstd(zstd::Encoder<'static, Place>),
    Xz(liblzma::write::XzEncoder<Place>),
    Bzip2(bzip2::write::BzEncoder<Place>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Place>>),
}

impl Encoder {
    fn new(file: Place, compression: Compression) -> io::Result<Self> {
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

    fn finish(self) -> io::Result<Place> {
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
    /// When the file was written last, if its content is that of another.
    modified: Option<SystemTime>,
    /// The last record lacked the byte that ends it: the next one needs it before its own.
    unterminated: bool,
}

/// Where an output is until the commit.
enum Aside {
    /// Nowhere: standard output and devices are written directly.
    Nowhere,
    /// In a file aside, with its name to be.
    File(PartialFile, PathBuf),
    /// In the store, where nobody sees it.
    Store,
}

/// An output that is complete and durable, but not yet under its name; nothing for one that was written directly.
pub(crate) struct Complete(pub(super) Option<Finished>);

/// Where an output is that outlives the process.
pub(crate) enum Kept {
    /// In a file aside.
    File(PathBuf),
    /// In the store.
    Upload(KeptUpload),
}

/// Where it waits for the commit.
pub(super) enum Finished {
    File(PartialFile, PathBuf),
    Object(PendingObject),
}

impl Complete {
    /// Lets the file aside or the upload outlive the process; where it is and its name to be, if there is one.
    pub(crate) fn keep(self) -> Option<(Kept, PathBuf)> {
        match self.0? {
            Finished::File(aside, path) => Some((Kept::File(aside.keep()), path)),
            Finished::Object(object) => {
                let path = PathBuf::from(object.address().to_string());
                Some((Kept::Upload(object.keep()?), path))
            }
        }
    }
}

/// The compression that a file name asks for.
pub(crate) fn compression_of_name(path: &Path) -> Compression {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "gzip") => Compression::Gzip,
        Some("zst" | "zstd") => Compression::Zstd,
        Some("xz") => Compression::Xz,
        Some("bz2") => Compression::Bzip2,
        Some("lz4") => Compression::Lz4,
        _ => Compression::Plain,
    }
}

impl Sink {
    /// Standard output.
    pub(crate) fn stdout() -> Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        let encoder = Encoder::Plain(Place::File(File::from(file)));
        let name = "standard output".to_owned();
        Ok(Self { name, encoder, aside: Aside::Nowhere, modified: None, unterminated: false })
    }

    /// A file under this name, compressed as the name says.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if the file exists and may not be replaced; else what the system said, with the path.
    pub(crate) fn file(path: &Path, overwrite: bool) -> Result<Self> {
        Self::packed_file(path, compression_of_name(path), overwrite)
    }

    /// A file under this name, compressed like this.
    ///
    /// # Errors
    ///
    /// As for [`Sink::file`].
    pub(crate) fn packed_file(
        path: &Path,
        compression: Compression,
        overwrite: bool,
    ) -> Result<Self> {
        if !overwrite {
            refuse_existing_file(path)?;
        }
        // What replaces a file is seen by those who saw that.
        let like = std::fs::metadata(path).ok().and_then(|metadata| Likeness::of(&metadata));
        Self::file_aside(path, compression, like, PartialFile::beside)
    }

    /// An object under this name, compressed like this.
    ///
    /// # Errors
    ///
    /// What the system said, with the name.
    pub(crate) fn object(path: &Path, compression: Compression, upload: Upload) -> Result<Self> {
        let name = path.display().to_string();
        let encoder = Encoder::new(Place::Object(Box::new(upload)), compression);
        let encoder = encoder.with_context(|| format!("{name}: cannot create"))?;
        Ok(Self { name, encoder, aside: Aside::Store, modified: None, unterminated: false })
    }

    /// A file to be under this name, whatever stands there, written under another one until then, which `create` makes
    /// with the permissions that it is told. At no time may more people read it than `like` says.
    ///
    /// # Errors
    ///
    /// What the system said, with the path.
    pub(crate) fn file_aside(
        path: &Path,
        compression: Compression,
        like: Option<Likeness>,
        create: impl FnOnce(&Path, u32) -> io::Result<(PartialFile, File)>,
    ) -> Result<Self> {
        if !is_device(path) {
            return Self::new_file(path, compression, like, create);
        }
        let name = path.display().to_string();
        let cannot = || format!("{name}: cannot create");
        let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
        let encoder = Encoder::new(Place::File(file), compression).with_context(cannot)?;
        Ok(Self { name, encoder, aside: Aside::Nowhere, modified: None, unterminated: false })
    }

    /// The same where no device stands, and none may be written to.
    ///
    /// # Errors
    ///
    /// What the system said, with the path.
    pub(crate) fn new_file(
        path: &Path,
        compression: Compression,
        like: Option<Likeness>,
        create: impl FnOnce(&Path, u32) -> io::Result<(PartialFile, File)>,
    ) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = || format!("{name}: cannot create");
        let mode = if like.is_some() { OWNER_ONLY } else { ANY_NEW_FILE };
        let (aside, file) = create(path, mode).with_context(cannot)?;
        if let Some(like) = like {
            like.give(&file).with_context(cannot)?;
        }
        let encoder = Encoder::new(Place::File(file), compression).with_context(cannot)?;
        let aside = Aside::File(aside, path.to_owned());
        Ok(Self { name, encoder, aside, modified: None, unterminated: false })
    }

    /// The file is what it was at this time: it bears that instead of the present.
    pub(crate) fn set_modified(&mut self, time: SystemTime) {
        self.modified = Some(time);
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let outcome = self.encoder.write_all(bytes);
        outcome.map_err(|error| self.explain(error))
    }

    /// Writes whole records, the last of which may lack the byte that ends it. Two records never run into one.
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

    /// Writes what is held back and makes it durable.
    pub(crate) fn complete(self) -> Result<Complete> {
        let Self { name, encoder, aside, modified, .. } = self;
        let is_direct = matches!(aside, Aside::Nowhere);
        let finish = || match (encoder.finish()?, aside) {
            (Place::File(file), Aside::File(aside, path)) => {
                if let Some(time) = modified {
                    file.set_modified(time)?;
                }
                file.sync_all()?;
                Ok(Some(Finished::File(aside, path)))
            }
            (Place::Object(upload), _) => {
                Ok(Some(Finished::Object(upload.complete().map_err(io::Error::other)?)))
            }
            (Place::File(_), _) => Ok(None),
        };
        finish().map(Complete).map_err(|error| explain(&name, is_direct, error))
    }

    fn explain(&self, error: io::Error) -> DedupError {
        explain(&self.name, matches!(self.aside, Aside::Nowhere), error)
    }
}

fn explain(name: &str, is_direct: bool, error: io::Error) -> DedupError {
    if error.kind() == io::ErrorKind::BrokenPipe && is_direct {
        return DedupError::ClosedPipe;
    }
    DedupError::from(error).context(format!("{name}: cannot write; nothing was put under its name"))
}

/// Whether a device or pipe stands at this path: it is written directly.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Refuses a path at which a file (not a device or pipe, which is only written to) stands.
///
/// # Errors
///
/// A [`UsageError`] that names it.
pub fn refuse_existing_file(path: &Path) -> Result<()> {
    if path.exists() && !is_device(path) {
        return Err(
            UsageError(format!("{} exists: --overwrite replaces it", path.display())).into()
        );
    }
    Ok(())
}

/// The name under which a file is written: in the same directory, hidden, of its writer.
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
        commit(vec![complete]).unwrap();
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
        commit(vec![sink.complete().unwrap()]).unwrap();
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
