//! Sessions that begin with stored sketches: no side scans its set before the difference is known.
//!
//! ```text
//!   initiator                                          responder
//!     │  Hello (salt, digest, estimator)          ──►   equal? then that was all
//!     │  ◄── Welcome (how much differs)
//!     │  Plan                                     ──►
//!     │  ◄── Coded, as they are stored                  the initiator takes its own out, and decodes
//!     │  (looks its set through for what differs)
//!     │  Items, Request                           ──►   (looks its set through for what is asked)
//! ```
//!
//! Attempt 0 uses the key of the sketches, derived from their common salt, instead of a session key. A
//! responder without a matching sketch scans its set under that key. If more differs than both sketches
//! decode, the coded symbols contradict each other, or the digests differ at the end, the next attempt
//! proceeds as in any other session. A scan also shows whether a sketch still matches its set.

use umbel_sketch::Estimator;

use super::attempt::Attempt;
use super::coded::CodedJob;
use super::error::{Result, SessionError, field};
use super::message::{Estimate, Hello, StoredStart, Welcome};
use super::offline::{SketchSpec, StoredSketch};
use super::plan::{Plan, Stage};
use super::sets::Sets;
use super::terms::Terms;

/// Assumed upper bound of the difference in tenths of the estimate: two standard deviations.
const ESTIMATE_TENTHS: u64 = 14;

impl StoredStart {
    pub(crate) fn of(sketch: &StoredSketch) -> Self {
        let spec = sketch.spec();
        let coded_count = sketch.coded_count() as u64;
        Self { salt: spec.salt(), symbol_bits: spec.symbol_bits(), coded_count }
    }
}

/// A session's part in stored sketches: what stands in for a scan under a session key.
pub(crate) struct Stored<'a> {
    pub(crate) terms: &'a Terms,
    pub(crate) attempt: &'a mut Attempt,
    pub(crate) sets: &'a mut Sets,
}

impl Stored<'_> {
    /// The Hello for the stored sketch, if there is one.
    pub(crate) fn hello(&mut self) -> Option<Hello> {
        let sketch = self.sets.sketch.as_deref()?;
        let (spec, stored) = (sketch.spec(), StoredStart::of(sketch));
        let estimator = Some(sketch.estimator().to_bytes());
        self.attempt.begin_stored(&spec);
        self.sets.note_sketch();
        Some(Hello {
            kind: self.terms.kind(),
            aim: self.terms.aim,
            dataset_id: self.terms.options.dataset_id,
            nonce: self.terms.options.nonce,
            digest: self.sets.own,
            sketch: None,
            estimator,
            stored: Some(stored),
        })
    }

    /// Switches to the key of the sketch that a Hello refers to, if it does. Returns the estimator of this
    /// side's sketch if it has the same spec; otherwise the set must be scanned.
    pub(crate) fn meet(&mut self, start: Option<StoredStart>) -> Result<Option<Box<Estimator>>> {
        let Some(start) = start else {
            self.sets.sketch = None;
            return Ok(None);
        };
        // A stored sketch does not depend on the domain, so it must not stand in for it.
        if self.terms.options.domain != [0; 16] {
            return Err(SessionError::Key);
        }
        let StoredStart { salt, symbol_bits, .. } = start;
        let spec =
            SketchSpec::new(self.terms.kind(), self.terms.options.dataset_id, salt, symbol_bits);
        let spec = spec.map_err(|_| field("symbol bits", symbol_bits.into()))?;
        self.attempt.begin_stored(&spec);
        self.sets.sketch = self.sets.sketch.take().filter(|sketch| sketch.spec() == spec);
        self.sets.note_sketch();
        Ok(self.sets.sketch.as_ref().map(|sketch| Box::new(sketch.estimator().clone())))
    }

    /// The Welcome to a Hello with another digest, if both stored sketches can decode the estimated
    /// difference.
    pub(crate) fn welcome(&self, start: StoredStart, count: u64) -> Option<Welcome> {
        let sketch = self.sets.sketch.as_ref()?;
        let coded_count = sketch.coded_count() as u64;
        let likely = count.saturating_mul(ESTIMATE_TENTHS) / 10;
        if SketchSpec::coded_count_for(likely) > coded_count.min(start.coded_count) {
            return None;
        }
        Some(Welcome::Undecoded {
            nonce: self.terms.options.nonce,
            item_count: self.sets.own.count,
            // Unknown without a scan.
            mean_item_bytes: 0,
            key_mark: self.attempt.key.short_mark(),
            estimate: Estimate::Stored { count, coded_count },
        })
    }

    /// The coded symbols for a plan of attempt 0, which must ask for stored ones.
    pub(crate) fn serve(&self, plan: &Plan) -> Result<CodedJob> {
        let unable = || field("stage", 0);
        let sketch = self.sets.sketch.as_ref().ok_or_else(unable)?;
        let bits = sketch.spec().symbol_bits();
        if plan.stage != Stage::Riblt || plan.symbol_bits != bits || plan.filter_quarters != [0, 0]
        {
            return Err(unable());
        }
        Ok(CodedJob::stored(sketch.coded_symbols(), bits, plan.credit)?)
    }
}
