//! Which molecules have this group, and which are alike? Fingerprints of paths.
//!
//! A molecule's fingerprint is a Bloom filter of 1,024 bits, k = 1, of all paths of up to five bonds through it. A group's paths are paths of every
//! molecule that has it, so if a bit of the group's is missing, the molecule has it not: most of a database is screened out by one
//! AND, and what passes is compared atom by atom. How much two molecules have in common is the share of bits that both
//! have (Tanimoto), or better, of the numbers of paths that the bits stand for (Swamidass & Baldi 2007, doi:10.1021/ci600526a).
//!
//! `cargo run --release -p umbel-filter --example molecules`

use std::collections::BTreeSet;
use std::error::Error;

use umbel_filter::{Classic, Contains, HashRange, Insert, ItemHasher, sizing, words};

const BITS: u32 = 1_024;
const BONDS_MAX: usize = 5;

/// Names and SMILES, and whether there is a ring of benzene, and a carboxyl group.
const MOLECULES: [(&str, &str, bool, bool); 8] = [
    ("ethanol", "CCO", false, false),
    ("acetic acid", "CC(=O)O", false, true),
    ("phenol", "c1ccccc1O", true, false),
    ("aspirin", "CC(=O)Oc1ccccc1C(=O)O", true, true),
    ("salicylic acid", "OC(=O)c1ccccc1O", true, true),
    ("paracetamol", "CC(=O)Nc1ccc(O)cc1", true, false),
    ("ibuprofen", "CC(C)Cc1ccc(cc1)C(C)C(=O)O", true, true),
    ("caffeine", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", false, false),
];

/// Atoms by letter, and bonds of each.
#[derive(Default)]
struct Molecule {
    atoms: Vec<char>,
    bonds: Vec<Vec<(usize, char)>>,
}

impl Molecule {
    /// Of SMILES without brackets: letters, `=`, `#`, branches and rings of one digit.
    fn parse(smiles: &str) -> Option<Self> {
        let mut molecule = Self::default();
        let (mut at, mut bond, mut branches) = (None, None, Vec::new());
        let mut rings: [Option<usize>; 10] = [None; 10];
        for letter in smiles.chars() {
            match letter {
                '=' | '#' => bond = Some(letter),
                '(' => branches.push(at?),
                ')' => at = Some(branches.pop()?),
                '0'..='9' => {
                    let ring = &mut rings[letter.to_digit(10)? as usize];
                    match ring.take() {
                        Some(other) => molecule.bind(at?, other, bond.take()),
                        None => *ring = at,
                    }
                }
                _ => {
                    let new = molecule.atoms.len();
                    molecule.atoms.push(letter);
                    molecule.bonds.push(Vec::new());
                    if let Some(before) = at {
                        molecule.bind(before, new, bond.take());
                    }
                    at = Some(new);
                }
            }
        }
        Some(molecule)
    }

    fn bind(&mut self, a: usize, b: usize, bond: Option<char>) {
        let is_aromatic = |at: usize| self.atoms[at].is_lowercase();
        let bond = bond.unwrap_or(if is_aromatic(a) && is_aromatic(b) { ':' } else { '-' });
        self.bonds[a].push((b, bond));
        self.bonds[b].push((a, bond));
    }

    /// All paths, each in the lesser of its two directions.
    fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        for start in 0..self.atoms.len() {
            let mut open = vec![(vec![start], self.atoms[start].to_string())];
            while let Some((path, text)) = open.pop() {
                let reversed: String = text.chars().rev().collect();
                paths.insert(text.clone().min(reversed));
                if path.len() > BONDS_MAX {
                    continue;
                }
                for (next, bond) in &self.bonds[path[path.len() - 1]] {
                    if !path.contains(next) {
                        let text = format!("{text}{bond}{}", self.atoms[*next]);
                        open.push(([&path[..], &[*next]].concat(), text));
                    }
                }
            }
        }
        paths
    }

    fn fingerprint(&self) -> Result<Classic, Box<dyn Error>> {
        let mut fingerprint = Classic::new(HashRange::WHOLE, 1, BITS, 1)?;
        for path in self.paths() {
            fingerprint.insert(ItemHasher::Xxh3 { seed: 1 }.hash(path.as_bytes()))?;
        }
        Ok(fingerprint)
    }
}

fn has_all(molecule: &Classic, group: &Classic) -> bool {
    group.words().iter().zip(molecule.words()).all(|(group, bits)| group & !bits == 0)
}

/// Bits in common of all bits; paths in common of all paths, estimated; and counted.
fn likeness(a: &Molecule, b: &Molecule) -> Result<[f64; 3], Box<dyn Error>> {
    let [x, y] = [a.fingerprint()?, b.fingerprint()?];
    let mut both = x.words().to_vec();
    words::or(&mut both, y.words());
    let [x, y, either] = [x.words(), y.words(), &both[..]].map(words::count_ones);
    let by_bits = (x + y - either) as f64 / either as f64;
    let items =
        |ones| sizing::item_count_estimate(BITS.into(), 1, ones).map(|found| found.item_count);
    let union = items(either)?;
    let estimated = (items(x)? + items(y)? - union) / union;
    let (x, y) = (a.paths(), b.paths());
    let counted = x.intersection(&y).count() as f64 / x.union(&y).count() as f64;
    Ok([by_bits, estimated, counted])
}

fn main() -> Result<(), Box<dyn Error>> {
    let parse = |smiles| Molecule::parse(smiles).ok_or("no SMILES of this form");
    let groups = [parse("c1ccccc1")?.fingerprint()?, parse("C(=O)O")?.fingerprint()?];
    println!("molecule        paths  benzene ring  C(=O)O");
    for (name, smiles, ring, acid) in MOLECULES {
        let molecule = parse(smiles)?;
        let fingerprint = molecule.fingerprint()?;
        let found = [&groups[0], &groups[1]].map(|group| has_all(&fingerprint, group));
        let said = found.map(|found| if found { "may" } else { "no" });
        println!("{name:<15} {:>5}  {:>12}  {:>6}", molecule.paths().len(), said[0], said[1]);
        // None that has the group is screened out; an ester has the paths of an acid here, too.
        assert!((found[0] || !ring) && (found[1] || !acid));
        let hashes = molecule.paths().into_iter();
        let mut hashes = hashes.map(|path| ItemHasher::Xxh3 { seed: 1 }.hash(path.as_bytes()));
        assert!(hashes.all(|path| fingerprint.contains(path)));
    }
    println!("alike                             bits  paths, estimated  counted");
    for (a, b) in [(3, 4), (3, 5), (3, 6), (3, 7), (0, 7)] {
        let [bits, estimated, counted] =
            likeness(&parse(MOLECULES[a].1)?, &parse(MOLECULES[b].1)?)?;
        let pair = format!("{}, {}", MOLECULES[a].0, MOLECULES[b].0);
        println!("{pair:<32} {bits:>5.2} {estimated:>17.2} {counted:>8.2}");
        assert!((bits - counted).abs() < 0.06 && (estimated - counted).abs() < 0.06);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
