//! The meaning of a column's values, and names for it in messages about columns that differ.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::schema::types::ColumnDescriptor;

/// Meaning of a column's values. Two columns are comparable if they have the same [`kind`](Self::kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Truth,
    Integer {
        is_signed: bool,
    },
    Float,
    Half,
    Bytes,
    Uuid,
    /// The stored value is the value times 10^scale.
    Decimal {
        scale: i32,
    },
    Day,
    Clock {
        unit_nanos: i64,
        is_utc: bool,
    },
    Moment {
        unit_nanos: i64,
        is_utc: bool,
    },
}

impl Form {
    /// The meaning of a column.
    pub(super) fn of(column: &ColumnDescriptor) -> Self {
        let physical = column.physical_type();
        let by_logical = column.logical_type_ref().and_then(|kind| logical(kind, physical));
        by_logical.or_else(|| converted(column)).unwrap_or(match physical {
            Type::BOOLEAN => Self::Truth,
            Type::INT32 | Type::INT64 => Self::Integer { is_signed: true },
            Type::INT96 => Self::Moment { unit_nanos: 1, is_utc: true },
            Type::FLOAT | Type::DOUBLE => Self::Float,
            Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => Self::Bytes,
        })
    }

    /// Name of the kind of values: values of the same kind are equal if their items are.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Truth => "boolean",
            Self::Integer { .. } => "integer",
            Self::Float | Self::Half => "float",
            Self::Bytes => "string or bytes",
            Self::Uuid => "uuid",
            Self::Decimal { .. } => "decimal",
            Self::Day => "date",
            Self::Clock { is_utc: true, .. } => "time (UTC)",
            Self::Clock { is_utc: false, .. } => "time",
            Self::Moment { is_utc: true, .. } => "timestamp (UTC)",
            Self::Moment { is_utc: false, .. } => "timestamp",
        }
    }

    /// Name of what the values measure, when the best of equal rows is chosen by them: values of the
    /// same measure are comparable, whatever their width or unit. `None` if the values cannot be
    /// ordered.
    pub(super) fn measure(self) -> Option<&'static str> {
        match self {
            Self::Truth | Self::Bytes | Self::Uuid => None,
            Self::Integer { .. } | Self::Float | Self::Half | Self::Decimal { .. } => {
                Some("number")
            }
            Self::Day | Self::Clock { .. } | Self::Moment { .. } => Some(self.kind()),
        }
    }
}

/// Whether the values of a column are free text, from which pieces may be removed; JSON, for example,
/// is not.
pub(super) fn is_text(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Type::BYTE_ARRAY
        && match column.logical_type_ref() {
            Some(kind) => matches!(kind, LogicalType::String),
            None => matches!(column.converted_type(), ConvertedType::NONE | ConvertedType::UTF8),
        }
}

/// The form of a logical type, if it matches the physical type.
fn logical(kind: &LogicalType, physical: Type) -> Option<Form> {
    let is_integer = matches!(physical, Type::INT32 | Type::INT64);
    match kind {
        LogicalType::Integer(kind) if is_integer => {
            Some(Form::Integer { is_signed: kind.is_signed })
        }
        LogicalType::Decimal(kind)
            if !matches!(physical, Type::BOOLEAN | Type::INT96 | Type::FLOAT | Type::DOUBLE) =>
        {
            Some(Form::Decimal { scale: kind.scale })
        }
        LogicalType::Date if physical == Type::INT32 => Some(Form::Day),
        LogicalType::Time(kind) if is_integer => {
            Some(Form::Clock { unit_nanos: nanos(kind.unit), is_utc: kind.is_adjusted_to_u_t_c })
        }
        LogicalType::Timestamp(kind) if physical == Type::INT64 => {
            Some(Form::Moment { unit_nanos: nanos(kind.unit), is_utc: kind.is_adjusted_to_u_t_c })
        }
        LogicalType::Uuid if physical == Type::FIXED_LEN_BYTE_ARRAY => Some(Form::Uuid),
        LogicalType::Float16 if physical == Type::FIXED_LEN_BYTE_ARRAY => Some(Form::Half),
        _ => None,
    }
}

/// The form of a converted type, the annotation of the format's first version.
fn converted(column: &ColumnDescriptor) -> Option<Form> {
    const MILLI: i64 = 1_000_000;
    const MICRO: i64 = 1000;
    let physical = column.physical_type();
    match (column.converted_type(), physical) {
        (
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64,
            Type::INT32 | Type::INT64,
        ) => Some(Form::Integer { is_signed: false }),
        (
            ConvertedType::DECIMAL,
            Type::INT32 | Type::INT64 | Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY,
        ) => Some(Form::Decimal { scale: column.type_scale() }),
        (ConvertedType::DATE, Type::INT32) => Some(Form::Day),
        (ConvertedType::TIME_MILLIS, Type::INT32) => {
            Some(Form::Clock { unit_nanos: MILLI, is_utc: true })
        }
        (ConvertedType::TIME_MICROS, Type::INT64) => {
            Some(Form::Clock { unit_nanos: MICRO, is_utc: true })
        }
        (ConvertedType::TIMESTAMP_MILLIS, Type::INT64) => {
            Some(Form::Moment { unit_nanos: MILLI, is_utc: true })
        }
        (ConvertedType::TIMESTAMP_MICROS, Type::INT64) => {
            Some(Form::Moment { unit_nanos: MICRO, is_utc: true })
        }
        _ => None,
    }
}

fn nanos(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1000,
        TimeUnit::NANOS => 1,
    }
}
