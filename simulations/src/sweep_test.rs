//! Tests of seed ranges, of turns of profiles and of sums over runs.

use super::*;
use crate::counters::FaultCounts;
use crate::promises;
use crate::report::RunReport;

fn ended() -> Ended {
    let mut report = RunReport { simulated_ms: 60_000, items_checked: 5, ..RunReport::default() };
    report.calls.insert("done".into(), 3);
    report.counters.checked.insert("bits_only_rise".into(), 2);
    Ended { report, cpu_us: 2_000_000, exceeded: None, messages: String::new() }
}

/// The results of a sweep over all profiles in which every fault had effects and every state was reached.
fn complete() -> SweepResults {
    let mut results = SweepResults { seed_count: ENOUGH_SEEDS, ..SweepResults::default() };
    for class in Profile::ALL.iter().flat_map(|profile| profile.classes()) {
        let felt = FaultCounts { planned: 4, fired: 4, effect: 1 };
        results.counters.faults.insert((*class).to_owned(), felt);
    }
    results.counters.states.insert("log_purged".into(), 1);
    let checks = demanded(&Profile::ALL).map(|name| (name.to_owned(), 1));
    results.counters.checked.extend(checks);
    results
}

fn exit_of(mut results: SweepResults, profiles: &[Profile]) -> Exit {
    results.note_what_is_missing(profiles);
    results.exit()
}

fn fail(results: &mut SweepResults, seed: u64, kind: &str) -> bool {
    let plan = Plan::draw(seed, Profile::Mixed, 1_000);
    let failure = Failure { kind: kind.to_owned(), what: "seen".to_owned() };
    results.fail(&plan, &failure, PathBuf::from("plan.json"))
}

#[test]
fn a_range_of_seeds_is_two_numbers_in_order() {
    assert_eq!("5..9".parse(), Ok(SeedRange { first: 5, end: 9 }));
    for text in ["5..5", "9..5"] {
        let error = text.parse::<SeedRange>().unwrap_err();
        assert!(error.to_string().starts_with("a seed range of nothing"), "{error}");
    }
    for text in ["5", "", "..", "a..b", "1..", "-1..4", "1..=4", "1..99999999999999999999"] {
        let error = text.parse::<SeedRange>().unwrap_err();
        assert_eq!(error, SeedRangeError::Form(text.to_owned()), "{text}");
    }
}

#[test]
fn profiles_take_turns() {
    let seeds = 0..Profile::ALL.len() as u64;
    let turns: BTreeSet<Profile> = seeds.map(|seed| profile_of(seed, &Profile::ALL)).collect();
    assert_eq!(turns.len(), Profile::ALL.len());
    assert_eq!(profile_of(u64::MAX, &[Profile::Disk]), Profile::Disk);
}

#[test]
fn one_seed_in_a_hundred_is_run_twice_and_the_first_is() {
    let reruns: Vec<u64> = (30..330).filter(|&seed| is_rerun(seed, 30)).collect();
    assert_eq!(reruns, [30, 130, 230]);
}

#[test]
fn runs_add_up() {
    let mut results = SweepResults::default();
    results.add(&ended());
    results.add(&ended());
    assert_eq!((results.seed_count, results.simulated_ms, results.cpu_ms), (2, 120_000, 4_000));
    assert_eq!((results.calls["done"], results.items_checked), (6, 10));
    assert_eq!(results.counters.checked["bits_only_rise"], 4);
    let line = results.progress();
    assert!(line.starts_with("2 seeds, 0.0 simulated hours, 30.0 simulated s"), "{line}");
}

#[test]
fn of_a_kind_of_failure_only_the_first_plans_are_kept() {
    let mut results = SweepResults::default();
    let kept: Vec<bool> = (0..5).map(|seed| fail(&mut results, seed, "no_panic")).collect();
    assert_eq!(kept, [true, true, true, false, false]);
    assert!(fail(&mut results, 9, "bits_only_rise"));
    assert_eq!(results.kinds(), BTreeMap::from([("bits_only_rise", 1), ("no_panic", 5)]));
    assert_eq!(results.failures[&4].plan_file, None);
}

#[test]
fn a_complete_sweep_holds() {
    assert_eq!(exit_of(complete(), &Profile::ALL), Exit::Held);
}

#[test]
fn a_fault_without_effect_fails_a_sweep_of_enough_seeds() {
    let (class, _) = complete().counters.faults.pop_first().unwrap();
    let mut inert = complete();
    inert.counters.faults.get_mut(&class).unwrap().effect = 0;
    let mut text = complete();
    text.counters = inert.counters.clone();
    text.note_what_is_missing(&Profile::ALL);
    assert!(text.text().contains(&format!("without effect: the fault {class}\n")));

    let mut never_planned = complete();
    never_planned.counters.faults.remove(&class);
    let few = SweepResults {
        seed_count: ENOUGH_SEEDS - 1,
        counters: inert.counters.clone(),
        ..SweepResults::default()
    };
    assert_eq!(exit_of(inert, &Profile::ALL), Exit::WithoutEffect);
    assert_eq!(exit_of(never_planned, &Profile::ALL), Exit::WithoutEffect);
    assert_eq!(exit_of(few, &Profile::ALL), Exit::Held);
}

#[test]
fn a_state_is_asked_for_only_of_all_profiles() {
    let missed = || {
        let mut results = complete();
        results.counters.states.insert("joint_at_restart".into(), 0);
        results
    };
    assert_eq!(exit_of(missed(), &Profile::ALL), Exit::WithoutEffect);
    assert_eq!(exit_of(missed(), &[Profile::Calm]), Exit::Held);
}

#[test]
fn a_promise_that_every_run_checks_is_asked_for() {
    let unchecked = |name: &str, seed_count| {
        let mut results = SweepResults { seed_count, ..complete() };
        results.counters.checked.remove(name);
        results
    };
    for name in demanded(&Profile::ALL) {
        assert!(promises::is_kind(name) || name == "raft", "{name}");
        assert_eq!(exit_of(unchecked(name, ENOUGH_SEEDS), &Profile::ALL), Exit::WithoutEffect);
        assert_eq!(exit_of(unchecked(name, ENOUGH_SEEDS - 1), &Profile::ALL), Exit::Held);
    }
    let demanded_of = |profile| demanded(&[profile]).collect::<Vec<_>>();
    assert_eq!(demanded_of(Profile::Reconcile), OF_SESSIONS);
    assert_eq!(demanded_of(Profile::Calm), OF_NODES);
    assert!(demanded(Profile::in_turn()).any(|name| name == "acked_is_contained"));
}

#[test]
fn a_promise_that_chance_has_left_unchecked_is_told_and_fails_nothing() {
    let mut results = complete();
    results.counters.checked.insert("copies_forget".into(), 0);
    results.note_what_is_missing(&Profile::ALL);
    assert!(results.text().ends_with("never checked: copies_forget\n"));
    assert_eq!(results.exit(), Exit::Held);
}

#[test]
fn the_worst_decides_the_exit() {
    let mut results = complete();
    fail(&mut results, 1, EXCEEDED);
    assert_eq!(results.exit(), Exit::Exceeded);
    fail(&mut results, 2, "no_panic");
    assert_eq!(results.exit(), Exit::Violated);
    let trace = TraceDigest { line_count: 1, hash: 2 };
    results.compare(3, trace, trace);
    assert_eq!((results.exit(), results.rerun_count), (Exit::Violated, 1));
    results.compare(3, trace, TraceDigest { line_count: 1, hash: 3 });
    assert_eq!(results.exit(), Exit::NotDeterministic);
    assert!(results.text().contains("not deterministic: seed 3"));
}

#[test]
fn the_report_is_json() {
    let mut results = complete();
    fail(&mut results, 1, "no_panic");
    let json: serde_json::Value = serde_json::to_value(&results).unwrap();
    assert_eq!(json["failures"]["1"]["kind"], "no_panic");
    assert_eq!(json["seed_count"], ENOUGH_SEEDS);
}
