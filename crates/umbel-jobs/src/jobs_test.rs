//! Whole jobs over an in-memory network: failures, after which the result must be the same.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use umbel_dedup_engine::job::JobFailure;
use umbel_dedup_engine::{Exactness, FrameKind, Keep, Route, WorkerId};
use umbel_ports::channel::{incoming, server};

use super::testing::job_world::{Process, World, finish};
use super::testing::memory_workshop::{Effect, MemoryDisk, MemoryWorkshop, Point, Trap};
use super::{JobHost, Member, MemberConfig, MemberError};

#[tokio::test(start_paused = true)]
async fn any_number_of_workers_keeps_what_one_machine_keeps() {
    for workers in 1..=5 {
        for exactness in [
            Exactness::Fingerprint,
            Exactness::Bytes,
            Exactness::Approximate { false_positive_rate: 1e-3 },
        ] {
            let mut world = World::new(workers, 120, exactness);
            world.rules.keep = [Keep::Best, Keep::First, Keep::Last][workers as usize % 3];
            let result = finish(world.start_all()).await;
            world.check_outputs();
            assert_eq!((result.attempts, world.attempts()), (1, 1), "{workers} {exactness:?}");
            assert_eq!(result.report.items, u64::from(workers) * 120);
            assert!(world.disks.iter().all(|disk| disk.ended() == Some(false)));
            let progress = world.observer.progress.lock().unwrap();
            let last = progress.iter().max_by_key(|progress| progress.decided).unwrap();
            assert_eq!(last.decided, last.cells);
            assert!(last.cells >= 4 * workers, "{last:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_earlier_jobs_have_kept_is_dropped_by_all_workers() {
    for workers in 1..=4 {
        for exactness in
            [Exactness::Fingerprint, Exactness::Approximate { false_positive_rate: 1e-3 }]
        {
            let world = World::new(workers, 120, exactness).knowing();
            let result = finish(world.start_all()).await;
            world.check_outputs();
            assert!(result.report.reference_drops > 20 * u64::from(workers));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_know_of_other_jobs_are_named() {
    let mut world = World::new(3, 20, Exactness::Fingerprint).knowing();
    let other = MemoryDisk::knowing(world.disks[2].records.clone(), Vec::new());
    world.disks[2] = other;
    let mut errors = Vec::new();
    for process in world.start_all() {
        errors.push(process.outcome.await.unwrap().unwrap_err().to_string());
    }
    assert!(errors.iter().all(|error| error.contains("worker 2: its references")), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_comes_back_with_its_references() {
    for nth in [0, 3] {
        let world = World::new(3, 60, Exactness::Fingerprint).knowing();
        let trap = Trap { point: Point::Entries, nth, effect: Effect::Crash { after: false } };
        finish(world.start_all_after_crash(1, trap).await).await;
        world.check_outputs();
    }
}

#[tokio::test(start_paused = true)]
async fn groups_are_counted_over_all_workers() {
    for workers in 1..=4 {
        for exactness in [
            Exactness::Fingerprint,
            Exactness::Bytes,
            Exactness::Approximate { false_positive_rate: 1e-9 },
        ] {
            for sizes in [false, true] {
                let mut world = World::new(workers, 120, exactness).reporting(sizes);
                world.rules.keep = [Keep::Last, Keep::Best, Keep::First][workers as usize % 3];
                let result = finish(world.start_all()).await;
                world.check_outputs();
                assert_eq!(result.attempts, 1);
                let sends_sizes = result.report.payload_bits(FrameKind::Sizes) > 0;
                assert_eq!(sends_sizes, sizes && workers > 1, "{workers} {exactness:?}");
                let claimed = result.report.payload_bits(FrameKind::Claims);
                assert!(claimed > 0);
            }
        }
    }
}

/// Two and more rows, the last one incomplete: every frame arrives under its sender's name.
#[tokio::test(start_paused = true)]
async fn workers_on_a_grid_keep_what_one_machine_keeps() {
    for workers in [3, 5, 7, 11] {
        for exactness in [Exactness::Fingerprint, Exactness::Bytes] {
            let world = World::new(workers, 60, exactness).reporting(true).on_grid();
            let result = finish(world.start_all()).await;
            world.check_outputs();
            assert_eq!((result.attempts, world.attempts()), (1, 1), "{workers} {exactness:?}");
        }
    }
}

/// 33 streams per worker instead of 299.
#[tokio::test(start_paused = true)]
#[ignore = "a minute, and three hundred workers in one process"]
async fn three_hundred_workers_go_over_the_grid() {
    let mut world = World::new(300, 20, Exactness::Fingerprint);
    world.route = Route::for_workers(300);
    assert_eq!(world.route, Route::Grid);
    finish(world.start_all()).await;
    world.check_outputs();
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_dies_comes_back() {
    for (point, nth) in [(Point::Entries, 3), (Point::Decide, 5), (Point::Gather, 0)] {
        let world = World::new(5, 60, Exactness::Fingerprint).reporting(true).on_grid();
        // 0 and 4 have no stream to each other; 1 relays between them.
        let trap = Trap { point, nth, effect: Effect::Crash { after: false } };
        finish(world.start_all_after_crash(1, trap).await).await;
        world.check_outputs();
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_kept_records_are_sent_to_workers_that_dropped_some() {
    for (workers, sizes) in [(1, false), (2, false), (4, true)] {
        let world =
            World::new(workers, 120, Exactness::Fingerprint).reporting(sizes).naming_parts();
        finish(world.start_all()).await;
        world.check_outputs();
        let named: usize = world.disks.iter().map(|disk| disk.parts().len()).sum();
        assert_eq!(named > 10, workers > 1, "{named}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_references_hold_is_in_no_group() {
    let world = World::new(3, 120, Exactness::Fingerprint).knowing().reporting(true);
    finish(world.start_all()).await;
    world.check_outputs();
}

/// Crashes a worker at a point and restarts it.
async fn crash_at(worker: u16, trap: Trap) {
    let mut world = World::new(3, 60, Exactness::Bytes).reporting(true).naming_parts().adding();
    world.rules.keep = if trap.nth == 0 { Keep::Best } else { Keep::Last };
    let processes = world.start_all_after_crash(worker, trap).await;
    for (other, process) in processes.into_iter().enumerate() {
        let outcome = process.outcome.await.unwrap();
        assert!(outcome.is_ok(), "{trap:?} at {worker}: {other} ended with {outcome:?}");
    }
    world.check_outputs();
}

async fn crash_at_points(worker: u16, points: &[(Point, u32)]) {
    for &(point, nth) in points {
        for after in [false, true] {
            crash_at(worker, Trap { point, nth, effect: Effect::Crash { after } }).await;
        }
    }
}

const EARLY: [(Point, u32); 6] = [
    (Point::Record, 0),
    (Point::Record, 1),
    (Point::Record, 2),
    (Point::Read, 0),
    (Point::Sample, 0),
    (Point::Entries, 3),
];

const MIDDLE: [(Point, u32); 4] =
    [(Point::Decide, 5), (Point::Seal, 0), (Point::Fetch, 0), (Point::Items, 2)];

const COUNTING: [(Point, u32); 6] = [
    (Point::Gather, 0),
    (Point::Claims, 1),
    (Point::Learn, 0),
    (Point::SealGroups, 0),
    (Point::Record, 2),
    (Point::Record, 3),
];

const LATE: [(Point, u32); 3] = [(Point::Write, 0), (Point::Commit, 0), (Point::Add, 0)];

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_early_comes_back() {
    crash_at_points(1, &EARLY).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_while_groups_are_counted_comes_back() {
    crash_at_points(1, &COUNTING).await;
    crash_at_points(0, &COUNTING).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_in_the_exchange_comes_back() {
    crash_at_points(1, &MIDDLE).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_late_comes_back() {
    crash_at_points(2, &LATE).await;
    crash_at_points(2, &[(Point::Record, 4), (Point::Record, 5)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_early_comes_back() {
    crash_at_points(0, &EARLY).await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_in_the_exchange_comes_back() {
    crash_at_points(0, &MIDDLE).await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_late_comes_back() {
    crash_at_points(0, &LATE).await;
    crash_at_points(0, &[(Point::Conclude, 0), (Point::Record, 4), (Point::Record, 5)]).await;
    crash_at_points(0, &[(Point::Record, 7), (Point::Record, 8), (Point::Record, 9)]).await;
}

#[tokio::test(start_paused = true)]
async fn cut_connections_begin_the_exchange_again() {
    for cut in [0, 1] {
        let world = World::new(3, 60, Exactness::Fingerprint);
        let trap = Trap { point: Point::Decide, nth: 3, effect: Effect::Signal };
        let mut processes: Vec<Process> = (0..3).map(|w| world.start(w, Some(trap))).collect();
        processes[1].sprung.recv().await.unwrap();
        processes[cut].net.cut();
        let result = finish(processes).await;
        world.check_outputs();
        assert!(result.attempts > 1, "worker {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_comes_is_named() {
    let world = World::new(3, 30, Exactness::Fingerprint);
    let patient =
        |worker| MemberConfig { worker_timeout: Duration::from_secs(60), ..world.config(worker) };
    let [first, second] = [0, 1].map(|worker| world.start_with(patient(worker), None));
    match first.outcome.await.unwrap() {
        Err(MemberError::Job(JobFailure::Away { worker: WorkerId(2), missing })) => {
            assert_eq!(missing, "its first word");
        }
        other => panic!("{other:?}"),
    }
    match second.outcome.await.unwrap() {
        Err(MemberError::Aborted { cause, resumable: true }) => {
            assert!(cause.contains("worker 2 is away"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    assert!(world.disks[..2].iter().all(|disk| disk.ended() == Some(true)));
    // Resumed with all of the workers.
    finish(world.start_all()).await;
    world.check_outputs();
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_coordinator_gives_up() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let config = MemberConfig { worker_timeout: Duration::from_secs(30), ..world.config(1) };
    let outcome = world.start_with(config, None).outcome.await.unwrap();
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("w0:1 was away for 30 s"), "{error}");
    assert!(error.is_resumable());
    assert!(matches!(&world.observer.coordinator_away.borrow()[..], [Some(_)]), "told once");
}

#[tokio::test(start_paused = true)]
async fn a_worker_tells_that_it_waits_for_the_coordinator() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let second = world.start(1, None);
    let mut told = world.observer.coordinator_away.subscribe();
    told.wait_for(|told| !told.is_empty()).await.unwrap();
    finish(vec![world.start(0, None), second]).await;
    let told = told.borrow().clone();
    assert!(matches!(&told[..], [Some(_), None, ..]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn the_coordinator_tells_whom_it_refuses() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let first = world.start(0, None);
    let other = MemberConfig { spec_digest: [6; 16], ..world.config(1) };
    let error = world.start_with(other, None).outcome.await.unwrap().unwrap_err();
    assert!(matches!(error, MemberError::Refused { worker: 1, .. }), "{error:?}");
    let refused = world.observer.refused.lock().unwrap().clone();
    assert!(
        matches!(&refused[..], [cause] if cause.contains("was told another job")),
        "{refused:?}"
    );
    first.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_continue_fails_the_job_everywhere() {
    for (point, effect) in [(Point::Read, Effect::Fail), (Point::Decide, Effect::Fail)] {
        for failing in [0, 1] {
            let world = World::new(2, 30, Exactness::Fingerprint);
            let trap = Trap { point, nth: 0, effect };
            let start = |worker| world.start(worker, (worker == failing).then_some(trap));
            let processes = [0, 1].map(start);
            for process in processes {
                let error = process.outcome.await.unwrap().unwrap_err();
                assert!(error.to_string().contains("disk /scratch is full"), "{error}");
                assert!(error.is_resumable(), "{error:?}");
            }
            assert!(world.disks.iter().all(|disk| disk.ended() == Some(true)));
            finish(world.start_all()).await;
            world.check_outputs();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_stays_is_added_once_by_all_workers() {
    for workers in 1..=3 {
        let world = World::new(workers, 40, Exactness::Fingerprint).adding();
        finish(world.start_all()).await;
        world.check_outputs();
        let times = |disk: &Arc<MemoryDisk>| disk.added().map(|(_, times)| times);
        assert!(world.disks.iter().all(|disk| times(disk) == Some(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_filter_is_away_goes_on_when_it_is_started_again() {
    let world = World::new(3, 40, Exactness::Fingerprint).adding();
    let trap = Trap { point: Point::Add, nth: 0, effect: Effect::Fail };
    let start = |worker: u16| world.start(worker, (worker == 1).then_some(trap));
    for process in [0, 1, 2].map(start) {
        let error = process.outcome.await.unwrap().unwrap_err();
        assert!(error.is_resumable(), "{error:?}");
    }
    assert!(world.disks.iter().all(|disk| disk.ended() == Some(true) && disk.output().is_some()));
    assert!(!world.disks[0].has_summary(), "the job is not over");
    finish(world.start_all()).await;
    world.check_outputs();
}

#[tokio::test(start_paused = true)]
async fn who_has_not_added_yet_does_not_end_well_without_a_coordinator() {
    let world = World::new(2, 30, Exactness::Fingerprint).adding();
    let trap = Trap { point: Point::Add, nth: 0, effect: Effect::Crash { after: false } };
    let hang = Trap { effect: Effect::Hang, ..trap };
    let patient = MemberConfig { worker_timeout: Duration::from_secs(30), ..world.config(1) };
    let other = world.start_with(patient, Some(hang));
    world.start(0, Some(trap)).crash().await;
    let error = other.outcome.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("was away for 30 s") && error.is_resumable(), "{error}");
    assert_eq!(world.disks[1].ended(), Some(true));
    finish(world.start_all()).await;
    world.check_outputs();
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_input_fails_the_job_everywhere() {
    for missing in [0, 1] {
        let mut world = World::new(2, 30, Exactness::Fingerprint);
        world.disks[missing] = MemoryDisk::new(vec![b"missing".to_vec()]);
        for process in world.start_all() {
            let error = process.outcome.await.unwrap().unwrap_err();
            assert!(error.to_string().contains("no file matches /data"), "{error}");
            assert!(!error.is_resumable());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hosted_members_can_be_cancelled() {
    let world = World::new(2, 30, Exactness::Fingerprint);
    let (host, other) = (JobHost::new(), JobHost::new());
    let mut members = Vec::new();
    let mut springs = Vec::new();
    for (worker, host) in [(0, &host), (1, &other)] {
        let (ports, net) = world.ports();
        let listener = ports.net.listen(&format!("w{worker}:1")).await.unwrap();
        let serving = server()
            .add_service(host.control_service())
            .add_service(host.exchange_service())
            .serve_with_incoming(incoming(listener));
        tokio::spawn(serving);
        let trap = Trap { point: Point::Read, nth: 0, effect: Effect::Hang };
        let (sender, sprung) = mpsc::unbounded_channel();
        springs.push(sprung);
        let disk = &world.disks[usize::from(worker)];
        let workshop = MemoryWorkshop::new(disk, Some(trap), sender, &net);
        let (config, observer) = (world.config(worker), Arc::clone(&world.observer));
        let start = || {
            let (workshop, observer) = (Arc::clone(&workshop), Arc::clone(&observer));
            Member::start(config.clone(), &ports, workshop, observer, host)
        };
        members.push(start().unwrap());
        assert!(matches!(start(), Err(MemberError::Config { .. })));
    }
    for sprung in &mut springs {
        sprung.recv().await.unwrap();
    }
    members[0].cancel();
    let mut errors = Vec::new();
    for member in members {
        errors.push(member.outcome().await.unwrap_err());
    }
    assert!(matches!(errors[0], MemberError::Job(JobFailure::Cancelled)), "{errors:?}");
    assert!(errors[1].to_string().contains("cancelled") && !errors[1].is_resumable());
    assert!(world.disks.iter().all(|disk| disk.ended() == Some(false)));
}
