//! Callers that do not belong to a job, and frames that do not.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use umbel_dedup_engine::job::{GroupCountOrder, ReadOrder};
use umbel_dedup_engine::{
    Exactness, Frame, FrameKind, FrameLink, GroupCountShape, GroupCounter, JobShape, Keep, Worker,
    WorkerId,
};
use umbel_proto::v1::JobFrames;
use umbel_proto::v1::job_exchange_client::JobExchangeClient;

use super::cell_task::{CellProgress, CellTask, CellTaskEvent, CellTaskInput};
use super::group_count_task::GroupCountTask;
use super::limits::FRAMES_MESSAGE_BYTES_MAX;
use super::outgoing::{PeerQueues, Reach};
use super::testing::job_world::{World, finish};
use super::testing::memory_workshop::{Effect, MemoryWorkshop, Point, Trap};
use super::wire::{Carries, Identity, ProofKey};
use super::{MemberConfig, MemberError, Workshop};

/// What a worker of a job needs to reach the others.
fn reach_of(world: &World, worker: u16) -> Reach {
    let config = world.config(worker);
    let identity = Identity {
        job: 77,
        spec_digest: [5; 16],
        options: Vec::new(),
        worker: WorkerId(worker),
        workers: u32::try_from(config.peers.len()).unwrap(),
        nodes: config.nodes,
        route: config.route,
        key: ProofKey::of(b"secret"),
        incarnation: 1 << 60,
    };
    let addresses = Arc::new(config.peers);
    Reach { identity: Arc::new(identity), addresses, net: world.ports().0.net }
}

/// Sends bytes to worker 0 as worker 1 would, as soon as worker 0 accepts a stream for the first
/// attempt. Returns why worker 0 ended the stream; `None` if the real worker 1 had opened one before.
async fn bring(world: &World, message: JobFrames) -> Option<String> {
    let reach = reach_of(world, 1);
    let mut client = JobExchangeClient::new(reach.channel(WorkerId(0)).unwrap());
    loop {
        let messages = futures_util::stream::iter([message.clone()]);
        let frames = messages.chain(futures_util::stream::pending());
        let request = reach.identity.request(frames, WorkerId(0), 1, Carries::Own);
        match client.frames(request).await {
            Ok(answer) => {
                let status = answer.into_inner().message().await.unwrap_err();
                assert_eq!(status.code(), tonic::Code::Aborted, "{status}");
                return Some(status.message().to_owned());
            }
            Err(status) if status.message().contains("on another stream") => return None,
            Err(_) => {}
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_frames_begin_the_exchange_again_and_no_more() {
    let link = FrameLink { job: 77, sender: 1, receiver: 0, attempt: 1 };
    let kind = FrameKind::PositionsVerdict;
    let verdict = Frame {
        kind,
        flags: 1,
        param: 0,
        cell: 9,
        sequence: 0,
        count: 0,
        covered: 9,
        payload: &[],
    };
    let far = Frame { kind: FrameKind::Residues, cell: 1 << 19, covered: 0, ..verdict };
    // An empty frame takes two bytes of the message but many in memory: none of these may be decoded.
    let large = vec![Bytes::new(); FRAMES_MESSAGE_BYTES_MAX / 2 + 1];
    for (frames, expected) in [
        (vec![Bytes::from_static(b"GET / HTTP/1.1")], ""),
        (vec![Bytes::new()], ""),
        (vec![verdict.encode(link).into()], ""),
        (vec![far.encode(link).into()], ""),
        (vec![verdict.encode(FrameLink { attempt: 2, ..link }).into()], ""),
        (large, "decoded message length too large"),
    ] {
        let world = World::new(2, 40, Exactness::Fingerprint);
        let trap = Trap { point: Point::Read, nth: 0, effect: Effect::Isolate };
        let processes = vec![world.start(0, None), world.start(1, Some(trap))];
        let cause = bring(&world, JobFrames { frames, is_cut: false }).await;
        processes[1].net.close(false);
        let result = finish(processes).await;
        world.check_outputs();
        assert!(cause.is_some_and(|cause| cause.contains(expected)), "{expected}");
        assert!(result.attempts > 1);
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_the_job_does_not_have_are_refused() {
    let direct = World::new(2, 30, Exactness::Fingerprint);
    let grid = World::new(5, 30, Exactness::Fingerprint).on_grid();
    for (world, worker, carries, expected) in [
        (direct, 1, Carries::PassedOn, "passes frames on to worker 0 in a job without a grid"),
        // 0 and 4 have no stream to each other; 1 relays between them.
        (grid, 4, Carries::Own, "worker 4 and worker 0 have neither row nor column in common"),
    ] {
        let first = world.start(0, None);
        let reach = reach_of(&world, worker);
        let mut client = JobExchangeClient::new(reach.channel(WorkerId(0)).unwrap());
        let status = loop {
            let frames = futures_util::stream::pending::<JobFrames>();
            let request = reach.identity.request(frames, WorkerId(0), 1, carries);
            // Before the worker listens, calls fail with another error.
            match client.frames(request).await {
                Err(status) if status.code() == tonic::Code::FailedPrecondition => break status,
                Err(_) => tokio::task::yield_now().await,
                Ok(_) => panic!("{expected}"),
            }
        };
        assert!(status.message().contains(expected), "{status}");
        let others = (1..world.config(0).peers.len())
            .map(|other| world.start(u16::try_from(other).unwrap(), None));
        finish([first].into_iter().chain(others).collect()).await;
        world.check_outputs();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_job_is_refused() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let first = world.start(0, None);
    let wrong = [
        (
            MemberConfig { secret: b"Secret".to_vec(), ..world.config(1) },
            "worker 1 does not know the secret",
        ),
        (MemberConfig { spec_digest: [6; 16], ..world.config(1) }, "0606"),
        (
            MemberConfig {
                peers: ["w0:1", "w1:1", "w2:1"].map(str::to_owned).to_vec(),
                ..world.config(1)
            },
            "counts 3 workers, worker 0 counts 2",
        ),
    ];
    for (config, expected) in wrong {
        let outcome = world.start_with(config, None).outcome.await.unwrap();
        match outcome {
            Err(MemberError::Refused { cause, .. }) => assert!(cause.contains(expected), "{cause}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    finish(vec![first, world.start(1, None)]).await;
    world.check_outputs();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_know_the_secret_is_not_let_in_and_the_others_go_on() {
    let (secret, other) = ("8f14e45fceea167a5a36dedd4bea2543", "9f14e45fceea167a5a36dedd4bea2543");
    let mut world = World::new(3, 60, Exactness::Fingerprint).knowing_secret(secret);
    let first = world.start(0, None);
    // First without TLS, then with another secret.
    world.tls = None;
    let plain = world.start(1, None);
    world.refused.subscribe().wait_for(|reasons| !reasons.is_empty()).await.unwrap();
    plain.kill().await;
    let world = world.knowing_secret(other);
    match world.start(1, None).outcome.await.unwrap() {
        Err(MemberError::Refused { cause, address, .. }) => {
            assert_eq!(address, "w0:1");
            assert!(
                cause.ends_with(
                    "w0:1 did not prove that it knows the secret: it has another secret"
                ),
                "{cause}"
            );
        }
        other => panic!("{other:?}"),
    }
    let world = world.knowing_secret(secret);
    finish(vec![first, world.start(1, None), world.start(2, None)]).await;
    world.check_outputs();
    let why = "it speaks no TLS, so it was not given the secret (";
    assert!(world.refused.borrow().iter().any(|reason| reason.starts_with(why)));
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_worker_are_one_too_many() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let trap = Trap { point: Point::Read, nth: 0, effect: Effect::Hang };
    let first = world.start(0, None);
    let mut second = world.start(1, Some(trap));
    second.sprung.recv().await.unwrap();
    let config = MemberConfig { listen: "elsewhere:1".to_owned(), ..world.config(1) };
    match world.start_with(config, None).outcome.await.unwrap() {
        Err(MemberError::Refused { cause, .. }) => {
            assert!(cause.contains("worker 1 is there as process"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    second.kill().await;
    finish(vec![first, world.start(1, None)]).await;
    world.check_outputs();
}

fn troubles(events: &mut mpsc::UnboundedReceiver<CellTaskEvent>) -> usize {
    let events = std::iter::from_fn(|| events.try_recv().ok());
    events.filter(|event| matches!(event, CellTaskEvent::Trouble { .. })).count()
}

/// Events wait without a limit, and a peer may send any number of frames.
#[tokio::test(start_paused = true)]
async fn a_task_reports_the_first_refused_frame_alone() {
    let world = World::new(1, 30, Exactness::Fingerprint);
    let me = WorkerId(0);
    let shape = JobShape {
        workers: 1,
        cells_per_owner: 4,
        exactness: Exactness::Fingerprint,
        keep: Keep::First,
        report_kept: false,
        item_bytes_mean: 0.0,
    };
    let (sprung, _) = mpsc::unbounded_channel();
    let workshop = MemoryWorkshop::new(&world.disks[0], None, sprung, &world.ports().1);
    workshop.read(ReadOrder { shape, chunk_base: 0 }).await.unwrap();
    let attempt = workshop.begin_attempt().unwrap().attempt;
    let (events, mut received) = mpsc::unbounded_channel();
    let (reach, mut tasks) = (reach_of(&world, 0), JoinSet::new());
    let queues = PeerQueues::open(&reach, 1, &events, &mut tasks, &Handle::current());
    let queues = Arc::new(queues);

    let (frames, inbox) = mpsc::channel(2);
    for _ in 0..2 {
        assert!(frames.send(CellTaskInput::Frame(me, vec![0])).await.is_ok());
    }
    drop(frames);
    let cell_task = CellTask {
        me,
        number: 0,
        cell_tasks: 1,
        machine: Worker::new(me, shape, 77).unwrap(),
        attempt: Arc::clone(&attempt),
        queues: Arc::clone(&queues),
        events: events.clone(),
        figures: Arc::default(),
        inbox,
        progress: CellProgress::new(),
        is_in_trouble: false,
    };
    cell_task.run().await;
    assert_eq!(troubles(&mut received), 1);

    let (chunk_bases, sends_sizes, names_parts) = (vec![0], false, false);
    let order = GroupCountOrder { chunk_bases: chunk_bases.clone(), sends_sizes, names_parts };
    let shape = GroupCountShape { job: 77, attempt: 1, chunk_bases, sends_sizes, names_parts };
    let machine = GroupCounter::new(me, shape).unwrap();
    let (frames, inbox) = mpsc::channel(2);
    for _ in 0..2 {
        assert!(frames.send((me, vec![0])).await.is_ok());
    }
    drop(frames);
    let is_in_trouble = false;
    let task = GroupCountTask { me, machine, order, attempt, queues, events, inbox, is_in_trouble };
    task.run().await;
    assert_eq!(troubles(&mut received), 1);
}
