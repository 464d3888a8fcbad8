//! Patterns of names: `*`, `?`, `[a-z]`, `[^a]`, and `\` to escape the next character.

/// Most steps of a comparison, each of which looks at a byte of the pattern: far more than names of 1,024 bytes need,
/// and few enough that neither many stars nor a long class can stall a node. A comparison that needs more is no
/// match.
const STEPS_MAX: usize = 1 << 18;

/// Whether a name matches a pattern.
///
/// ```
/// use umbel_resp::glob::matches;
/// assert!(matches(b"user:*", b"user:7") && matches(b"h[^a-d]?lo", b"hello"));
/// assert!(!matches(b"user:?", b"user:77") && !matches(b"a\\*", b"ab"));
/// ```
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    compare(pattern, name).0
}

/// Whether a name matches a pattern, and how many steps that took: at most some 2^18, of a nanosecond or two.
///
/// ```
/// use umbel_resp::glob::compare;
/// // The class is looked at for each byte.
/// assert_eq!(compare(b"[ab][ab]", b"ab"), (true, 2 * (1 + 3)));
/// ```
#[must_use]
pub fn compare(pattern: &[u8], name: &[u8]) -> (bool, usize) {
    let mut steps = 0;
    let is_match = is_match(pattern, name, &mut steps);
    (is_match, steps)
}

fn is_match(pattern: &[u8], name: &[u8], steps: &mut usize) -> bool {
    let (mut pattern_at, mut name_at) = (0, 0);
    // Where to continue if the part after the last star does not match.
    let mut retry: Option<(usize, usize)> = None;
    while *steps < STEPS_MAX {
        let (rest, left) = (
            pattern.get(pattern_at..).unwrap_or_default(),
            name.get(name_at..).unwrap_or_default(),
        );
        if let Some((b'*', _)) = rest.split_first() {
            *steps += 1;
            pattern_at += 1;
            retry = Some((pattern_at, name_at));
            continue;
        }
        let Some((&byte, _)) = left.split_first() else {
            return rest.is_empty();
        };
        *steps += 1;
        match one(rest, byte, steps) {
            Some(used) => {
                pattern_at += used;
                name_at += 1;
            }
            None => {
                let Some((after_star, tried)) = retry else { return false };
                (pattern_at, name_at) = (after_star, tried + 1);
                retry = Some((after_star, tried + 1));
            }
        }
    }
    false
}

/// How many bytes of the pattern match this byte; None if they do not match it. Counts the bytes of a class as steps.
fn one(pattern: &[u8], byte: u8, steps: &mut usize) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (is_in, used) = in_class(class, byte);
            *steps += used;
            is_in.then_some(used + 1)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// Whether a byte is in a class, and the length of the class with its closing bracket.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match class.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let range = *low.min(high)..=*low.max(high);
                is_in |= range.contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                is_in |= *plain == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_redis_means() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a**", "a", true),
            ("[abc]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a]", "a", false),
            ("[^a]", "b", true),
            ("\\[a]", "[a]", true),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("a?", "a", false),
            ("*?", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_and_long_classes_end() {
        let name = "a".repeat(1024);
        // Each star begins anew, so that only the last one is retried.
        let stars = "*a".repeat(400) + "b";
        assert_eq!(compare(stars.as_bytes(), name.as_bytes()), (false, 2 * name.len()));
        let class = format!("*[{}", "x".repeat(4090));
        let (is_match, steps) = compare(class.as_bytes(), name.as_bytes());
        assert!(!is_match && (STEPS_MAX..STEPS_MAX + class.len()).contains(&steps), "{steps}");
    }
}
