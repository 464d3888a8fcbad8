//! What the items of a set are, as a command says it.

use super::set::ItemSet;
use umbel_filter::ItemHasher;

/// What the items of a set are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Lines, each as often as it occurs.
    Lines,
    /// Ids in hexadecimal digits, one a line. Where a file is empty they have so many bytes, if that is known.
    HexIds(Option<usize>),
    /// Ids of so many bytes, one behind the other.
    RawIds(usize),
    /// Lines `key<TAB>value`.
    TabKeyed,
    /// JSON Lines with a key of these paths.
    JsonKeyed(Vec<String>),
    /// Files of a directory.
    Tree,
}

impl Form {
    /// What both sides must agree on beside the kind of their items, as a number.
    pub fn dataset_id(&self, set: &dyn ItemSet) -> u64 {
        self.dataset_id_of(set.id_bytes())
    }

    /// The same of a set whose ids, if it has ids, are of so many bytes.
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

    /// The arguments that make another `umbel reconcile` read its file so.
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
