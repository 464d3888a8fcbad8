//! How records are cut: the format, and what of it may differ from file to file.

use super::choices::FormatArg;
use super::{GranularityArg, INPUT};
use crate::exit::UsageError;
use clap::{Args, ValueEnum};
use umbel_records::Format;

/// Arguments that say how records are cut.
#[derive(Args)]
pub(super) struct CuttingArgs {
    /// text, jsonl, csv, tsv or parquet [default: by content and name]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = INPUT, hide_possible_values = true)]
    format: Option<FormatArg>,
    /// Records end with a zero byte, as of find -print0 and sort -z
    #[arg(long, short = 'z', help_heading = INPUT)]
    zero_terminated: bool,
}

impl CuttingArgs {
    /// The format of all inputs; `None`: each is told by its content and name.
    ///
    /// # Errors
    ///
    /// If two of the arguments exclude each other.
    pub(super) fn format(&self, compared: GranularityArg) -> Result<Option<Format>, UsageError> {
        if self.zero_terminated {
            self.check_zero_terminated(compared)?;
            return Ok(Some(Format::ZeroTerminated));
        }
        Ok(self.format.map(|format| match format {
            FormatArg::Text => Format::Text,
            FormatArg::Jsonl => Format::JsonLines,
            FormatArg::Csv => Format::Csv,
            FormatArg::Tsv => Format::Tsv,
            FormatArg::Parquet => Format::Parquet,
        }))
    }

    fn check_zero_terminated(&self, compared: GranularityArg) -> Result<(), UsageError> {
        if let Some(format) = self.format.filter(|format| *format != FormatArg::Text) {
            let value = format.to_possible_value().expect("no value is skipped");
            return Err(UsageError(format!(
                "-z cuts text at zero bytes, and --format {} cuts otherwise: leave one of the two out",
                value.get_name()
            )));
        }
        if matches!(compared, GranularityArg::Key | GranularityArg::Paragraph) {
            let text = "-z reads text, which has no fields: leave --key out, or -z";
            return Err(UsageError(text.into()));
        }
        Ok(())
    }
}
