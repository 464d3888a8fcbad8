//! Combines the answers of copies about a batch.

use umbel_engine::shard::Bitmap;

/// The answers about a batch so far.
pub(super) struct Gathered {
    /// One bit for each item.
    pub(super) bits: Vec<bool>,
    /// Whether ones win where answers differ; otherwise zeros do.
    pub(super) ones_win: bool,
    pub(super) count: usize,
    /// Those answers that count towards a majority.
    pub(super) settled_count: usize,
}

impl Gathered {
    /// Adds an answer that has a bit for every item. Any other answer tells nothing about some items, and
    /// must count for none.
    ///
    /// # Errors
    /// What is wrong with the answer; nothing was changed.
    pub(super) fn take(&mut self, bits: &Bitmap, is_settled: bool) -> Result<(), String> {
        bits.check().map_err(|error| error.to_string())?;
        let (got, expected) = (bits.len() as usize, self.bits.len());
        if got != expected {
            return Err(format!("it has {got} bits, expected {expected}"));
        }
        for (ours, theirs) in self.bits.iter_mut().zip(bits.iter()) {
            *ours = if self.ones_win { *ours | theirs } else { *ours & theirs };
        }
        self.count += 1;
        self.settled_count += usize::from(is_settled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use umbel_ports::encoding::{decode, encode};

    use super::*;

    fn gathered(ones_win: bool) -> Gathered {
        let bits = vec![true, false, true];
        Gathered { bits, ones_win, count: 1, settled_count: 1 }
    }

    #[test]
    fn answers_are_put_together_item_by_item() {
        for (ones_win, expected) in [(false, [true, false, false]), (true, [true; 3])] {
            let mut gathered = gathered(ones_win);
            assert_eq!(gathered.take(&Bitmap::from_bools([true, true, false]), false), Ok(()));
            assert_eq!((&gathered.bits[..], gathered.count), (&expected[..], 2));
            assert_eq!(gathered.settled_count, 1);
        }
    }

    /// If it were counted, an item about which no node was asked would be absent on a majority.
    #[test]
    fn an_answer_about_other_items_is_none() {
        // As a peer may send it: the length is three bits, and no byte follows.
        let torn: Bitmap = decode(&encode(&(3_u32, Bytes::new()))).unwrap();
        let padded: Bitmap = decode(&encode(&(3_u32, Bytes::from_static(&[0xff])))).unwrap();
        for (answer, expected) in [
            (Bitmap::from_bools([true, true]), "it has 2 bits, expected 3"),
            (Bitmap::zeros(0), "it has 0 bits, expected 3"),
            (Bitmap::ones(4), "it has 4 bits, expected 3"),
            (torn, "0 bytes for 3 bits, expected 1"),
            (padded, "bits are set behind the last of 3"),
        ] {
            for ones_win in [false, true] {
                let mut gathered = gathered(ones_win);
                assert_eq!(gathered.take(&answer, true), Err(expected.to_owned()));
                assert_eq!((gathered.count, gathered.settled_count), (1, 1));
                assert_eq!(gathered.bits, [true, false, true]);
            }
        }
    }
}
