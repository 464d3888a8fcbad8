//! Processes that crash after the end of their job, and are restarted.

use std::time::Duration;

use umbel_dedup_engine::Exactness;
use umbel_dedup_engine::job::JobFailure;

use super::MemberError;
use super::testing::job_world::{Process, World, finish};
use super::testing::memory_workshop::{Effect, Point, Trap};

/// The last journal record of a worker is that of the end; after it restarts, no other process is left.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_behind_the_end_ends_at_once_when_it_is_started_again() {
    // Three workers, with records and without: without any, the job fails for good.
    for (records, nth) in [(60, 4), (0, 2)] {
        let world = World::new(3, records, Exactness::Fingerprint);
        let trap = Trap { point: Point::Record, nth, effect: Effect::Crash { after: true } };
        let mut processes: Vec<Process> =
            (0..3).map(|other| world.start(other, (other == 2).then_some(trap))).collect();
        processes.pop().unwrap().crash().await;
        for process in processes {
            assert_eq!(process.outcome.await.unwrap().is_ok(), records > 0);
        }
        let begun = tokio::time::Instant::now();
        match world.start(2, None).outcome.await.unwrap() {
            Ok(None) => assert!(records > 0),
            Err(MemberError::Aborted { cause, resumable: false }) => {
                assert_eq!((records, cause), (0, JobFailure::NothingToDo.to_string()));
            }
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(world.disks[2].ended(), Some(false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_after_a_failure_reports_it_again() {
    let world = World::new(3, 0, Exactness::Fingerprint);
    // Two records of its worker and two of the coordinator, of which the last one is that of the end.
    let trap = Trap { point: Point::Record, nth: 3, effect: Effect::Crash { after: true } };
    let mut others: Vec<Process> = (1..3).map(|other| world.start(other, None)).collect();
    world.start(0, Some(trap)).crash().await;
    others.insert(0, world.start(0, None));
    for (worker, process) in others.into_iter().enumerate() {
        match (worker, process.outcome.await.unwrap()) {
            (0, Err(MemberError::Job(JobFailure::NothingToDo))) => {}
            (1 | 2, Err(MemberError::Aborted { resumable: false, .. })) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(world.disks[worker].ended(), Some(false));
    }
}

/// Outputs of other workers have their names by then.
#[tokio::test(start_paused = true)]
async fn what_fails_for_good_after_the_commit_began_is_done_when_all_are_started_again() {
    for (point, failing) in [(Point::Commit, 0), (Point::Commit, 1), (Point::Conclude, 0)] {
        let world = World::new(2, 30, Exactness::Fingerprint);
        let trap = Trap { point, nth: 0, effect: Effect::Refuse };
        let start = |worker| world.start(worker, (worker == failing).then_some(trap));
        for process in [0, 1].map(start) {
            let error = process.outcome.await.unwrap().unwrap_err();
            assert!(error.to_string().contains("there are no credentials"), "{error}");
            assert!(error.is_resumable(), "{error:?}");
        }
        assert!(world.disks.iter().all(|disk| disk.ended() == Some(true)));
        finish(world.start_all()).await;
        world.check_outputs();
    }
}
