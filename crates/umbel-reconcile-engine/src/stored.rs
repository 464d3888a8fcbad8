//! Sessions that begin with stored sketches: nobody scans a set before it is known what differs.
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
//! Attempt 0 has the key of the sketches in place of a session's, which both sides' salt gives. A responder without such
//! a sketch scans its set under that key. Where more differs than both sketches decode, where what they hold contradicts
//! itself, or where the digests differ in the end, the next attempt is that of any other session. A scan also shows
//! whether a sketch is of its set still.

use umbel_sketch::Estimator;

use super::coded::{CodedDecoder, CodedJob};
use super::core::Core;
use super::error::{SessionError, field};
use super::initiator::Initiator;
use super::job::Job;
use super::message::{Estimate, Hello, Message, StoredStart, Welcome};
use super::offline::{SketchSpec, StoredSketch};
use super::plan::{Plan, Stage};

/// How much more than estimated may differ, in tenths: two standard deviations of the estimate.
const ESTIMATE_TENTHS: u64 = 14;

impl StoredStart {
    pub(crate) fn of(sketch: &StoredSketch) -> Self {
        let spec = sketch.spec();
        let coded_count = sketch.coded_count() as u64;
        Self { salt: spec.salt(), symbol_bits: spec.symbol_bits(), coded_count }
    }
}

impl Core {
    /// Takes the key of a sketch for attempt 0.
    fn begin_stored(&mut self, spec: &SketchSpec) {
        self.key = spec.key();
        self.is_stored = true;
    }

    /// Takes the stored sketch for what a scan would find.
    fn note_sketch(&mut self) {
        if let Some(sketch) = &self.sketch {
            self.own = sketch.digest();
            self.here_count = self.own.count;
        }
    }

    /// The first frame by the stored sketch, if there is one.
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

    /// Takes the key of the sketch that a first frame is of, if it is of one. The estimator of the same sketch of this
    /// side's set, if there is one; else the set is to be scanned.
    pub(crate) fn meet_stored(
        &mut self,
        start: Option<StoredStart>,
    ) -> Result<Option<Box<Estimator>>, SessionError> {
        let Some(start) = start else {
            self.sketch = None;
            return Ok(None);
        };
        // A stored sketch has no part in the secret, so it must not stand in for it.
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

    /// The answer to a first frame that differs, if both stored sketches decode so much.
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
            // Nobody has looked.
            mean_item_bytes: 0,
            key_mark: self.key.short_mark(),
            estimate: Estimate::Stored { count, coded_count },
        })
    }

    /// Answers a plan of attempt 0, which only stored coded symbols can.
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
    /// The decoder of what the responder has stored, and the plan that asks for it.
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
