//! Catalogues, which workers exchange so that reports can name the records of all workers. A catalogue has
//! the names of a worker's files and, for each of its chunks, the file and the number of the file's records
//! before the chunk.
//!
//! ```text
//! catalogue:  files, { shared prefix with the one before, length of the rest, rest } ...,
//!             chunks, { files since the one before, records } ...            numbers as LEB128
//! ```

use super::super::chunk_facts::ChunkFacts;
use super::super::chunks::Chunk;
use super::super::inputs::Source;
use super::super::report::{Name, Names};
use crate::error::{Context, Result};
use umbel_dedup_engine::{RecordId, RecordPart};

/// Most bytes of all file names of a job after decoding: because names share prefixes, a few bytes may encode
/// a name of any length. The catalogues of correct workers, all of which fit into one order, have fewer.
const NAMES_BYTES_MAX: usize = 1 << 30;

/// Encodes the catalogue of a worker with these sources and chunks.
pub(super) fn encode(sources: &[Source], chunks: &[Chunk], facts: &[ChunkFacts]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push(&mut bytes, sources.len() as u64);
    let mut before = "";
    for Source { name, .. } in sources {
        let same = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        push(&mut bytes, same as u64);
        push(&mut bytes, (name.len() - same) as u64);
        bytes.extend_from_slice(&name.as_bytes()[same..]);
        before = name;
    }
    push(&mut bytes, chunks.len() as u64);
    let mut file = 0;
    for (chunk, facts) in chunks.iter().zip(facts) {
        push(&mut bytes, (chunk.source - file) as u64);
        push(&mut bytes, facts.records);
        file = chunk.source;
    }
    bytes
}

/// Adds a number as LEB128.
pub(super) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Takes a LEB128 number from the front, if there is one that fits 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        let digits = u64::from(byte & 0x7f);
        // `checked_shl` checks only the distance, and would drop bits beyond 64.
        if (digits << shift) >> shift != digits {
            return None;
        }
        number |= digits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads a number of elements; `None` if it exceeds the remaining bytes, since each element has at least one.
fn take_count(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take(bytes)?).ok().filter(|count| *count <= bytes.len())
}

/// The files of one worker.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    files: Vec<String>,
    /// For each chunk its file, and the number of records of the file before it.
    chunks: Vec<(u32, u64)>,
}

impl Catalogue {
    /// Decodes a catalogue whose names may take `names_bytes_left` bytes, and subtracts what they take.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub(super) fn decode(bytes: &[u8], names_bytes_left: &mut usize) -> Result<Self> {
        let mut rest = bytes;
        let found = Self::take(&mut rest, names_bytes_left).filter(|_| rest.is_empty());
        found.with_context(|| {
            format!(
                "a catalogue of {} bytes is none of this release, or names of files take more than \
                 {NAMES_BYTES_MAX} bytes",
                bytes.len()
            )
        })
    }

    fn take(rest: &mut &[u8], names_bytes_left: &mut usize) -> Option<Self> {
        let mut found = Self::default();
        let mut name = Vec::new();
        for _ in 0..take_count(rest)? {
            let same = usize::try_from(take(rest)?).ok().filter(|same| *same <= name.len())?;
            let length = take_count(rest)?;
            name.truncate(same);
            name.extend_from_slice(rest.split_off(..length)?);
            *names_bytes_left = names_bytes_left.checked_sub(name.len())?;
            found.files.push(String::from_utf8_lossy(&name).into_owned());
        }
        let (mut file, mut before) = (0u32, 0u64);
        for _ in 0..take_count(rest)? {
            let step = u32::try_from(take(rest)?).ok()?;
            if step > 0 {
                (file, before) = (file.checked_add(step)?, 0);
            }
            found.files.get(file as usize)?;
            found.chunks.push((file, before));
            before = before.checked_add(take(rest)?)?;
        }
        Some(found)
    }

    /// File, and number of the record in it, from 1, of a record in a chunk, both by the worker's own
    /// numbering.
    fn name(&self, chunk: u32, record: u64) -> Option<(&str, u64)> {
        let (file, before) = *self.chunks.get(chunk as usize)?;
        Some((&self.files[file as usize], before.checked_add(record)?.checked_add(1)?))
    }
}

/// The files of all workers.
#[derive(Debug)]
pub(super) struct Catalogues {
    chunk_bases: Vec<u32>,
    workers: Vec<Catalogue>,
    /// For each worker the number of files of the workers before it.
    first_files: Vec<usize>,
}

impl Catalogues {
    /// Decodes the catalogues, one per worker.
    ///
    /// # Errors
    ///
    /// Names the worker whose catalogue is malformed.
    pub(super) fn decode(chunk_bases: &[u32], catalogues: &[Vec<u8>]) -> Result<Self> {
        let mut left = NAMES_BYTES_MAX;
        let read = |(worker, bytes): (usize, &Vec<u8>)| {
            Catalogue::decode(bytes, &mut left).with_context(|| format!("worker {worker}"))
        };
        let workers = catalogues.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
        let mut first_files = vec![0; workers.len()];
        for worker in 1..workers.len() {
            first_files[worker] = first_files[worker - 1] + workers[worker - 1].files.len();
        }
        Ok(Self { chunk_bases: chunk_bases.to_vec(), workers, first_files })
    }

    /// The name of a record id that stands for this part.
    pub(super) fn name_of_part(&self, record_id: RecordId, part: RecordPart) -> Result<Name<'_>> {
        self.name_of_record(record_id, part.record, Some(part.part))
    }

    fn name_of_record(
        &self,
        record_id: RecordId,
        record: u64,
        part: Option<u64>,
    ) -> Result<Name<'_>> {
        let found = self.worker_of(record_id).and_then(|(worker, chunk)| {
            let (file, record) = self.workers[worker].name(chunk, record)?;
            let worker = Some(u16::try_from(worker).ok()?);
            Some(Name { worker, file, record, part })
        });
        found.with_context(|| no_record(record_id))
    }

    /// The worker that has a record, and that worker's own number of the chunk.
    fn worker_of(&self, record_id: RecordId) -> Option<(usize, u32)> {
        let worker = self.chunk_bases.partition_point(|base| *base <= record_id.chunk());
        let worker = worker.checked_sub(1).filter(|worker| *worker < self.workers.len())?;
        Some((worker, record_id.chunk() - self.chunk_bases[worker]))
    }

    /// How many workers there are.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// The names of a worker's files; none if there is no such worker.
    pub(super) fn files_of(&self, worker: usize) -> &[String] {
        self.workers.get(worker).map_or(&[], |catalogue| &catalogue.files)
    }

    /// The number of a worker's first file, counted over all workers.
    pub(super) fn first_file_of(&self, worker: usize) -> usize {
        self.first_files.get(worker).copied().unwrap_or(0)
    }

    /// The number of the file that a record is in, counted over all workers.
    ///
    /// # Errors
    ///
    /// If no worker has the record.
    pub(super) fn file_of(&self, record_id: RecordId) -> Result<usize> {
        let found = self.worker_of(record_id).and_then(|(worker, chunk)| {
            let (file, _) = *self.workers[worker].chunks.get(chunk as usize)?;
            Some(self.first_files[worker] + file as usize)
        });
        found.with_context(|| no_record(record_id))
    }
}

fn no_record(record_id: RecordId) -> String {
    format!("no worker has item {} of chunk {}", record_id.item(), record_id.chunk())
}

impl Names for Catalogues {
    fn name(&self, record_id: RecordId) -> Result<Name<'_>> {
        self.name_of_record(record_id, record_id.item(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(files: &[(&str, &[u64])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, files.len() as u64);
        for (name, _) in files {
            push(&mut bytes, 0);
            push(&mut bytes, name.len() as u64);
            bytes.extend_from_slice(name.as_bytes());
        }
        push(&mut bytes, files.iter().map(|(_, chunks)| chunks.len() as u64).sum());
        for (number, (_, chunks)) in files.iter().enumerate() {
            for (chunk, records) in chunks.iter().enumerate() {
                push(&mut bytes, u64::from(chunk == 0 && number > 0));
                push(&mut bytes, *records);
            }
        }
        bytes
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let mut largest = Vec::new();
        push(&mut largest, u64::MAX);
        assert_eq!(take(&mut &largest[..]), Some(u64::MAX));
        for last in [2, 3, 0x7f] {
            let too_large = [&largest[..9], &[last]].concat();
            assert_eq!(take(&mut &too_large[..]), None, "last byte {last}");
        }
    }

    #[test]
    fn records_are_named_by_worker_file_and_record() {
        let first = catalogue(&[("a.txt", &[300, 2]), ("ä.txt", &[5])]);
        let second = catalogue(&[("b.txt", &[9])]);
        let all = Catalogues::decode(&[0, 3], &[first, second]).unwrap();
        let name = |chunk, item| {
            let Name { worker, file, record, .. } = all.name(RecordId::new(chunk, item)).unwrap();
            (worker.unwrap(), file, record)
        };
        assert_eq!(name(1, 0), (0, "a.txt", 301));
        assert_eq!(name(2, 4), (0, "ä.txt", 5));
        assert_eq!(name(3, 8), (1, "b.txt", 9));
        assert!(all.name(RecordId::new(4, 0)).is_err());
        let file = |chunk| all.file_of(RecordId::new(chunk, 0)).ok();
        assert_eq!(
            [file(0), file(1), file(2), file(3), file(4)],
            [0, 0, 1, 2].map(Some).into_iter().chain([None]).collect::<Vec<_>>()[..]
        );
        assert_eq!((all.files_of(1), all.first_file_of(1)), (&["b.txt".to_owned()][..], 2));
    }

    #[test]
    fn foreign_bytes_are_refused_or_read_but_never_trusted() {
        let whole = catalogue(&[("a.txt", &[300, 2]), ("ab.txt", &[5])]);
        for length in 0..whole.len() {
            assert!(Catalogue::decode(&whole[..length], &mut { NAMES_BYTES_MAX }).is_err());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let _ = Catalogue::decode(&bytes, &mut { NAMES_BYTES_MAX });
            }
        }
        assert!(Catalogue::decode(&[0xff; 40], &mut { NAMES_BYTES_MAX }).is_err());
    }

    #[test]
    fn shared_prefixes_do_not_make_memory_without_end() {
        // One name of 9 bytes and two more that are the same: 27 bytes.
        let mut bytes = vec![3, 0, 9];
        bytes.extend_from_slice(b"long name");
        bytes.extend([9, 0, 9, 0, 0]);
        let mut left = 27;
        assert_eq!(Catalogue::decode(&bytes, &mut left).unwrap().files.len(), 3);
        assert_eq!(left, 0);
        assert!(Catalogue::decode(&bytes, &mut 26).is_err());
    }

    #[test]
    fn records_beyond_all_numbers_have_no_name() {
        let chunks = catalogue(&[("a", &[u64::MAX, 0])]);
        let all = Catalogues::decode(&[0], &[chunks]).unwrap();
        assert!(all.name(RecordId::new(1, 0)).is_err());
    }
}
