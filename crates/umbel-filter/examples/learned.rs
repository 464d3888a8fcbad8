//! A learned filter: a model that knows the keys' form, and a filter of the keys that it denies.
//!
//! Logistic regression over the trigrams of a name says *key* or *other*; of the keys that it denies a backup filter makes
//! sure that none is missed, and a filter before it turns away most others (the sandwich of Mitzenmacher 2018,
//! arXiv:1901.00902). An item is called present with p_m + (1 − p_m) · p_b, and of that the share that passes the first. It
//! wins where keys have a form and others have not: with names at random the model is a waste.
//!
//! `cargo run --release -p umbel-filter --example learned`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::error::Error;

use umbel_filter::{Blocked, Contains, CreateError, HashRange, Insert, ItemHash, ItemHasher};

const KEY_COUNT: u64 = 20_000;
const WEIGHT_COUNT: usize = 1 << 12;
const EPOCHS: usize = 3;

/// Share of other names that the model may call keys.
const MODEL_RATE: f64 = 0.05;
/// Of the filters before and behind the model, so that 0.1 · (0.05 + 0.95 · 0.05) is 0.01.
const FIRST_RATE: f64 = 0.1;
const BACKUP_RATE: f64 = 0.05;

/// Seeds of the filters before and behind the model. They differ: under one seed a name that the same keys betray in the
/// first is betrayed in the other, too, and with keys at random twice as many passed.
const FIRST_SEED: u64 = 1;
const BACKUP_SEED: u64 = 3;

fn hash(seed: u64, name: &str) -> ItemHash {
    ItemHasher::Xxh3 { seed }.hash(name.as_bytes())
}

fn number(seed: u64, at: u64) -> u64 {
    ItemHasher::Xxh3 { seed }.hash(&at.to_le_bytes()).lo()
}

/// Host names: of keys, with some words in them; of others, and of keys without a form, at random.
fn name(at: u64, has_form: bool) -> String {
    const WORDS: [&str; 8] = ["win", "prize", "login", "bonus", "free", "update", "verify", "gift"];
    let random = number(7, at);
    if has_form && !random.is_multiple_of(20) {
        let word = |shift: u32| WORDS[(random >> shift & 7) as usize];
        format!("{}-{}-{:03}.example", word(8), word(16), random >> 32 & 0xfff)
    } else {
        let letter = |part: u64| char::from(b'a' + (number(part, at) % 26) as u8);
        (0..12).map(|part| letter(100 + part)).collect::<String>() + ".example"
    }
}

struct Model {
    weights: Vec<f32>,
    threshold: f32,
}

impl Model {
    fn trigrams(name: &str) -> impl Iterator<Item = usize> {
        let place = |trigram: &[u8]| {
            (ItemHasher::Xxh3 { seed: 2 }.hash(trigram).lo() as usize) % WEIGHT_COUNT
        };
        name.as_bytes().windows(3).map(place)
    }

    fn score(&self, name: &str) -> f32 {
        Self::trigrams(name).map(|at| self.weights[at]).sum()
    }

    /// Weights by stochastic descent, and the threshold that so many of other names pass, which it has not learned from.
    fn trained(keys: &[String], others: &[String], held_out: &[String]) -> Self {
        let mut model = Self { weights: vec![0.0; WEIGHT_COUNT], threshold: 0.0 };
        for _ in 0..EPOCHS {
            for (key, other) in keys.iter().zip(others) {
                for (name, label) in [(key, 1.0), (other, 0.0)] {
                    let error = label - 1.0 / (1.0 + (-model.score(name)).exp());
                    Self::trigrams(name).for_each(|at| model.weights[at] += 0.1 * error);
                }
            }
        }
        let mut scores: Vec<f32> = held_out.iter().map(|name| model.score(name)).collect();
        scores.sort_by(f32::total_cmp);
        model.threshold = scores[(scores.len() as f64 * (1.0 - MODEL_RATE)) as usize];
        // As bytes: a 64th of a step up to ±2 changes nothing.
        model
            .weights
            .iter_mut()
            .for_each(|weight| *weight = (*weight * 16.0).round().clamp(-127.0, 127.0) / 16.0);
        model
    }

    fn says_key(&self, name: &str) -> bool {
        self.score(name) > self.threshold
    }
}

fn filter(names: &[&String], seed: u64, rate: f64) -> Result<Blocked, CreateError> {
    let mut filter = Blocked::for_rate(HashRange::WHOLE, names.len().max(1) as u64, rate)?;
    names.iter().for_each(|name| {
        filter.insert(hash(seed, name)).expect("of the whole hash space");
    });
    Ok(filter)
}

/// Bits a key, and the rate among other names.
fn measured(has_form: bool) -> Result<(f64, f64), CreateError> {
    let names = |from: u64, count: u64, has_form| -> Vec<String> {
        (from..from + count).map(|at| name(at, has_form)).collect()
    };
    let keys = names(0, KEY_COUNT, has_form);
    let others = names(1 << 40, 2 * KEY_COUNT, false);
    let (learned, held_out) = others.split_at(others.len() / 2);
    let model = Model::trained(&keys, learned, held_out);
    let first = filter(&keys.iter().collect::<Vec<_>>(), FIRST_SEED, FIRST_RATE)?;
    let denied: Vec<&String> = keys.iter().filter(|name| !model.says_key(name)).collect();
    let backup = filter(&denied, BACKUP_SEED, BACKUP_RATE)?;
    let is_present = |name: &String| {
        first.contains(hash(FIRST_SEED, name))
            && (model.says_key(name) || backup.contains(hash(BACKUP_SEED, name)))
    };
    assert!(keys.iter().all(is_present));
    let others = names(1 << 41, 50_000, false);
    let found = others.iter().filter(|name| is_present(name)).count();
    let bits = WEIGHT_COUNT * 8 + 64 * (first.words().len() + backup.words().len());
    println!("  the model denies {} of {KEY_COUNT} keys", denied.len());
    Ok((bits as f64 / KEY_COUNT as f64, found as f64 / others.len() as f64))
}

fn main() -> Result<(), Box<dyn Error>> {
    let plain = Blocked::for_rate(HashRange::WHOLE, KEY_COUNT, 0.01)?;
    let plain = plain.words().len() as f64 * 64.0 / KEY_COUNT as f64;
    println!("a blocked filter of 1 %: {plain:.2} bits a key");
    println!("keys with a form");
    let (bits, rate) = measured(true)?;
    println!("  {bits:.2} bits a key, {:.2} % of others present", rate * 100.0);
    assert!(bits < 0.85 * plain && rate < 0.0125);
    println!("keys at random");
    let (bits, rate) = measured(false)?;
    println!("  {bits:.2} bits a key, {:.2} % of others present", rate * 100.0);
    assert!(bits > plain && rate < 0.0125);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
