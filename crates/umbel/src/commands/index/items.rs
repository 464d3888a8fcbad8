//! Splits files into items: lines, words, trigrams or k-mers.

use std::fmt;
use std::str::FromStr;
use umbel_records::item_before;

/// Longest k-mer: 64 bits with two bits per base.
const KMER_LENGTH_MAX: u8 = 32;

/// Characters in a trigram.
const TRIGRAM_CHARS: usize = 3;

/// Lines in a FASTQ record: name, bases, `+`, qualities.
const FASTQ_LINES: u8 = 4;

/// The rule that determines the items of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ItemRule {
    /// A line, without its end.
    Lines,
    /// A run of letters and digits, in lower case.
    Words,
    /// Three consecutive characters of a line, in lower case.
    Trigrams,
    /// This number of consecutive bases, or their reverse complement.
    Kmers(u8),
}

impl ItemRule {
    /// The default false-positive rate. It is higher where queries have many items, since they need only
    /// a share of them.
    pub(super) const fn default_rate(self) -> f64 {
        match self {
            Self::Lines | Self::Words => 0.01,
            Self::Trigrams | Self::Kmers(_) => 0.3,
        }
    }
}

impl FromStr for ItemRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kmers = || {
            let length: u8 = text.strip_prefix("kmers:")?.parse().ok()?;
            (1..=KMER_LENGTH_MAX).contains(&length).then_some(Self::Kmers(length))
        };
        let rule = match text {
            "lines" => Some(Self::Lines),
            "words" => Some(Self::Words),
            "trigrams" => Some(Self::Trigrams),
            _ => kmers(),
        };
        rule.ok_or_else(|| {
            format!("expected lines, words, trigrams or kmers:K with K from 1 to {KMER_LENGTH_MAX}")
        })
    }
}

impl fmt::Display for ItemRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines => f.write_str("lines"),
            Self::Words => f.write_str("words"),
            Self::Trigrams => f.write_str("trigrams"),
            Self::Kmers(length) => write!(f, "kmers:{length}"),
        }
    }
}

/// Splits the lines of a file, or an argument, into items.
pub(super) struct ItemCutter {
    rule: ItemRule,
    bases: Bases,
}

/// The state between two lines of a sequence of bases.
#[derive(Default)]
struct Bases {
    /// The last bases with two bits each, and their reverse complement.
    forward: u64,
    reverse: u64,
    /// The number of consecutive bases so far.
    count: u32,
    /// For FASTQ, the number of the last line within its record; 0 before the first.
    fastq_line: Option<u8>,
    has_begun: bool,
}

impl ItemCutter {
    /// At the beginning of a file.
    pub(super) fn new(rule: ItemRule) -> Self {
        Self { rule, bases: Bases::default() }
    }

    /// Calls `take` with each item of the next line.
    pub(super) fn cut(&mut self, line: &[u8], take: &mut dyn FnMut(&[u8])) {
        let line = item_before(line, b'\n');
        match self.rule {
            ItemRule::Lines => take(line),
            ItemRule::Words => {
                let line = String::from_utf8_lossy(line).to_lowercase();
                let words = line.split(|c: char| !c.is_alphanumeric());
                words.filter(|word| !word.is_empty()).for_each(|word| take(word.as_bytes()));
            }
            ItemRule::Trigrams => {
                let line = String::from_utf8_lossy(line.trim_ascii_end()).to_lowercase();
                let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
                let ends: Vec<usize> = ends.collect();
                for window in ends.windows(TRIGRAM_CHARS + 1) {
                    take(&line.as_bytes()[window[0]..window[TRIGRAM_CHARS]]);
                }
            }
            ItemRule::Kmers(length) => self.bases.cut(line, length, take),
        }
    }
}

impl Bases {
    /// Splits a line of FASTA, of FASTQ if the file begins with `@`, or of bases only.
    fn cut(&mut self, line: &[u8], length: u8, take: &mut dyn FnMut(&[u8])) {
        if !self.has_begun && line.first() == Some(&b'@') {
            self.fastq_line = Some(0);
        }
        self.has_begun = true;
        let has_bases = match &mut self.fastq_line {
            Some(number) => {
                *number = *number % FASTQ_LINES + 1;
                *number == 2
            }
            None => !matches!(line.first(), Some(b'>' | b';')),
        };
        if !has_bases {
            self.count = 0;
            return;
        }
        let length = u32::from(length);
        let mask = u64::MAX >> (64 - 2 * length);
        for letter in line {
            let base = match letter.to_ascii_uppercase() {
                b'A' => 0u64,
                b'C' => 1,
                b'G' => 2,
                b'T' | b'U' => 3,
                b'\r' | b' ' => continue,
                _ => {
                    self.count = 0;
                    continue;
                }
            };
            self.forward = (self.forward << 2 | base) & mask;
            self.reverse = self.reverse >> 2 | (3 - base) << (2 * (length - 1));
            self.count = self.count.saturating_add(1);
            if self.count >= length {
                take(&self.forward.min(self.reverse).to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(rule: ItemRule, lines: &[&str]) -> Vec<Vec<u8>> {
        let (mut cutter, mut items) = (ItemCutter::new(rule), Vec::new());
        lines.iter().for_each(|line| {
            cutter.cut(line.as_bytes(), &mut |item| items.push(item.to_vec()));
        });
        items
    }

    fn texts(rule: ItemRule, line: &str) -> Vec<String> {
        items(rule, &[line]).into_iter().map(|item| String::from_utf8(item).unwrap()).collect()
    }

    #[test]
    fn rules_are_read_back() {
        for rule in ["lines", "words", "trigrams", "kmers:1", "kmers:32"] {
            assert_eq!(rule.parse::<ItemRule>().unwrap().to_string(), rule);
        }
        for wrong in ["", "line", "kmers", "kmers:", "kmers:0", "kmers:33", "kmers:-1", "kmers:300"]
        {
            assert!(wrong.parse::<ItemRule>().unwrap_err().contains("kmers:K"), "{wrong}");
        }
    }

    #[test]
    fn lines_words_and_trigrams_are_cut() {
        assert_eq!(texts(ItemRule::Lines, "a B\r\n"), ["a B\r"]);
        assert_eq!(texts(ItemRule::Words, "Über-see, 3x!\n"), ["über", "see", "3x"]);
        assert_eq!(texts(ItemRule::Trigrams, "Äb cd\r\n"), ["äb ", "b c", " cd"]);
        assert!(texts(ItemRule::Trigrams, "ab\n").is_empty());
    }

    #[test]
    fn kmers_are_those_of_both_strands() {
        let rule = ItemRule::Kmers(3);
        // ACG is CGT on the other strand; 0b00_01_10 is the smaller of the two.
        assert_eq!(items(rule, &["ACG"]), [6u64.to_le_bytes()]);
        assert_eq!(items(rule, &["cgt"]), items(rule, &["ACG"]));
        // They continue on the next line, and end at a name, another letter, or the end of the file.
        assert_eq!(items(rule, &[">a\n", "AC\r\n", "GT\n"]), items(rule, &["ACGT"]));
        assert!(items(rule, &["AC\n", ">b\n", "GT\n", "NAC\n"]).is_empty());
        assert_eq!(items(rule, &["@r\n", "ACG\n", "+\n", "ACC\n", "@s\n", "CGT\n"]).len(), 2);
        assert_eq!(items(ItemRule::Kmers(32), &["A".repeat(33).as_str()]).len(), 2);
    }
}
