//! Database files of Redis (.rdb): imports a RedisBloom filter from one, and reads items from its keys.
//!
//! A file is read twice: first to its end, to verify its checksum before the cluster receives anything,
//! then up to the value that is wanted.

use super::source::{BLOOM_TYPE, Packer, Unwanted, cuckoo_refused};
use crate::commands::filter::items::ReadBatch;
use crate::exit::UsageError;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use umbel_client::proto::{
    ExportEnd, ExportFrame, ExportHeader, ImportChunk, ImportHeader, import_chunk,
};
use umbel_gateway::redis_bloom_value::{self, CUCKOO_TYPE_NAME, ValuePart};
use umbel_rdb::{Key, RdbError, RdbReader, Value};
use umbel_resp::glob;

/// Most names that an error lists for the user to choose from.
const TOLD_NAMES_MAX: usize = 5;

/// A server's address or a file.
#[derive(Clone, Debug)]
pub(crate) enum Given<A> {
    /// The address.
    Server(A),
    /// The file.
    File(PathBuf),
}

/// Parses an address if the text contains `://`; else the text is the path of a file.
///
/// # Errors
///
/// If the address cannot be parsed.
pub(super) fn parse_given<A>(
    text: &str,
    address: impl Fn(&str) -> Result<A, String>,
) -> Result<Given<A>, String> {
    if text.contains("://") {
        address(text).map(Given::Server)
    } else {
        Ok(Given::File(text.into()))
    }
}

/// Which key of a file.
#[derive(Args)]
pub(crate) struct FileArgs {
    /// The key, where --from is a database file of Redis (.rdb)
    #[arg(long, value_name = "KEY", requires = "from")]
    key: Option<OsString>,
    /// The number of the file's database [default: 0]
    #[arg(long, value_name = "NUMBER", requires = "from")]
    db: Option<u64>,
}

impl FileArgs {
    /// Refuses `--key` and `--db` with the address of a server.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names the option.
    pub(crate) fn refused_for_servers(&self) -> Result<(), UsageError> {
        let what = "is for files: the address of a server says which key";
        self.option().map_or(Ok(()), |option| Err(UsageError(format!("{option} {what}"))))
    }

    /// Refuses `--key` and `--db` without `--from`. The parser does not report that: an option it
    /// requires may be missing if it conflicts with another one that is given.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names the option.
    pub(crate) fn refused_without_from(&self) -> Result<(), UsageError> {
        self.option()
            .map_or(Ok(()), |option| Err(UsageError(format!("{option} needs --from FILE"))))
    }

    /// The first of the options that is given.
    fn option(&self) -> Option<&'static str> {
        match (&self.key, self.db) {
            (Some(_), _) => Some("--key"),
            (None, Some(_)) => Some("--db"),
            (None, None) => None,
        }
    }

    /// The database in this file.
    pub(super) fn database(&self, path: &Path) -> FileDatabase {
        FileDatabase { path: path.to_owned(), number: self.db.unwrap_or(0) }
    }

    /// The key's name, if given.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        self.key.clone().map(OsString::into_encoded_bytes)
    }
}

/// A database in a file.
#[derive(Clone)]
pub(super) struct FileDatabase {
    path: PathBuf,
    number: u64,
}

impl fmt::Display for FileDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.number {
            0 => Ok(()),
            number => write!(f, ", database {number}"),
        }
    }
}

/// The file, database and key, for messages.
pub(super) fn key_of(database: &FileDatabase, key: &[u8]) -> String {
    format!("{database}, key {}", shown(key))
}

fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

impl FileDatabase {
    fn open(&self) -> Result<RdbReader<File>> {
        let file = umbel_files::open_regular(&self.path).context("cannot read it")?;
        Ok(RdbReader::new(file)?)
    }

    /// Reads the whole file and calls `see` with each key of this database.
    fn keys(&self, mut see: impl FnMut(Key) -> Result<()>) -> Result<()> {
        let mut reader = self.open()?;
        while let Some(key) = reader.next_key()? {
            if key.database == self.number {
                see(key)?;
            }
        }
        Ok(())
    }

    /// The value of a key, after the whole file was read.
    fn value_of(&self, name: &[u8]) -> Result<Value> {
        let mut found = None;
        self.keys(|key| {
            if key.name == name {
                found = Some(key.value);
            }
            Ok(())
        })?;
        found.ok_or_else(|| anyhow!("there is no key {} in this database", shown(name)))
    }

    /// Finds the key of the filter: the given one, or the only filter of the database.
    ///
    /// # Errors
    ///
    /// If the file is damaged, the key is missing or no filter, or no key is given and there is not
    /// exactly one filter.
    pub(super) fn filter(&self, name: Option<Vec<u8>>) -> Result<Vec<u8>> {
        if let Some(name) = name {
            return match &*self.value_of(&name)?.type_name() {
                BLOOM_TYPE => Ok(name),
                CUCKOO_TYPE_NAME => Err(cuckoo_refused()),
                other => bail!("it is of type {other}: `umbel filter insert --from` takes items"),
            };
        }
        let (mut names, mut count) = (Vec::new(), 0_u64);
        self.keys(|key| {
            if key.value.type_name() == BLOOM_TYPE {
                count += 1;
                if names.len() < TOLD_NAMES_MAX {
                    names.push(key.name);
                }
            }
            Ok(())
        })?;
        match count {
            0 => bail!("there is no filter of RedisBloom ({BLOOM_TYPE}) in this database"),
            1 => names.pop().context("it was counted"),
            _ => {
                let shown_names: Vec<String> = names.iter().map(|name| shown(name)).collect();
                bail!(
                    "there are {count} filters, {}: which one, says --key",
                    shown_names.join(", ")
                )
            }
        }
    }

    /// Opens the file and advances to the value of a key.
    fn at_key(&self, name: &[u8]) -> Result<RdbReader<File>> {
        let mut reader = self.open()?;
        while let Some(key) = reader.next_key()? {
            if key.database == self.number && key.name == name {
                return Ok(reader);
            }
        }
        bail!("the key has gone: is the file being written?")
    }

    /// Finds the key of the filter, as [`filter`](Self::filter) does, and advances to its value: a node waits for
    /// the first message of an import only for a while, and what lies before the key may take longer.
    ///
    /// # Errors
    ///
    /// As for [`filter`](Self::filter).
    pub(super) fn at_filter(&self, name: Option<Vec<u8>>) -> Result<(Vec<u8>, RdbReader<File>)> {
        let key = self.filter(name)?;
        let reader = self.at_key(&key)?;
        Ok((key, reader))
    }
}

/// Sends the filter at which a reader is as an import. If the file is damaged, the stream ends without its end
/// message.
///
/// # Errors
///
/// If the file is damaged, or the value is no supported filter.
pub(super) fn send_filter(
    mut reader: RdbReader<File>,
    name: &str,
    chunks: &mpsc::Sender<ImportChunk>,
) -> Result<()> {
    let send = |part| {
        let part = match part {
            ValuePart::Head { settings, .. } => {
                let exported = ExportHeader {
                    filter: None,
                    shard_count: 1,
                    shards_founded: 1,
                    settings,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    log_indexes: Vec::new(),
                };
                let (name, exported) = (name.to_owned(), Some(exported));
                import_chunk::Part::Header(ImportHeader { name, exported })
            }
            ValuePart::Frame(frame) => import_chunk::Part::Frame(ExportFrame { shard: 0, frame }),
            ValuePart::End { frame_count, checksum } => {
                import_chunk::Part::End(ExportEnd { frame_count, checksum })
            }
        };
        let sent = chunks.blocking_send(ImportChunk { part: Some(part) });
        sent.map_err(|_| redis_bloom_value::Unwanted)
    };
    let read = reader.read_module(|id, module| redis_bloom_value::read_value(id, module, send));
    match read {
        // The call has failed and reports why.
        Err(redis_bloom_value::ValueError::Unwanted) => Ok(()),
        read => Ok(read?),
    }
}

/// Which items of a file to read.
pub(super) enum FileWhat {
    /// The items of a key.
    Key(Vec<u8>),
    /// The names of the keys that match a pattern, without the prefix that all of them must have.
    Names { pattern: Vec<u8>, prefix: Vec<u8> },
}

/// The items to read from a file.
pub(super) struct FileSource {
    pub(super) database: FileDatabase,
    pub(super) what: FileWhat,
}

impl fmt::Display for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            FileWhat::Key(key) => f.write_str(&key_of(&self.database, key)),
            FileWhat::Names { pattern, .. } => {
                write!(f, "{}, keys {}", self.database, shown(pattern))
            }
        }
    }
}

/// Why reading ended early: an error, or the receiver of the items is gone.
enum Stop {
    Failed(anyhow::Error),
    Unwanted,
}

impl From<RdbError> for Stop {
    fn from(error: RdbError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unwanted> for Stop {
    fn from(_: Unwanted) -> Self {
        Self::Unwanted
    }
}

impl FileSource {
    /// Sends all items, from a thread that may block; an error is sent last.
    pub(super) fn send(&self, sender: mpsc::Sender<Result<ReadBatch>>) {
        let mut packer = Packer::new(sender);
        let outcome = self.read(&mut packer).and_then(|()| Ok(packer.blocking_flush()?));
        match outcome {
            Err(Stop::Failed(error)) => packer.blocking_fail(error, self),
            Ok(()) if matches!(self.what, FileWhat::Names { .. }) => packer.note_none(self),
            Ok(()) | Err(Stop::Unwanted) => {}
        }
    }

    fn read(&self, packer: &mut Packer) -> Result<(), Stop> {
        match &self.what {
            FileWhat::Key(key) => {
                let value = self.database.value_of(key)?;
                if !matches!(value, Value::List | Value::Set | Value::SortedSet | Value::Hash) {
                    return Err(super::source::no_items(&value.type_name()).into());
                }
                let mut reader = self.database.at_key(key)?;
                reader.read_items(|item| Ok(packer.blocking_push(item)??))
            }
            FileWhat::Names { pattern, prefix } => {
                // The whole file is verified first, so that nothing is inserted from a damaged file.
                self.database.keys(|_| Ok(()))?;
                let mut reader = self.database.open()?;
                while let Some(key) = reader.next_key()? {
                    if key.database == self.database.number && glob::matches(pattern, &key.name) {
                        let item = super::source::stripped(&key.name, prefix)?;
                        packer.blocking_push(item)??;
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file is gone: whatever is sent is read from where the reader is.
    #[test]
    fn a_filter_is_sent_from_where_it_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rdb");
        let stored =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../umbel-rdb/testdata/redisbloom.rdb");
        std::fs::copy(stored, &path).unwrap();
        let (key, reader) = FileDatabase { path: path.clone(), number: 0 }.at_filter(None).unwrap();
        assert_eq!(key, b"users");
        std::fs::remove_file(path).unwrap();
        let (chunks, mut sent) = mpsc::channel(64);
        let mut parts = Vec::new();
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || send_filter(reader, "new", &chunks));
            while let Some(ImportChunk { part }) = sent.blocking_recv() {
                parts.push(part.unwrap());
            }
            sending.join().unwrap().unwrap();
        });
        let Some(import_chunk::Part::Header(header)) = parts.first() else { panic!("{parts:?}") };
        assert_eq!(header.name, "new");
        assert!(matches!(parts.last(), Some(import_chunk::Part::End(_))), "{parts:?}");
    }
}
