//! Links that are closed one way.

use super::{Due, Nemesis};
use crate::counters;
use crate::links::Direction;
use crate::links::closed::{self, Closing};
use crate::now::now_us;
use crate::plan::Fault;
use crate::trace;
use crate::watch;
use crate::world::World;

impl Nemesis {
    pub(super) fn close_links(
        &mut self,
        world: &World,
        fault: &Fault,
        class: &'static str,
        end_us: u64,
    ) {
        let &Fault::CloseLinks { who, outbound, silent } = fault else {
            unreachable!("{fault:?} closes no links")
        };
        let mut directions: Vec<Direction> = Vec::new();
        for met in world.resolve(who) {
            let others = world.hosts.iter().map(|host| host.number).filter(|&other| other != met);
            directions
                .extend(others.map(|other| if outbound { (met, other) } else { (other, met) }));
        }
        if directions.is_empty() {
            // The fault meets the leader of a group that has none.
            return;
        }
        let closing = if silent { Closing::Silent } else { Closing::Refused };
        closed::close(&directions, closing, class);
        trace::line(now_us(), "world", "closed", format_args!("{directions:?}"));
        for &(from, to) in &directions {
            counters::effect(class, world.host(from).net.reset_opened_to(to));
        }
        watch::with(|checks| checks.leaders_reach.closed((now_us(), end_us)));
        self.at(end_us, Due::OpenLinks { directions, closing, class });
    }
}
