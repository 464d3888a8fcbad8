//! Encoding of the journal records of a worker and, at worker 0, of the coordinator.

use umbel_dedup_engine::job::{CoordinatorJournalRecord, WorkerJournalRecord};
use umbel_ports::encoding::{DecodeError, decode, encode};

use super::workshop::WorkshopError;

/// First byte of a worker's record.
const OF_WORKER: u8 = 1;

/// First byte of a coordinator's record.
const OF_COORDINATOR: u8 = 2;

/// Encodes a worker's journal record.
pub(super) fn encode_worker_record(record: &WorkerJournalRecord) -> Vec<u8> {
    [&[OF_WORKER], &encode(record)[..]].concat()
}

/// Encodes a coordinator's journal record.
pub(super) fn encode_coordinator_record(record: &CoordinatorJournalRecord) -> Vec<u8> {
    [&[OF_COORDINATOR], &encode(record)[..]].concat()
}

/// Decodes both kinds of records, each oldest first.
pub(super) fn decode_journal_records(
    records: &[Vec<u8>],
) -> Result<(Vec<WorkerJournalRecord>, Vec<CoordinatorJournalRecord>), WorkshopError> {
    let (mut of_worker, mut of_coordinator) = (Vec::new(), Vec::new());
    for record in records {
        let read: Result<(), DecodeError> = match record.split_first() {
            Some((&OF_WORKER, body)) => decode(body).map(|record| of_worker.push(record)),
            Some((&OF_COORDINATOR, body)) => decode(body).map(|record| of_coordinator.push(record)),
            Some((&got, _)) => Err(DecodeError::Version { got }),
            None => Err(DecodeError::Empty),
        };
        read.map_err(|error| {
            let cause = format!(
                "the scratch of the job was written by another release, or is damaged ({error}): \
                 take the job up with that release, or remove the scratch and start again"
            );
            WorkshopError { cause, resumable: true }
        })?;
    }
    Ok((of_worker, of_coordinator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_both_kinds_come_back_in_order() {
        let records = [
            encode_coordinator_record(&CoordinatorJournalRecord::Committing),
            encode_worker_record(&WorkerJournalRecord::Committed),
            encode_coordinator_record(&CoordinatorJournalRecord::Finished),
        ];
        let (of_worker, of_coordinator) = decode_journal_records(&records).unwrap();
        assert_eq!(of_worker, [WorkerJournalRecord::Committed]);
        assert_eq!(
            of_coordinator,
            [CoordinatorJournalRecord::Committing, CoordinatorJournalRecord::Finished]
        );
        for damaged in [vec![], vec![9, 1], vec![OF_WORKER, 1, 77, 0, 0, 0]] {
            let error = decode_journal_records(&[damaged]).unwrap_err();
            assert!(error.resumable && error.cause.contains("another release"));
        }
    }
}
