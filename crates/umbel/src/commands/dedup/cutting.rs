//! How inputs are split into records: the format, and which of its options may differ between files.

use super::choices::FormatArg;
use super::{GranularityArg, INPUT};
use crate::exit::{UsageError, refuse};
use clap::{Args, ValueEnum};
use umbel_dedup::FormatRule;
use umbel_records::Format;

/// Parses a delimiter: one ASCII character other than a quote or line end, or `\t`.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("a quote or line end cannot be between fields".to_owned()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("expected one character of ASCII, or \\t".to_owned()),
    }
}

fn name_of(format: FormatArg) -> String {
    let value = format.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

/// Arguments that say how records are cut.
#[derive(Args)]
pub(in crate::commands) struct CuttingArgs {
    /// text, jsonl, csv, tsv or parquet [default: by file]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = INPUT, hide_possible_values = true)]
    format: Option<FormatArg>,
    /// Separator of fields in tables, like ';' or '\t'
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = INPUT)]
    delimiter: Option<u8>,
    /// Tables have no header: columns are numbered, from 1
    #[arg(long, help_heading = INPUT)]
    no_header: bool,
    /// Records end with a zero byte, as with find -print0
    #[arg(long, short = 'z', help_heading = INPUT)]
    zero_terminated: bool,
}

impl CuttingArgs {
    /// The rule by which the format of each input is determined.
    ///
    /// # Errors
    ///
    /// If two of the arguments contradict each other.
    pub(in crate::commands) fn format(
        &self,
        compared: GranularityArg,
    ) -> Result<FormatRule, UsageError> {
        self.check_dialect()?;
        if self.zero_terminated {
            self.check_zero_terminated(compared)?;
            return Ok(Format::ZeroTerminated.into());
        }
        let given = self.format.map(|format| match format {
            FormatArg::Text => Format::Text,
            FormatArg::Jsonl => Format::JsonLines,
            FormatArg::Csv => Format::CSV,
            FormatArg::Tsv => Format::TSV,
            FormatArg::Parquet => Format::Parquet,
        });
        Ok(FormatRule { given, delimiter: self.delimiter, is_headless: self.no_header })
    }

    /// The byte that ends a record, except in tables.
    pub(in crate::commands) fn record_end(&self) -> u8 {
        if self.zero_terminated { 0 } else { b'\n' }
    }

    fn check_dialect(&self) -> Result<(), UsageError> {
        let flag = match (self.delimiter, self.no_header) {
            (Some(_), _) => "--delimiter",
            (None, true) => "--no-header",
            (None, false) => return Ok(()),
        };
        let other = match self.format {
            _ if self.zero_terminated => "-z".to_owned(),
            None | Some(FormatArg::Csv) => return Ok(()),
            Some(FormatArg::Tsv) if self.delimiter.is_none_or(|byte| byte == b'\t') => {
                return Ok(());
            }
            Some(format) => format!("--format {}", name_of(format)),
        };
        refuse!("{flag} goes with tables (--format csv), not with {other}")
    }

    fn check_zero_terminated(&self, compared: GranularityArg) -> Result<(), UsageError> {
        if let Some(format) = self.format.filter(|format| *format != FormatArg::Text) {
            refuse!(
                "-z cuts text at zero bytes, and --format {} cuts otherwise: leave one of the two out",
                name_of(format)
            );
        }
        if matches!(compared, GranularityArg::Key | GranularityArg::Paragraph) {
            refuse!("-z reads text, which has no fields: leave --key out, or -z");
        }
        Ok(())
    }
}
