//! The oracle of rights, on catalogues that are applied entry by entry.

use umbel_engine::meta::{Grant, MetaCommand, Principal, PrincipalName, Rights};

use super::*;

const S: u64 = 1_000_000;

fn principal(
    digest: u8,
    pattern: &str,
    verbs: &[FilterVerb],
    expires_ms: Option<u64>,
) -> Principal {
    let grant = Grant { pattern: pattern.to_owned(), verbs: verbs.iter().copied().collect() };
    let rights = Rights { grants: vec![grant], cluster: [ClusterVerb::Admin].into() };
    let proof = Proof::Token { digest: [digest; 32] };
    Principal { proof, rights, created_ms: 0, expires_ms }
}

/// Entry 1 forms the cluster, 2 adds `root`, 3 adds `p0`, 4 revokes it.
struct Story {
    state: MetaState,
    rights: RightsOracle,
    index: u64,
}

impl Story {
    fn new() -> Self {
        let mut story = Self { state: MetaState::new(), rights: RightsOracle::default(), index: 0 };
        let nodes = (1..=2).map(|n| (NodeId(n), format!("n{n}:7300"))).collect();
        story.apply(&MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
        story.put("root", principal(9, "*", &[FilterVerb::Read], None));
        story.put("p0", principal(1, "a1", &[FilterVerb::Read], Some(50)));
        let name = PrincipalName::new("p0").unwrap();
        story.apply(&MetaCommand::DropPrincipal { name });
        story
    }

    fn put(&mut self, name: &str, principal: Principal) {
        let name = PrincipalName::new(name).unwrap();
        self.apply(&MetaCommand::PutPrincipal { name, principal, replace: true });
    }

    /// Machine 1 applies every entry a second after the one before it.
    fn apply(&mut self, command: &MetaCommand) {
        self.index += 1;
        self.state.apply(self.index, command);
        self.rights.applied_on(self.index * S, "n1", self.index, &self.state);
    }

    fn of(
        &self,
        machine: u32,
        us: (u64, u64),
        shown: &Shown,
        ask: AccessCall,
    ) -> Option<Vec<Verdict>> {
        let versions = self.rights.possible(machine, us.0, us.1)?;
        Some(verdicts(versions, shown, ask, (10, 10)).into_iter().collect())
    }
}

fn shown(digest: u8) -> Shown {
    Shown { token: Some(("p0".to_owned(), [digest; 32])) }
}

#[test]
fn a_machine_applies_the_rights_that_it_or_any_node_knew() {
    let story = Story::new();
    let ask = AccessCall::Info { filter: 1 };
    let of = |machine, from, to| story.of(machine, (from, to), &shown(1), ask);
    assert_eq!(of(1, 3 * S + 500_000, 3 * S + 600_000), Some(vec![Verdict::Granted]));
    let both = Some(vec![Verdict::Granted, Verdict::Stranger]);
    assert_eq!(of(1, 3 * S + 500_000, 4 * S), both, "it is revoked meanwhile");
    assert_eq!(of(1, 5 * S, 6 * S), Some(vec![Verdict::Stranger]));
    assert_eq!(of(2, 5 * S, 6 * S), None, "nothing is known of what it knows");
}

#[test]
fn a_machine_that_learned_late_may_apply_old_rights() {
    let mut story = Story::new();
    let state = story.state.clone();
    story.rights.applied_on(5 * S, "n2", 3, &state);
    let ask = AccessCall::Info { filter: 1 };
    let both = Some(vec![Verdict::Granted, Verdict::Stranger]);
    assert_eq!(story.of(2, (6 * S, 7 * S), &shown(1), ask), both);
    story.rights.applied_on(8 * S, "n2", 4, &state);
    assert_eq!(story.of(2, (9 * S, 10 * S), &shown(1), ask), Some(vec![Verdict::Stranger]));
}

#[test]
fn a_machine_that_starts_goes_by_what_anybody_had_before() {
    let mut story = Story::new();
    story.rights.started(5 * S, 2);
    let ask = AccessCall::Info { filter: 1 };
    assert_eq!(story.of(2, (6 * S, 7 * S), &shown(1), ask), Some(vec![Verdict::Stranger]));
    story.rights.started(8 * S, 1);
    assert_eq!(story.of(1, (9 * S, 9 * S), &shown(1), ask), Some(vec![Verdict::Stranger]));
}

#[test]
fn what_a_machine_applied_before_it_started_again_does_not_bind_its_links() {
    let mut story = Story::new();
    story.apply(&MetaCommand::RemoveNode { node: NodeId(2) });
    let knows = |story: &Story, from, to| story.rights.knows_removed(1, NodeId(2), (from, to));
    assert!(!knows(&story, 5 * S, 6 * S) && knows(&story, 6 * S, 7 * S));
    story.rights.started(8 * S, 1);
    assert!(!knows(&story, 7 * S, 9 * S) && !knows(&story, 9 * S, 10 * S));
    let state = story.state.clone();
    story.rights.applied_on(10 * S, "n1", 5, &state);
    assert!(knows(&story, 11 * S, 12 * S) && !knows(&story, 10 * S, 12 * S));
}

#[test]
fn tokens_ends_and_names_are_distinguished() {
    let story = Story::new();
    let (_, _, version) = &story.rights.versions[2];
    let of = |shown: &Shown, ask, now_ms| version.verdict(shown, ask, now_ms);
    assert_eq!(of(&shown(1), AccessCall::Info { filter: 1 }, 49), Verdict::Granted);
    assert_eq!(of(&shown(1), AccessCall::Info { filter: 1 }, 50), Verdict::Stranger);
    assert_eq!(of(&shown(2), AccessCall::Info { filter: 1 }, 0), Verdict::Stranger);
    assert_eq!(of(&Shown { token: None }, AccessCall::List, 0), Verdict::Nobody);
    assert_eq!(of(&shown(1), AccessCall::Info { filter: 0 }, 0), Verdict::NotThere);
    assert_eq!(of(&shown(1), AccessCall::Clear { filter: 1 }, 0), Verdict::Nowhere);
    assert_eq!(of(&shown(1), AccessCall::Status, 0), Verdict::Nowhere);
    assert_eq!(of(&shown(1), AccessCall::Principals, 0), Verdict::Granted);
    assert!(version.may_see(&shown(1), "a1") && !version.may_see(&shown(1), "a0"));
}

#[test]
fn a_star_counts_at_the_end_alone() {
    for (pattern, name, is_covered) in [
        ("*", "", true),
        ("*", "a1", true),
        ("a*", "a1", true),
        ("a1", "a1", true),
        ("a1*", "a1", true),
        ("a", "a1", false),
        ("a1", "a", false),
        ("*1", "a1", false),
        ("a*1", "a*1", true),
        ("a**", "a*", true),
        ("a**", "a", false),
    ] {
        assert_eq!(covers(pattern, name), is_covered, "{pattern} {name}");
    }
}
