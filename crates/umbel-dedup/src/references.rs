//! References: the hashes that earlier jobs have kept, in index files or objects.
//!
//! All references of a job must have its seed and the same digest of options: hashes are comparable if items were cut,
//! normalised and hashed in the same way.

use super::addresses::{is_object, object_at};
use super::object_inputs::ObjectStores;
use super::scope::Scope;
use super::spec::{JobSpec, SaveIndex};
use crate::error::{Context, Result, bail};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_dedup_engine::job::KnownReferences;
use umbel_dedup_engine::{
    Exactness, INDEX_HEADER_BYTES, IndexBits, IndexDirectory, IndexHeader, ReferenceShape,
    SpecDigest,
};
use umbel_files::UsageError;
use umbel_files::{Inode, OpenBelowError, Roots, inode_of, open_regular};
use umbel_filter::{HashRange, ItemHash, ItemHasher};
use umbel_objects::Object;
use umbel_records::{ByteSpan, Granularity, RemoteBytes};

/// Bytes of a directory that are read at a time, so that memory grows only with what was read.
const ROWS_BYTES: usize = 1 << 20;

/// The source of an index's bytes.
enum IndexBytes {
    File(File),
    /// An object, pinned to its version: if it is changed, the job fails.
    Object(Arc<Object>),
}

impl IndexBytes {
    /// The number of bytes.
    fn count(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Object(object) => Ok(object.bytes()),
        }
    }

    /// Calls `read` with a function that reads at an offset. It is fastest within `span` and in ascending
    /// order.
    fn with_reader<T>(
        &self,
        span: ByteSpan,
        read: impl FnOnce(&mut dyn FnMut(&mut [u8], u64) -> io::Result<()>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::File(file) => read(&mut |target, offset| file.read_exact_at(target, offset)),
            Self::Object(object) => {
                let mut reader = object.open(span);
                read(&mut |mut target, mut offset| {
                    while !target.is_empty() {
                        let count = reader.read_at(target, offset)?;
                        if count == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        target = &mut target[count..];
                        offset += count as u64;
                    }
                    Ok(())
                })
            }
        }
    }
}

/// An open index.
pub(super) struct IndexFile {
    name: String,
    /// Its name in messages.
    shown: String,
    /// Its path, and the inode that it had when it was opened.
    file: Option<(PathBuf, Inode)>,
    bytes: IndexBytes,
    directory: IndexDirectory,
    /// Digest of header and directory, which has a checksum of each block.
    digest: ItemHash,
}

/// All index files of a job.
#[derive(Default)]
pub(crate) struct References {
    files: Vec<IndexFile>,
    /// The index that is updated: this job's index replaces it.
    updated: Option<usize>,
}

impl References {
    /// Opens all references, and checks that they fit the job.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if an index has another seed or digest, or fewer bits of each hash than the exactness needs; any other
    /// error names the file that cannot be read.
    pub(crate) fn open(spec: &JobSpec) -> Result<Self> {
        if spec.references.is_empty() {
            return Ok(Self::default());
        }
        let digest = spec_digest(spec);
        let mut files = Vec::new();
        for path in &spec.references {
            let file = IndexFile::open_of(spec, path)?;
            check(spec, digest, &file.name, file.directory.header())?;
            files.push(file);
        }
        let updated =
            spec.updated_index().map(|updated| position_of(&files, updated)).transpose()?;
        if let (Some(index), Some(save)) = (updated, &spec.save_index) {
            check_update(spec, save, &files[index])?;
        }
        Ok(Self { files, updated })
    }

    /// The index that is updated with the kept items of this job.
    pub(super) fn updated(&self) -> Option<&IndexFile> {
        self.updated.map(|index| &self.files[index])
    }

    /// Checks that no other job has replaced the index to update, and keeps others from it until the end of this job:
    /// the items of one of the two would be lost.
    ///
    /// # Errors
    ///
    /// It was replaced, or another job is about to. No output has its name yet.
    pub(crate) fn take_updated(&self) -> Result<()> {
        let Some(index) = self.updated() else { return Ok(()) };
        index.lock()?;
        index.check_not_replaced()
    }

    /// The number of hashes and of bits of each; `None` without references.
    pub(crate) fn shape(&self) -> Option<ReferenceShape> {
        let headers = || self.files.iter().map(|file| file.directory.header());
        let bits = headers().map(|header| header.spec.bits).min()?;
        Some(ReferenceShape { entries: headers().map(|header| header.count).sum(), bits })
    }

    /// Facts that must be equal at all workers of a job. They do not depend on the order of files.
    pub(crate) fn known(&self) -> Option<KnownReferences> {
        let mut digests: Vec<ItemHash> = self.files.iter().map(|file| file.digest).collect();
        digests.sort_unstable();
        let halves = digests.iter().flat_map(|digest| [digest.hi(), digest.lo()]);
        let bytes: Vec<u8> = halves.flat_map(u64::to_be_bytes).collect();
        let SpecDigest(digest) = digest_of_bytes(&bytes);
        self.shape().map(|shape| KnownReferences { shape, digest })
    }

    /// The hashes of a range.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be read or is damaged.
    pub(crate) fn hashes(&self, range: HashRange) -> Result<Vec<ItemHash>> {
        let mut hashes = Vec::new();
        for file in &self.files {
            file.append_in(range, &mut hashes)?;
        }
        Ok(hashes)
    }

    /// For each file its name, its bits of each hash, and its number of hashes.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (&str, u32, u64)> {
        self.files.iter().map(|file| {
            let header = file.directory.header();
            (&file.name[..], header.spec.bits.get(), header.count)
        })
    }

    /// The expected number of items that are dropped wrongly among n compared ones: n·n_ref/2^bits.
    pub(crate) fn expected_wrong_drops(&self, items: u64) -> f64 {
        let pairs = |entries: u64| items as f64 * entries as f64;
        self.shape()
            .map_or(0.0, |shape| pairs(shape.entries) * (-f64::from(shape.bits.get())).exp2())
    }
}

impl IndexFile {
    /// Opens a reference of a job.
    fn open_of(spec: &JobSpec, path: &Path) -> Result<Self> {
        let is_saved = spec.save_index.as_ref().is_some_and(|save| save.path == path);
        // A node says nothing about files outside of its roots, not even whether they are there.
        let may_look = spec.roots.is_none() && !is_object(path);
        if is_saved && may_look && !path.exists() {
            bail!(
                "--reference {}: no such file; the first job of a series is run without --reference",
                path.display()
            );
        }
        Self::open_below(path, &spec.stores, "--reference ", spec.roots.as_ref())
    }

    /// Opens an index.
    pub(super) fn open(path: &Path, stores: &ObjectStores) -> Result<Self> {
        Self::open_below(path, stores, "", None)
    }

    /// Opens an index, below these folders if there are any. Messages name it by `role` and name.
    fn open_below(
        path: &Path,
        stores: &ObjectStores,
        role: &str,
        roots: Option<&Roots>,
    ) -> Result<Self> {
        let name = path.display().to_string();
        let shown = format!("{role}{name}");
        let cannot_read = || format!("{shown}: cannot read");
        let mut identity = None;
        let bytes = match object_at(path)? {
            Some(address) => {
                let (object, _) = stores.store()?.open(&address).with_context(cannot_read)?;
                IndexBytes::Object(Arc::new(object))
            }
            None => {
                let file = open_file(path, &shown, roots)?;
                let inode = inode_of(&file.metadata().with_context(cannot_read)?);
                let path = std::fs::canonicalize(path).with_context(cannot_read)?;
                identity = inode.map(|inode| (path, inode));
                IndexBytes::File(file)
            }
        };
        let count = bytes.count().with_context(cannot_read)?;
        let header_bytes = INDEX_HEADER_BYTES as u64;
        if count < header_bytes {
            bail!("{shown}: not an index: {count} bytes");
        }
        let mut head = [0; INDEX_HEADER_BYTES];
        let span = ByteSpan { start: 0, end: header_bytes };
        bytes.with_reader(span, |read| read(&mut head, 0).with_context(cannot_read))?;
        let header = IndexHeader::decode(&head).with_context(cannot_read)?;
        // At most as many bytes as the file has, whatever the header says.
        let rows_bytes = header.directory_bytes().min(count - header_bytes);
        let span = ByteSpan { start: header_bytes, end: header_bytes + rows_bytes };
        let rows = bytes.with_reader(span, |read| {
            let mut rows = Vec::new();
            while (rows.len() as u64) < rows_bytes {
                let (had, left) = (rows.len(), rows_bytes - rows.len() as u64);
                let piece = usize::try_from(left).map_or(ROWS_BYTES, |left| left.min(ROWS_BYTES));
                rows.resize(had + piece, 0);
                read(&mut rows[had..], header_bytes + had as u64).with_context(cannot_read)?;
            }
            Ok(rows)
        })?;
        let directory = IndexDirectory::decode(header, &rows, count).with_context(cannot_read)?;
        let digest = ItemHasher::Xxh3 { seed: 0 }.hash(&[&head[..], &rows].concat());
        Ok(Self { name, shown, file: identity, bytes, directory, digest })
    }

    /// Whether it is a file at this path, which has no links.
    pub(super) fn stands_at(&self, place: &Path) -> bool {
        self.file.as_ref().is_some_and(|(path, _)| path == place)
    }

    /// Locks it until it is closed, so that no other job puts an index in its place meanwhile. Whoever gets the lock later
    /// finds it replaced.
    ///
    /// # Errors
    ///
    /// Another process has the lock. The caller has not given any output its name.
    pub(super) fn lock(&self) -> Result<()> {
        let IndexBytes::File(file) = &self.bytes else { return Ok(()) };
        match file.try_lock() {
            // It does not wait: whoever has the lock most likely replaces the index.
            Err(TryLockError::WouldBlock) => bail!(
                "{}: another process has locked this index (flock), most likely a job that is replacing it; nothing was \
                 put under its name, run the job again",
                self.name
            ),
            // Where the file system has no locks, the check for another file must do.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        }
    }

    /// Checks that no other job has replaced it since it was opened: what that kept would be lost if this index, with new
    /// hashes, replaced the other one. Objects are not replaced.
    ///
    /// # Errors
    ///
    /// It was replaced. The caller has not given any output its name.
    pub(super) fn check_not_replaced(&self) -> Result<()> {
        let Some((path, inode)) = &self.file else { return Ok(()) };
        let now = std::fs::metadata(path).ok().and_then(|metadata| inode_of(&metadata));
        if now != Some(*inode) {
            bail!(
                "{}: another job has replaced this index meanwhile, and what that kept would be lost; nothing was put \
                 under its name, run the job again",
                path.display()
            );
        }
        Ok(())
    }

    /// Its header.
    pub(super) const fn header(&self) -> &IndexHeader {
        self.directory.header()
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Appends the hashes of a range, and no others.
    pub(super) fn append_in(&self, range: HashRange, hashes: &mut Vec<ItemHash>) -> Result<()> {
        let start = hashes.len();
        self.append(range, hashes)?;
        let tail = hashes.split_off(start);
        hashes.extend(tail.into_iter().filter(|hash| range.contains(hash.hi())));
        Ok(())
    }

    /// Appends the hashes of all blocks that overlap a range.
    fn append(&self, range: HashRange, hashes: &mut Vec<ItemHash>) -> Result<()> {
        let cannot_read = || format!("{}: cannot read", self.shown);
        let extent = |block| self.directory.extent(block).expect("blocks of a range exist");
        // The blocks of a range are contiguous.
        let blocks: Vec<_> =
            self.directory.blocks_of(range).map(|block| (block, extent(block))).collect();
        let Some(((_, first), (_, last))) = blocks.first().zip(blocks.last()) else {
            return Ok(());
        };
        let span = ByteSpan { start: first.offset, end: last.offset + last.length };
        self.bytes.with_reader(span, |read| {
            let mut bytes = Vec::new();
            for (block, extent) in &blocks {
                let length = usize::try_from(extent.length).with_context(cannot_read)?;
                bytes.resize(length, 0);
                read(&mut bytes, extent.offset).with_context(cannot_read)?;
                self.directory.read_block(*block, &bytes, hashes).with_context(cannot_read)?;
            }
            Ok(())
        })
    }
}

/// Which of the references has this inode: the index to update, whose name was looked up after they were opened.
fn position_of(files: &[IndexFile], updated: Inode) -> Result<usize> {
    let same = |file: &IndexFile| file.file.as_ref().is_some_and(|(_, inode)| *inode == updated);
    files.iter().position(same).context(
        "another job has replaced the index to update while this one began; nothing was read yet, run the job again",
    )
}

fn open_file(path: &Path, shown: &str, roots: Option<&Roots>) -> Result<File> {
    let cannot_read = || format!("{shown}: cannot read");
    let opened = match roots {
        Some(roots) => roots.open(path),
        None => open_regular(path).map_err(OpenBelowError::Io),
    };
    match opened {
        Err(OpenBelowError::Io(error)) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(UsageError(format!("{shown} is not a regular file")).into())
        }
        opened => opened.with_context(cannot_read),
    }
}

fn check(spec: &JobSpec, digest: SpecDigest, name: &str, header: &IndexHeader) -> Result<()> {
    let refuse = |text: String| Err(UsageError(format!("--reference {name}: {text}")).into());
    let theirs = header.spec;
    if theirs.digest != digest {
        let (theirs, asked) = (theirs.digest, spec_parts(spec).join(", "));
        return refuse(format!(
            "made of other items: its digest of them is {theirs}, this job's ({asked}) is {digest}"
        ));
    }
    if theirs.seed != spec.seed {
        let (theirs, ours) = (theirs.seed, spec.seed);
        return refuse(format!(
            "made with seed {theirs:#018x}, this job has {ours:#018x} (of --seed, or of the first reference): indexes go \
             together if the later one was made with --seed or --reference of the earlier"
        ));
    }
    let is_approximate = matches!(spec.exactness, Exactness::Approximate { .. });
    if is_approximate && theirs.bits == IndexBits::Bits64 {
        return refuse(
            "has 64 bits of each hash, --exactness approximate needs more: save it with --index-bits 96".into(),
        );
    }
    Ok(())
}

/// Refuses to update an index that cannot store the hashes of this job.
fn check_update(spec: &JobSpec, save: &SaveIndex, index: &IndexFile) -> Result<()> {
    let refuse =
        |text: String| Err(UsageError(format!("--save-index {}: {text}", index.name)).into());
    if spec.rank.is_some() {
        return refuse("a reference, which all workers read: let each save an index of its own, and join them with \
                       umbel index merge".into());
    }
    let (has, asked) = (index.header().spec.bits, save.bits);
    if let Some(asked) = asked.filter(|asked| asked.get() > has.get()) {
        let (has, asked) = (has.get(), asked.get());
        return refuse(format!("has {has} bits of each hash, and cannot be given {asked}"));
    }
    Ok(())
}

/// The seed of the first reference.
///
/// # Errors
///
/// If it cannot be read.
pub fn seed_of_first(spec: &JobSpec) -> Result<Option<u64>> {
    let Some(path) = spec.references.first() else { return Ok(None) };
    Ok(Some(IndexFile::open_of(spec, path)?.header().spec.seed))
}

/// The options that determine which bytes of a record are hashed, and how, as texts.
fn spec_parts(spec: &JobSpec) -> Vec<String> {
    let (granularity, keys): (&str, &[String]) = match &spec.granularity {
        Granularity::Line => ("line", &[]),
        Granularity::Record => ("record", &[]),
        Granularity::File => ("file", &[]),
        Granularity::Paragraph(field) => ("paragraph", std::slice::from_ref(field)),
        Granularity::Key(paths) => ("key", paths),
    };
    let mut parts = vec![format!("granularity {granularity}")];
    parts.extend(keys.iter().map(|key| format!("key {key}")));
    parts.extend(spec.normalise.iter().map(|normaliser| normaliser.name().to_owned()));
    parts.push(format!("scope {}", spec.scope.name()));
    parts
}

/// The digest of these options: jobs with equal digests have comparable items.
pub(crate) fn spec_digest(spec: &JobSpec) -> SpecDigest {
    let mut parts = spec_parts(spec);
    // Scopes were hashed under the seed of the items once, and an index of that time has to be refused.
    if spec.scope != Scope::Global {
        parts.push("scope seed".to_owned());
    }
    digest_of(&parts)
}

fn digest_of(parts: &[String]) -> SpecDigest {
    // Each part is preceded by its length, so that different lists are different texts.
    let mut text = b"xxh3-128".to_vec();
    for part in parts {
        text.extend((part.len() as u64).to_le_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    digest_of_bytes(&text)
}

fn digest_of_bytes(bytes: &[u8]) -> SpecDigest {
    let hash = ItemHasher::Xxh3 { seed: 0 }.hash(bytes);
    let mut digest = [0; 16];
    let halves = hash.hi().to_be_bytes().into_iter().chain(hash.lo().to_be_bytes());
    digest.iter_mut().zip(halves).for_each(|(to, from)| *to = from);
    SpecDigest(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the index may lead to another file by the time when it is looked up.
    #[test]
    fn an_index_that_is_replaced_while_a_job_begins_is_an_error() {
        let error = position_of(&[], (1, 2)).unwrap_err().to_string();
        assert!(error.contains("another job has replaced the index"), "{error}");
    }

    #[test]
    fn lists_of_parts_have_their_own_digests() {
        let digest = |parts: &[&str]| {
            digest_of(&parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>()).to_string()
        };
        assert_ne!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
        // Indexes of older builds must remain usable.
        assert_eq!(
            digest(&["granularity line", "scope global"]),
            "7a3d63f257af71fcae58c940ef07da1f"
        );
    }
}
