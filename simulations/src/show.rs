//! A run's report as text for people.

use std::fmt::Write as _;

use crate::child::Ended;
use crate::counters::Counters;
use crate::plan::Plan;
use crate::report::RunReport;
use crate::table::{Table, count, grouped, per};

/// A summary of a plan in one line.
pub(crate) fn plan_line(plan: &Plan) -> String {
    let Plan { seed, profile, run_ms, world, .. } = plan;
    let planted = plan.planted.as_ref().map_or_else(String::new, |bug| format!(", bug {bug} on"));
    let cluster = (world.nodes > 0).then(|| {
        format!(
            "{}, {} of {}, {}; {} and {}",
            count(world.nodes.into(), "node"),
            count(world.shards.into(), "shard"),
            count(world.replicas.into(), "replica"),
            count(world.clients.into(), "client"),
            count(plan.ops.len() as u64, "call"),
            count(plan.faults.len() as u64, "fault"),
        )
    });
    let sessions = plan.sets.as_ref().map(|sets| {
        let (sets, items) = (count(sets.own.len() as u64, "set"), sets.items);
        format!("{sets} of {items:?}, {}", count(plan.scenarios.len() as u64, "session"))
    });
    let parts: Vec<String> = cluster.into_iter().chain(sessions).collect();
    let parts = parts.join("; ");
    format!("seed {seed}, profile {profile}{planted}: {parts} in {} s", per(*run_ms, 1_000))
}

/// What exceeds the damage budget in a plan that was written by hand; `None` if nothing does.
pub(crate) fn budget_line(plan: &Plan) -> Option<String> {
    let excess = plan.excess_damage()?;
    Some(format!("beyond the damage budget: {excess}; a broken promise proves nothing"))
}

/// Everything that one run recorded. `wall_us` is the real time that it took.
pub(crate) fn run_text(ended: &Ended, wall_us: u64) -> String {
    let RunReport { simulated_ms, calls, items_checked, counters, trace, violations, .. } =
        &ended.report;
    let mut text = String::new();
    for breach in violations {
        let _ = writeln!(text, "violated: {breach}");
    }
    match (&ended.exceeded, violations.is_empty()) {
        (Some(what), _) => {
            let _ = writeln!(text, "exceeded: the run {what}");
        }
        (None, true) => text += "held: no promise was broken\n",
        (None, false) => {}
    }
    let _ = writeln!(
        text,
        "speed: {} simulated s in {} s, {} for each second, {} for each of processor time",
        per(*simulated_ms, 1_000),
        per(wall_us, 1_000_000),
        per(simulated_ms * 1_000, wall_us),
        per(simulated_ms * 1_000, ended.cpu_us),
    );
    let ends: Vec<String> =
        calls.iter().map(|(end, number)| format!("{} {end}", grouped(*number))).collect();
    let ends = if ends.is_empty() { "none".to_owned() } else { ends.join(", ") };
    let _ = writeln!(text, "calls: {ends}; {} checked", count(*items_checked, "item"));
    let _ = write!(text, "trace: {trace}\n{}", counters_text(counters));
    text
}

/// Tables of faults, states and checks, each after an empty line; empty tables are left out.
pub(crate) fn counters_text(counters: &Counters) -> String {
    let mut faults = Table::new(&["fault", "planned", "fired", "effects"]);
    for (class, counts) in &counters.faults {
        let numbers = [counts.planned, counts.fired, counts.effect].map(grouped);
        let [planned, fired, effect] = numbers;
        faults.row([class.clone(), planned, fired, effect]);
    }
    let mut states = Table::new(&["state", "reached"]);
    for (name, number) in &counters.states {
        states.row([name.clone(), grouped(*number)]);
    }
    let mut checks = Table::new(&["promise", "checks"]);
    for (invariant, number) in &counters.checked {
        checks.row([invariant.clone(), grouped(*number)]);
    }
    let tables = [faults, states, checks];
    let filled = tables.iter().filter(|table| !table.is_empty());
    filled.map(|table| format!("\n{table}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::FaultCounts;
    use crate::plan::plan_test::plan_of;
    use crate::plan::{Fault, FaultPlan, Who};
    use crate::profile::Profile;
    use crate::report::Breach;

    fn ended() -> Ended {
        let mut report = RunReport { simulated_ms: 62_000, ..RunReport::default() };
        report.calls.insert("done".into(), 1_200);
        let counts = FaultCounts { planned: 3, fired: 2, effect: 1_000 };
        report.counters.faults.insert("crash".into(), counts);
        Ended { report, cpu_us: 1_550_000, exceeded: None, messages: String::new() }
    }

    #[test]
    fn a_run_shows_verdict_speed_calls_faults_and_hash() {
        let text = run_text(&ended(), 3_100_000);
        let expected = "held: no promise was broken\n\
            speed: 62.0 simulated s in 3.1 s, 20.0 for each second, 40.0 for each of processor time\n\
            calls: 1,200 done; 0 items checked\n\
            trace: 0 lines, hash 0000000000000000\n\n  \
            fault  planned  fired  effects\n  \
            crash        3      2    1,000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_violation_and_a_limit_are_shown_first() {
        let mut run = ended();
        let breach = Breach { invariant: "no_panic".into(), at_us: 5, what: "index".into() };
        run.report.violations.push(breach);
        let text = run_text(&run, 1);
        assert!(text.starts_with("violated: no_panic at 0.000005 s: index\nspeed"), "{text}");
        run.report.violations.clear();
        run.exceeded = Some("exceeded its processor time of 1 s".into());
        let text = run_text(&run, 1);
        assert!(text.starts_with("exceeded: the run exceeded its processor time"), "{text}");
        assert!(!text.contains("held"));
    }

    #[test]
    fn damage_beyond_the_budget_is_told() {
        let mut plan = plan_of(3, 3);
        assert_eq!(budget_line(&plan), None);
        let wipe = |node| Fault::WipeDisk { who: Who::Node(node) };
        plan.faults =
            [1, 2].map(|node| FaultPlan { at_ms: 0, for_ms: 0, fault: wipe(node) }).into();
        assert_eq!(
            budget_line(&plan).unwrap(),
            "beyond the damage budget: 2 nodes are damaged, at most 1 may be; a broken promise proves nothing"
        );
    }

    #[test]
    fn a_plan_is_shown_in_a_line() {
        let line = plan_line(&Plan::draw(7, Profile::Calm, 30_000));
        assert!(line.starts_with("seed 7, profile calm: "), "{line}");
        assert!(line.ends_with(" in 30.0 s"), "{line}");
        let line = plan_line(&Plan::draw(7, Profile::Reconcile, 30_000));
        assert!(line.contains(" sets of ") && line.ends_with(", 24 sessions in 30.0 s"), "{line}");
    }
}
