//! Reads the members of a server's collection, or the names of its keys, as items for a filter.

use super::TrustArgs;
use super::address::{Address, Origin, Place, parse_origin};
use super::answer::Head;
use super::file::{FileArgs, FileSource, FileWhat, Given, parse_given};
use super::scan::{PageForm, Scan, ScanError};
use super::server::{Server, unexpected_head};
use crate::commands::filter::items::{self, Input, ReadBatch};
use crate::exit::{UsageError, refuse};
use crate::stderr::eprint_line;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use std::fmt;
use tokio::sync::mpsc;
use umbel_client::{ITEM_BYTES_MAX, PackedBatch};
use umbel_gateway::redis_bloom_value::CUCKOO_TYPE_NAME;
use umbel_tls::ForeignFiles;

/// The type name of RedisBloom's Bloom filters, and of all filters on a node.
pub(super) const BLOOM_TYPE: &str = "MBbloom--";

/// Where items come from that a server keeps.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// Read items from a key of a Redis server, a set, sorted set (members), hash (fields) or list:
    /// `redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY`, rediss:// for TLS, with the password here or in
    /// REDISCLI_AUTH; or from a database file of Redis (.rdb), with --key or --keys
    #[arg(long, value_name = "URL|FILE", value_parser = parse_source, conflicts_with_all = ["items", "file"])]
    from: Option<Given<Origin>>,
    #[command(flatten)]
    file_key: FileArgs,
    /// Insert the names of all keys of --from `redis://HOST:PORT[/DB]`, or of a file, that match this
    /// pattern, like seen:*
    #[arg(long, value_name = "PATTERN", requires = "from", conflicts_with = "key")]
    keys: Option<String>,
    /// Remove this prefix from each name of --keys
    #[arg(long, value_name = "TEXT", requires = "keys")]
    strip_prefix: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
}

impl SourceArgs {
    /// Whether a source is named.
    pub(crate) fn is_named(&self) -> bool {
        self.from.is_some()
    }

    /// Starts to read the source; None if none is named. `end` ends items where they are printed.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if the address or file does not fit the other arguments, or one is given without
    /// `--from`.
    pub(crate) fn input(&self, end: u8) -> Result<Option<Input>> {
        let place = match &self.from {
            Some(Given::Server(origin)) => Some(origin.place()),
            _ => None,
        };
        let files = self.trust.checked(place)?;
        let (sender, batches) = items::channel();
        let prefix = || self.strip_prefix.clone().unwrap_or_default().into_bytes();
        match &self.from {
            None => {
                self.file_key.refused_without_from()?;
                if self.keys.is_some() {
                    refuse!("--keys needs --from");
                }
                return Ok(None);
            }
            Some(Given::File(path)) => {
                let what = match (self.file_key.key(), &self.keys) {
                    (Some(key), _) => FileWhat::Key(key),
                    (None, Some(pattern)) => {
                        let pattern = pattern.clone().into_bytes();
                        FileWhat::Names { pattern, prefix: prefix() }
                    }
                    (None, None) => {
                        return Err(usage("a file needs --key KEY or --keys PATTERN").into());
                    }
                };
                let source = FileSource { database: self.file_key.database(path), what };
                tokio::task::spawn_blocking(move || source.send(sender));
            }
            Some(Given::Server(from)) => {
                self.file_key.refused_for_servers()?;
                let what = match &self.keys {
                    Some(pattern) => What::Names {
                        place: from.database().map_err(|what| usage(&what))?,
                        pattern: pattern.clone().into_bytes(),
                        prefix: prefix(),
                    },
                    None => What::Key(from.key().map_err(|what| usage(&what))?),
                };
                let source = Source { what, files };
                tokio::spawn(async move { source.send(sender).await });
            }
        }
        Ok(Some(Input { batches, end, input_bytes: None }))
    }
}

fn parse_source(text: &str) -> Result<Given<Origin>, String> {
    parse_given(text, parse_origin)
}

fn usage(text: &str) -> UsageError {
    UsageError(format!("--from: {text}"))
}

/// What to read from a server.
pub(super) enum What {
    /// The items of a key.
    Key(Address),
    /// The names of the keys that match a pattern, without the prefix that all of them must have.
    Names { place: Place, pattern: Vec<u8>, prefix: Vec<u8> },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(address) => address.fmt(f),
            Self::Names { place, pattern, .. } => {
                write!(f, "{place}, keys {:?}", String::from_utf8_lossy(pattern))
            }
        }
    }
}

/// What to read, and the certificate files for a server with TLS.
pub(super) struct Source {
    pub(super) what: What,
    pub(super) files: ForeignFiles,
}

/// Packs items into batches and sends them.
pub(super) struct Packer {
    batch: PackedBatch,
    sender: mpsc::Sender<Result<ReadBatch>>,
    /// Items received so far.
    count: u64,
}

/// The receiver of the items is gone.
pub(super) struct Unwanted;

impl Packer {
    /// A packer without items.
    pub(super) fn new(sender: mpsc::Sender<Result<ReadBatch>>) -> Self {
        Self { batch: PackedBatch::new(), sender, count: 0 }
    }

    async fn push(&mut self, item: &[u8]) -> Result<Result<(), Unwanted>> {
        Ok(if self.put(item)? { self.flush().await } else { Ok(()) })
    }

    /// As [`push`](Self::push), from a thread that may block.
    pub(super) fn blocking_push(&mut self, item: &[u8]) -> Result<Result<(), Unwanted>> {
        Ok(if self.put(item)? { self.blocking_flush() } else { Ok(()) })
    }

    /// Adds an item; returns whether the batch is full.
    fn put(&mut self, item: &[u8]) -> Result<bool> {
        self.batch.push(item)?;
        self.count += 1;
        Ok(items::is_full(&self.batch))
    }

    /// Says so if no key had a name that matches: a pattern that is mistyped would look like success.
    pub(super) fn note_none(&self, what: &dyn fmt::Display) {
        if self.count == 0 {
            eprint_line(format!("{what}: no key matches, so there is no item"));
        }
    }

    async fn flush(&mut self) -> Result<(), Unwanted> {
        match self.taken() {
            Some(batch) => self.sender.send(Ok(batch)).await.map_err(|_| Unwanted),
            None => Ok(()),
        }
    }

    /// Sends the items that are left, from a thread that may block.
    pub(super) fn blocking_flush(&mut self) -> Result<(), Unwanted> {
        match self.taken() {
            Some(batch) => self.sender.blocking_send(Ok(batch)).map_err(|_| Unwanted),
            None => Ok(()),
        }
    }

    fn taken(&mut self) -> Option<ReadBatch> {
        (!self.batch.is_empty()).then(|| ReadBatch { items: self.batch.take(), input_bytes: 0 })
    }

    /// Sends an error as the last element, from a thread that may block.
    pub(super) fn blocking_fail(self, error: anyhow::Error, what: &dyn fmt::Display) {
        // Sending fails if the receiver is gone.
        let _ = self.sender.blocking_send(Err(with_position(error, self.count, what)));
    }
}

/// Adds to an error how many items were read, and from where.
fn with_position(error: anyhow::Error, count: u64, what: &dyn fmt::Display) -> anyhow::Error {
    let error = match count {
        0 => error,
        count => error.context(format!("after {count} items were read")),
    };
    error.context(what.to_string())
}

impl Source {
    /// Sends all items; an error is sent last.
    pub(super) async fn send(self, sender: mpsc::Sender<Result<ReadBatch>>) {
        let mut packer = Packer::new(sender);
        let outcome = self.read(&mut packer).await;
        let error = match outcome {
            Ok(Ok(())) if packer.flush().await.is_ok() => {
                if matches!(self.what, What::Names { .. }) {
                    packer.note_none(&self.what);
                }
                return;
            }
            Ok(_) => return,
            Err(error) => with_position(error, packer.count, &self.what),
        };
        // Sending fails if the receiver is gone.
        let _ = packer.sender.send(Err(error)).await;
    }

    async fn read(&self, packer: &mut Packer) -> Result<Result<(), Unwanted>> {
        match &self.what {
            What::Names { place, pattern, prefix } => {
                let mut server = Server::connect(place, &self.files).await?;
                let scan = Scan::of_names(pattern);
                scan_items(&mut server, scan, prefix, packer).await
            }
            What::Key(Address { place, key }) => {
                let mut server = Server::connect(place, &self.files).await?;
                let scan = begun(&mut server, key).await?;
                if scan_items(&mut server, scan, b"", packer).await?.is_err() {
                    return Ok(Err(Unwanted));
                }
                // A key that was deleted meanwhile looks like one that was read to its end.
                match server.number(&[b"EXISTS", key]).await? {
                    0 => bail!("the key went away meanwhile, so that some may be missing"),
                    _ => Ok(Ok(())),
                }
            }
        }
    }
}

/// Begins to read a key, in the way that its type needs.
pub(super) async fn begun(server: &mut Server, key: &[u8]) -> Result<Scan> {
    let type_name = server.type_of(key).await?;
    let length = match &*type_name {
        "list" => server.number(&[b"LLEN", key]).await?,
        _ => 0,
    };
    Scan::of_key(&type_name, key, length).ok_or_else(|| no_items(&type_name))
}

/// The error for a key of a type without items.
pub(super) fn no_items(type_name: &str) -> anyhow::Error {
    match type_name {
        "none" => anyhow!("there is no such key"),
        BLOOM_TYPE => anyhow!(
            "it is a filter ({BLOOM_TYPE}), which does not know its items: `umbel filter import --from` copies one"
        ),
        CUCKOO_TYPE_NAME => cuckoo_refused(),
        name => anyhow!(
            "it is of type {name}: sets, sorted sets, hashes and lists have items, and --keys takes the names of keys"
        ),
    }
}

/// The error for a cuckoo filter of RedisBloom's.
pub(super) fn cuckoo_refused() -> anyhow::Error {
    anyhow!(
        "it is a cuckoo filter of RedisBloom ({CUCKOO_TYPE_NAME}), whose fingerprints come of another hash than \
         Umbel's: add its items anew"
    )
}

/// The name of a key without the prefix.
pub(super) fn stripped<'n>(name: &'n [u8], prefix: &[u8]) -> Result<&'n [u8]> {
    name.strip_prefix(prefix).ok_or_else(|| {
        let (name, prefix) = (String::from_utf8_lossy(name), String::from_utf8_lossy(prefix));
        anyhow!("key {name:?} does not begin with {prefix:?}: have --keys mean those alone that do")
    })
}

/// Reads all pages of a scan and pushes their items.
pub(super) async fn scan_items(
    server: &mut Server,
    mut scan: Scan,
    prefix: &[u8],
    packer: &mut Packer,
) -> Result<Result<(), Unwanted>> {
    while let Some(words) = scan.request() {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let form = scan.form();
        let (cursor, value_count) = page(server, &words, form).await?;
        let item_count = Scan::items_of(form, value_count).map_err(scan_failed)?;
        for _ in 0..item_count {
            let item =
                item(server, form).await.with_context(|| format!("item {}", packer.count + 1))?;
            let item = stripped(&item, prefix)?;
            if packer.push(item).await?.is_err() {
                return Ok(Err(Unwanted));
            }
        }
        scan.took(&cursor, item_count).map_err(scan_failed)?;
    }
    Ok(Ok(()))
}

fn scan_failed(ScanError(what): ScanError) -> anyhow::Error {
    anyhow!("{what}")
}

/// Requests a page; returns the cursor of the next page and the number of values that follow.
async fn page(server: &mut Server, words: &[&[u8]], form: PageForm) -> Result<(Vec<u8>, usize)> {
    let head = server.begin(words, form.most).await?;
    if !form.has_cursor {
        return match head {
            Head::List(count) => Ok((Vec::new(), count.unwrap_or(0))),
            other => Err(unexpected_head(&other)),
        };
    }
    let Head::List(Some(2)) = head else { return Err(unexpected_head(&head)) };
    let cursor = match server.head(Scan::most_of_cursor()).await? {
        Head::Bulk(Some(byte_count)) => server.value(byte_count).await?.to_vec(),
        other => return Err(unexpected_head(&other)),
    };
    match server.head(form.most).await? {
        Head::List(count) => Ok((cursor, count.unwrap_or(0))),
        other => Err(unexpected_head(&other)),
    }
}

/// Reads the next item of a page, and skips the value that belongs to it, if there is one.
async fn item(server: &mut Server, form: PageForm) -> Result<Bytes> {
    let item = match server.head(form.most).await? {
        Head::Bulk(Some(byte_count)) if byte_count > ITEM_BYTES_MAX => {
            bail!("{byte_count} bytes, and items have {ITEM_BYTES_MAX} at most")
        }
        Head::Bulk(Some(byte_count)) => server.value(byte_count).await?,
        other => return Err(unexpected_head(&other)),
    };
    if form.has_values {
        match server.head(form.most).await? {
            Head::Bulk(Some(byte_count)) => server.pass(byte_count).await?,
            other => return Err(unexpected_head(&other)),
        }
    }
    Ok(item)
}
