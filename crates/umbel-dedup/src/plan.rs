//! The plan of a job: estimates of what it will need, from the sizes of its inputs and samples of their beginnings.

use super::content::open_limited;
use super::context::Job;
use super::hash_runs::run_bytes_max;
use super::inputs::Source;
use super::memory::MEMORY_BYTES_MIN;
use super::paragraphs::pieces_of;
use super::row_groups::RowGroups;
use super::run_builder::entry_bytes;
use super::segments::SegmentLayout;
use super::spec::JobSpec;
use crate::error::Result;
use umbel_dedup_engine::job::CellLoad;
use umbel_dedup_engine::{
    Cost, Exactness, ExchangeCoordinator, JobShape, ReferenceShape, group_count_bits_per_entry,
};
use umbel_files::UsageError;
use umbel_records::{ByteSpan, Compression, Granularity, ReadLimits, RowGroupItems};

/// Most files whose beginnings are sampled.
const PROBED_FILES: usize = 16;

/// Content bytes that are sampled of each.
const PROBED_BYTES: usize = 256 << 10;

/// Bytes of texts that are sampled for their number of pieces.
const PROBED_TEXT_BYTES: usize = 256 << 10;

/// The estimate of the input.
pub(crate) struct Forecast {
    /// Stored bytes.
    pub(crate) stored_bytes: u64,
    /// Content bytes, after decompression.
    pub(crate) content_bytes: u64,
    /// Records.
    pub(crate) records: u64,
}

/// Estimates the input from the sizes of files and the beginnings of some.
pub(crate) fn forecast(spec: &JobSpec, sources: &[Source]) -> Result<Forecast> {
    if spec.memory_bytes < MEMORY_BYTES_MIN {
        let (given, needed) = (spec.memory_bytes, MEMORY_BYTES_MIN >> 20);
        let text = format!("--memory is {given} bytes, which is too little: {needed}M are needed");
        return Err(UsageError(text).into());
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

/// Sums over the samples.
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
            #[expect(clippy::cast_possible_truncation, reason = "an estimate of a count")]
            let records = (rows as f64 * pieces) as u64;
            self.records += records;
            return Ok(());
        }
        let limits = ReadLimits { block_bytes: PROBED_BYTES, ..ReadLimits::default() };
        let plain = source.compression == Compression::Plain;
        let span = plain.then_some(ByteSpan { start: 0, end: PROBED_BYTES as u64 });
        let mut reader = open_limited(source, span, limits)?;
        // Damage is reported by the first reading.
        let mut content = 0u64;
        let mut count = 0u64;
        if let Ok(Some(_)) = reader.next_block() {
            content = reader.block().len() as u64;
            count = reader.block_records().count() as u64;
            if has_parts {
                // A piece more for every line end in a text, as tables and JSON encode line ends.
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

/// Mean number of pieces of a row's text, from the first texts of the file.
///
/// # Errors
///
/// If the file cannot be opened again. Damage is reported by the first reading.
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

/// The shape of a job in one process: cells are small enough for the cache and the memory; at exactness `bytes`,
/// together with the items to compare.
pub(crate) fn shape(
    spec: &JobSpec,
    workers: u32,
    forecast: &Forecast,
    references: Option<ReferenceShape>,
) -> JobShape {
    let known = references.map_or(0, |references| references.entries);
    let load = CellLoad {
        records: forecast.records,
        compared: forecast.records.saturating_add(known),
        items_bytes: if spec.exactness == Exactness::Bytes { forecast.content_bytes } else { 0 },
        memory_bytes: spec.memory_bytes,
        keep: spec.keep,
    };
    JobShape {
        workers,
        cells_per_owner: load.cells_per_owner(workers),
        exactness: spec.exactness,
        keep: spec.keep,
        report_kept: spec.reports_kept(),
        item_bytes_mean: forecast.content_bytes as f64 / forecast.records.max(1) as f64,
    }
}

/// Shares of entries that several workers have, for which the exchange is estimated.
const DELTAS: [f64; 4] = [0.0, 0.006, 0.042, 0.17];

/// Estimates of what a job will need.
pub struct JobPlan {
    /// Input files.
    pub files: usize,
    /// Their bytes, as stored.
    pub stored_bytes: u64,
    /// About how many bytes they have after decompression.
    pub content_bytes: u64,
    /// About how many records they have.
    pub records: u64,
    /// Workers in this process.
    pub workers: u32,
    /// Threads in this process.
    pub threads: usize,
    /// Cells, which are exchanged one by one.
    pub cells: u32,
    /// About how many bytes of entries are kept in memory.
    pub resident_bytes: u64,
    /// About how many bytes of entries go to scratch disk.
    pub scratch_bytes: u64,
    /// References.
    pub references: Option<ReferenceShape>,
    /// Whether items are read again to be compared.
    pub compares_bytes: bool,
    /// Costs of the exchange, by the share of entries that several workers have; empty with one worker.
    pub exchange: Vec<(f64, Cost)>,
    /// Additional bits per entry that workers on many machines send to count groups, by the same share; empty if groups are
    /// not counted.
    pub group_bits: Vec<(f64, f64)>,
}

/// Estimates what a job will need.
pub(crate) fn explain(job: &Job<'_>, forecast: &Forecast) -> JobPlan {
    let Forecast { stored_bytes, content_bytes, records } = *forecast;
    let Job { spec, shape, threads, .. } = *job;
    let run_entry_bytes = entry_bytes(shape.ranks_entries()) as u64;
    let resident_bytes = run_bytes_max(job.resident_bytes()).min(records * run_entry_bytes);
    let spilled = records - resident_bytes.div_ceil(run_entry_bytes);
    let (workers, references) = (shape.workers, job.references.shape());
    let cost =
        |delta| ExchangeCoordinator::expected_cost(shape, records, delta, spec.filter, references);
    let group_bits =
        |delta| group_count_bits_per_entry(delta, workers, spec.annotates, spec.has_parts());
    let deltas = || DELTAS.into_iter().filter(|_| workers > 1);
    JobPlan {
        files: job.sources.len(),
        stored_bytes,
        content_bytes,
        records,
        workers,
        threads,
        cells: job.cells().get(),
        resident_bytes,
        scratch_bytes: spilled * SegmentLayout::of(&shape).entry_bytes() as u64,
        references,
        compares_bytes: shape.exactness == Exactness::Bytes,
        exchange: deltas().map(|delta| (delta, cost(delta))).collect(),
        group_bits: deltas()
            .filter(|_| shape.report_kept)
            .map(|delta| (delta, group_bits(delta)))
            .collect(),
    }
}
