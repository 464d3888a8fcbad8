//! The initiator's first frame, and its handling of the Welcome.

use umbel_sketch::Field;

use super::{Count, Initiator, Known, State};
use crate::core::{Core, Unions};
use crate::error::{Result, SessionError};
use crate::event::Out;
use crate::job::Job;
use crate::message::{Estimate, HELLO_SYNDROMES, Hello, HelloSketch, Message, Welcome, hello_bits};
use crate::pass::{Gathered, Pass, Work};
use crate::receive::Accept;

impl Initiator {
    pub(crate) fn start(&mut self, core: &mut Core, out: &mut Out) -> Result<()> {
        if !matches!(self.state, State::Idle) {
            return Err(SessionError::Driver { what: "a second start" });
        }
        core.enter("greeting", out);
        if let Some(hello) = core.stored().hello() {
            core.traffic.send(&Message::Hello(Box::new(hello)), out);
            self.state = State::AwaitWelcome;
            return Ok(());
        }
        self.state = State::Greeting;
        let estimates =
            core.terms.aim.expected_difference.is_some_and(|d| d >= HELLO_SYNDROMES.into());
        let field = Field::new(hello_bits(core.terms.kind())).ok().filter(|_| !estimates);
        let sketch = field.map(|field| (field, HELLO_SYNDROMES));
        core.run_pass(Pass::hello(core.attempt.key, sketch, estimates), out);
        Ok(())
    }

    pub(super) fn greet(&mut self, core: &mut Core, gathered: &Gathered, out: &mut Out) {
        let Work::Hello { sketch, estimator, .. } = &gathered.work else { return };
        let sketch = sketch.as_ref().map(|sketch| {
            let mut syndromes = sketch.to_bytes();
            core.attempt.key.mask_hello(&mut syndromes);
            HelloSketch {
                field_bits: sketch.field().bits(),
                syndrome_count: HELLO_SYNDROMES,
                has_zero: sketch.has_zero(),
                syndromes,
            }
        });
        let estimator = estimator.as_ref().map(|estimator| estimator.to_bytes());
        let hello = Hello {
            kind: core.terms.kind(),
            aim: core.terms.aim,
            dataset_id: core.terms.options.dataset_id,
            nonce: core.terms.options.nonce,
            digest: core.sets.own,
            sketch,
            estimator,
            stored: None,
        };
        core.traffic.send(&Message::Hello(Box::new(hello)), out);
        self.state = State::AwaitWelcome;
    }

    pub(super) fn on_welcome(
        &mut self,
        core: &mut Core,
        welcome: Welcome,
        out: &mut Out,
    ) -> Result<()> {
        match welcome {
            Welcome::Refused(refusal) => Err(SessionError::Refused(refusal)),
            Welcome::InSync { digest, .. } => {
                core.sets.there_count = digest.count;
                core.unions = Unions { sent: Some(core.sets.own), received: Some(digest) };
                Ok(())
            }
            Welcome::Resolved { nonce, item_count } => {
                core.attempt.source.nonce_responder = nonce;
                core.sets.there_count = item_count;
                core.sets.check_skew(&core.terms.options.limits)?;
                core.forecast.plan = format!("hello t={HELLO_SYNDROMES}");
                core.attempt.symbol_bits = hello_bits(core.terms.kind());
                core.arrivals.accept = Accept::Any;
                core.enter("transferring", out);
                self.state = State::Answering;
                Ok(())
            }
            Welcome::Undecoded { nonce, item_count, mean_item_bytes, key_mark, estimate } => {
                core.attempt.source.nonce_responder = nonce;
                core.sets.there_count = item_count;
                core.sets.check_skew(&core.terms.options.limits)?;
                self.mean_item_bytes = mean_item_bytes;
                core.sets.there_item_bytes = mean_item_bytes;
                let is_stored = matches!(estimate, Estimate::Stored { .. });
                if !is_stored {
                    core.begin_attempt(1);
                }
                if core.attempt.key.short_mark() != key_mark {
                    return Err(SessionError::Key);
                }
                let estimate = match estimate {
                    Estimate::Estimator(bytes) => Known::Estimator(bytes),
                    Estimate::Count(count) => {
                        Known::Count(Count { count: count as f64, is_exact: false })
                    }
                    Estimate::Stored { count, coded_count } => {
                        let (decoder, plan) = self.stored_plan(core, count, coded_count)?;
                        core.enter("sketching", out);
                        core.jobs.push(Job::Message(plan));
                        self.state = State::Coding(decoder);
                        return Ok(());
                    }
                };
                self.survey(core, estimate, out);
                Ok(())
            }
        }
    }
}
