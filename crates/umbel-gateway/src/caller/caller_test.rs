//! Tests of what callers prove and what they may do.

use axum::http::HeaderValue;
use umbel_engine::meta::MetaCommand;

use super::*;

const SECRET: &str = "0123456789abcdef";

/// A state with an administrator who has a token, and a client with a certificate whose rights end at 10.
fn guarded() -> MetaState {
    let mut state = MetaState::new();
    let nodes = vec![(NodeId(1), "a:7070".to_owned())];
    state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    let rights = Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() };
    let digest = *blake3::hash(SECRET.as_bytes()).as_bytes();
    let root =
        Principal { proof: Proof::Token { digest }, rights, created_ms: 0, expires_ms: None };
    let alice = Principal { proof: Proof::Certificate, expires_ms: Some(10), ..root.clone() };
    for (name, principal) in [("root.a", root), ("alice", alice)] {
        let name = PrincipalName::new(name).unwrap();
        state.apply(2, &MetaCommand::PutPrincipal { name, principal, replace: false });
    }
    assert_eq!(state.principals().count(), 2);
    state
}

fn standing(
    connection: &PeerIdentity,
    token: Option<&str>,
    state: Option<&MetaState>,
) -> CallerStanding {
    let token = token.map(|token| HeaderValue::from_str(token).unwrap());
    CallerStanding::of(connection, Credential::of_header(token.as_ref()), state, 5)
}

/// The standing of a principal of [`guarded`] with its proof there.
fn named(name: &str) -> CallerStanding {
    let proof = guarded().principal(name).unwrap().proof;
    CallerStanding::Principal(Proved { name: PrincipalName::new(name).unwrap(), proof })
}

#[test]
fn a_token_proves_a_principal_on_every_connection() {
    let state = guarded();
    let token = format!("Bearer root.a.{SECRET}");
    let client = PeerIdentity::Client("alice".into());
    for connection in [PeerIdentity::Unchecked, PeerIdentity::Anonymous, client] {
        let proved = standing(&connection, Some(&token), Some(&state));
        assert_eq!(proved, named("root.a"), "{connection}");
    }
}

/// Found by a simulation: a call whose token was replaced while in flight got the rights of the new one.
#[test]
fn what_proved_somebody_has_no_rights_of_what_took_its_place() {
    let mut state = guarded();
    let CallerStanding::Principal(proved) = named("root.a") else { panic!("it is a principal") };
    assert!(proved.find(&state, 5).is_some());
    let before = state.principal("root.a").unwrap().clone();
    for proof in [Proof::Token { digest: [7; 32] }, Proof::Certificate] {
        let (name, principal) = (proved.name.clone(), Principal { proof, ..before.clone() });
        state.apply(3, &MetaCommand::PutPrincipal { name, principal, replace: true });
        assert_eq!(state.principal("root.a").unwrap().proof, proof);
        assert!(proved.find(&state, 5).is_none(), "{proof:?}");
    }
    let CallerStanding::Principal(alice) = named("alice") else { panic!("it is a principal") };
    assert!(alice.find(&state, 9).is_some() && alice.find(&state, 10).is_none(), "it expires");
}

#[test]
fn wrong_tokens_prove_nobody_and_say_no_more() {
    let state = guarded();
    for wrong in [
        "Bearer root.a.0123456789abcdeF",
        "Bearer root.a.",
        "Bearer root.a",
        "Bearer nobody.0123456789abcdef",
        "Bearer alice.0123456789abcdef", // its proof is a certificate
        "Basic root.a.0123456789abcdef",
        "Bearer",
        "",
    ] {
        let client = PeerIdentity::Client("alice".into());
        // A certificate does not make up for a wrong token: the caller meant the token.
        for connection in [PeerIdentity::Unchecked, PeerIdentity::Anonymous, client] {
            let proved = standing(&connection, Some(wrong), Some(&state));
            assert_eq!(proved, CallerStanding::Nobody(BAD_TOKEN), "{connection} {wrong:?}");
        }
    }
}

#[test]
fn a_certificate_proves_its_own_name_until_it_expires() {
    let state = guarded();
    let of = |name: &str| standing(&PeerIdentity::Client(name.into()), None, Some(&state));
    assert_eq!(of("alice"), named("alice"));
    assert_eq!(of("root.a"), CallerStanding::Nobody(NO_PRINCIPAL), "it has a token");
    assert_eq!(of("bob"), CallerStanding::Nobody(NO_PRINCIPAL));
    let late = CallerStanding::of(
        &PeerIdentity::Client("alice".into()),
        Credential::None,
        Some(&state),
        10,
    );
    assert_eq!(late, CallerStanding::Nobody(NO_PRINCIPAL));
}

#[test]
fn before_a_node_knows_the_grants_the_connection_decides() {
    let coordinator = Arc::new(Coordinator::without_cluster());
    let early = |connection: &PeerIdentity| Caller::without_grants(connection, &coordinator);
    let client = PeerIdentity::Client("alice".into());
    for connection in [&client, &PeerIdentity::Unchecked, &PeerIdentity::Anonymous] {
        let caller = early(connection);
        assert!(caller.is_unknown(), "{connection}");
        for need in [Need::Somebody, Need::Filter(FilterVerb::Read)] {
            assert!(!caller.may(need) && need.asks_for_grants(connection), "{connection}");
        }
        assert!(!Need::Nothing.asks_for_grants(connection), "{connection}");
        assert!(!Need::Node.asks_for_grants(connection), "{connection}");
    }
    let is_needed = |connection| Need::NodeOr(ClusterVerb::Admin).asks_for_grants(connection);
    assert!(is_needed(&client) && !is_needed(&PeerIdentity::Unchecked));
    assert!(early(&PeerIdentity::Node).may(Need::Cluster(ClusterVerb::Admin)));
    assert!(!Need::Somebody.asks_for_grants(&PeerIdentity::Node));
}

#[test]
fn without_principals_clients_may_everything_and_strangers_nothing() {
    let open = MetaState::new();
    let client = PeerIdentity::Client("alice".into());
    for state in [None, Some(&open)] {
        for connection in [&client, &PeerIdentity::Unchecked, &PeerIdentity::Node] {
            assert_eq!(standing(connection, None, state), CallerStanding::Unlimited);
        }
        assert_eq!(
            standing(&PeerIdentity::Anonymous, None, state),
            CallerStanding::Nobody(NO_PROOF)
        );
    }
    let token = Some("Bearer a.b");
    assert_eq!(standing(&PeerIdentity::Anonymous, token, None), CallerStanding::Unknown);
    assert_eq!(standing(&PeerIdentity::Unchecked, token, None), CallerStanding::Unknown);
    assert_eq!(standing(&PeerIdentity::Unchecked, token, Some(&open)), CallerStanding::Unlimited);
}

#[test]
fn a_certain_node_is_one_as_long_as_it_is_a_member_of_this_cluster() {
    let mut state = guarded();
    let add = |address: &str, nonce| MetaCommand::AddNode { address: address.to_owned(), nonce };
    state.apply(5, &add("b:7070", 1));
    state.apply(6, &add("c:7070", 2));
    let of = |state: &MetaState, cluster, node| {
        let member = PeerIdentity::Member(NodeIdentity { cluster, node });
        standing(&member, None, Some(state))
    };
    assert_eq!(of(&state, 9, 2), CallerStanding::Unlimited);
    assert_eq!(of(&state, 8, 2), CallerStanding::Nobody(OTHER_CLUSTER));
    assert_eq!(of(&state, 9, 0), CallerStanding::Nobody(NO_MEMBER), "it never was");
    assert_eq!(of(&state, 9, 4), CallerStanding::Unknown, "it may have joined since");
    state.apply(7, &MetaCommand::RemoveNode { node: NodeId(2) });
    assert_eq!(of(&state, 9, 2), CallerStanding::Nobody(NO_MEMBER));
    let member = PeerIdentity::Member(NodeIdentity { cluster: 9, node: 2 });
    let token = format!("Bearer root.a.{SECRET}");
    let with_token = standing(&member, Some(&token), Some(&state));
    assert_eq!(with_token, CallerStanding::Nobody(NO_MEMBER), "a token does not make it good");
    assert_eq!(standing(&member, None, None), CallerStanding::Unknown);
}

#[test]
fn who_may_call_as_a_node() {
    let coordinator = Arc::new(Coordinator::without_cluster());
    let may = |connection, needs_member| {
        let caller = Caller::identify(&connection, Credential::None, &coordinator, needs_member);
        (caller.may(Need::Node), caller.may(Need::Cluster(ClusterVerb::Admin)))
    };
    let member = PeerIdentity::Member(NodeIdentity { cluster: 9, node: 5 });
    assert_eq!(may(PeerIdentity::Node, false), (true, true));
    assert_eq!(may(PeerIdentity::Node, true), (false, false), "it does not say which");
    assert_eq!(may(member, true), (true, false), "who it is is not known yet");
    assert_eq!(may(PeerIdentity::Anonymous, false), (false, false));
    let generic = Caller::identify(&PeerIdentity::Node, Credential::None, &coordinator, true);
    assert!(generic.refusal(Need::Node).contains("require_node_identity"));
}

#[test]
fn with_principals_who_proves_nothing_is_nobody() {
    let state = guarded();
    let nobody = standing(&PeerIdentity::Unchecked, None, Some(&state));
    assert_eq!(nobody, CallerStanding::Nobody(NO_TOKEN));
    assert_eq!(
        standing(&PeerIdentity::Anonymous, None, Some(&state)),
        CallerStanding::Nobody(NO_PROOF)
    );
    assert_eq!(standing(&PeerIdentity::Node, None, Some(&state)), CallerStanding::Unlimited);
}
