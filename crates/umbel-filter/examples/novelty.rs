//! How new is this smell? The fruit fly's filter, which answers by degrees (Dasgupta et al. 2018, doi:10.1073/pnas.1814448115).
//!
//! Fifty receptors excite 2,000 cells, each cell the sum of six receptors at random; the twentieth part that is excited most
//! is the smell's code, and like smells have like codes: that is what a hash must not do and what this one is for. Each cell
//! has a synapse of weight 1, which goes to 0 when its cell was in the code of a smell, and recovers with time. *Novelty* is the mean of
//! the code's weights: 0 of a smell that was just there, 1 of one that is like none; in between for a smell like one that
//! was, or one that was there long ago. A Bloom filter is the case of codes by a hash and of no recovery.
//!
//! `cargo run --release -p umbel-filter --example novelty`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use umbel_filter::ItemHasher;

const RECEPTORS: usize = 50;
const CELLS: usize = 2_000;
const RECEPTORS_OF_A_CELL: u64 = 6;
const CODE: usize = CELLS / 20;

/// Share of what is lost that comes back with each smell.
const RECOVERY: f64 = 0.01;

/// A number from 0 to 1 for each place.
fn uniform(seed: u64, at: u64) -> f64 {
    let number = ItemHasher::Xxh3 { seed }.hash(&at.to_le_bytes()).lo();
    (number >> 11) as f64 / (1u64 << 53) as f64
}

type Smell = [f64; RECEPTORS];

fn smell(number: u64) -> Smell {
    // Exponential, as receptors answer.
    std::array::from_fn(|at| -uniform(1, number * 1000 + at as u64).max(1e-12).ln())
}

/// A smell of which so much is that of another.
fn like(one: &Smell, other: &Smell, share: f64) -> Smell {
    std::array::from_fn(|at| share * one[at] + (1.0 - share) * other[at])
}

/// The cells that are excited most.
fn code(smell: &Smell) -> Vec<usize> {
    let receptor = |cell: usize, at: u64| {
        let place = uniform(2, cell as u64 * RECEPTORS_OF_A_CELL + at) * RECEPTORS as f64;
        smell[(place as usize).min(RECEPTORS - 1)]
    };
    let excitement =
        |cell: usize| (0..RECEPTORS_OF_A_CELL).map(|at| receptor(cell, at)).sum::<f64>();
    let excited: Vec<f64> = (0..CELLS).map(excitement).collect();
    let mut cells: Vec<usize> = (0..CELLS).collect();
    cells.sort_by(|a, b| excited[*b].total_cmp(&excited[*a]).then(a.cmp(b)));
    cells.truncate(CODE);
    cells
}

struct Fly {
    weights: Vec<f64>,
}

impl Fly {
    fn novelty(&self, smell: &Smell) -> f64 {
        code(smell).iter().map(|cell| self.weights[*cell]).sum::<f64>() / CODE as f64
    }

    fn take(&mut self, smell: &Smell) {
        self.weights.iter_mut().for_each(|weight| *weight += RECOVERY * (1.0 - *weight));
        code(smell).into_iter().for_each(|cell| self.weights[cell] = 0.0);
    }
}

fn main() {
    let mut fly = Fly { weights: vec![1.0; CELLS] };
    (0..20).for_each(|number| fly.take(&smell(number)));
    let mean = |novelty: &dyn Fn(u64) -> f64| (0..20).map(novelty).sum::<f64>() / 20.0;
    let again = fly.novelty(&smell(19));
    println!("the smell that was just there     {again:.2}");
    let rows: Vec<f64> = [1.0, 0.9, 0.7, 0.5, 0.0]
        .map(|share| {
            let mean = mean(&|at| fly.novelty(&like(&smell(at), &smell(1_000 + at), share)));
            println!("{:>3.0} % of one of twenty             {mean:.2}", share * 100.0);
            mean
        })
        .to_vec();
    assert_eq!(again, 0.0);
    assert!(rows.windows(2).all(|pair| pair[0] < pair[1] - 0.01));
    // Of a Bloom filter with so many cells: the share that twenty codes have left.
    let free = 1.0 - 0.95f64.powi(20);
    println!("share of cells that are in no code of twenty at random: {:.2}", 1.0 - free);
    // Time passes: other smells come, and the first ones are new again.
    let before = fly.novelty(&smell(0));
    (2_000..2_300).for_each(|number| fly.take(&smell(number)));
    let after = fly.novelty(&smell(0));
    println!("the first one, then and 300 smells later: {before:.2}, {after:.2}");
    assert!(after > before);
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main();
    }
}
