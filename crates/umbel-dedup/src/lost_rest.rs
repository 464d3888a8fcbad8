//! Files whose rest cannot be read: kept records do not replace them, because that would delete the rest.
//!
//! A bad record that is left out is listed; of a lost rest nobody knows what it has, and the file may be repaired, or
//! read with other limits.

use super::bad::BadLine;
use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::outputs::{is_replaced, leaves_unkept};
use super::report::records_before;
use crate::error::{InputError, Result};

/// Fails if kept records would replace a file whose rest, or that of a row group, could not be read.
///
/// # Errors
///
/// Names the first such file, and the record and cause that its rest is lost by. Nothing was written yet.
pub(crate) fn check_rest(job: &Job<'_>, facts: &[ChunkFacts]) -> Result<()> {
    let spec = job.spec;
    if leaves_unkept(spec) {
        return Ok(());
    }
    for (index, (chunk, facts_of_chunk)) in job.chunks.iter().zip(facts).enumerate() {
        let Some(bad) = facts_of_chunk.bad.loses_rest() else { continue };
        let source = &job.sources[chunk.source];
        if is_replaced(spec, source) {
            let before = records_before(job.chunks, facts)[index];
            let text = BadLine::new(bad.again(), source, before).text();
            return Err(InputError::RestLost(text).into());
        }
    }
    Ok(())
}
