//! Streams, which are skipped (`src/rdb.c`, `rdbSaveObject` for `OBJ_STREAM`).
//!
//! ```text
//! count of nodes:  16 bytes as a string, a listpack as a string
//! length, last id  as 3 lengths; of the second form on 5 more: first id, largest id that was deleted, entries added
//! count of groups: name, last id as 2 lengths; of the second form on a length, entries read
//!   count pending:   id of 16 bytes, time of 8, deliveries as a length
//!   count consumers: name, time of 8 bytes; of the third form on another one; count pending: id of 16 bytes
//! ```

use std::io::Read;

use crate::error::RdbError;
use crate::input::Input;
use crate::string::skip_string;

/// The encoding of a stream. `First` is that of Redis 5, `Second` of 7.0 and `Third` of 7.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum StreamForm {
    First,
    Second,
    Third,
}

/// Length of an id in bytes, where it is not a pair of lengths.
const ID_BYTES: u64 = 16;

/// Length of a time in milliseconds, in bytes.
const TIME_BYTES: u64 = 8;

pub(crate) fn skip_stream<R: Read>(input: &mut Input<R>, form: StreamForm) -> Result<(), RdbError> {
    for _ in 0..input.length()? {
        skip_string(input)?;
        skip_string(input)?;
    }
    skip_lengths(input, if form >= StreamForm::Second { 8 } else { 3 })?;
    for _ in 0..input.length()? {
        skip_string(input)?;
        skip_lengths(input, if form >= StreamForm::Second { 3 } else { 2 })?;
        for _ in 0..input.length()? {
            input.skip(ID_BYTES + TIME_BYTES)?;
            input.length()?;
        }
        for _ in 0..input.length()? {
            skip_string(input)?;
            input.skip(if form >= StreamForm::Third { 2 * TIME_BYTES } else { TIME_BYTES })?;
            for _ in 0..input.length()? {
                input.skip(ID_BYTES)?;
            }
        }
    }
    Ok(())
}

fn skip_lengths<R: Read>(input: &mut Input<R>, count: usize) -> Result<(), RdbError> {
    (0..count).try_for_each(|_| input.length().map(drop))
}
