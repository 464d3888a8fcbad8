//! Items of a set: owned, borrowed, and by number.

use super::options::SymbolKind;
use super::wire::{Reader, put_varint};

/// Number of an item in the driver's frozen snapshot. The driver may choose any numbers by which it can
/// find its items; they never leave this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ItemIndex(pub u64);

/// An item of the snapshot, as the driver feeds it to a [`Pass`](super::Pass). Its shape must fit the session's
/// [`SymbolKind`](super::SymbolKind).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemRef<'a> {
    /// Of kind `Hashed`: any bytes.
    Bytes(&'a [u8]),
    /// Of kind `Id64`: the id itself.
    Id(u64),
    /// Of kind `Keyed`: the key that names a record, and its value.
    Keyed {
        /// Equal on both sides for two versions of one record.
        key: &'a [u8],
        /// What differs between versions.
        value: &'a [u8],
    },
}

impl ItemRef<'_> {
    /// The bytes that are hashed into the digest and sent: the item, eight little-endian bytes of an id, or
    /// the key's length as a LEB128 number, the key and the value.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Id(id) => id.to_le_bytes().to_vec(),
            Self::Keyed { key, value } => [&self.length_prefix(), key, value].concat(),
        }
    }

    /// Length of [`to_bytes`](Self::to_bytes).
    #[must_use]
    pub fn bytes_len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Id(_) => 8,
            Self::Keyed { key, value } => self.length_prefix().len() + key.len() + value.len(),
        }
    }

    /// The prefix of a keyed item's bytes, its key length; empty for others.
    pub(crate) fn length_prefix(self) -> Vec<u8> {
        let mut prefix = Vec::new();
        if let Self::Keyed { key, .. } = self {
            put_varint(&mut prefix, key.len() as u64);
        }
        prefix
    }

    /// Whether a session of this kind has such items.
    pub(crate) const fn is_of(self, kind: SymbolKind) -> bool {
        matches!(
            (self, kind),
            (Self::Bytes(_), SymbolKind::Hashed)
                | (Self::Id(_), SymbolKind::Id64)
                | (Self::Keyed { .. }, SymbolKind::Keyed)
        )
    }
}

/// An owned item that is sent or received.
///
/// ```
/// use umbel_reconcile_engine::Item;
///
/// // Eight bytes of an id, little-endian; a keyed item begins with its key's length.
/// assert_eq!(Item::Id(258).to_bytes(), [2, 1, 0, 0, 0, 0, 0, 0]);
/// let item = Item::Keyed { key: b"k".to_vec(), value: b"v".to_vec() };
/// assert_eq!(item.to_bytes(), [1, b'k', b'v']);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Item {
    /// Of kind `Hashed`.
    Bytes(Vec<u8>),
    /// Of kind `Id64`.
    Id(u64),
    /// Of kind `Keyed`.
    Keyed {
        /// The key that names the record.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
}

impl Item {
    /// The item by reference.
    #[must_use]
    pub fn as_item_ref(&self) -> ItemRef<'_> {
        match self {
            Self::Bytes(bytes) => ItemRef::Bytes(bytes),
            Self::Id(id) => ItemRef::Id(*id),
            Self::Keyed { key, value } => ItemRef::Keyed { key, value },
        }
    }

    /// The bytes that are hashed into the digest and sent.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.as_item_ref().to_bytes()
    }

    /// Parses an item of this kind; `None` if the bytes are not one.
    pub(crate) fn from_bytes(kind: SymbolKind, bytes: &[u8]) -> Option<Self> {
        match kind {
            SymbolKind::Hashed => Some(Self::Bytes(bytes.to_vec())),
            SymbolKind::Id64 => Some(Self::Id(u64::from_le_bytes(bytes.try_into().ok()?))),
            SymbolKind::Keyed => {
                let mut reader = Reader::new(bytes);
                let key_bytes = reader.varint("key length").ok()?;
                let key = reader.bytes("key", usize::try_from(key_bytes).ok()?).ok()?;
                Some(Self::Keyed { key: key.to_vec(), value: reader.rest().to_vec() })
            }
        }
    }
}

/// An item that only the other side has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteItem {
    /// Its symbol under the session's key, in the highest bits: the top `h` bits are known, the others are
    /// zero. The top 40 bits of a keyed item depend on the key alone, so equal ones here and in `OnlyHere`
    /// mean a changed record.
    pub symbol: u64,
    /// The item, if contents were requested; always for kind `Id64`.
    pub item: Option<Item>,
}
