//! Limits the memory that a decoded value takes.
//!
//! An element of a list may take far more memory than bytes: an enum is as large as its largest variant, and
//! encoded as its smallest. So a deserializer is wrapped in one that counts the size of each element of a list or
//! map before it is decoded, and fails when there are too many. Fields are parts of their elements. Strings and
//! lists of bytes have the size of their bytes, so they need no count.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Memory that the elements of a value may take.
pub(super) struct Memory {
    bytes_max: usize,
    left: Cell<usize>,
}

impl Memory {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, left: Cell::new(bytes_max) }
    }

    /// The seed of a value whose elements are counted.
    pub(super) const fn seed<T>(&self) -> Metered<'_, PhantomData<T>> {
        self.meter(PhantomData)
    }

    const fn meter<I>(&self, inner: I) -> Metered<'_, I> {
        Metered { inner, memory: self, counts: false }
    }

    /// Counts an element. One without a size counts as a byte: it may have no bytes in the encoding either, and
    /// any number of them could be announced.
    fn count<T, E: Error>(&self) -> Result<(), E> {
        let left = self.left.get().checked_sub(size_of::<T>().max(1));
        self.left.set(left.ok_or_else(|| {
            let bytes_max = self.bytes_max;
            E::custom(format_args!("its lists and maps take more than {bytes_max} bytes of memory"))
        })?);
        Ok(())
    }
}

/// A part of a deserializer, or of what is deserialized, whose elements are counted.
pub(super) struct Metered<'m, I> {
    inner: I,
    memory: &'m Memory,
    /// Of a visitor or a sequence: whether its elements lie in memory of their own, as those of lists do and
    /// those of tuples do not.
    counts: bool,
}

impl<'m, I> Metered<'m, I> {
    /// The same meter around something else.
    const fn around<J>(&self, inner: J) -> Metered<'m, J> {
        Metered { inner, memory: self.memory, counts: self.counts }
    }

    const fn counting<J>(&self, inner: J) -> Metered<'m, J> {
        Metered { inner, memory: self.memory, counts: true }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Metered<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(self.memory.meter(deserializer))
    }
}

/// Values without elements.
macro_rules! without_elements {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

/// Values in which there may be elements: those of lists and maps are counted.
macro_rules! with_elements {
    ($($meter:ident $method:ident($($name:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.$meter(visitor);
            self.inner.$method($($name,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Metered<'_, D> {
    type Error = D::Error;

    without_elements! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
        deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    with_elements! {
        around deserialize_option();
        around deserialize_newtype_struct(name: &'static str);
        counting deserialize_seq();
        counting deserialize_map();
        around deserialize_tuple(len: usize);
        around deserialize_tuple_struct(name: &'static str, len: usize);
        around deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        around deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Passes on what a deserializer finds where there may be elements.
impl<'de, V: Visitor<'de>> Visitor<'de> for Metered<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(self.memory.meter(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(self.memory.meter(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = self.around(elements);
        self.inner.visit_seq(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.around(entries);
        self.inner.visit_map(entries)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(self.memory.meter(variant))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        // Nothing comes after the last one, though it is asked for.
        if self.counts && self.inner.size_hint() != Some(0) {
            self.memory.count::<S::Value, A::Error>()?;
        }
        self.inner.next_element_seed(self.memory.meter(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if self.counts && self.inner.size_hint() != Some(0) {
            self.memory.count::<S::Value, A::Error>()?;
        }
        self.inner.next_key_seed(self.memory.meter(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.counts {
            self.memory.count::<S::Value, A::Error>()?;
        }
        self.inner.next_value_seed(self.memory.meter(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'm, A: EnumAccess<'de>> EnumAccess<'de> for Metered<'m, A> {
    type Error = A::Error;
    type Variant = Metered<'m, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let memory = self.memory;
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, memory.meter(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(self.memory.meter(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.around(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.around(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Serialize};

    use super::super::{DecodeError, MEMORY_BYTES_FREE, MEMORY_BYTES_PER_BYTE, decode, encode};

    /// As large as its largest variant, and encoded in four bytes as its smallest.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum Uneven {
        Nothing,
        Much([u64; 16]),
        Named { list: Vec<Uneven>, map: BTreeMap<u8, Option<Uneven>> },
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Wrapped(Vec<Uneven>);

    #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
    struct Unit;

    /// So many elements fit into what any value may take.
    const FREE: usize = MEMORY_BYTES_FREE / size_of::<Uneven>();

    #[track_caller]
    fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(bytes: &[u8]) {
        match decode::<T>(bytes) {
            Err(DecodeError::Invalid(why)) => assert!(why.contains("bytes of memory"), "{why}"),
            other => panic!("{} bytes were decoded: {other:.40?}", bytes.len()),
        }
    }

    #[test]
    fn small_elements_of_large_types_are_limited() {
        let few = vec![Uneven::Nothing; FREE];
        assert_eq!(decode::<Vec<Uneven>>(&encode(&few)).unwrap(), few);
        let many = encode(&vec![Uneven::Nothing; 1_000_000]);
        assert_eq!(many.len(), 1 + 8 + 4_000_000);
        refused::<Vec<Uneven>>(&many);
        refused::<Box<[Uneven]>>(&many);
        // Wherever the list is.
        refused::<Wrapped>(&many);
        refused::<(u8, Option<Wrapped>)>(&encode(&(
            1_u8,
            Some(Wrapped(vec![Uneven::Nothing; 100 * FREE])),
        )));
        let lists = vec![few; 100];
        refused::<Vec<Vec<Uneven>>>(&encode(&lists));
        refused::<BTreeMap<u64, Vec<Uneven>>>(&encode(
            &(0_u64..).zip(lists).collect::<BTreeMap<_, _>>(),
        ));
        let list = vec![Uneven::Nothing; 1_000_000];
        refused::<Uneven>(&encode(&Uneven::Named { list, map: BTreeMap::new() }));
        let map = (0..=u8::MAX).map(|key| (key, None)).collect();
        let named = Uneven::Named { list: Vec::new(), map };
        refused::<Vec<Uneven>>(&encode(&vec![named; 100]));
        // An entry of a map costs its key and its value.
        let empty: BTreeMap<u32, Option<Uneven>> = (0..100_000).map(|key| (key, None)).collect();
        refused::<BTreeMap<u32, Option<Uneven>>>(&encode(&empty));
    }

    /// Such a list is eight bytes long, whatever its length.
    #[test]
    fn elements_without_bytes_end() {
        let announced = |count: u64| [&[1][..], &count.to_le_bytes()].concat();
        refused::<Vec<Unit>>(&announced(u64::MAX));
        refused::<Vec<()>>(&announced(1 << 40));
        refused::<BTreeSet<()>>(&announced(1 << 40));
        refused::<BTreeMap<(), ()>>(&announced(1 << 40));
        assert_eq!(decode::<Vec<Unit>>(&announced(1000)).unwrap(), [Unit; 1000]);
    }

    /// The more bytes a value has, the more it may take; bytes, numbers and texts of any number pass.
    #[test]
    fn what_has_bytes_is_not_limited() {
        type Pair = ([u64; 30], (u64, [u64; 30]));
        let numbers: Vec<u64> = (0..300_000).collect();
        assert_eq!(decode::<Vec<u64>>(&encode(&numbers)).unwrap(), numbers);
        let bytes = vec![7_u8; 3 * MEMORY_BYTES_FREE];
        assert_eq!(decode::<Vec<u8>>(&encode(&bytes)).unwrap(), bytes);
        // As some lists of what nodes send: a list of lists, of which each is empty.
        let lists: Vec<Vec<u64>> = vec![Vec::new(); 100_000];
        const { assert!(size_of::<Vec<u64>>() < MEMORY_BYTES_PER_BYTE * size_of::<u64>()) };
        assert_eq!(decode::<Vec<Vec<u64>>>(&encode(&lists)).unwrap(), lists);
        let texts = vec![String::new(); 100_000];
        assert_eq!(decode::<Vec<String>>(&encode(&texts)).unwrap(), texts);
        let much = vec![Uneven::Much([3; 16]); 10_000];
        assert_eq!(decode::<Vec<Uneven>>(&encode(&much)).unwrap(), much);
        let map: BTreeMap<u64, Vec<u64>> = (0..50_000).map(|key| (key, vec![key])).collect();
        assert_eq!(decode::<BTreeMap<u64, Vec<u64>>>(&encode(&map)).unwrap(), map);
        // Fields and arrays are parts of their element: they are counted once.
        let arrays = vec![([1_u64; 30], (2_u64, [3_u64; 30])); 10_000];
        let decoded: Vec<Pair> = decode(&encode(&arrays)).unwrap();
        assert_eq!(decoded, arrays);
    }

    #[test]
    fn every_kind_of_value_passes() {
        let value = (
            (true, -1_i8, -2_i16, -3_i32, -4_i64, -5_i128, 1_u8, 2_u16, 3_u32, 4_u64, 5_u128),
            (1.5_f32, 2.5_f64, 'x', "text".to_owned(), bytes::Bytes::from_static(b"bytes")),
            (Unit, (), Some(Wrapped(vec![Uneven::Nothing])), None::<u8>, Box::new([1_u16, 2])),
            Uneven::Named {
                list: vec![Uneven::Much([1; 16])],
                map: BTreeMap::from([(1, None), (2, Some(Uneven::Nothing))]),
            },
        );
        let bytes = encode(&value);
        let mut decoded = value.clone();
        decoded.1.3.clear();
        assert_ne!(decoded, value);
        decoded = decode(&bytes).unwrap();
        assert_eq!(decoded, value);
        for length in 0..bytes.len() {
            assert!(decode_like(&bytes[..length], &value).is_err(), "{length} bytes");
        }
    }

    /// Decodes a value of the type of another one.
    fn decode_like<T: serde::de::DeserializeOwned>(bytes: &[u8], _: &T) -> Result<T, DecodeError> {
        decode(bytes)
    }
}
