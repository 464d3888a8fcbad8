//! `bugs`: whether the checks find the bugs that were planted for them.

use umbel_step::planted::Planted;

use super::print;
use super::sweep::jobs_of;
use crate::child::{ChildError, Order};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::{PLAN_LIMITS, Plan};
use crate::pool::{Found, find_lowest};
use crate::profile::Profile;
use crate::report::Breach;
use crate::table::{Table, count, grouped, per};
use crate::{bugs, clock};

#[derive(clap::Args)]
pub(super) struct BugsArgs {
    /// The bugs [default: all]
    #[arg(value_name = "NAME", value_parser = bugs::named)]
    names: Vec<Planted>,
    /// Seeds, from 1, within which a bug must be found
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Take so many bugs; with each turn the next ones
    #[arg(long, value_name = "N", conflicts_with = "names", value_parser = clap::value_parser!(u64).range(1..))]
    rotate: Option<u64>,
    /// Which turn it is: the number of a build, or of a day
    #[arg(long, value_name = "N", default_value_t = 0, requires = "rotate")]
    turn: u64,
    /// Runs at once [default: one a processor]
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Simulated milliseconds with faults in each run
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(PLAN_LIMITS.run_ms))]
    ms: u64,
}

/// How the search for a bug went.
struct Searched {
    bug: Planted,
    found: Option<Found<Breach>>,
    /// What the same run without the bug failed with; it must hold.
    clean_failure: Option<String>,
    wall_us: u64,
}

/// Carries the command out.
pub(super) fn run(args: &BugsArgs, limits: Limits) -> anyhow::Result<Exit> {
    let jobs = jobs_of(args.jobs);
    let mut all = Vec::new();
    for bug in chosen(args) {
        let searched = search(bug, args, jobs, limits)?;
        print(&searched.line(args.seeds))?;
        all.push(searched);
    }
    print(&summary(&all))?;
    let is_good = all.iter().all(|one| one.found.is_some() && one.clean_failure.is_none());
    Ok(if is_good { Exit::Held } else { Exit::Violated })
}

fn chosen(args: &BugsArgs) -> Vec<Planted> {
    match args.rotate {
        Some(number) => {
            let all = Planted::ALL.len();
            // Turns repeat after as many as there are bugs, so the remainder is the same turn.
            let turn = usize::try_from(args.turn % all as u64).unwrap_or(0);
            bugs::rotated(usize::try_from(number).unwrap_or(all), turn)
        }
        None if args.names.is_empty() => Planted::ALL.to_vec(),
        None => args.names.clone(),
    }
}

fn search(bug: Planted, args: &BugsArgs, jobs: usize, limits: Limits) -> anyhow::Result<Searched> {
    let profile = bugs::profile_of(bug)?;
    let from_us = clock::wall_us();
    let look = |seed| {
        let ended = Order::quiet(plan_with(bug, profile, seed, args.ms), limits).run()?;
        // A run that only used up its time shows nothing about the promises.
        Ok::<_, ChildError>(ended.report.violations.into_iter().next())
    };
    let found = find_lowest(jobs, 1, args.seeds, &look)?;
    let clean_failure = match &found {
        Some(Found { number: seed, .. }) => {
            let mut plan = plan_with(bug, profile, *seed, args.ms);
            plan.planted = None;
            Order::quiet(plan, limits).run()?.failure().map(|failure| failure.what)
        }
        None => None,
    };
    Ok(Searched { bug, found, clean_failure, wall_us: clock::wall_us() - from_us })
}

fn plan_with(bug: Planted, profile: Profile, seed: u64, ms: u64) -> Plan {
    let mut plan = Plan::draw(seed, profile, ms);
    bugs::plant_in(&mut plan, bug);
    plan
}

impl Searched {
    fn line(&self, seed_count: u64) -> String {
        let name = self.bug.name();
        let found = match &self.found {
            Some(Found { number, what }) => {
                format!("{name}: found by seed {number}: {what}{}", self.surprise())
            }
            None => format!("{name}: not found by {}", count(seed_count, "seed")),
        };
        match &self.clean_failure {
            Some(what) => format!("{found}\n  without the bug this seed fails too: {what}"),
            None => found,
        }
    }

    /// What to say if the bug broke another promise than those that it was planted for.
    fn surprise(&self) -> String {
        let expected = self.bug.caught_by();
        match &self.found {
            Some(found) if !expected.iter().any(|&one| found.what.invariant == *one) => {
                format!(" (expected: {})", expected.join(", "))
            }
            _ => String::new(),
        }
    }
}

fn summary(all: &[Searched]) -> String {
    let mut table = Table::new(&["bug", "seeds", "seconds", "broken promise"]);
    for one in all {
        let seeds =
            one.found.as_ref().map_or_else(|| "-".to_owned(), |found| grouped(found.number));
        let promise = one.found.as_ref().map_or("not found", |found| &found.what.invariant);
        let note = if one.clean_failure.is_some() { ", also without the bug" } else { "" };
        let surprise = if one.surprise().is_empty() { "" } else { ", not as expected" };
        let promise = format!("{promise}{surprise}{note}");
        table.row([one.bug.name().to_owned(), seeds, per(one.wall_us, 1_000_000), promise]);
    }
    let mut numbers: Vec<u64> =
        all.iter().filter_map(|one| one.found.as_ref()).map(|found| found.number).collect();
    numbers.sort_unstable();
    let median = numbers.get(numbers.len().saturating_sub(1) / 2);
    let median =
        median.map_or_else(String::new, |seeds| format!(", median {}", count(*seeds, "seed")));
    format!("{table}found {} of {}{median}", numbers.len(), count(all.len() as u64, "bug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(place: usize, number: u64, invariant: &str) -> Searched {
        let what = Breach { invariant: invariant.to_owned(), at_us: 5, what: "seen".to_owned() };
        let found = (number > 0).then_some(Found { number, what });
        Searched { bug: Planted::ALL[place], found, clean_failure: None, wall_us: 1_500_000 }
    }

    #[test]
    fn the_summary_names_seeds_and_invariants() {
        let expected = Planted::ALL[0].caught_by()[0];
        let all = [searched(0, 3, expected), searched(1, 40, "no_panic"), searched(2, 0, "")];
        let text = summary(&all);
        assert!(text.ends_with("found 2 of 3 bugs, median 3 seeds"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains(Planted::ALL[0].name()) && lines[1].ends_with(expected),
            "{text}"
        );
        assert!(lines[2].ends_with("no_panic, not as expected"), "{text}");
        assert!(lines[3].ends_with("not found"), "{text}");
        assert!(all[1].line(500).contains("no_panic at 0.000005 s: seen (expected: "));
        assert!(!all[0].line(500).contains("expected"));
    }

    #[test]
    fn a_seed_that_fails_without_the_bug_is_reported() {
        let mut one = searched(0, 3, "no_panic");
        one.clean_failure = Some("no_panic: index".to_owned());
        assert!(one.line(500).ends_with("without the bug this seed fails too: no_panic: index"));
        assert!(summary(&[one]).contains("also without the bug"));
        assert!(searched(1, 0, "").line(500).ends_with("not found by 500 seeds"));
    }

    #[test]
    fn a_plan_for_a_bug_has_it_on() {
        let bug = Planted::ALL[1];
        let plan = plan_with(bug, Profile::Crash, 9, 1_000);
        assert_eq!((plan.seed, plan.planted.as_deref()), (9, Some(bug.name())));
    }
}
