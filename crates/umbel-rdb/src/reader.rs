//! Reads files: keys in their order, each with its value.
//!
//! ```text
//! REDIS0011                                      version 11
//! fa, name, value                                about the server
//! fe, length                                     the number of the database of the next keys
//! fb, length, length                             how many keys it has, and how many that expire
//! fc, 8 bytes   fd, 4 bytes                      when the next key expires, in milliseconds or seconds since 1970
//! f8, length    f9, 1 byte                       how long nobody has used the next key; how often it is
//! f5, string                                     functions
//! f7, id, parts, 0                               of a module, beside its values
//! f4, 3 lengths                                  about a slot of a cluster
//! type, name, value                              a key
//! ff, 8 bytes                                    the end, and a checksum (version 5 and newer); 0: nobody computed it
//! ```
//!
//! Source: `src/rdb.c` (`rdbLoadRioWithLoadingCtx`) and `src/rdb.h` of Redis 7.4.

use std::io::Read;

use crate::error::{RdbCause, RdbError};
use crate::input::Input;
use crate::limits::{VERSION_MAX, VERSION_MIN};
use crate::module::{ModuleId, ModuleReader, skip_parts};
use crate::string::{skip_string, string};
use crate::value::{Form, Value};

/// The first bytes of a file.
const MAGIC: &[u8; 5] = b"REDIS";

/// The first version with a checksum at the end.
const CHECKSUM_VERSION: u32 = 5;

// Opcodes, which stand in the place of a type.
const OPCODE_SLOT: u8 = 0xf4;
const OPCODE_FUNCTIONS: u8 = 0xf5;
const OPCODE_MODULE: u8 = 0xf7;
const OPCODE_IDLE: u8 = 0xf8;
const OPCODE_FREQUENCY: u8 = 0xf9;
const OPCODE_ABOUT: u8 = 0xfa;
const OPCODE_SIZES: u8 = 0xfb;
const OPCODE_EXPIRES_MS: u8 = 0xfc;
const OPCODE_EXPIRES_S: u8 = 0xfd;
const OPCODE_DATABASE: u8 = 0xfe;
const OPCODE_END: u8 = 0xff;

/// A key of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The number of its database.
    pub database: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// The type of its value.
    pub value: Value,
    /// When it expires, in milliseconds since the Unix epoch; None if it does not.
    pub expires_at_ms: Option<i64>,
}

/// Reads a file once, front to back.
///
/// ```
/// use umbel_rdb::{RdbReader, Value};
///
/// // SELECT 0, then a set of the numbers 1 and 2, without a checksum.
/// let file = b"REDIS0010\xfe\x00\x0b\x04seen\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0\xff\0\0\0\0\0\0\0\0";
/// let mut reader = RdbReader::new(&file[..])?;
/// let key = reader.next_key()?.expect("a key");
/// assert_eq!((&key.name[..], key.value), (&b"seen"[..], Value::Set));
/// let mut items = Vec::new();
/// reader.read_items(|item| {
///     items.push(item.to_vec());
///     Ok::<(), umbel_rdb::RdbError>(())
/// })?;
/// assert_eq!(items, [b"1", b"2"]);
/// assert_eq!(reader.next_key()?, None);
/// # Ok::<(), umbel_rdb::RdbError>(())
/// ```
pub struct RdbReader<R> {
    input: Input<R>,
    version: u32,
    database: u64,
    state: State,
}

/// The position of the reader.
#[derive(Clone, Copy)]
enum State {
    Between,
    /// Before a value.
    Value(Form),
    Ended,
    /// After an error: the meaning of the next byte is unknown.
    Lost,
}

impl<R: Read> RdbReader<R> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// If the input cannot be read, is no file of Redis, or has an unsupported version.
    pub fn new(from: R) -> Result<Self, RdbError> {
        let mut input = Input::new(from);
        let mut magic = [0; 5];
        let begun = input.fill(&mut magic).map_err(|error| match error.cause {
            RdbCause::EndsEarly => RdbCause::Magic.at(0),
            _ => error,
        });
        begun?;
        if magic != *MAGIC {
            return Err(RdbCause::Magic.at(0));
        }
        let digits: [u8; 4] = input.array()?;
        let mut version = 0;
        for digit in digits {
            let digit = char::from(digit).to_digit(10).ok_or_else(|| RdbCause::Magic.at(0))?;
            version = version * 10 + digit;
        }
        if !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            return Err(RdbCause::Version(version).at(0));
        }
        Ok(Self { input, version, database: 0, state: State::Between })
    }

    /// Number of bytes read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next key; None at the end, after the checksum was verified. A value that was not read is
    /// skipped.
    ///
    /// # Errors
    /// If the file cannot be read, is truncated or damaged; always, after an error.
    pub fn next_key(&mut self) -> Result<Option<Key>, RdbError> {
        let state = std::mem::replace(&mut self.state, State::Lost);
        match state {
            State::Between => {}
            State::Value(form) => form.skip(&mut self.input)?,
            State::Ended => {
                self.state = State::Ended;
                return Ok(None);
            }
            State::Lost => return Err(self.input.error(RdbCause::NoValue)),
        }
        let key = self.key()?;
        match &key {
            Some((_, form)) => self.state = State::Value(*form),
            None => self.state = State::Ended,
        }
        Ok(key.map(|(key, _)| key))
    }

    /// Passes the items of the current key's value to `visit`: members, fields, or values of a list. An
    /// error of `visit` ends the reading, and the reader cannot be used any more.
    ///
    /// # Errors
    /// As for [`next_key`](Self::next_key); the error of `visit`; if the value has no items or was read
    /// already.
    pub fn read_items<E: From<RdbError>>(
        &mut self,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let State::Value(form) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(self.input.error(RdbCause::NoValue).into());
        };
        form.visit(&mut self.input, &mut visit)?;
        self.state = State::Between;
        Ok(())
    }

    /// Reads the current key's value, which must be a module's. `read` gets its id and must read all
    /// parts. An error of `read` ends the reading, and the reader cannot be used any more.
    ///
    /// # Errors
    /// As for [`next_key`](Self::next_key); the error of `read`; if the value is no module's, or was read
    /// already.
    pub fn read_module<T, E: From<RdbError>>(
        &mut self,
        read: impl FnOnce(ModuleId, &mut ModuleReader<'_, R>) -> Result<T, E>,
    ) -> Result<T, E> {
        let State::Value(Form::Module(id)) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(self.input.error(RdbCause::NoValue).into());
        };
        let mut module = ModuleReader::new(&mut self.input);
        let value = read(id, &mut module)?;
        module.end()?;
        self.state = State::Between;
        Ok(value)
    }

    /// The next key, with the form of its value; None at the end.
    fn key(&mut self) -> Result<Option<(Key, Form)>, RdbError> {
        let input = &mut self.input;
        let mut expires_at_ms = None;
        loop {
            let offset = input.offset();
            match input.byte()? {
                OPCODE_SLOT => {
                    for _ in 0..3 {
                        input.length()?;
                    }
                }
                OPCODE_FUNCTIONS => skip_string(input)?,
                OPCODE_MODULE => {
                    input.length()?;
                    skip_parts(input)?;
                }
                OPCODE_IDLE => input.length().map(drop)?,
                OPCODE_FREQUENCY => input.skip(1)?,
                OPCODE_ABOUT => {
                    skip_string(input)?;
                    skip_string(input)?;
                }
                OPCODE_SIZES => {
                    input.length()?;
                    input.length()?;
                }
                OPCODE_EXPIRES_MS => expires_at_ms = Some(i64::from_le_bytes(input.array()?)),
                OPCODE_EXPIRES_S => {
                    let seconds = i32::from_le_bytes(input.array()?);
                    expires_at_ms = Some(i64::from(seconds) * 1000);
                }
                OPCODE_DATABASE => self.database = input.length()?,
                OPCODE_END => return self.end().map(|()| None),
                byte => {
                    let (mut form, mut value) =
                        Form::of(byte).ok_or_else(|| RdbCause::Opcode(byte).at(offset))?;
                    let name = string(input)?;
                    if let Form::Module(id) = &mut form {
                        *id = ModuleId(input.length()?);
                        value = Value::Module(*id);
                    }
                    let database = self.database;
                    return Ok(Some((Key { database, name, value, expires_at_ms }, form)));
                }
            }
        }
    }

    /// Reads what follows the end's opcode: the checksum, if the version has one.
    fn end(&mut self) -> Result<(), RdbError> {
        if self.version < CHECKSUM_VERSION {
            return Ok(());
        }
        let (offset, computed) = (self.input.offset(), self.input.checksum());
        let stored = u64::from_le_bytes(self.input.array()?);
        match stored {
            0 => Ok(()),
            stored if stored == computed => Ok(()),
            stored => Err(RdbCause::Checksum { stored, computed }.at(offset)),
        }
    }
}
