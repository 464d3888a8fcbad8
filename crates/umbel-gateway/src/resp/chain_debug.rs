//! `BF.DEBUG`: what RedisBloom reports about each link of its filter.
//!
//! All of it follows from the filter's shape and its number of new items, so no shard is asked about its links.

use umbel_filter::{RedisBloomHeader, RedisBloomStoredLink};
use umbel_resp::number::general;
use umbel_resp::{Refusal, Reply};

use super::filters::{chain_header, described};
use super::session::Session;

/// Bits of each of the two hashes of an item: links with 32 bits belong to older filters, which are refused.
const HASH_BITS: u32 = 64;

pub(super) async fn answer(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let info = described(session, key).await?.ok_or(Refusal::NotFound)?;
    let header = chain_header(&info).ok_or(Refusal::WrongType)?;
    Ok(Reply::Array(lines(&header).map(Reply::bulk).collect()))
}

/// A line about the filter, then one about each link.
fn lines(header: &RedisBloomHeader) -> impl Iterator<Item = String> + '_ {
    let size = format!("size:{}", header.item_count());
    let links = (0..header.links().len()).filter_map(|at| header.stored_link(at));
    std::iter::once(size).chain(links.map(|link| line(&link)))
}

fn line(link: &RedisBloomStoredLink) -> String {
    let RedisBloomStoredLink { byte_count, bit_count, item_count, probe_count, capacity, .. } =
        link;
    let ratio = general(link.rate);
    format!(
        "bytes:{byte_count} bits:{bit_count} hashes:{probe_count} hashwidth:{HASH_BITS} capacity:{capacity} size:{item_count} ratio:{ratio}"
    )
}

#[cfg(test)]
mod tests {
    use umbel_filter::RedisBloomShape;

    use super::*;

    fn shown_rows(capacity: u64, rate: f64, item_count: u64) -> Vec<String> {
        let shape = RedisBloomShape::for_rate(capacity, rate).unwrap();
        lines(&RedisBloomHeader::new(shape, item_count).unwrap()).collect()
    }

    /// The output of RedisBloom after `BF.RESERVE k 0.001 100` and `BF.ADD k 0` to `BF.ADD k 3999`.
    #[test]
    fn lines_are_those_of_redis_bloom() {
        let expected = [
            "size:3997",
            "bytes:200 bits:1600 hashes:11 hashwidth:64 capacity:100 size:100 ratio:0.0005",
            "bytes:432 bits:3456 hashes:12 hashwidth:64 capacity:200 size:200 ratio:0.00025",
            "bytes:936 bits:7488 hashes:13 hashwidth:64 capacity:400 size:400 ratio:0.000125",
            "bytes:2016 bits:16128 hashes:14 hashwidth:64 capacity:800 size:800 ratio:6.25e-05",
            "bytes:4320 bits:34560 hashes:15 hashwidth:64 capacity:1600 size:1600 ratio:3.125e-05",
            "bytes:9216 bits:73728 hashes:16 hashwidth:64 capacity:3200 size:897 ratio:1.5625e-05",
        ];
        assert_eq!(shown_rows(100, 0.001, 3_997), expected);
    }

    #[test]
    fn an_empty_filter_has_a_link() {
        let link = "bytes:144 bits:1152 hashes:8 hashwidth:64 capacity:100 size:0 ratio:0.005";
        assert_eq!(shown_rows(100, 0.01, 0), ["size:0", link]);
    }
}
