//! The form of a set's items, as the command line states it.

use super::set::ItemSet;
use umbel_filter::ItemHasher;

/// The form of a set's items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Lines, as a multiset.
    Lines,
    /// Ids in hexadecimal digits, one per line. The number is their length in bytes, if known: an empty file
    /// does not show it.
    HexIds(Option<usize>),
    /// Raw ids of this many bytes, back to back.
    RawIds(usize),
    /// Lines `key<TAB>value`.
    TabKeyed,
    /// JSON Lines with a key made of these paths.
    JsonKeyed(Vec<String>),
    /// Files of a directory.
    Tree,
}

impl Form {
    /// A number for what both sides must agree on besides the kind of their items.
    pub fn dataset_id(&self, set: &dyn ItemSet) -> u64 {
        self.dataset_id_of(set.id_bytes())
    }

    /// The same for a set whose ids, if it has ids, are `id_bytes` long.
    pub(super) fn dataset_id_of(&self, id_bytes: usize) -> u64 {
        let name = match self {
            Self::Lines => "lines".to_owned(),
            Self::HexIds(_) | Self::RawIds(_) => format!("ids:{id_bytes}"),
            Self::TabKeyed => "kv".to_owned(),
            Self::Tree => "dir".to_owned(),
            Self::JsonKeyed(paths) => format!("kv:{}", paths.join(",")),
        };
        ItemHasher::Xxh3 { seed: 0 }.hash(name.as_bytes()).hi()
    }

    /// The arguments with which another `umbel reconcile` reads its file in this form.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            Self::Lines => vec!["--lines".into()],
            Self::HexIds(None) => vec!["--ids".into()],
            Self::HexIds(Some(bytes)) => vec![format!("--ids={}", 8 * bytes)],
            Self::RawIds(bytes) => vec!["--id-bytes".into(), bytes.to_string()],
            Self::TabKeyed => vec!["--kv".into()],
            Self::Tree => vec!["--dir".into()],
            Self::JsonKeyed(paths) => {
                let keys = paths.iter().flat_map(|path| ["--key".into(), path.clone()]);
                std::iter::once("--kv".into()).chain(keys).collect()
            }
        }
    }
}
