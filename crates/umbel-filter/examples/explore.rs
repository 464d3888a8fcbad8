//! Exploring a state space with a filter in place of a set of states: all 181,440 positions of the 8-puzzle.
//!
//! A model checker remembers which states it has seen. States need not be kept, a hash of each will do (*hash
//! compaction*: Stern & Dill 1995, doi:10.1007/3-540-60385-9_13; with Bloom filters, as SPIN has them: Dillinger & Manolios
//! 2004, doi:10.1007/978-3-540-30494-4_26). A state that is wrongly called seen is omitted, and what can be reached through it
//! alone; everything else is found. Of n states with positions out of m some n (n − 1) / 2m are omitted.
//!
//! `cargo run --release -p umbel-filter --example explore`

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;

use umbel_filter::{
    Blocked, HashRange, Insert, Insertion, ItemHash, ItemHasher, SingleShotShape, StoredSingleShot,
};

/// Half of the 9! orders of the tiles: the others have the wrong parity.
const STATE_COUNT: u64 = 181_440;

/// Tiles by place, the empty one 0.
type State = [u8; 9];

const START: State = [1, 2, 3, 4, 5, 6, 7, 8, 0];

fn hash(state: State) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&state)
}

/// The states that one move leads to.
fn next(state: State) -> impl Iterator<Item = State> {
    let empty = state.iter().position(|tile| *tile == 0).expect("there is one");
    let (row, column) = (empty / 3, empty % 3);
    let neighbours = [
        (row > 0).then(|| empty - 3),
        (row < 2).then(|| empty + 3),
        (column > 0).then(|| empty - 1),
        (column < 2).then(|| empty + 1),
    ];
    neighbours.into_iter().flatten().map(move |place| {
        let mut next = state;
        next.swap(empty, place);
        next
    })
}

/// How many states are visited, breadth first, if `is_new` remembers them.
fn visited(mut is_new: impl FnMut(State) -> bool) -> u64 {
    let (mut open, mut count) = (VecDeque::from([START]), 1);
    is_new(START);
    while let Some(state) = open.pop_front() {
        for state in next(state) {
            if is_new(state) {
                count += 1;
                open.push_back(state);
            }
        }
    }
    count
}

fn with_filter(mut filter: impl Insert) -> u64 {
    let insert = |state| filter.insert(hash(state)).expect("the whole hash space, of one size");
    let mut insert = insert;
    visited(|state| insert(state) == Insertion::New)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut states = BTreeSet::new();
    let all = visited(|state| states.insert(state));
    println!("a set of states                    {all:>7} states, {} bytes of states", all * 9);
    assert_eq!(all, STATE_COUNT);

    // 34 bits a state: a position of 2^34, of which the upper ones are told by the order.
    let shape = SingleShotShape::new(HashRange::WHOLE, 1 << 34)?;
    let mut compact = StoredSingleShot::new(shape);
    let mut insert = |state| compact.insert(hash(state)).expect("of the whole hash space");
    let found = visited(|state| insert(state) == Insertion::New);
    compact.seal();
    let expected = (STATE_COUNT * (STATE_COUNT - 1)) as f64 / 2.0 / 2f64.powi(34);
    let bits = compact.memory_bytes() as f64 * 8.0 / STATE_COUNT as f64;
    let omitted = STATE_COUNT - found;
    println!(
        "positions of 2^34, sealed          {found:>7} states, {bits:.1} bits a state, {omitted} omitted of {expected:.2} expected"
    );
    // Poisson: more than eight come once in a million seeds.
    assert!(omitted <= 8 && bits < 20.0);

    for (rate, least) in [(0.01, 0.98), (1e-6, 0.9999)] {
        let filter = Blocked::for_rate(HashRange::WHOLE, STATE_COUNT, rate)?;
        let bits = filter.words().len() as f64 * 64.0 / STATE_COUNT as f64;
        let found = with_filter(filter);
        let omitted = STATE_COUNT - found;
        println!(
            "blocked filter, rate {rate:<13} {found:>7} states, {bits:.1} bits a state, {omitted} omitted"
        );
        assert!(found as f64 >= least * STATE_COUNT as f64);
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
