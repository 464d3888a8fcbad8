//! The items of a request: checked once, never copied, and hashed in the buffer in which they arrived.

use bytes::Bytes;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::HashKey;
use umbel_filter::ItemHash;
use umbel_proto::v1;

use crate::failure::CallFailure;
use crate::limits::ITEM_BYTES_MAX;

/// Bytes of a hash on the wire: hi, then lo, little-endian.
const HASH_BYTES: usize = 16;

/// The items of a request in their order.
#[derive(Clone, PartialEq, Debug)]
pub struct ItemBatch {
    form: Form,
}

/// The form in which the items arrived.
#[derive(Clone, PartialEq, Debug)]
enum Form {
    Separate(Vec<Bytes>),
    /// The lengths add up to the length of `data`.
    Packed {
        data: Bytes,
        item_bytes: Vec<u32>,
    },
    /// Whole hashes.
    Hashes {
        bytes: Bytes,
        seed: u64,
    },
}

impl ItemBatch {
    /// Checks the items of a request. An empty batch is valid and has an empty answer.
    ///
    /// # Errors
    /// [`CallFailure::Invalid`], naming the field and the item, if more than one form is used,
    /// there are too many items or one is too long, or lengths do not fit.
    pub fn from_proto(items: Option<v1::Items>) -> Result<Self, CallFailure> {
        let Some(v1::Items { items, packed, hashes, hash_seed }) = items else {
            return Err(invalid("items is not set".to_owned()));
        };
        let used = [
            ("items.items", !items.is_empty()),
            ("items.packed", packed.is_some()),
            ("items.hashes", !hashes.is_empty()),
        ];
        let used: Vec<_> = used.iter().filter(|(_, is_used)| *is_used).map(|(f, _)| *f).collect();
        if used.len() > 1 {
            let used = used.join(" and ");
            return Err(invalid(format!("{used} are set, expected one of them")));
        }
        let form = match packed {
            Some(packed) => check_packed(packed)?,
            None if hashes.is_empty() => check_separate(items)?,
            None => check_hashes(hashes, hash_seed)?,
        };
        Ok(Self { form })
    }

    /// Items stored back to back, whose lengths add up to that of `data`. The caller guarantees that no
    /// item is too long and that there are not too many: its protocol allows fewer bytes.
    ///
    /// # Panics
    /// If there are more than `REQUEST_ITEMS_MAX` items, or the lengths add up to another number.
    pub fn packed(data: Bytes, item_bytes: Vec<u32>) -> Self {
        assert_eq!(item_bytes.iter().map(|&n| n as usize).sum::<usize>(), data.len());
        assert!(item_bytes.len() <= REQUEST_ITEMS_MAX, "a batch is cut before");
        Self { form: Form::Packed { data, item_bytes } }
    }

    /// Number of items, at most [`REQUEST_ITEMS_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "no caller treats an empty batch differently")]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Separate(items) => items.len(),
            Form::Packed { item_bytes, .. } => item_bytes.len(),
            Form::Hashes { bytes, .. } => bytes.len() / HASH_BYTES,
        }
    }

    /// Bytes of the items, or of the hashes if the client sent those.
    pub fn byte_count(&self) -> u64 {
        match &self.form {
            Form::Separate(items) => items.iter().map(|item| item.len() as u64).sum(),
            Form::Packed { data: bytes, .. } | Form::Hashes { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Appends the items' hashes in their order.
    ///
    /// # Errors
    /// [`CallFailure::Invalid`] if the client sent hashes, and the key is secret or RedisBloom's, or the
    /// hashes have another seed.
    pub fn hash(&self, key: &HashKey, out: &mut Vec<ItemHash>) -> Result<(), CallFailure> {
        out.reserve(self.len());
        let hasher = key.hasher();
        match (&self.form, key) {
            (Form::Separate(items), _) => out.extend(items.iter().map(|item| hasher.hash(item))),
            (Form::Packed { data, item_bytes }, _) => {
                let mut rest = &data[..];
                out.extend(item_bytes.iter().map(|&byte_count| {
                    let (item, behind) = rest.split_at(byte_count as usize);
                    rest = behind;
                    hasher.hash(item)
                }));
            }
            (Form::Hashes { seed, .. }, HashKey::Xxh3 { seed: expected }) if seed != expected => {
                return Err(invalid(format!(
                    "items.hashes were made with seed {seed}, the filter has {expected}"
                )));
            }
            (Form::Hashes { bytes, .. }, HashKey::Xxh3 { .. }) => {
                let (hashes, _) = bytes.as_chunks::<HASH_BYTES>();
                out.extend(hashes.iter().map(|bytes| {
                    let value = u128::from_le_bytes(*bytes);
                    #[expect(clippy::cast_possible_truncation, reason = "hi comes first")]
                    let hi = value as u64;
                    let lo = (value >> 64) as u64;
                    ItemHash::new(hi, lo)
                }));
            }
            (Form::Hashes { .. }, HashKey::RedisBloom) => {
                let what = "items.hashes is set, but the filter hashes as RedisBloom does: send \
                            items.items or items.packed";
                return Err(invalid(what.to_owned()));
            }
            (Form::Hashes { .. }, HashKey::SipHash { .. }) => {
                let what = "items.hashes is set, but the filter's hash key is a secret of the \
                            cluster: send items.items or items.packed";
                return Err(invalid(what.to_owned()));
            }
        }
        Ok(())
    }
}

fn check_separate(items: Vec<Bytes>) -> Result<Form, CallFailure> {
    check_count("items.items", items.len())?;
    for (index, item) in items.iter().enumerate() {
        check_length("items.items", index, item.len())?;
    }
    Ok(Form::Separate(items))
}

fn check_packed(packed: v1::PackedItems) -> Result<Form, CallFailure> {
    let v1::PackedItems { data, item_bytes } = packed;
    check_count("items.packed.item_bytes", item_bytes.len())?;
    // 65,536 times 2^32 is far below 2^64.
    let mut sum = 0_u64;
    for (index, &byte_count) in item_bytes.iter().enumerate() {
        check_length("items.packed.item_bytes", index, byte_count as usize)?;
        sum += u64::from(byte_count);
    }
    if sum != data.len() as u64 {
        let got = data.len();
        let what = format!(
            "items.packed.data has {got} bytes, expected {sum}, the sum of items.packed.item_bytes"
        );
        return Err(invalid(what));
    }
    Ok(Form::Packed { data, item_bytes })
}

fn check_hashes(hashes: Bytes, seed: u64) -> Result<Form, CallFailure> {
    if !hashes.len().is_multiple_of(HASH_BYTES) {
        let got = hashes.len();
        let what = format!("items.hashes has {got} bytes, expected a multiple of {HASH_BYTES}");
        return Err(invalid(what));
    }
    check_count("items.hashes", hashes.len() / HASH_BYTES)?;
    Ok(Form::Hashes { bytes: hashes, seed })
}

fn check_count(field: &str, count: usize) -> Result<(), CallFailure> {
    if count <= REQUEST_ITEMS_MAX {
        return Ok(());
    }
    Err(invalid(format!("{field} has {count} items, at most {REQUEST_ITEMS_MAX} are allowed")))
}

fn check_length(field: &str, index: usize, byte_count: usize) -> Result<(), CallFailure> {
    if byte_count <= ITEM_BYTES_MAX {
        return Ok(());
    }
    let what =
        format!("{field}[{index}]: {byte_count} bytes, at most {ITEM_BYTES_MAX} are allowed");
    Err(invalid(what))
}

fn invalid(what: String) -> CallFailure {
    CallFailure::Invalid { what }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use umbel_filter::ItemHasher;

    use super::*;

    const PUBLIC: HashKey = HashKey::Xxh3 { seed: 5 };
    const KEYED: HashKey = HashKey::SipHash { key_id: 1, secret: [7; 16] };

    fn batch(items: v1::Items) -> Result<ItemBatch, String> {
        ItemBatch::from_proto(Some(items)).map_err(|error| error.to_string())
    }

    fn packed(data: &'static [u8], item_bytes: &[u32]) -> v1::Items {
        let data = Bytes::from_static(data);
        let packed = v1::PackedItems { data, item_bytes: item_bytes.to_vec() };
        v1::Items { packed: Some(packed), ..Default::default() }
    }

    fn hashed(batch: &ItemBatch, key: &HashKey) -> Vec<ItemHash> {
        let mut hashes = Vec::new();
        batch.hash(key, &mut hashes).unwrap();
        hashes
    }

    #[test]
    fn nothing_is_a_batch_of_nothing() {
        for empty in [v1::Items::default(), packed(b"", &[])] {
            let empty = batch(empty).unwrap();
            assert_eq!((empty.len(), hashed(&empty, &KEYED)), (0, vec![]));
        }
        assert!(ItemBatch::from_proto(None).is_err());
        let one = batch(packed(b"", &[0])).unwrap();
        assert_eq!(hashed(&one, &KEYED), [KEYED.hasher().hash(b"")]);
    }

    #[test]
    fn exactly_one_form_is_used() {
        let hashes = Bytes::from_static(&[0; 16]);
        let two = v1::Items { hashes: hashes.clone(), ..packed(b"a", &[1]) };
        assert_eq!(
            batch(two).unwrap_err(),
            "items.packed and items.hashes are set, expected one of them"
        );
        let items = vec![Bytes::new()];
        let three = v1::Items { hashes, items, ..packed(b"", &[]) };
        assert!(batch(three).unwrap_err().starts_with("items.items and items.packed and "));
    }

    #[test]
    fn lengths_must_add_up() {
        let sum = |error: &str| format!("items.packed.data has 3 bytes, expected {error}, the ");
        for (item_bytes, expected) in [(&[1, 1][..], "2"), (&[2, 2], "4"), (&[], "0")] {
            let error = batch(packed(b"abc", item_bytes)).unwrap_err();
            assert!(error.starts_with(&sum(expected)), "{error}");
        }
        // Lengths whose sum overflows 32 bits.
        let huge = batch(packed(b"abc", &[3, u32::MAX, 1])).unwrap_err();
        assert!(huge.starts_with("items.packed.item_bytes[1]: 4294967295 bytes"), "{huge}");
        let most = u32::try_from(ITEM_BYTES_MAX).unwrap();
        let many = batch(packed(b"", &vec![most; 1 << 16])).unwrap_err();
        assert!(many.contains("expected 1099511627776"), "{many}");
    }

    #[test]
    fn too_much_is_refused() {
        let items = vec![Bytes::new(); REQUEST_ITEMS_MAX + 1];
        let too_many = v1::Items { items, ..Default::default() };
        assert_eq!(
            batch(too_many).unwrap_err(),
            "items.items has 65537 items, at most 65536 are allowed"
        );
        let lengths = vec![0; REQUEST_ITEMS_MAX + 1];
        assert!(batch(packed(b"", &lengths)).is_err());
        let hashes = Bytes::from(vec![0; HASH_BYTES * (REQUEST_ITEMS_MAX + 1)]);
        assert!(batch(v1::Items { hashes, ..Default::default() }).is_err());
        let items = vec![Bytes::new(), Bytes::from(vec![0; ITEM_BYTES_MAX + 1])];
        let too_long = batch(v1::Items { items, ..Default::default() }).unwrap_err();
        assert!(too_long.starts_with("items.items[1]: 16777217 bytes"), "{too_long}");
    }

    #[test]
    fn hashes_are_for_public_filters() {
        let hash = ItemHasher::Xxh3 { seed: 5 }.hash(b"x");
        let mut bytes = hash.hi().to_le_bytes().to_vec();
        bytes.extend(hash.lo().to_le_bytes());
        let hashes = bytes.clone().into();
        let items = v1::Items { hashes, hash_seed: 5, ..Default::default() };
        let came = batch(items.clone()).unwrap();
        assert_eq!(hashed(&came, &PUBLIC), [hash]);
        let other = batch(v1::Items { hash_seed: 6, ..items }).unwrap();
        assert!(other.hash(&PUBLIC, &mut Vec::new()).is_err());
        let mut untouched = Vec::new();
        assert!(came.hash(&KEYED, &mut untouched).is_err());
        assert!(untouched.is_empty());
        bytes.pop();
        let cut = v1::Items { hashes: bytes.into(), ..Default::default() };
        assert_eq!(batch(cut).unwrap_err(), "items.hashes has 15 bytes, expected a multiple of 16");
    }

    proptest! {
        #[test]
        fn all_forms_hash_alike(items in vec(vec(any::<u8>(), 0..40), 0..30)) {
            let expected: Vec<_> = items.iter().map(|item| PUBLIC.hasher().hash(item)).collect();
            let separate = items.iter().map(|item| Bytes::from(item.clone())).collect();
            let separate = batch(v1::Items { items: separate, ..Default::default() }).unwrap();
            let item_bytes = items.iter().map(|item| u32::try_from(item.len()).unwrap()).collect();
            let data = items.concat().into();
            let packed = Some(v1::PackedItems { data, item_bytes });
            let packed = batch(v1::Items { packed, ..Default::default() }).unwrap();
            let words = expected.iter().flat_map(|hash| [hash.hi(), hash.lo()]);
            let hashes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            let hashes =
                v1::Items { hashes: hashes.into(), hash_seed: 5, ..Default::default() };
            let hashes = batch(hashes).unwrap();
            for form in [separate, packed, hashes] {
                prop_assert_eq!(form.len(), items.len());
                prop_assert_eq!(&hashed(&form, &PUBLIC), &expected);
            }
        }
    }
}
