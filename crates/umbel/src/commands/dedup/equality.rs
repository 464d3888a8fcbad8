//! When records are equal, from the arguments: which part of them is compared, and how exactly.

use super::DedupArgs;
use super::choices::{ExactnessArg, GranularityArg};
use crate::exit::refuse;
use anyhow::Result;
use umbel_dedup_engine::Exactness;
use umbel_records::Granularity;

impl DedupArgs {
    /// The granularity that the arguments name or imply, not yet checked against the other arguments.
    pub(super) fn compared(&self) -> GranularityArg {
        let default = if self.key.is_empty() { GranularityArg::Line } else { GranularityArg::Key };
        self.granularity.unwrap_or(default)
    }

    /// The granularity, checked against the other arguments.
    pub(super) fn granularity(&self) -> Result<Granularity> {
        let granularity = self.compared();
        if self.paragraph_bytes_min.is_some() && granularity != GranularityArg::Paragraph {
            refuse!("--paragraph-bytes-min goes with --granularity paragraph");
        }
        if granularity == GranularityArg::Paragraph {
            let [field] = &self.key[..] else {
                refuse!("--granularity paragraph needs one --key FIELD, which holds the text");
            };
            return Ok(Granularity::Paragraph(field.clone()));
        }
        if (granularity == GranularityArg::Key) == self.key.is_empty() {
            refuse!("--granularity key and --key FIELD go together");
        }
        Ok(match granularity {
            GranularityArg::Line => Granularity::Line,
            GranularityArg::Record => Granularity::Record,
            GranularityArg::File => Granularity::File,
            GranularityArg::Key | GranularityArg::Paragraph => Granularity::Key(self.key.clone()),
        })
    }

    /// The level of exactness.
    pub(super) fn exactness(&self) -> Result<Exactness> {
        let rate = self.false_positive_rate.unwrap_or(1e-3);
        if !(rate > 0.0 && rate < 1.0) {
            refuse!("--false-positive-rate {rate}: expected a rate above 0 and below 1");
        }
        if self.false_positive_rate.is_some() && self.exactness != ExactnessArg::Approximate {
            refuse!("--false-positive-rate goes with --exactness approximate");
        }
        Ok(match self.exactness {
            ExactnessArg::Approximate => Exactness::Approximate { false_positive_rate: rate },
            ExactnessArg::Fingerprint => Exactness::Fingerprint,
            ExactnessArg::Bytes => Exactness::Bytes,
        })
    }
}
