//! A scan of the snapshot, as requested by the session.

use umbel_sketch::{Estimator, Field, PinSketch};

use super::digest::SetDigest;
use super::error::{OTHER_PASS, Result};
use super::item::{ItemIndex, ItemRef};
use super::keys::{KeySource, SessionKey};
use super::offline::CodedSums;
use super::options::SymbolKind;
use super::table::{APPLIED, Entry, top_bits};

/// Symbols that are collected and then sketched together.
const BATCH_SYMBOLS: usize = 256;

/// Results computed from all items of a snapshot. Passes can be merged, so parts of the snapshot can be
/// scanned in parallel, in any order.
///
/// Each item must be added exactly once. An item that is added twice cancels itself in sketches, and the
/// session ends with an error, not with a wrong result. Most passes need a few kilobytes; the one that a
/// session with more than fifteen differences requests needs 40 bytes per item.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_reconcile_engine::{
///     Direction, ItemIndex, ItemRef, Options, Session, SessionInput, SessionOutput, SymbolKind,
/// };
///
/// let mut session = Session::new(Options::initiator(SymbolKind::Id64, Direction::TwoWay, 7));
/// let mut out = Outbox::new();
/// session.step(SessionInput::Start, &mut out);
/// let Some(SessionOutput::RunPass(mut pass)) = out.take().pop() else { panic!() };
/// let mut half = pass.fork();
/// pass.add(ItemIndex(0), ItemRef::Id(17));
/// half.add(ItemIndex(1), ItemRef::Id(4));
/// pass.merge(half);
/// session.step(SessionInput::PassDone(pass), &mut out);
/// // A Hello of 16 syndromes of 8 bytes: 168 bytes and 7 around them.
/// let Some(SessionOutput::Send(bytes)) = out.take().pop() else { panic!() };
/// assert_eq!(bytes.len(), 175);
/// ```
#[derive(Clone, Debug)]
pub struct Pass {
    key: SessionKey,
    work: Work,
    digest: SetDigest,
    item_bytes: u64,
    includes_applied: bool,
    /// Whether an item of another kind than the session's was added.
    is_mixed: bool,
}

/// What a pass gathers besides the digest.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// For the Hello.
    Hello { sketch: Option<PinSketch>, waiting: Vec<u64>, estimator: Option<Box<Estimator>> },
    /// The full table.
    Table { entries: Vec<Entry>, estimator: Box<Estimator> },
    /// The items with these symbols, which are sorted.
    Find { bits: u8, symbols: Vec<u64>, found: Vec<Entry> },
    /// For a sketch file.
    Coded { sums: CodedSums, estimator: Box<Estimator> },
}

/// The result of a finished pass.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) work: Work,
    pub(crate) digest: SetDigest,
    pub(crate) item_bytes: u64,
}

impl Gathered {
    /// The items that were to be found.
    pub(crate) fn found(self) -> Result<Vec<Entry>> {
        let Work::Find { found, .. } = self.work else { return Err(OTHER_PASS) };
        Ok(found)
    }

    /// The full table, and its estimator.
    pub(crate) fn table(self) -> Result<(Vec<Entry>, Box<Estimator>)> {
        let Work::Table { entries, estimator } = self.work else { return Err(OTHER_PASS) };
        Ok((entries, estimator))
    }
}

/// Identifies a set: the number of its items, and the sum of their hashes under a secret. Without the
/// secret nobody can change a set so that its fingerprint stays the same.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fingerprint {
    /// How many items.
    pub count: u64,
    /// The sum of their hashes, modulo 2^128.
    pub sum: u128,
}

impl Fingerprint {
    /// The fingerprint after some items were removed and others added, given by their fingerprints.
    #[must_use]
    pub const fn changed(self, removed: Self, added: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(removed.count).wrapping_add(added.count),
            sum: self.sum.wrapping_sub(removed.sum).wrapping_add(added.sum),
        }
    }
}

impl Pass {
    pub(crate) fn hello(key: SessionKey, sketch: Option<(Field, u8)>, estimates: bool) -> Self {
        let sketch = sketch.map(|(field, count)| PinSketch::new(field, count.into()));
        let estimator = estimates.then(Box::default);
        Self::new(key, Work::Hello { sketch, waiting: Vec::new(), estimator })
    }

    pub(crate) fn table(key: SessionKey) -> Self {
        Self::new(key, Work::Table { entries: Vec::new(), estimator: Box::default() })
    }

    pub(crate) fn find(key: SessionKey, bits: u8, mut symbols: Vec<u64>) -> Self {
        symbols.sort_unstable();
        Self::new(key, Work::Find { bits, symbols, found: Vec::new() })
    }

    pub(crate) fn coded(key: SessionKey, sums: CodedSums) -> Self {
        Self::new(key, Work::Coded { sums, estimator: Box::default() })
    }

    /// A pass that computes only the fingerprint of a set, under a secret that no peer learns.
    ///
    /// ```
    /// use umbel_reconcile_engine::{ItemIndex, ItemRef, SymbolKind, Pass};
    ///
    /// let fingerprint = |ids: &[u64]| {
    ///     let mut pass = Pass::fingerprint(SymbolKind::Id64, [7; 16]);
    ///     ids.iter().for_each(|id| pass.add(ItemIndex(0), ItemRef::Id(*id)));
    ///     pass.into_fingerprint()
    /// };
    /// assert_eq!(fingerprint(&[1, 2]), fingerprint(&[2, 1]));
    /// assert_ne!(fingerprint(&[1, 2]), fingerprint(&[1, 3]));
    /// ```
    #[must_use]
    pub fn fingerprint(kind: SymbolKind, secret: [u8; 16]) -> Self {
        let source =
            KeySource { seed: secret, dataset_id: 0, nonce_initiator: 0, nonce_responder: 0 };
        Self::hello(SessionKey::derive(&source, 0, kind), None, false)
    }

    /// The result of a [`fingerprint`](Self::fingerprint) pass; `None` if an item was of another kind.
    #[must_use]
    pub fn into_fingerprint(self) -> Option<Fingerprint> {
        let SetDigest { count, sum } = self.finish()?.digest;
        Some(Fingerprint { count, sum })
    }

    fn new(key: SessionKey, work: Work) -> Self {
        let digest = SetDigest::default();
        Self { key, work, digest, item_bytes: 0, includes_applied: false, is_mixed: false }
    }

    pub(crate) fn is_of(&self, key: &SessionKey) -> bool {
        self.key == *key
    }

    pub(crate) const fn is_find(&self) -> bool {
        matches!(self.work, Work::Find { .. })
    }

    pub(crate) const fn with_applied(mut self, includes_applied: bool) -> Self {
        self.includes_applied = includes_applied;
        self
    }

    /// Adds an item that this session handed out and that was applied, if the pass
    /// [`includes_applied`](Self::includes_applied) items. Such an item is never fetched, and never
    /// reported as only here.
    pub fn add_applied(&mut self, item: ItemRef<'_>) {
        self.add(APPLIED, item);
    }

    /// Adds an item of the snapshot, with any index but `u64::MAX`.
    pub fn add(&mut self, index: ItemIndex, item: ItemRef<'_>) {
        if !item.is_of(self.key.kind()) {
            self.is_mixed = true;
            return;
        }
        let hash = self.key.hash(item);
        self.digest.add(hash);
        self.item_bytes = self.item_bytes.saturating_add(item.bytes_len() as u64);
        match &mut self.work {
            Work::Hello { sketch, waiting, estimator } => {
                if let Some(sketch) = sketch {
                    waiting.push(top_bits(hash.symbol, sketch.field().bits()));
                    if waiting.len() >= BATCH_SYMBOLS {
                        sketch.toggle_all(waiting);
                        waiting.clear();
                    }
                }
                if let Some(estimator) = estimator {
                    estimator.add(hash.hi);
                }
            }
            Work::Table { entries, estimator } => {
                entries.push(Entry { hash, index });
                estimator.add(hash.hi);
            }
            Work::Find { bits, symbols, found } => {
                if symbols.binary_search(&top_bits(hash.symbol, *bits)).is_ok() {
                    found.push(Entry { hash, index });
                }
            }
            Work::Coded { sums, estimator } => {
                sums.add(&self.key, hash.symbol);
                estimator.add(hash.hi);
            }
        }
    }

    /// An empty pass of the same kind, for another thread.
    #[must_use]
    pub fn fork(&self) -> Self {
        let work = match &self.work {
            Work::Hello { sketch, estimator, .. } => Work::Hello {
                sketch: sketch.as_ref().map(|old| PinSketch::new(old.field(), old.capacity())),
                waiting: Vec::new(),
                estimator: estimator.as_ref().map(|_| Box::default()),
            },
            Work::Table { .. } => Work::Table { entries: Vec::new(), estimator: Box::default() },
            Work::Find { bits, symbols, .. } => {
                Work::Find { bits: *bits, symbols: symbols.clone(), found: Vec::new() }
            }
            Work::Coded { sums, .. } => {
                Work::Coded { sums: sums.fork(), estimator: Box::default() }
            }
        };
        Self::new(self.key, work).with_applied(self.includes_applied)
    }

    /// Merges what another pass of the same kind gathered.
    ///
    /// # Panics
    /// If the other pass is of another kind or session.
    pub fn merge(&mut self, other: Self) {
        assert_eq!(self.key, other.key, "a fork of this pass");
        self.digest = self.digest.and(other.digest);
        self.item_bytes = self.item_bytes.saturating_add(other.item_bytes);
        self.is_mixed |= other.is_mixed;
        match (&mut self.work, other.work) {
            (
                Work::Hello { sketch, waiting, estimator },
                Work::Hello { sketch: more_sketch, waiting: more_waiting, estimator: more },
            ) => {
                if let (Some(sketch), Some(more)) = (sketch, more_sketch) {
                    sketch.merge(&more).expect("a fork of this pass");
                    waiting.extend(more_waiting);
                }
                if let (Some(estimator), Some(more)) = (estimator, more) {
                    estimator.merge(&more);
                }
            }
            (
                Work::Table { entries, estimator },
                Work::Table { entries: more_entries, estimator: more },
            ) => {
                entries.extend(more_entries);
                estimator.merge(&more);
            }
            (Work::Find { found, .. }, Work::Find { found: more, .. }) => found.extend(more),
            (Work::Coded { sums, estimator }, Work::Coded { sums: more_sums, estimator: more }) => {
                sums.add_all(&more_sums);
                estimator.merge(&more);
            }
            _ => panic!("a fork of this pass"),
        }
    }

    /// Whether the items that this session handed out to be applied must be added too, by
    /// [`add_applied`](Self::add_applied), besides the snapshot's.
    #[must_use]
    pub const fn includes_applied(&self) -> bool {
        self.includes_applied
    }

    /// The result; `None` if items were of another kind than the session's.
    pub(crate) fn finish(mut self) -> Option<Gathered> {
        if let Work::Hello { sketch: Some(sketch), waiting, .. } = &mut self.work {
            sketch.toggle_all(waiting);
            waiting.clear();
        }
        let Self { work, digest, item_bytes, is_mixed, .. } = self;
        (!is_mixed).then_some(Gathered { work, digest, item_bytes })
    }
}
