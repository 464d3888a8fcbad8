//! Converts between kinds of filters and their values in messages.

use umbel_proto::v1::Kind;

/// The value of a kind in messages.
///
/// ```
/// assert_eq!(umbel_client::kind_in_messages("counting".parse()?), umbel_client::Kind::Counting);
/// # Ok::<(), umbel_filter::UnknownKind>(())
/// ```
#[must_use]
pub const fn kind_in_messages(kind: umbel_filter::Kind) -> Kind {
    use umbel_filter::Kind as FilterKind;
    match kind {
        FilterKind::SingleShot => Kind::SingleShot,
        FilterKind::Blocked => Kind::Blocked,
        FilterKind::Classic => Kind::Classic,
        FilterKind::Partitioned => Kind::Partitioned,
        FilterKind::Counting => Kind::Counting,
        FilterKind::Scalable => Kind::Scalable,
        FilterKind::Window => Kind::Window,
        FilterKind::Aging => Kind::Aging,
        FilterKind::Stable => Kind::Stable,
        FilterKind::Cuckoo => Kind::Cuckoo,
        FilterKind::Quotient => Kind::Quotient,
        FilterKind::RedisBloom => Kind::Redisbloom,
    }
}

/// The name of a kind in a message; None if it is unspecified or unknown to this release.
///
/// ```
/// assert_eq!(umbel_client::kind_name(umbel_client::Kind::SingleShot), Some("single-shot"));
/// ```
#[must_use]
pub fn kind_name(kind: Kind) -> Option<&'static str> {
    let is_it = |known: &umbel_filter::Kind| kind_in_messages(*known) == kind;
    umbel_filter::Kind::ALL.into_iter().find(is_it).map(umbel_filter::Kind::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_messages_but_none_has_a_name() {
        for kind in umbel_filter::Kind::ALL {
            assert_eq!(kind_name(kind_in_messages(kind)), Some(kind.name()));
        }
        let numbers = (1..).map_while(|number| Kind::try_from(number).ok());
        assert!(numbers.map(kind_name).all(|name| name.is_some()));
        assert_eq!(kind_name(Kind::Unspecified), None);
    }
}
