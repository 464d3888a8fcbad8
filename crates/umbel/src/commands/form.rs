//! Flags that choose what an item of a file or directory is.

use clap::{ArgGroup, Args};
use umbel_reconcile::Form;

/// What is an item.
#[derive(Args)]
#[command(group = ArgGroup::new("form").multiple(false))]
pub(crate) struct FormArgs {
    /// Lines of text, each as often as it occurs (default)
    #[arg(long, group = "form", help_heading = "Items")]
    lines: bool,
    /// Hexadecimal ids of 64 to 256 bits, one a line; BITS if a file is empty
    #[arg(long, group = "form", help_heading = "Items", value_name = "BITS", num_args = 0..=1,
        require_equals = true, default_missing_value = "0", value_parser = parse_id_bits)]
    ids: Option<usize>,
    /// Raw ids of N bytes, one after the other
    #[arg(long, group = "form", help_heading = "Items", value_name = "N",
        value_parser = clap::value_parser!(u8).range(8..=32))]
    id_bytes: Option<u8>,
    /// Records `key<TAB>value`, or JSON Lines with --key
    #[arg(long, group = "form", help_heading = "Items")]
    kv: bool,
    /// Files and links of a directory
    #[arg(long, group = "form", help_heading = "Items")]
    dir: bool,
    /// Path of a field that is part of the key of JSON Lines (repeatable)
    // A requirement that conflicts with what is given is not asked for, so that conflicts are named, too.
    #[arg(long, requires = "kv", conflicts_with_all = ["lines", "ids", "id_bytes", "dir"],
        help_heading = "Items", value_name = "PATH")]
    key: Vec<String>,
}

impl FormArgs {
    /// The form that the flags choose.
    pub(crate) fn form(&self) -> Form {
        match self.id_bytes {
            Some(bytes) => Form::RawIds(usize::from(bytes)),
            None if self.ids.is_some() => {
                Form::HexIds(self.ids.filter(|bits| *bits > 0).map(|bits| bits / 8))
            }
            None if self.dir => Form::Tree,
            None if !self.kv => Form::Lines,
            None if self.key.is_empty() => Form::TabKeyed,
            None => Form::JsonKeyed(self.key.clone()),
        }
    }
}

/// Parses the length of ids in bits; 0 means that the file determines it.
fn parse_id_bits(text: &str) -> Result<usize, String> {
    let bits =
        text.parse().ok().filter(|bits| *bits == 0 || (64..=256).contains(bits) && bits % 8 == 0);
    bits.ok_or_else(|| "expected 64 to 256 bits, in whole bytes".to_owned())
}
