//! `--annotate`: nothing is dropped; one line a record says whether it is a duplicate, and of which one.

use super::inputs::Source;
use super::job::{Job, OutputTarget};
use super::json_lines::JsonLines;
use super::local_pass::ChunkFacts;
use super::outputs::{Named, output_path};
use super::report::RecordNames;
use super::sink::{Complete, Sink};
use super::sorted_rows::{RowReader, SortedRows};
use anyhow::{Context, Result};
use serde::Serialize;
use umbel_engine::dedup::Place;
use umbel_records::Compression;

/// Cause of a record that was left out because a key field was missing, as [`umbel_records::ItemError`] names it.
const MISSING_KEY: &str = "missing_key";

/// A record of a group with at least two members: where it and the kept one were read, and the group's size.
pub(crate) type Member = [u64; 3];

/// Writes the annotations: into one sink, or one file an input. `members` come in input order.
pub(crate) fn write(
    job: &Job<'_>,
    named: Option<Named>,
    facts: &[ChunkFacts],
    names: &RecordNames<'_>,
    members: &SortedRows<3>,
) -> Result<Vec<Complete>> {
    let mut members = members.read()?;
    let mut annotator = Annotator { names, next: members.next()?, members };
    let chunks_of = |source| {
        let first = job.chunks.partition_point(|chunk| chunk.source < source);
        let next = job.chunks.partition_point(|chunk| chunk.source <= source);
        first..next
    };
    let mut complete = Vec::new();
    match (named, &job.spec.output) {
        (Some(named), _) => {
            let mut lines = JsonLines::new(named.sink()?);
            (0..job.chunks.len())
                .try_for_each(|chunk| annotator.chunk(chunk, facts, &mut lines))?;
            complete.push(lines.complete()?);
        }
        (None, OutputTarget::Directory(root)) => {
            for (number, source) in job.sources.iter().enumerate() {
                let mut lines = JsonLines::new(open(job, root, source)?);
                let mut chunks = chunks_of(number);
                chunks.try_for_each(|chunk| annotator.chunk(chunk, facts, &mut lines))?;
                complete.push(lines.complete()?);
            }
        }
        (None, _) => {}
    }
    Ok(complete)
}

fn open(job: &Job<'_>, root: &std::path::Path, source: &Source) -> Result<Sink> {
    let path = output_path(job.spec, root, source);
    let parent = path.parent().unwrap_or(root);
    std::fs::create_dir_all(parent)
        .with_context(|| format!("{}: cannot create directory", parent.display()))?;
    Sink::packed_file(&path, Compression::Plain, job.spec.overwrite)
}

/// What people call a place.
#[derive(Serialize)]
struct Name<'a> {
    file: &'a str,
    record: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u64>,
}

/// One line of the annotations.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    place: Name<'a>,
    duplicate: bool,
    /// The kept record of a duplicate.
    group: Option<Name<'a>>,
    /// Records of the group; of a bad record none.
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad: Option<&'a str>,
}

/// Makes the lines of one record after the other.
struct Annotator<'a> {
    names: &'a RecordNames<'a>,
    members: RowReader<'a, 3>,
    next: Option<Member>,
}

impl<'a> Annotator<'a> {
    /// Writes the lines of the next chunk in input order.
    fn chunk(&mut self, index: usize, facts: &[ChunkFacts], lines: &mut JsonLines) -> Result<()> {
        let chunk = u32::try_from(index).expect("chunk numbers have 24 bits");
        let facts = &facts[index];
        // What could not be read is no record; it stands in the list of bad records.
        let items = facts.bad.iter().filter(|bad| !bad.cause.loses_rest());
        let mut bad = items.peekable();
        for item in 0..facts.places {
            let (record, _) = facts.record_of(item);
            let place = Place::new(chunk, item);
            let mut cause = bad.next_if(|bad| bad.record == record).map(|bad| bad.cause.name());
            // What goes without being a duplicate or bad lacks the key, where the user wants such records dropped.
            if cause.is_none() && facts.dropped.get(item) && !self.is_member(place) {
                cause = Some(MISSING_KEY.into());
            }
            self.line(place, cause.as_deref(), lines)?;
        }
        Ok(())
    }

    fn is_member(&self, place: Place) -> bool {
        self.next.is_some_and(|[member, ..]| member == place.to_bits())
    }

    fn line(&mut self, place: Place, bad: Option<&str>, lines: &mut JsonLines) -> Result<()> {
        let member = self.next.filter(|_| self.is_member(place));
        if member.is_some() {
            self.next = self.members.next()?;
        }
        let kept = member.map(|[_, kept, _]| kept).filter(|&kept| kept != place.to_bits());
        let size = if bad.is_some() { None } else { Some(member.map_or(1, |[_, _, size]| size)) };
        lines.add(&Line {
            place: self.name(place),
            duplicate: kept.is_some(),
            group: kept.map(|kept| self.name(Place::from_bits(kept))),
            size,
            bad,
        })
    }

    fn name(&self, place: Place) -> Name<'a> {
        let (file, record, part) = self.names.of(place);
        Name { file, record, part }
    }
}
