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

use super::coded::{CodedDecoder, CodedJob};
use super::core::Core;
use super::error::{SessionError, field};
use super::initiator::Initiator;
use super::job::Job;
use super::message::{Estimate, Hello, Message, StoredStart, Welcome};
use super::offline::{SketchSpec, StoredSketch};
use super::plan::{Plan, Stage};

/// Assumed upper bound of the difference in tenths of the estimate: two standard deviations.
const ESTIMATE_TENTHS: u64 = 14;

impl StoredStart {
    pub(crate) fn of(sketch: &StoredSketch) -> Self {
        let spec = sketch.spec();
        let coded_count = sketch.coded_count() as u64;
        Self { salt: spec.salt(), symbol_bits: spec.symbol_bits(), coded_count }
    }
}

impl Core {
    /// Switches to the key of a sketch for attempt 0.
    fn begin_stored(&mut self, spec: &SketchSpec) {
        self.key = spec.key();
        self.is_stored = true;
    }

    /// Takes the set's digest and count from the stored sketch instead of a scan.
    fn note_sketch(&mut self) {
        if let Some(sketch) = &self.sketch {
            self.own = sketch.digest();
            self.here_count = self.own.count;
        }
    }

    /// The Hello for the stored sketch, if there is one.
    pub(crate) fn stored_hello(&mut self) -> Option<Hello> {
        let sketch = self.sketch.as_deref()?;
        let (spec, stored) = (sketch.spec(), StoredStart::of(sketch));
        let estimator = Some(sketch.estimator().to_bytes());
        self.begin_stored(&spec);
        self.note_sketch();
        Some(Hello {
            kind: self.kind(),
            aim: self.aim,
            dataset_id: self.options.dataset_id,
            nonce: self.options.nonce,
            digest: self.own,
            sketch: None,
            estimator,
            stored: Some(stored),
        })
    }

    /// Switches to the key of the sketch that a Hello refers to, if it does. Returns the estimator of this
    /// side's sketch if it has the same spec; otherwise the set must be scanned.
    pub(crate) fn meet_stored(
        &mut self,
        start: Option<StoredStart>,
    ) -> Result<Option<Box<Estimator>>, SessionError> {
        let Some(start) = start else {
            self.sketch = None;
            return Ok(None);
        };
        // A stored sketch does not depend on the secret, so it must not stand in for it.
        if self.options.secret != [0; 16] {
            return Err(SessionError::Key);
        }
        let StoredStart { salt, symbol_bits, .. } = start;
        let spec = SketchSpec::new(self.kind(), self.options.dataset_id, salt, symbol_bits);
        let spec = spec.map_err(|_| field("symbol bits", symbol_bits.into()))?;
        self.begin_stored(&spec);
        self.sketch = self.sketch.take().filter(|sketch| sketch.spec() == spec);
        self.note_sketch();
        Ok(self.sketch.as_ref().map(|sketch| Box::new(sketch.estimator().clone())))
    }

    /// The Welcome to a Hello with another digest, if both stored sketches can decode the estimated
    /// difference.
    pub(crate) fn stored_welcome(&self, start: StoredStart, count: u64) -> Option<Welcome> {
        let sketch = self.sketch.as_ref()?;
        let coded_count = sketch.coded_count() as u64;
        let likely = count.saturating_mul(ESTIMATE_TENTHS) / 10;
        if SketchSpec::coded_count_for(likely) > coded_count.min(start.coded_count) {
            return None;
        }
        Some(Welcome::Undecoded {
            nonce: self.options.nonce,
            item_count: self.own.count,
            // Unknown without a scan.
            mean_item_bytes: 0,
            key_mark: self.key.short_mark(),
            estimate: Estimate::Stored { count, coded_count },
        })
    }

    /// Serves a plan of attempt 0, which must ask for stored coded symbols.
    pub(crate) fn serve_stored(&mut self, plan: &Plan) -> Result<(), SessionError> {
        let unable = || field("stage", 0);
        let sketch = self.sketch.as_ref().ok_or_else(unable)?;
        let bits = sketch.spec().symbol_bits();
        if plan.stage != Stage::Riblt || plan.symbol_bits != bits || plan.filter_quarters != [0, 0]
        {
            return Err(unable());
        }
        let coded = CodedJob::stored(sketch.coded_symbols(), bits, plan.credit)?;
        self.queue.push_back(Job::Coded(Box::new(coded)));
        Ok(())
    }
}

impl Initiator {
    /// The decoder for the responder's stored coded symbols, and the plan that requests them.
    pub(super) fn stored_plan(
        &mut self,
        core: &mut Core,
        count: u64,
        coded_count: u64,
    ) -> Result<(Box<CodedDecoder>, Message), SessionError> {
        let alone = field("verdict", 5);
        let sketch = core.sketch.as_ref().filter(|_| core.is_stored).ok_or(alone)?;
        let (own, symbol_bits) = (sketch.coded_symbols(), sketch.spec().symbol_bits());
        let coded_max = coded_count.min(own.len() as u64);
        let priced = self.stored_price(core, count as f64, symbol_bits);
        let mut plan = priced.plan;
        plan.credit = plan.credit.min(coded_max);
        core.predicted_bits = 8.0 * core.meter.total() as f64 + priced.bits;
        core.plan_text = format!("stored {}", plan.describe());
        core.symbol_bits = symbol_bits;
        let decoder = CodedDecoder::stored(own, core.key, symbol_bits, plan.credit, coded_max);
        Ok((Box::new(decoder), Message::Plan(plan)))
    }
}
