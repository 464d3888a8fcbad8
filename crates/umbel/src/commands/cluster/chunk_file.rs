//! Files of exports and backups: eight magic bytes for the kind, then each message, preceded by its
//! length (four bytes, little-endian).
//!
//! Only the owner may read them: a backup holds the keys of the hashes, an export a filter's contents.
//! The writer writes to a temporary file and renames it when the last message is written and counts and
//! checksums match. The reader returns the end message only after it has verified everything before it.

use super::wrapped_chunks::{FILE_ID_BYTES, WrappedChunks, wrapped_magic};
use crate::exit::{UsageError, refuse};
use crate::interrupt::{OWNER_ONLY, PartialFile};
use anyhow::{Context, Result, anyhow};
use crc_fast::{CrcAlgorithm, Digest};
use prost::Message;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use umbel_client::proto::{BackupChunk, ExportChunk, ExportEnd, backup_chunk, export_chunk};
use umbel_client::{ClientError, MESSAGE_BYTES_MAX};
use umbel_files::{refuse_standard_input, refuse_stream};
use umbel_node::export_change::EXPORT_FILE_MAGIC;
use umbel_ports::{WRAPPED_EXTRA_BYTES, WrappingKey};

/// A kind of file, by the messages that it holds.
pub(crate) trait Chunk: Message + Default + 'static {
    /// The first bytes of an unwrapped file.
    const MAGIC: [u8; 8];
    /// The name of the kind in messages to users.
    const KIND: &'static str;
    /// The state of the check over the messages so far.
    type Check: Default + Send;

    /// Checks the next message against those before it; returns whether it is the end message.
    ///
    /// # Errors
    ///
    /// If the message is not allowed here, or counts or checksums do not match.
    fn check(&self, so_far: &mut Self::Check) -> Result<bool, String>;
}

/// Count and checksum (CRC-32C) of frames.
pub(crate) struct Frames {
    count: u64,
    digest: Digest,
}

impl Default for Frames {
    fn default() -> Self {
        Self { count: 0, digest: Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }
}

impl Frames {
    /// Adds a frame.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        self.count += 1;
        self.digest.update(frame);
    }

    /// The end message that matches these frames.
    pub(crate) fn end(&self) -> ExportEnd {
        let checksum = u32::try_from(self.digest.finalize());
        ExportEnd { frame_count: self.count, checksum: checksum.expect("a sum of 32 bits") }
    }

    /// Compares these frames with the count and checksum of an end message.
    ///
    /// # Errors
    ///
    /// The first difference, in words.
    pub(crate) fn compare(&self, count: u64, checksum: u32) -> Result<(), String> {
        if self.count != count {
            return Err(format!("{} frames, but the end says {count}", self.count));
        }
        let found = self.digest.finalize();
        if found != u64::from(checksum) {
            return Err(format!("frames have checksum {found:08x}, the end says {checksum:08x}"));
        }
        Ok(())
    }
}

/// State of the check of an export: its frames, once the header was read.
#[derive(Default)]
pub(crate) struct ExportCheck(Option<Frames>);

impl Chunk for ExportChunk {
    const MAGIC: [u8; 8] = EXPORT_FILE_MAGIC;
    const KIND: &'static str = "export";
    type Check = ExportCheck;

    fn check(&self, so_far: &mut ExportCheck) -> Result<bool, String> {
        match (&self.part, &mut so_far.0) {
            (Some(export_chunk::Part::Header(_)), frames @ None) => {
                *frames = Some(Frames::default());
                Ok(false)
            }
            (Some(export_chunk::Part::Frame(frame)), Some(frames)) => {
                frames.add(&frame.frame);
                Ok(false)
            }
            (Some(export_chunk::Part::End(end)), Some(frames)) => {
                frames.compare(end.frame_count, end.checksum).map(|()| true)
            }
            _ => Err("this message cannot stand here".to_owned()),
        }
    }
}

/// State of the check of a backup.
#[derive(Default)]
pub(crate) struct BackupCheck {
    has_header: bool,
    /// Frames of the filter whose end was not read yet.
    frames: Option<Frames>,
    filter_count: u64,
}

impl Chunk for BackupChunk {
    const MAGIC: [u8; 8] = *b"UMBLBAK1";
    const KIND: &'static str = "backup";
    type Check = BackupCheck;

    fn check(&self, so_far: &mut BackupCheck) -> Result<bool, String> {
        let has_header = so_far.has_header;
        match (&self.part, &mut so_far.frames) {
            (Some(backup_chunk::Part::Header(_)), None) if !has_header => {
                so_far.has_header = true;
            }
            (Some(backup_chunk::Part::Filter(_)), frames @ None) if has_header => {
                *frames = Some(Frames::default());
            }
            (Some(backup_chunk::Part::Frame(frame)), Some(frames)) => frames.add(&frame.frame),
            (Some(backup_chunk::Part::FilterEnd(end)), Some(frames)) => {
                frames.compare(end.frame_count, end.checksum)?;
                so_far.frames = None;
                so_far.filter_count += 1;
            }
            (Some(backup_chunk::Part::End(end)), None) if has_header => {
                let count = so_far.filter_count;
                if count != end.filter_count {
                    let said = end.filter_count;
                    return Err(format!("{count} filters, but the end says {said}"));
                }
                return Ok(true);
            }
            _ => return Err("this message cannot stand here".to_owned()),
        }
        Ok(false)
    }
}

/// A file that is being written.
pub(crate) struct ChunkWriter<C: Chunk> {
    target: PathBuf,
    aside: PartialFile,
    file: BufWriter<File>,
    check: C::Check,
    is_complete: bool,
    byte_count: u64,
    wrapped: Option<WrappedChunks>,
}

impl<C: Chunk> ChunkWriter<C> {
    /// Begins a temporary file beside the target, wrapped if there is a key.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if the file exists and `overwrite` is false, or it is `-`, a device or pipe; if it cannot be
    /// created.
    pub(crate) fn create(
        target: &Path,
        overwrite: bool,
        key: Option<Arc<WrappingKey>>,
    ) -> Result<Self> {
        let shown = target.display();
        refuse_stream("--out", target)?;
        if !overwrite && target.symlink_metadata().is_ok() {
            refuse!("{shown}: exists already; --overwrite replaces it");
        }
        target.file_name().with_context(|| format!("{shown}: not a file name"))?;
        let created = PartialFile::beside(target, OWNER_ONLY);
        let (aside, file) = created.with_context(|| format!("{shown}: cannot create"))?;
        let mut writer = Self {
            target: target.to_owned(),
            aside,
            file: BufWriter::with_capacity(1 << 20, file),
            check: C::Check::default(),
            is_complete: false,
            byte_count: 0,
            wrapped: key.map(WrappedChunks::draw).transpose()?,
        };
        match &writer.wrapped {
            Some(wrapped) => {
                let head = [&wrapped_magic(C::MAGIC)[..], &wrapped.file_id()].concat();
                writer.put(&head)?;
            }
            None => writer.put(&C::MAGIC)?,
        }
        Ok(writer)
    }

    /// Appends a message.
    ///
    /// If it does not fit the messages before it, is too long, or cannot be written.
    ///
    /// If it does not fit those before it, or cannot be written.
    pub(crate) fn write(&mut self, chunk: &C) -> Result<()> {
        let wrong = |said: String| anyhow!("the cluster sent a wrong {}: {said}", C::KIND);
        if self.is_complete {
            return Err(wrong("messages behind the end".to_owned()));
        }
        self.is_complete = chunk.check(&mut self.check).map_err(wrong)?;
        let bytes = chunk.encode_to_vec();
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(wrong(format!("a message of {} bytes", bytes.len())));
        }
        let bytes = match &mut self.wrapped {
            Some(wrapped) => wrapped.wrap(&bytes)?,
            None => bytes,
        };
        let length = u32::try_from(bytes.len()).context("a message's length")?;
        self.put(&length.to_le_bytes())?;
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.byte_count += bytes.len() as u64;
        let shown = self.target.display();
        self.file.write_all(bytes).with_context(|| format!("{shown}: cannot write"))
    }

    /// Syncs the file, renames it to its target and returns its length in bytes.
    ///
    /// # Errors
    ///
    /// If the last message is missing, or the file cannot be written; the temporary file is removed then.
    pub(crate) fn finish(self) -> Result<u64> {
        let shown = self.target.display();
        if !self.is_complete {
            return Err(anyhow!("the cluster's {} broke off before its end; try again", C::KIND));
        }
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).with_context(|| format!("{shown}: cannot write"))?;
        self.aside.rename(&self.target).with_context(|| format!("{shown}: cannot rename"))?;
        Ok(self.byte_count)
    }
}

/// The error of a copy that had begun to arrive for this file: what is there of it, and what to do. The cluster's own words
/// are about calls, which a copy that broke off is not: nothing was too much for it, and no address is wrong.
pub(crate) fn broken_off<C: Chunk>(error: ClientError, target: &Path) -> anyhow::Error {
    let (kind, shown) = (C::KIND, target.display());
    let broken = format!("{shown}: the {kind} broke off, and nothing of it was kept");
    match error {
        ClientError::Unavailable(failure) => {
            anyhow!("{broken}: node {}: {}; run it again", failure.node, failure.message)
        }
        error => anyhow::Error::new(error).context(broken),
    }
}

/// A file that is being read.
pub(crate) struct ChunkReader<C: Chunk> {
    name: String,
    file: BufReader<File>,
    offset: u64,
    check: C::Check,
    is_complete: bool,
    wrapped: Option<WrappedChunks>,
    chunks: PhantomData<C>,
}

impl<C: Chunk> ChunkReader<C> {
    /// Opens a regular file and checks its magic bytes.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is of another kind; a [`UsageError`] if it is wrapped and there is no key, or a key and
    /// it is not wrapped, or if it is `-`, a pipe
    /// or a device.
    pub(crate) fn open(path: &Path, key: Option<Arc<WrappingKey>>) -> Result<Self> {
        let name = path.display().to_string();
        refuse_standard_input(&name, path)?;
        let cannot = || format!("{name}: cannot read");
        // Looked at before it is opened: a pipe would wait for somebody who writes to it.
        let metadata = std::fs::metadata(path).with_context(cannot)?;
        if !metadata.is_file() {
            let kind = C::KIND;
            refuse!(
                "{name}: not a regular file: the {kind} is read more than once, checked first and then used: store it \
                 in a file"
            );
        }
        let file = File::open(path).with_context(cannot)?;
        let mut reader = Self {
            name,
            file: BufReader::with_capacity(1 << 20, file),
            offset: 0,
            check: C::Check::default(),
            is_complete: false,
            wrapped: None,
            chunks: PhantomData,
        };
        let magic = reader.take(C::MAGIC.len(), "the first eight bytes")?;
        if magic == wrapped_magic(C::MAGIC) {
            let no_key = || {
                let (name, kind) = (&reader.name, C::KIND);
                UsageError(format!("{name}: the {kind} is wrapped: --key-file names its key"))
            };
            let key = key.ok_or_else(no_key)?;
            let file_id = reader.take(FILE_ID_BYTES, "the drawn bytes")?;
            let file_id = file_id.try_into().expect("so many bytes were taken");
            reader.wrapped = Some(WrappedChunks::new(key, file_id));
            return Ok(reader);
        }
        if magic != C::MAGIC {
            let (name, kind) = (&reader.name, C::KIND);
            let expected = String::from_utf8_lossy(&C::MAGIC).into_owned();
            return Err(anyhow!("{name}: not an umbel {kind}: it does not begin with {expected}"));
        }
        // Whoever gives a key expects that nobody without it can have written the file.
        if key.is_some() {
            let (name, kind) = (&reader.name, C::KIND);
            refuse!(
                "{name}: this {kind} is not encrypted: leave --key-file out to read it all the same"
            );
        }
        Ok(reader)
    }

    /// Reads and checks a whole file; returns the number of its messages.
    ///
    /// # Errors
    ///
    /// The first damage, with its offset.
    pub(crate) fn verify(path: &Path, key: Option<Arc<WrappingKey>>) -> Result<u64> {
        let mut reader = Self::open(path, key)?;
        let mut count = 0;
        while reader.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// The next message; None after the end message.
    ///
    /// # Errors
    ///
    /// If the file is damaged or truncated, with the offset.
    pub(crate) fn next(&mut self) -> Result<Option<C>> {
        if self.is_complete {
            return match self.file.read(&mut [0]) {
                Ok(0) => Ok(None),
                Ok(_) => Err(self.damaged(self.offset, "bytes behind the end")),
                Err(error) => Err(error).with_context(|| format!("{}: cannot read", self.name)),
            };
        }
        let start = self.offset;
        let length = self.take(4, "the length of a message")?;
        let length = u32::from_le_bytes(length.try_into().expect("four bytes were taken"));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let most = MESSAGE_BYTES_MAX + self.wrapped.as_ref().map_or(0, |_| WRAPPED_EXTRA_BYTES);
        if length > most {
            return Err(
                self.damaged(start, &format!("a message of {length} bytes, at most {most}"))
            );
        }
        let bytes = self.take(length, "a message")?;
        let unwrapped = self.wrapped.as_mut().map(|wrapped| wrapped.unwrap(&bytes));
        let bytes = match unwrapped {
            None => bytes,
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                let key = self.wrapped.as_ref().map_or("", WrappedChunks::key_path);
                return Err(self.damaged(start, &format!("{error} (--key-file {key})")));
            }
        };
        let chunk = C::decode(&*bytes)
            .map_err(|error| self.damaged(start, &format!("not a message: {error}")))?;
        match chunk.check(&mut self.check) {
            Ok(is_complete) => self.is_complete = is_complete,
            Err(said) => return Err(self.damaged(start, &said)),
        }
        Ok(Some(chunk))
    }

    /// Reads the next `byte_count` bytes. Memory grows with the bytes that are there, not with the
    /// announced length.
    fn take(&mut self, byte_count: usize, what: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file
            .by_ref()
            .take(byte_count as u64)
            .read_to_end(&mut bytes)
            .with_context(|| format!("{}: cannot read", self.name))?;
        let found = bytes.len();
        if found < byte_count {
            let at = self.offset + found as u64;
            let said = format!("the file ends within {what}, {found} of {byte_count} bytes");
            return Err(self.damaged(at, &said));
        }
        self.offset += byte_count as u64;
        Ok(bytes)
    }

    fn damaged(&self, offset: u64, said: &str) -> anyhow::Error {
        anyhow!("{}: damaged {} at byte {offset}: {said}", self.name, C::KIND)
    }
}

/// Most messages that are read ahead of sending.
const WAITING_CHUNKS_MAX: usize = 4;

/// Reads a file's messages on a thread of its own, into a stream to be sent. If the file proves to be
/// damaged, the stream ends early, without the end message, and the thread returns the error.
///
/// # Errors
///
/// If the file cannot be opened or is of another kind; a [`UsageError`] if it needs a key and there is
/// none.
pub(crate) fn stream<C: Chunk, M: Send + 'static>(
    path: &Path,
    key: Option<Arc<WrappingKey>>,
    message: impl Fn(C) -> M + Send + 'static,
) -> Result<(ReceiverStream<M>, JoinHandle<Result<()>>)> {
    let mut reader = ChunkReader::<C>::open(path, key)?;
    let (sender, receiver) = mpsc::channel(WAITING_CHUNKS_MAX);
    let reading = tokio::task::spawn_blocking(move || {
        while let Some(chunk) = reader.next()? {
            if sender.blocking_send(message(chunk)).is_err() {
                break; // The receiver is gone: the call has failed and reports why.
            }
        }
        Ok(())
    });
    Ok((ReceiverStream::new(receiver), reading))
}
