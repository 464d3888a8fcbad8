//! `umbel static info`: checks a file from end to end and describes it.

use super::form::{ItemForm, printable};
use super::open_file::read_whole;
use crate::exit::Exit;
use crate::printer::{facts, print};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use umbel_static::{Head, Role};

/// Arguments of `umbel static info`.
#[derive(Args)]
pub(super) struct InfoArgs {
    /// The file
    #[arg(value_name = "F.umbs")]
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl InfoArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is damaged.
    pub(super) fn run(&self) -> Result<Exit> {
        let file = read_whole(&self.file)?;
        let form = ItemForm::parse(file.head().shape().form())?;
        show(file.head(), &form, self.json)?;
        Ok(Exit::Done)
    }
}

/// Prints a description of a file.
///
/// # Errors
///
/// If standard output cannot be written.
pub(super) fn show(head: &Head, form: &ItemForm, as_json: bool) -> Result<()> {
    print(as_json, &as_value(head, form), || text(head, form))
}

/// Bits of the file per key; None for a file without keys.
fn bits_per_key(head: &Head) -> Option<f64> {
    (head.key_count() > 0).then(|| head.file_bytes() as f64 * 8.0 / head.key_count() as f64)
}

fn as_value(head: &Head, form: &ItemForm) -> Value {
    let shape = head.shape();
    let mut value = json!({
        "role": shape.role().to_string(),
        "keys": head.key_count(),
        "check_bits": shape.check_bits(),
        "false_positive_rate": shape.false_positive_rate(),
        "bytes": head.file_bytes(),
        "bits_per_key": bits_per_key(head),
        "chunks": head.chunk_count(),
        "seed_max": head.seed_max(),
        "hash": shape.key().function.to_string(),
        "key_id": format!("{:016x}", shape.key().key_id),
        "digest": format!("{:032x}", head.digest()),
        "items": form,
    });
    match shape.role() {
        Role::Map => value["value_bits"] = shape.value_bits().into(),
        Role::Exact => value["others"] = head.other_count().into(),
        Role::Filter => {}
    }
    value
}

fn text(head: &Head, form: &ItemForm) -> String {
    let shape = head.shape();
    let mut lines = vec![("role", shape.role().to_string()), ("items", form.words())];
    let keys = if shape.role() == Role::Exact { "members" } else { "keys" };
    lines.push((keys, head.key_count().to_string()));
    match shape.role() {
        Role::Exact => lines.push(("others", head.other_count().to_string())),
        Role::Map => {
            let field = printable(form.value.as_deref().unwrap_or_default());
            lines.push(("values", format!("{field}, {} bits", shape.value_bits())));
        }
        Role::Filter => {}
    }
    lines.push(("check bits", shape.check_bits().to_string()));
    let rate = match shape.role() {
        Role::Exact => "0, for members and others".to_owned(),
        Role::Filter | Role::Map => format!("{:.3e}", shape.false_positive_rate()),
    };
    lines.push(("false-positive rate", rate));
    lines.push(("bytes", head.file_bytes().to_string()));
    if let Some(bits) = bits_per_key(head) {
        lines.push(("bits a key", format!("{bits:.2}")));
    }
    lines.push(("chunks", head.chunk_count().to_string()));
    let key = shape.key();
    lines.push(("hash", format!("{}, key id {:016x}", key.function, key.key_id)));
    lines.push(("digest", format!("{:032x}", head.digest())));
    facts(&lines)
}
