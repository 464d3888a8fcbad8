//! A reading that was interrupted at any point continues from the journal, and gives the same entries.

use super::super::turns::lock;
use super::fixture_test::Fixture;
use super::journal_records::{JournaledReading, WorkerJournal};
use super::reading::read;
use std::fs;
use std::path::Path;
use umbel_dedup_engine::job::{Counts, JobRules, ReadOrder, shape_for};
use umbel_dedup_engine::{Entry, Exactness, FilterChoice, Keep};

fn read_all(fixture: &Fixture, folder: &Path) -> (Counts, Vec<Vec<Entry>>) {
    let bench = fixture.bench(0, folder);
    let rules = JobRules {
        exactness: Exactness::Fingerprint,
        keep: Keep::First,
        report_kept: true,
        report_sizes: false,
        names_parts: false,
        choice: FilterChoice::Auto,
        bad_max: 0,
        adds: false,
    };
    let mut shape = shape_for(rules, &[bench.forecast; 2]);
    shape.cells_per_owner = 2;
    let counts = read(&bench, ReadOrder { shape, chunk_base: 5 }).unwrap();
    let state = bench.read_state().unwrap();
    assert_eq!(state.reading, JournaledReading { workers: 2, cells_per_owner: 2, chunk_base: 5 });
    let cell = |cell| {
        let mut entries = state.cells.entries(cell).unwrap().entries;
        entries.sort_unstable();
        entries
    };
    assert!(lock(&bench.read).is_some());
    (counts, (0..4).map(cell).collect())
}

#[test]
fn a_journal_that_was_torn_anywhere_is_read_on_from() {
    let fixture = Fixture::new();
    let whole = fixture.path("whole");
    let expected = read_all(&fixture, &whole);
    let journal = fs::read(whole.join("journal")).unwrap();
    let lengths = (0..journal.len()).step_by(journal.len() / 23).chain([journal.len()]);
    for length in lengths {
        let torn = fixture.path("torn");
        let _ = fs::remove_dir_all(&torn);
        fs::create_dir(&torn).unwrap();
        for name in ["lock", "runs", "drops"] {
            fs::copy(whole.join(name), torn.join(name)).unwrap();
        }
        fs::write(torn.join("journal"), &journal[..length]).unwrap();
        assert_eq!(read_all(&fixture, &torn), expected, "torn after {length} bytes");
        // Each chunk is journaled once: journaled chunks are not read again.
        let (_, journal_state) = WorkerJournal::open(&torn.join("journal")).unwrap();
        let mut chunks: Vec<u32> =
            journal_state.read_chunks.chunks.iter().map(|chunk| chunk.chunk).collect();
        chunks.sort_unstable();
        let count = u32::try_from(chunks.len()).unwrap();
        assert_eq!(chunks, (0..count).collect::<Vec<_>>());
    }
}
