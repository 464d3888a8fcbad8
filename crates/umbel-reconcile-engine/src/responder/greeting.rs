//! The responder's answer to the Hello.

use umbel_sketch::{Estimator, Field, PinSketch};

use super::{Responder, State};
use crate::core::{Core, Unions};
use crate::difference::Difference;
use crate::error::{Result, SessionError, SessionRefusal, field};
use crate::event::Out;
use crate::message::{HELLO_SYNDROMES, Hello, Message, Welcome, hello_bits};
use crate::pass::Pass;
use crate::receive::Accept;

impl Responder {
    pub(super) fn on_hello(
        &mut self,
        core: &mut Core,
        hello: Box<Hello>,
        out: &mut Out,
    ) -> Result<()> {
        if let Some(refusal) = core.terms.refusal(&hello) {
            return refuse(core, refusal, out);
        }
        core.terms.aim = hello.aim;
        core.attempt.source.nonce_initiator = hello.nonce;
        core.sets.there_count = hello.digest.count;
        core.begin_attempt(0);
        core.enter("greeting", out);
        if let Some(estimator) = core.stored().meet(hello.stored)? {
            return self.compare(core, &hello, (None, Some(estimator)), out);
        }
        let sketch = match &hello.sketch {
            Some(sketch) if sketch.field_bits == hello_bits(core.terms.kind()) => {
                let bits = u64::from(sketch.field_bits);
                let known = Field::new(sketch.field_bits).map_err(|_| field("field bits", bits))?;
                Some((known, sketch.syndrome_count))
            }
            Some(sketch) => {
                return Err(field("field bits", sketch.field_bits.into()));
            }
            None => None,
        };
        let estimates = hello.estimator.is_some();
        core.run_pass(Pass::hello(core.attempt.key, sketch, estimates), out);
        self.state = State::Greeting(hello);
        Ok(())
    }

    /// Refuses a Hello of another version of the protocol.
    pub(crate) fn refuse_version(core: &mut Core, out: &mut Out) -> Result<()> {
        refuse(core, SessionRefusal::Version, out)
    }

    pub(super) fn compare(
        &mut self,
        core: &mut Core,
        hello: &Hello,
        (sketch, estimator): (Option<PinSketch>, Option<Box<Estimator>>),
        out: &mut Out,
    ) -> Result<()> {
        if core.sets.check_skew(&core.terms.options.limits).is_err() {
            return refuse(core, SessionRefusal::TooLarge, out);
        }
        if core.sets.own == hello.digest {
            let welcome =
                Welcome::InSync { nonce: core.terms.options.nonce, digest: core.sets.own };
            core.traffic.send(&Message::Welcome(welcome), out);
            core.unions = Unions { sent: Some(core.sets.own), received: Some(hello.digest) };
            return Ok(());
        }
        if let (Some(own), Some(bytes)) = (estimator, &hello.estimator) {
            let theirs = Estimator::from_bytes(bytes, hello.digest.count);
            let estimate = own.estimate(&theirs.map_err(|_| field("estimator", 0))?).round();
            #[expect(clippy::cast_possible_truncation, reason = "squares")]
            let estimate =
                (estimate as u64).min(core.sets.own.count.saturating_add(core.sets.there_count));
            self.estimate = Some(estimate);
            if let Some(start) = hello.stored
                && let Some(welcome) = core.stored().welcome(start, estimate)
            {
                core.traffic.send(&Message::Welcome(welcome), out);
                self.state = State::AwaitPlan;
                return Ok(());
            }
        }
        let decoded = match (sketch, &hello.sketch) {
            (Some(own), Some(theirs)) => theirs.decode(&core.attempt.key, own)?,
            _ => None,
        };
        match decoded {
            Some(symbols) => {
                core.attempt.symbol_bits = hello_bits(core.terms.kind());
                core.arrivals.accept = Accept::Any;
                core.run_pass(
                    Pass::find(core.attempt.key, core.attempt.symbol_bits, symbols.clone()),
                    out,
                );
                self.state = State::Finding { symbols };
            }
            None if hello.stored.is_none()
                && core.terms.empties_responder(core.sets.there_count) =>
            {
                core.attempt.symbol_bits = hello_bits(core.terms.kind());
                core.run_pass(Pass::table(core.attempt.key), out);
                self.state = State::Emptying;
            }
            None => self.survey(core, true, out),
        }
        Ok(())
    }

    /// The first frame sufficed to know the difference.
    pub(super) fn resolve(
        &mut self,
        core: &mut Core,
        difference: Difference,
        out: &mut Out,
    ) -> Result<()> {
        core.forecast.plan = format!("hello t={HELLO_SYNDROMES}");
        let welcome =
            Welcome::Resolved { nonce: core.terms.options.nonce, item_count: core.sets.own.count };
        core.traffic.send(&Message::Welcome(welcome), out);
        self.state = State::Transferring;
        core.enter("transferring", out);
        core.transfer().begin(difference, 64, out)
    }
}

fn refuse(core: &mut Core, refusal: SessionRefusal, out: &mut Out) -> Result<()> {
    core.traffic.send(&Message::Welcome(Welcome::Refused(refusal)), out);
    Err(SessionError::Refused(refusal))
}
