//! Which certificates nodes get: they found or join the cluster with a generic one, and get one that
//! names them once they have a node id, as docs/security.md tells operators to do.

use std::rc::Rc;
use std::sync::Arc;

use umbel_ports::NodeIdentity;

use super::{SETUP_MAX_US, World};
use crate::certificate::Certificate;
use crate::counters;
use crate::host::{Condition, Host, Order};
use crate::identity::Papers;
use crate::links::CLIENTS;
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::Plan;
use crate::plan::identity::IdentityPlan;
use crate::trace;
use crate::watch;

/// The state of a world's certificates.
#[derive(Default)]
pub(super) struct Certifying {
    /// Whether nodes get certificates that name them.
    has_begun: bool,
    /// Whether all faults are over, so that the operator replaces expired certificates.
    is_healing: bool,
    /// How many of the plan's lapses have happened.
    lapsed: usize,
}

/// The plan's certificates, if it has any.
pub(super) fn identities_of(plan: &Plan) -> Option<&IdentityPlan> {
    plan.access.as_ref()?.identities.as_ref()
}

/// The network of the clients' host. Its certificate allows everything until there are principals.
pub(super) fn clients_net(plan: &Plan) -> SimNet {
    let net = SimNet::new(plan.seed, CLIENTS);
    let Some(IdentityPlan { skews_ms, .. }) = identities_of(plan) else { return net };
    let off_ms = skews_ms.iter().map(|skew_ms| skew_ms.unsigned_abs()).max().unwrap_or(0);
    watch::with(|checks| checks.rights.expect_clocks_off(off_ms));
    let shown = Certificate::client("operator");
    net.proving(Some(Papers::new(CLIENTS, Some(shown), 0, Arc::default())))
}

impl World {
    /// Issues every founder a certificate that names it. If the plan requires such certificates, restarts
    /// the founders so that they accept no others. Returns false after a violation.
    pub(super) fn certify(&mut self) -> Result<bool, String> {
        let Some(plan) = identities_of(&self.plan) else { return Ok(true) };
        let is_required = plan.require;
        self.certifying.has_begun = true;
        self.look_at_certificates();
        if !is_required {
            return Ok(true);
        }
        for host in &self.hosts {
            if let Some(papers) = &host.papers {
                papers.require();
            }
            host.order(Order::Stop);
        }
        let is_down = |host: &Rc<Host>| matches!(*host.condition.borrow(), Condition::Down);
        if !self.wait_for_all(is_down)? {
            return Ok(false);
        }
        for number in 1..=self.plan.world.nodes {
            self.start(number);
        }
        self.wait_for_all(|host| host.is_up())
    }

    fn wait_for_all(&mut self, holds: impl Fn(&Rc<Host>) -> bool) -> Result<bool, String> {
        while !self.hosts.iter().all(&holds) {
            self.step()?;
            if self.is_violated() {
                return Ok(false);
            }
            if now_us() > SETUP_MAX_US {
                let what = "nodes do not start with certificates, without a fault".to_owned();
                watch::violated("heals_and_serves", what);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Issues certificates to nodes that have got a node id and, after all faults, replaces expired ones.
    pub(super) fn look_at_certificates(&self) {
        if !self.certifying.has_begun {
            return;
        }
        let Some(cluster) = watch::with(|checks| checks.reference.meta().cluster()) else { return };
        for host in &self.hosts {
            let Some(papers) = &host.papers else { continue };
            let must_replace = self.certifying.is_healing && is_over(papers);
            let Some(node) = host.node_id.get() else {
                // The generic one may have expired before the node joined.
                if must_replace {
                    papers.mend();
                    papers.show(Some(Certificate::generic()));
                    trace::line(now_us(), &host.name, "certified", format_args!("to join"));
                }
                continue;
            };
            let own = NodeIdentity { cluster, node };
            let shown = papers.shown();
            let is_own = shown.as_ref().is_some_and(|shown| shown.uri == own.uri());
            if !is_own && !papers.is_lapsed() {
                papers.issue(own);
                trace::line(now_us(), &host.name, "certified", format_args!("{own}"));
            } else if must_replace {
                papers.mend();
                papers.issue(own);
                counters::state("certificate_replaced");
                trace::line(now_us(), &host.name, "certified", format_args!("{own} anew"));
            }
        }
    }

    /// All faults are over: from now on, the operator replaces expired certificates.
    pub(crate) fn begin_healing(&mut self) {
        self.certifying.is_healing = true;
    }

    /// Lapses the certificates whose planned time has come, and resets their hosts' connections.
    pub(crate) fn lapse(&mut self, began_us: u64) {
        let plan = Rc::clone(&self.plan);
        let Some(plan) = identities_of(&plan) else { return };
        while let Some(lapse) = plan.lapses.get(self.certifying.lapsed)
            && began_us + lapse.at_ms * 1000 <= now_us()
        {
            self.certifying.lapsed += 1;
            let host = self.host(lapse.node);
            let Some(papers) = &host.papers else { continue };
            papers.lapse();
            host.net.reset_all();
            counters::state("certificate_lapsed");
            trace::line(now_us(), &host.name, "lapsed", format_args!(""));
        }
    }
}

fn is_over(papers: &Papers) -> bool {
    papers.shown().is_none_or(|shown| shown.refusal(papers.now_ms()).is_some())
}
