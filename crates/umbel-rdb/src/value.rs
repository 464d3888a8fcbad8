//! Types of values, and the items in them.

use std::io::Read;

use crate::container::Container;
use crate::error::{RdbCause, RdbError};
use crate::input::Input;
use crate::items::Items;
use crate::module::{ModuleId, skip_parts};
use crate::stream::{StreamForm, skip_stream};
use crate::string::{skip_string, string};

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A string.
    String,
    /// A list, whose values are its items.
    List,
    /// A set, whose members are its items.
    Set,
    /// A sorted set, whose members are its items.
    SortedSet,
    /// A hash, whose fields are its items.
    Hash,
    /// A stream.
    Stream,
    /// A value of a module.
    Module(ModuleId),
}

impl Value {
    /// The name of the type as `TYPE` returns it; for a module's value, the name of its type.
    ///
    /// ```
    /// assert_eq!(umbel_rdb::Value::SortedSet.type_name(), "zset");
    /// ```
    #[must_use]
    pub fn type_name(self) -> String {
        match self {
            Self::String => "string".to_owned(),
            Self::List => "list".to_owned(),
            Self::Set => "set".to_owned(),
            Self::SortedSet => "zset".to_owned(),
            Self::Hash => "hash".to_owned(),
            Self::Stream => "stream".to_owned(),
            Self::Module(id) => id.name(),
        }
    }
}

/// The encoding of a value, which its type byte determines (`src/rdb.h`, `RDB_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One string.
    String,
    /// A count, then that many items, each with further data as `behind` says.
    Items {
        behind: Behind,
    },
    /// A time, then a value in the other form.
    Timed(&'static Self),
    /// A container in one string, with `stride` values per item.
    Packed {
        container: Container,
        stride: usize,
    },
    /// A count, then that many ziplists, each in a string.
    Ziplists,
    /// A count, then that many nodes: 1 and a string, or 2 and a listpack.
    Nodes,
    Stream(StreamForm),
    Module(ModuleId),
}

/// The data that accompanies an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    Nothing,
    /// A score as digits, after a byte with their number; 253, 254 or 255 stand for NaN and the
    /// infinities, without digits.
    Digits,
    /// A score of 8 bytes.
    Double,
    /// A string.
    String,
    /// A length before the item, which is the remaining time, and a string after it.
    TimeAndString,
}

/// A node of a list that is a single value.
const NODE_PLAIN: u64 = 1;

/// A node of a list that is a listpack.
const NODE_PACKED: u64 = 2;

impl Form {
    /// The encoding for a type byte; None if it is unknown. Values of modules of type 6, from before
    /// Redis 4, cannot be skipped without knowing the module.
    pub(crate) const fn of(byte: u8) -> Option<(Self, Value)> {
        use Container::{Intset, Listpack, Ziplist, Zipmap};
        const TIMED_HASH: Form = Form::Items { behind: Behind::TimeAndString };
        const TIMED_LISTPACK: Form = packed(Listpack, 3);
        const fn items(behind: Behind) -> Form {
            Form::Items { behind }
        }
        const fn packed(container: Container, stride: usize) -> Form {
            Form::Packed { container, stride }
        }
        Some(match byte {
            0 => (Self::String, Value::String),
            1 => (items(Behind::Nothing), Value::List),
            2 => (items(Behind::Nothing), Value::Set),
            3 => (items(Behind::Digits), Value::SortedSet),
            4 => (items(Behind::String), Value::Hash),
            5 => (items(Behind::Double), Value::SortedSet),
            7 => (Self::Module(ModuleId(0)), Value::Module(ModuleId(0))),
            9 => (packed(Zipmap, 2), Value::Hash),
            10 => (packed(Ziplist, 1), Value::List),
            11 => (packed(Intset, 1), Value::Set),
            12 => (packed(Ziplist, 2), Value::SortedSet),
            13 => (packed(Ziplist, 2), Value::Hash),
            14 => (Self::Ziplists, Value::List),
            15 => (Self::Stream(StreamForm::First), Value::Stream),
            16 => (packed(Listpack, 2), Value::Hash),
            17 => (packed(Listpack, 2), Value::SortedSet),
            18 => (Self::Nodes, Value::List),
            19 => (Self::Stream(StreamForm::Second), Value::Stream),
            20 => (packed(Listpack, 1), Value::Set),
            21 => (Self::Stream(StreamForm::Third), Value::Stream),
            22 => (TIMED_HASH, Value::Hash),
            23 => (TIMED_LISTPACK, Value::Hash),
            24 => (Self::Timed(&TIMED_HASH), Value::Hash),
            25 => (Self::Timed(&TIMED_LISTPACK), Value::Hash),
            _ => return None,
        })
    }

    /// Skips a value.
    pub(crate) fn skip<R: Read>(self, input: &mut Input<R>) -> Result<(), RdbError> {
        match self {
            Self::String | Self::Packed { .. } => skip_string(input),
            Self::Items { behind } => {
                for _ in 0..input.length()? {
                    behind.skip_before(input)?;
                    skip_string(input)?;
                    behind.skip(input)?;
                }
                Ok(())
            }
            Self::Timed(form) => {
                input.skip(8)?;
                form.skip(input)
            }
            Self::Ziplists => {
                for _ in 0..input.length()? {
                    skip_string(input)?;
                }
                Ok(())
            }
            Self::Nodes => {
                for _ in 0..input.length()? {
                    input.length()?;
                    skip_string(input)?;
                }
                Ok(())
            }
            Self::Stream(form) => skip_stream(input, form),
            Self::Module(_) => skip_parts(input),
        }
    }

    /// Calls `visit` with each item of a list, set, sorted set or hash.
    pub(crate) fn visit<R: Read, E: From<RdbError>>(
        self,
        input: &mut Input<R>,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Items { behind } => {
                for _ in 0..input.length()? {
                    behind.skip_before(input)?;
                    visit(&string(input)?)?;
                    behind.skip(input)?;
                }
                Ok(())
            }
            Self::Timed(form) => {
                input.skip(8)?;
                form.visit(input, visit)
            }
            Self::Packed { container, stride } => read_container(container, stride, input, visit),
            Self::Ziplists => {
                for _ in 0..input.length()? {
                    read_container(Container::Ziplist, 1, input, visit)?;
                }
                Ok(())
            }
            Self::Nodes => {
                for _ in 0..input.length()? {
                    let offset = input.offset();
                    match input.length()? {
                        NODE_PLAIN => visit(&string(input)?)?,
                        NODE_PACKED => read_container(Container::Listpack, 1, input, visit)?,
                        _ => {
                            return Err(broken("list", "a node of no known kind")
                                .at(offset)
                                .into());
                        }
                    }
                }
                Ok(())
            }
            Self::String | Self::Stream(_) | Self::Module(_) => {
                Err(input.error(RdbCause::NoValue).into())
            }
        }
    }
}

fn read_container<R: Read, E: From<RdbError>>(
    container: Container,
    stride: usize,
    input: &mut Input<R>,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut items = Items::new(stride, visit);
    container.read(input, &mut items)?;
    if items.is_even() {
        Ok(())
    } else {
        Err(input.error(broken("hash or sorted set", "an item without a value")).into())
    }
}

const fn broken(container: &'static str, what: &'static str) -> RdbCause {
    RdbCause::Container { container, what }
}

impl Behind {
    fn skip_before<R: Read>(self, input: &mut Input<R>) -> Result<(), RdbError> {
        match self {
            Self::TimeAndString => input.length().map(drop),
            _ => Ok(()),
        }
    }

    fn skip<R: Read>(self, input: &mut Input<R>) -> Result<(), RdbError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Double => input.skip(8),
            Self::String | Self::TimeAndString => skip_string(input),
            Self::Digits => match input.byte()? {
                253.. => Ok(()),
                count => input.skip(u64::from(count)),
            },
        }
    }
}
