//! Whose wall clocks are wrong, as far as the other nodes' clocks tell.

use crate::NodeId;

/// Most nodes whose clocks are listed, so that the text stays a line; more are counted.
const LISTED_MAX: usize = 8;

/// How far a node's clock may be from the middle one: of two that differ by a minute, as the alert `UmbelClocksDiffer`
/// has it, one at least is further away.
const OFF_MS_MAX: i64 = 30_000;

/// Names the nodes whose clocks are far from that of the node in the middle, and by how much; None if there are none.
/// Which clock is right, only an operator knows. A clock is given by the milliseconds by which it is ahead of any that
/// is the same for all.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::clocks::clocks_differ;
///
/// let clocks = |ahead_ms| [(NodeId(1), 0), (NodeId(2), ahead_ms), (NodeId(3), 5)];
/// assert_eq!(clocks_differ(clocks(30_000)), None);
/// let text = "node 2 is 40 s ahead of node 3: correct the wrong clock";
/// assert_eq!(clocks_differ(clocks(40_005)).as_deref(), Some(text));
/// ```
#[must_use]
pub fn clocks_differ(clocks: impl IntoIterator<Item = (NodeId, i64)>) -> Option<String> {
    let mut clocks: Vec<(i64, NodeId)> =
        clocks.into_iter().map(|(node, ahead_ms)| (ahead_ms, node)).collect();
    clocks.sort_unstable();
    let &(middle_ms, middle) = clocks.get(clocks.len().checked_sub(1)? / 2)?;
    let off = |&(ahead_ms, node): &(i64, NodeId)| {
        let off_ms = ahead_ms.saturating_sub(middle_ms);
        (off_ms.saturating_abs() > OFF_MS_MAX).then(|| {
            let side = if off_ms < 0 { "behind" } else { "ahead of" };
            format!("{node} is {} s {side} {middle}", off_ms.unsigned_abs() / 1000)
        })
    };
    let off: Vec<String> = clocks.iter().filter_map(off).collect();
    let more = match off.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let listed = off.get(..LISTED_MAX).unwrap_or(&off).join(", ");
    (!off.is_empty()).then(|| format!("{listed}{more}: correct the wrong clock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_whose_clocks_differ_are_named_with_the_seconds() {
        let said = |clocks: &[i64]| clocks_differ((1..).map(NodeId).zip(clocks.iter().copied()));
        for same in [&[][..], &[0], &[0, 30_000, -30_000]] {
            assert_eq!(said(same), None, "{same:?}");
        }
        let wanted = |text: &str| Some(format!("{text}: correct the wrong clock"));
        // The node that answers may be the one that is wrong.
        assert_eq!(said(&[0, 7_200_999, 7_200_000]), wanted("node 1 is 7200 s behind node 3"));
        assert_eq!(said(&[0, 31_000]), wanted("node 2 is 31 s ahead of node 1"));
        assert_eq!(
            said(&[-90_000, 0, i64::MAX]),
            wanted("node 1 is 90 s behind node 2, node 3 is 9223372036854775 s ahead of node 2")
        );
        let many: Vec<i64> = (0..21).map(|node| if node < 11 { 0 } else { 60_000 }).collect();
        let text = said(&many).unwrap();
        assert!(text.starts_with("node 12 is 60 s ahead of node 11, node 13 is"), "{text}");
        assert!(
            text.ends_with("node 19 is 60 s ahead of node 11, and 2 more: correct the wrong clock"),
            "{text}"
        );
    }
}
