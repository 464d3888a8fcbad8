//! How jobs fail: which failures end a job for good, and after which it continues.

use super::*;

#[test]
fn scratch_of_another_run_is_refused() {
    let mut world = joined(1);
    let CoordinatorJournalRecord::Shaped { shape, .. } = world.journal[0] else { panic!() };
    let order = ReadOrder { shape, chunk_base: 77 };
    world.hosts[0].journal = vec![WorkerJournalRecord::Reading(order)];
    world.kill_worker(0);
    world.connect(0);
    world.deliver_message(0);
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert!(matches!(failure, JobFailure::Nonsense { worker: WorkerId(0), .. }), "{failure}");
}

/// After the reading, the other workers' data depends on what it has read.
#[test]
fn a_worker_without_its_folder_ends_the_job_until_the_folder_is_back() {
    let text = "worker 1 came without its job folder: put it back, or begin a new job";
    let mut world = joined(2);
    for at in 0..2 {
        world.deliver_order(at);
        world.finish_task(at);
        world.deliver_message(at);
    }
    let folder = std::mem::take(&mut world.hosts[1].journal);
    world.kill_worker(1);
    world.connect(1);
    world.deliver_message(1);
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert_eq!((failure.to_string().as_str(), failure.is_resumable()), (text, true));
    for at in 0..2 {
        let abort = world.hosts[at].orders.back();
        assert!(matches!(abort, Some(Order::Abort { resumable: true, .. })), "{abort:?}");
    }
    world.hosts[1].journal = folder;
    world.kill_coordinator();
    (0..2).for_each(|at| world.kill_worker(at));
    world.run_out();
    assert_eq!(world.concluded, 1);

    // A coordinator that is restarted late knows from its journal that all have read.
    for end in [CoordinatorJournalRecord::Finished, CoordinatorJournalRecord::Committing] {
        assert_eq!(world.journal.pop(), Some(end));
        world.kill_coordinator();
        let (forecast, stage) = (world.forecasts[1], Box::default());
        let join = WorkerMessage::Join { forecast, stage, attempt: 0 };
        world.coordinate(JobInput::Message(WorkerId(1), join));
        let failure = world.outcome.take().unwrap().unwrap_err();
        assert_eq!((failure.to_string().as_str(), failure.is_resumable()), (text, true));
    }
}

#[test]
fn a_commit_that_fails_for_good_can_be_tried_again() {
    let mut world = joined(2);
    world.run_out();
    assert_eq!(world.journal.pop(), Some(CoordinatorJournalRecord::Finished));
    for host in &mut world.hosts {
        host.journal.retain(|record| {
            let is_added = *record == WorkerJournalRecord::Added;
            *record != WorkerJournalRecord::Committed && !is_added && !record.is_end()
        });
    }
    world.kill_coordinator();
    (0..2).for_each(|at| world.kill_worker(at));
    world.connect(1);
    world.deliver_message(1);
    world.deliver_order(1);
    assert_eq!(world.hosts[1].tasks.back(), Some(&WorkerOutput::Commit));
    let cause = "no credentials".to_owned();
    world.work(1, WorkerEvent::Failed { cause: cause.clone(), resumable: false });
    let reported = WorkerMessage::Failed { cause: cause.clone(), resumable: true };
    assert_eq!(world.hosts[1].messages.back(), Some(&reported));

    // The coordinator does not rely on it.
    let message = WorkerMessage::Failed { cause, resumable: false };
    world.coordinate(JobInput::Message(WorkerId(1), message));
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert_eq!(failure.to_string(), "worker 1: no credentials");
    assert!(failure.is_resumable());
    assert_eq!(world.journal.last(), Some(&CoordinatorJournalRecord::Committing));
    world.kill_coordinator();
    (0..2).for_each(|at| world.kill_worker(at));
    world.run_out();
    assert_eq!(world.concluded, 2);
}

#[test]
fn a_worker_cannot_count_the_attempts_to_their_end() {
    let mut world = World::new(&forecasts(1, 10));
    let (forecast, stage) = (world.forecasts[0], Box::default());
    let join = WorkerMessage::Join { forecast, stage, attempt: u32::MAX };
    world.coordinate(JobInput::Message(WorkerId(0), join));
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert_eq!(failure.to_string(), "worker 0: it tells of more attempts than any job makes");
}

#[test]
fn attempts_without_progress_end_the_job() {
    let mut world = joined(2);
    for at in 0..2 {
        world.deliver_order(at);
        world.finish_task(at);
        world.deliver_message(at);
    }
    for _ in 0..100 {
        for at in 0..2 {
            while !world.hosts[at].orders.is_empty() {
                world.deliver_order(at);
                world.finish_task(at);
            }
            while !world.hosts[at].messages.is_empty() {
                world.deliver_message(at);
            }
        }
        if world.outcome.is_some() {
            break;
        }
        let attempt = world.hosts[0].worker.attempt();
        let cause = "connection reset".to_owned();
        let message = WorkerMessage::Trouble { attempt, peer: WorkerId(1), cause };
        world.coordinate(JobInput::Message(WorkerId(0), message));
    }
    let failure = world.outcome.take().unwrap().unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("worker 0 lost worker 1: connection reset"), "{text}");
}
