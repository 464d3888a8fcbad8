//! Database files of Redis (.rdb): a filter of RedisBloom's out of one, and items of its keys.
//!
//! A file is read twice: the first time to its end, whose checksum is compared before anything is asked of a cluster, the
//! second time up to what is wanted.

use super::source::{BLOOM_TYPE, Packer, Unwanted};
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
use umbel_node::redis_bloom_value::{self, ValuePart};
use umbel_rdb::{Key, RdbError, RdbReader, Value};
use umbel_resp::glob;

/// What RedisBloom calls the type of its cuckoo filters.
const CUCKOO_TYPE: &str = "MBbloomCF";

/// Names that are told where one has to be chosen.
const TOLD_NAMES_MAX: usize = 5;

/// Where something is: at a server, or in a file.
#[derive(Clone, Debug)]
pub(crate) enum Given<A> {
    /// The address.
    Server(A),
    /// The file.
    File(PathBuf),
}

/// Reads an address, or takes the text for the name of a file.
///
/// # Errors
///
/// If it looks like an address, and is none.
pub(super) fn parse_given<A>(
    text: &str,
    address: impl Fn(&str) -> Result<A, String>,
) -> Result<Given<A>, String> {
    match text.contains("://") {
        true => address(text).map(Given::Server),
        false => Ok(Given::File(text.into())),
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
    /// Refuses what makes no sense beside the address of a server.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names it.
    pub(crate) fn refused_for_servers(&self) -> Result<(), UsageError> {
        let what = "is for files: the address of a server says which key";
        self.option().map_or(Ok(()), |option| Err(UsageError(format!("{option} {what}"))))
    }

    /// Refuses what makes no sense without --from. (Of an option that may not stand beside others, which are there, the
    /// parser does not say that it is missing.)
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names it.
    pub(crate) fn refused_without_from(&self) -> Result<(), UsageError> {
        self.option()
            .map_or(Ok(()), |option| Err(UsageError(format!("{option} needs --from FILE"))))
    }

    /// One of the options that was given.
    fn option(&self) -> Option<&'static str> {
        match (&self.key, self.db) {
            (Some(_), _) => Some("--key"),
            (None, Some(_)) => Some("--db"),
            (None, None) => None,
        }
    }

    /// The database of this file.
    pub(super) fn database(&self, path: &Path) -> FileDatabase {
        FileDatabase { path: path.to_owned(), number: self.db.unwrap_or(0) }
    }

    /// The name of the key.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        self.key.clone().map(OsString::into_encoded_bytes)
    }
}

/// A database of a file.
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

/// Where a key is, as it is told.
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

    /// Reads all of the file, and shows the keys of this database.
    fn keys(&self, mut see: impl FnMut(Key) -> Result<()>) -> Result<()> {
        let mut reader = self.open()?;
        while let Some(key) = reader.next_key()? {
            if key.database == self.number {
                see(key)?;
            }
        }
        Ok(())
    }

    /// What a key holds, once all of the file was read.
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

    /// The key of the filter that is meant: this one, or the only one.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or has no such filter.
    pub(super) fn filter(&self, name: Option<Vec<u8>>) -> Result<Vec<u8>> {
        if let Some(name) = name {
            return match &*self.value_of(&name)?.type_name() {
                BLOOM_TYPE => Ok(name),
                CUCKOO_TYPE => bail!(
                    "it is a cuckoo filter of RedisBloom ({CUCKOO_TYPE}), whose fingerprints come of another hash than \
                     Umbel's: add its items anew"
                ),
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

    /// Goes on to the value of a key.
    fn at_key(&self, name: &[u8]) -> Result<RdbReader<File>> {
        let mut reader = self.open()?;
        while let Some(key) = reader.next_key()? {
            if key.database == self.number && key.name == name {
                return Ok(reader);
            }
        }
        bail!("the key has gone: is the file being written?")
    }

    /// Sends a filter as an import; ends without an end where the file is damaged.
    pub(super) fn send_filter(
        &self,
        key: &[u8],
        name: &str,
        chunks: &mpsc::Sender<ImportChunk>,
    ) -> Result<()> {
        let mut reader = self.at_key(key)?;
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
                ValuePart::Frame(frame) => {
                    import_chunk::Part::Frame(ExportFrame { shard: 0, frame })
                }
                ValuePart::End { frame_count, checksum } => {
                    import_chunk::Part::End(ExportEnd { frame_count, checksum })
                }
            };
            let sent = chunks.blocking_send(ImportChunk { part: Some(part) });
            sent.map_err(|_| redis_bloom_value::Unwanted)
        };
        let read = reader.read_module(|id, module| redis_bloom_value::read_value(id, module, send));
        match read {
            // The call has failed, and says why.
            Err(redis_bloom_value::ValueError::Unwanted) => Ok(()),
            read => Ok(read?),
        }
    }
}

/// Which items of a file.
pub(super) enum FileWhat {
    /// Those of a key.
    Key(Vec<u8>),
    /// The names of keys that a pattern means, each of which begins with the prefix, which is left out.
    Names { pattern: Vec<u8>, prefix: Vec<u8> },
}

/// Items of a file.
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

/// Why reading ended early.
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
    /// Sends all that there is, from a thread that may wait; a failure is the last.
    pub(super) fn send(&self, sender: mpsc::Sender<Result<ReadBatch>>) {
        let mut packer = Packer::new(sender);
        let outcome = self.read(&mut packer).and_then(|()| Ok(packer.blocking_flush()?));
        if let Err(Stop::Failed(error)) = outcome {
            packer.blocking_fail(error, self);
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
                // Nothing is inserted of a file that is damaged.
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
