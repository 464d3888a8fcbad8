//! What the methods of administrators note for the audit log: asked of a node without a cluster, which carries out nothing.

use std::sync::Arc;
use std::time::Duration;

use tonic::Request;
use umbel_coordinator::Coordinator;
use umbel_proto::v1;
use umbel_proto::v1::access_server::Access;
use umbel_proto::v1::admin_server::Admin;
use umbel_proto::v1::enrolment_server::Enrolment;
use umbel_proto::v1::jobs_server::Jobs;

use super::access::AccessService;
use super::admin::AdminService;
use super::audit::audited;
use super::audit_recorder::AuditRecorder;
use super::caller::Caller;
use super::deadlines::Deadlines;
use super::enrolment::EnrolmentService;
use super::jobs::JobsService;

/// What a method notes of a message, which it refuses afterwards.
macro_rules! noted {
    ($service:expr, $method:ident, $message:expr) => {{
        let (mut request, noted) = audited($message);
        request.extensions_mut().insert(Caller::node());
        assert!($service.$method(request).await.is_err(), "there is no cluster");
        noted().unwrap_or_default()
    }};
}

fn without_cluster() -> (Arc<Coordinator>, Deadlines) {
    (Arc::new(Coordinator::without_cluster()), Deadlines::new(Duration::from_secs(10)))
}

#[tokio::test]
async fn orders_about_nodes_and_shards_name_them() {
    let (coordinator, deadlines) = without_cluster();
    let admin = AdminService::new(coordinator, deadlines);
    let drain = v1::DrainRequest { node: 3, undo: true };
    assert_eq!(noted!(admin, drain, drain), "node=3 undo=true");
    assert_eq!(noted!(admin, remove, v1::RemoveNodeRequest { node: 3 }), "node=3");
    let moving = v1::MoveShardRequest { shard: 5, from: 1, to: 2 };
    assert_eq!(noted!(admin, move_shard, moving), "shard=5 from=1 to=2");
    let split = v1::SplitShardRequest { shard_count: 17 };
    assert_eq!(noted!(admin, split_shard, split), "shard_count=17");
    let merge = v1::MergeShardRequest { shard_count: 16 };
    assert_eq!(noted!(admin, merge_shard, merge), "shard_count=16");
    assert_eq!(
        noted!(admin, set_auto_split, v1::SetAutoSplitRequest { is_on: false }),
        "is_on=false"
    );
    assert_eq!(noted!(admin, upgrade, v1::UpgradeRequest { check: true }), "check=true");
    assert_eq!(noted!(admin, backup, v1::BackupRequest { snapshot: true }), "snapshot=true");
    let scrub = v1::ScrubRequest { filter: "two words".to_owned() };
    assert_eq!(noted!(admin, scrub, scrub), "filter=\"two words\"");
    let join = v1::JoinRequest { address: "n4:7300".to_owned(), ..Default::default() };
    assert_eq!(noted!(admin, join, join), "address=n4:7300");
    let token = v1::PutJoinTokenRequest { digest: vec![7; 32].into(), expires_ms: 9 };
    assert_eq!(noted!(admin, put_join_token, token), "expires_ms=9", "nothing of the token");
}

#[tokio::test]
async fn orders_about_principals_name_them_and_what_they_get_without_their_proofs() {
    let (coordinator, deadlines) = without_cluster();
    let access = AccessService::new(coordinator, deadlines);
    let verbs = vec![v1::FilterVerb::Read.into(), v1::FilterVerb::Insert.into(), 99];
    let alice = v1::Principal {
        name: "alice".to_owned(),
        token_digest: vec![7; 32].into(),
        grants: vec![v1::Grant { pattern: "crawl*".to_owned(), verbs }],
        cluster_verbs: vec![v1::ClusterVerb::Backup.into()],
        ..Default::default()
    };
    let put = v1::PutPrincipalRequest { principal: Some(alice), replace: true, keep_proof: false };
    let expected = "principal=alice replace=true keep_proof=false expires_ms=0 cluster=backup crawl*=read,insert,99";
    assert_eq!(noted!(access, put, put), expected);
    let revoke = v1::RevokePrincipalRequest { name: "alice".to_owned() };
    assert_eq!(noted!(access, revoke, revoke), "principal=alice");
    let change = Some(v1::Quota { filters: Some(7), ..Default::default() });
    let quota = v1::SetQuotaRequest { principal: String::new(), change, from_none: false };
    assert_eq!(noted!(access, set_quota, quota), "principal=\"\" from_none=false filters=7");
}

#[tokio::test]
async fn orders_about_jobs_name_them_without_their_words() {
    let (coordinator, deadlines) = without_cluster();
    let jobs = JobsService::new(coordinator, deadlines);
    let submit = v1::SubmitJobRequest {
        spec: b"--hash-key secret".to_vec().into(),
        workers: vec![1, 3],
        ..Default::default()
    };
    assert_eq!(noted!(jobs, submit_job, submit), "workers=1,3 spec_bytes=17");
    assert_eq!(noted!(jobs, cancel_job, v1::CancelJobRequest { job: 4 }), "job=4");
    assert_eq!(noted!(jobs, resume_job, v1::ResumeJobRequest { job: 5 }), "job=5");
}

/// Its certificate passes the gate, but names no node.
#[tokio::test]
async fn a_node_of_no_number_gets_no_certificate_and_one_line() {
    let recorder = AuditRecorder::default();
    let _recording = recorder.begin();
    let (coordinator, deadlines) = without_cluster();
    let enrolment = EnrolmentService::new(coordinator, deadlines);
    let mut request = Request::new(v1::RenewRequest::default());
    request.extensions_mut().insert(Caller::node());
    assert!(enrolment.renew(request).await.is_err());
    let lines = recorder.lines();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    let denied = r#"denied who="node" outcome="refused" reason="a certificate is renewed for"#;
    assert!(line.starts_with(denied), "{line}");
}
