//! What a job will need, from the sizes of its inputs and a look at their beginnings.

use super::content::open_limited;
use super::context::Job;
use super::hash_runs::entry_bytes;
use super::inputs::Source;
use super::memory::MEMORY_BYTES_MIN;
use super::paragraphs::pieces_of;
use super::row_groups::RowGroups;
use super::spec::JobSpec;
use crate::dedup::error::Result;
use crate::exit::UsageError;
use crate::units::{count, size};
use std::fmt::Write as _;
use umbel_engine::dedup::{
    Coordinator, JobShape, Keep, Level, Mode, ReferenceShape, tally_bits_per_entry,
};
use umbel_engine::limits::DEDUP_CELLS_MAX;
use umbel_records::{ByteSpan, Compression, Granularity, ReadLimits, RowGroupItems};

/// Files whose beginnings are looked at.
const PROBED_FILES: usize = 16;

/// Content bytes that are looked at in each.
const PROBED_BYTES: usize = 256 << 10;

/// Bytes of texts that are looked at to tell how many pieces they have.
const PROBED_TEXT_BYTES: usize = 256 << 10;

/// Entries of a cell, of all workers together: a few megabytes, so that a cell is sorted and exchanged in cache.
const CELL_ENTRIES: u64 = 1 << 16;

/// Entries of one worker in one cell, at least: with fewer, frame headers would be a notable part of the bytes.
const STREAM_ENTRIES_MIN: u64 = 1 << 12;

/// Most cells that the entries of a job are cut into: a run has 2^18 entries, and pieces of fewer than 64 of them
/// would be slow to read back from disk.
const CELLS_MAX: u64 = 1 << 12;

/// Bytes of memory an entry takes in the exchange of its cell: read, sorted, coded and compared; with a rank a third more.
const CELL_BYTES_PER_ENTRY: u64 = 96;
const RANKED_CELL_BYTES_PER_ENTRY: u64 = 128;

/// What is expected of the input.
pub(crate) struct Forecast {
    /// Stored bytes.
    pub(crate) stored_bytes: u64,
    /// Content bytes, once unpacked.
    pub(crate) content_bytes: u64,
    /// Records.
    pub(crate) records: u64,
}

/// Looks at the input's sizes and the beginnings of some files.
pub(crate) fn forecast(spec: &JobSpec, sources: &[Source]) -> Result<Forecast> {
    if spec.memory_bytes < MEMORY_BYTES_MIN {
        let (given, needed) = (spec.memory_bytes >> 20, MEMORY_BYTES_MIN >> 20);
        return Err(
            UsageError(format!("--memory {given}M is too little, {needed}M are needed")).into()
        );
    }
    let stored_bytes: u64 = sources.iter().map(|source| source.bytes).sum();
    if spec.granularity == Granularity::File {
        let records = sources.len() as u64;
        return Ok(Forecast { stored_bytes, content_bytes: stored_bytes, records });
    }
    let step = sources.len().div_ceil(PROBED_FILES).max(1);
    let mut seen = Probe { stored: 0, content: 1, records: 1 };
    for source in sources.iter().step_by(step) {
        seen.add(source, matches!(spec.granularity, Granularity::Paragraph(_)))?;
    }
    let scale = |part: u64| {
        let scaled = u128::from(stored_bytes) * u128::from(part) / u128::from(seen.stored.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    Ok(Forecast { stored_bytes, content_bytes: scale(seen.content), records: scale(seen.records) })
}

/// What the beginnings of some files have shown.
struct Probe {
    stored: u64,
    content: u64,
    records: u64,
}

impl Probe {
    fn add(&mut self, source: &Source, has_parts: bool) -> Result<()> {
        if source.is_copied {
            self.stored += source.bytes;
            return Ok(());
        }
        if let Some(row_groups) = &source.row_groups {
            self.stored += source.bytes;
            self.content += row_groups.groups.iter().map(|group| group.unpacked_bytes).sum::<u64>();
            let rows = row_groups.groups.iter().map(|group| group.rows).sum::<u64>();
            let pieces = if has_parts { pieces_a_row(row_groups, source)? } else { 1.0 };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate of a count, from 1 on"
            )]
            let records = (rows as f64 * pieces) as u64;
            self.records += records;
            return Ok(());
        }
        let limits = ReadLimits { block_bytes: PROBED_BYTES, ..ReadLimits::default() };
        let plain = source.compression == Compression::Plain;
        let span = plain.then_some(ByteSpan { start: 0, end: PROBED_BYTES as u64 });
        let mut reader = open_limited(source, span, limits)?;
        // Damage is reported when the file is read in earnest.
        let mut content = 0u64;
        let mut count = 0u64;
        if let Ok(Some(_)) = reader.next_block() {
            content = reader.block().len() as u64;
            count = reader.block_records().count() as u64;
            if has_parts {
                // One more for every line end in a text, as tables and as JSON write it.
                let ends =
                    reader.block().windows(2).filter(|pair| pair[0] == b'\n' || *pair == b"\\n");
                count = count.max(ends.count() as u64);
            }
        }
        self.stored += if plain { content } else { reader.stored_bytes_read().min(source.bytes) };
        self.content += content;
        self.records += count;
        Ok(())
    }
}

/// Pieces that a row's text has on average, by the first texts of the file.
///
/// # Errors
///
/// If the file cannot be opened again. Damage is reported when the rows are read in earnest.
fn pieces_a_row(row_groups: &RowGroups, source: &Source) -> Result<f64> {
    let file = row_groups.open(source)?;
    let (mut rows, mut pieces, mut bytes) = (0u64, 0u64, 0);
    for row_group in 0..row_groups.groups.len() {
        let Ok(mut items) = RowGroupItems::open(&file, row_group, &row_groups.selection) else {
            break;
        };
        while let (Ok(Some(text)), true) = (items.next_item(), bytes < PROBED_TEXT_BYTES) {
            rows += 1;
            pieces += pieces_of(text).count().max(1) as u64;
            bytes += text.len();
        }
        if bytes >= PROBED_TEXT_BYTES {
            break;
        }
    }
    Ok(if rows > 0 { pieces as f64 / rows as f64 } else { 1.0 })
}

/// Workers and cells: cells small enough for the cache, and at level `bytes` for the items to be compared.
pub(crate) fn shape(
    spec: &JobSpec,
    workers: u32,
    forecast: &Forecast,
    references: Option<ReferenceShape>,
) -> JobShape {
    let known = references.map_or(0, |references| references.entries);
    let compared = forecast.records.saturating_add(known);
    let wanted = u64::from(workers.max(1));
    let by_cache = forecast.records / CELL_ENTRIES;
    let by_stream = forecast.records / (wanted * STREAM_ENTRIES_MIN);
    let mut cells = by_cache.min(by_stream).min(CELLS_MAX);
    // Where that would make cells too large for the memory, more of them are needed whatever they cost.
    let cell_bytes_max = spec.memory_bytes / 16;
    let per_entry = match spec.keep {
        Keep::Best => RANKED_CELL_BYTES_PER_ENTRY,
        Keep::First | Keep::Last => CELL_BYTES_PER_ENTRY,
    };
    cells = cells.max(compared.saturating_mul(per_entry) / cell_bytes_max);
    if spec.level == Level::Bytes {
        cells = cells.max(forecast.content_bytes / cell_bytes_max);
    }
    let per_owner = (cells / wanted).max(1).next_power_of_two();
    let per_owner_max = u64::from(DEDUP_CELLS_MAX) / wanted;
    JobShape {
        workers,
        cells_per_owner: u32::try_from(per_owner.min(per_owner_max.max(1))).unwrap_or(u32::MAX),
        level: spec.level,
        keep: spec.keep,
        report_kept: spec.reports_kept(),
        item_bytes_mean: forecast.content_bytes as f64 / forecast.records.max(1) as f64,
    }
}

/// Shares of entries that other workers hold too, for which the exchange is forecast.
const DELTAS: [f64; 4] = [0.0, 0.006, 0.042, 0.17];

/// The forecast for people.
pub(crate) fn explain(job: &Job<'_>, forecast: &Forecast) -> String {
    let mut text = String::new();
    let Forecast { stored_bytes, content_bytes, records } = *forecast;
    let entries_bytes = records * entry_bytes(job.shape.ranks_entries()) as u64;
    let resident = job.resident_bytes().min(entries_bytes);
    let workers = job.shape.workers;
    let cells = job.cells().get();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    row(
        "input",
        format!(
            "{} file(s), {} stored, about {} of content",
            job.sources.len(),
            size(stored_bytes as f64),
            size(content_bytes as f64)
        ),
    );
    row("records", format!("about {}", count(records as f64)));
    row("workers", format!("{workers} on {} threads, {cells} hash ranges", job.threads));
    let [allowed, held, spilt] =
        [job.spec.memory_bytes, resident, entries_bytes - resident].map(|bytes| size(bytes as f64));
    row("memory", format!("{allowed} allowed, about {held} for entries"));
    row("scratch", format!("about {spilt} in {}", job.spec.scratch.display()));
    if let Some(ReferenceShape { entries, bits }) = job.references.shape() {
        row("references", format!("{} hashes of {} bits", count(entries as f64), bits.get()));
    }
    row("phases", phases(job));
    if workers > 1 {
        row("exchange", "shared entries -> how, expected bits an entry and bytes in all,".into());
        row("", format!("of which one part in {workers} stays on its own machine"));
        for delta in DELTAS {
            let cost = Coordinator::expected_cost(
                job.shape,
                records,
                delta,
                job.spec.filter,
                job.references.shape(),
            );
            let how = match cost.mode {
                Mode::Wide | Mode::Local => "whole hashes".to_owned(),
                Mode::Filter if cost.refine_bits == 0 => "filter".to_owned(),
                Mode::Filter => format!("filter + {} refinement bits", cost.refine_bits),
            };
            let bytes = size(cost.bits_per_entry * records as f64 / 8.0);
            let percent = 100.0 * delta;
            row(
                "",
                format!(
                    "{percent:>5.1} % -> {how}, {:.1} bits an entry, {bytes}",
                    cost.bits_per_entry
                ),
            );
        }
        if job.shape.report_kept {
            explain_groups(job, records, &mut row);
        }
    }
    text
}

/// What workers on many machines tell each other of groups; those of one process have them in common.
fn explain_groups(job: &Job<'_>, records: u64, row: &mut impl FnMut(&str, String)) {
    row("groups", "shared entries -> on many machines so much more, to count them".into());
    for delta in DELTAS {
        let (annotates, has_parts) = (job.spec.annotates, job.spec.has_parts());
        let bits = tally_bits_per_entry(delta, job.shape.workers, annotates, has_parts);
        let bytes = size(bits * records as f64 / 8.0);
        let percent = 100.0 * delta;
        row("", format!("{percent:>5.1} % -> {bits:.2} bits an entry, {bytes}"));
    }
}

fn phases(job: &Job<'_>) -> String {
    let mut phases = vec!["read and hash", "exchange and settle"];
    if job.shape.level == Level::Bytes {
        phases.push("read again and compare");
    }
    phases.push("read again and write");
    phases.join(", ")
}
