//! Golden values of both hash functions, and a second implementation of each beside them.
//!
//! The values are frozen: a change of one of them would break every stored filter. Lengths are the
//! borders between the branches of XXH3 and of SipHash's eight-byte words. Item of length n: bytes
//! (131 · i + 7) mod 256, i < n.

use proptest::collection::vec;
use proptest::prelude::*;
use twox_hash::XxHash3_128;

use super::*;

const SEEDS: [u64; 2] = [0, 0x9e37_79b9_7f4a_7c15];

/// The test key of SipHash's authors, and one without a pattern.
const KEYS: [[u8; 16]; 2] =
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], *b"umbel golden key"];

/// Length of the item; XXH3-128 under each seed; SipHash-1-3-128 under each key. `hi` before the
/// underscore, `lo` behind it.
#[rustfmt::skip]
const GOLDEN: [(usize, [u128; 2], [u128; 2]); 15] = [
    (
        0,
        [0x99aa06d3014798d8_6001c324468d497f, 0xd142977a2cca554b_4ca5176998171787],
        [0xbea58827b2bc7ee7_013030dd6adb62fd, 0xca094b87288c63f9_542e61ee6ae2683f],
    ),
    (
        1,
        [0x495b62073ef70ca4_4c5cca45d0f4811f, 0x00a711eb5a736b26_2f3acd3805f81de3],
        [0x4734a8658d9aacc1_bd07b6958d02bd4e, 0xe323ce9f1aa99d81_06f73e1bcd27c086],
    ),
    (
        3,
        [0x390cdc5b4a895dd7_6e3e2670e61106ac, 0x3f5fd00ff400ba58_bc74611d87f659e0],
        [0x5b074b4aa923a0da_79433d7c2c1d1ad2, 0xa74432dc32fb782e_3d3a3ffb4ee16f8a],
    ),
    (
        4,
        [0xaa6e2f274640a3f4_3d668af6f2a44d77, 0x7e5d191bd8d354e6_c63af37da30d5d08],
        [0xf1b0b6395e83e40e_e554cf0b434497ad, 0x89fa365d9e030846_f2bf789995f05aa6],
    ),
    (
        8,
        [0x6a86a3bda6af4e3d_61ddbe7f31a6100d, 0x9b51bcd70be038f6_8a88691d5cecb7b6],
        [0x09a3fd617454fb82_cfef3f06b6eedc2e, 0x160628c29a7ccca2_4a6d43567da6d220],
    ),
    (
        9,
        [0x664c7ca18afd6255_8c7b67fd458a936b, 0xc0dd1f12f479931b_a1e691e73aaf9ca5],
        [0xb13892cde5023389_27371ae78266fbbe, 0x59b2f2ef74afede5_b67f83727db99c28],
    ),
    (
        16,
        [0x7f9a218b0425449a_e2ce54a7c19c730d, 0xd5f6fdbf62cdc681_1097f793402c818a],
        [0x6ed1a2cb66c844e3_3710b0880f0348c8, 0x7e645ee8d082570a_d51d80c563650191],
    ),
    (
        17,
        [0x66fc23f6439dbd77_8d96ef110fcdebb4, 0xfdb93ea9bd7c5a87_553306f0d043114c],
        [0xcf7060894e4793d7_5386e0f365e64903, 0x1198523f34e5b9de_7fdc8b041eac714d],
    ),
    (
        32,
        [0x49a11ee743d6d342_fd357cf6cb2dda18, 0x731432cbcc022e37_8113676252dbe0c7],
        [0x09c2572cb745fccb_2b7fd5a6dbd48d08, 0x549ffeda63d97eeb_13aaf6f7edc4a784],
    ),
    (
        100,
        [0x76b536586de98b82_580b061a98a5a9b4, 0xfe7093af14e2900b_0c13fb407b8a2777],
        [0x6b5212e03b149a0d_a1e95c0080d9f2b5, 0xc51dc169c4c1bd1b_561263ce0af880ff],
    ),
    (
        128,
        [0xaec730751478556c_ff361dec1385710a, 0x98b7168a26969c36_18528564127001a4],
        [0xb0c819372f15997b_56f7627c36aaab41, 0xf4522e06eb3044e3_784c44e46af4b0e9],
    ),
    (
        129,
        [0x98cd36ccbb557926_4545b3a09738e31a, 0x03159dbf8591c495_54e9357c883cec48],
        [0x0cab479f85747cf5_1b059f824f3e2417, 0xe7a195086f143889_eb54dd2e5b21ab9e],
    ),
    (
        240,
        [0x5293e17bf553903d_3f2c53e72293711f, 0xde30c63ee85a3579_fcac543705c8c541],
        [0xf6c78d766c8b424c_7bb8df8c8cfe5730, 0xa58c74e83faa0e13_78adc0b1591d10f3],
    ),
    (
        241,
        [0xb53840fe3fedf161_956cae592c67279e, 0x7be6397a1dfd48cc_2be236ba3bacf75c],
        [0x2e81ec4a51fddeab_49ab80b1b80139fa, 0xb80d19e938ea9b15_89143d6764491aca],
    ),
    (
        1000,
        [0x622239c5c47a6910_571d5cbfef44331b, 0xacd6530d1a0a726a_a6fa06f07fb6c797],
        [0x90372057bb77f0e0_da3870d6064147a9, 0xe44e864cca84e0da_406b24f77dcff0c1],
    ),
];

fn item(length: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().step_by(131).map(|byte| byte.wrapping_add(7)).take(length).collect()
}

fn joined(hash: ItemHash) -> u128 {
    u128::from(hash.hi()) << 64 | u128::from(hash.lo())
}

/// SipHash-c-d with 128-bit output, as its paper and its authors' reference describe it: slow and
/// straightforward. Returns the output bytes.
fn siphash(rounds: u32, final_rounds: u32, key: [u8; 16], item: &[u8]) -> [u8; 16] {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut v = [
        k0 ^ word(b"uespemos"),
        k1 ^ word(b"modnarod"),
        k0 ^ word(b"arenegyl"),
        k1 ^ word(b"setybdet"),
    ];
    v[1] ^= 0xee;
    let mut padded = item.to_vec();
    padded.resize(item.len() / 8 * 8 + 7, 0);
    padded.push(item.len().to_le_bytes()[0]);
    for block in padded.chunks(8) {
        v[3] ^= word(block);
        (0..rounds).for_each(|_| sip_round(&mut v));
        v[0] ^= word(block);
    }
    let mut output = Vec::new();
    for (index, mark) in [(2, 0xee), (1, 0xdd)] {
        v[index] ^= mark;
        (0..final_rounds).for_each(|_| sip_round(&mut v));
        output.extend((v[0] ^ v[1] ^ v[2] ^ v[3]).to_le_bytes());
    }
    output.try_into().unwrap()
}

fn sip_round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v2 = v2.rotate_left(32);
}

/// Output bytes to `hi` and `lo` as the module says.
fn joined_output(output: [u8; 16]) -> u128 {
    u128::from_le_bytes(output).rotate_left(64)
}

#[test]
fn hashes_are_frozen() {
    for (length, xxh3, sip) in GOLDEN {
        let item = item(length);
        let xxh3_now = SEEDS.map(|seed| joined(ItemHasher::Xxh3 { seed }.hash(&item)));
        assert_eq!(xxh3_now, xxh3, "XXH3 of {length} bytes");
        let sip_now = KEYS.map(|key| joined(ItemHasher::SipHash { key }.hash(&item)));
        assert_eq!(sip_now, sip, "SipHash of {length} bytes");
    }
}

#[test]
fn golden_values_agree_with_second_implementations() {
    for (length, xxh3, sip) in GOLDEN {
        let item = item(length);
        assert_eq!(SEEDS.map(|seed| XxHash3_128::oneshot_with_seed(seed, &item)), xxh3);
        assert_eq!(KEYS.map(|key| joined_output(siphash(1, 3, key, &item))), sip);
    }
}

/// Anchors the twin itself: the first of the authors' published vectors of SipHash-2-4-128.
#[test]
fn the_sip_twin_gives_the_published_value() {
    let published = *b"\xa3\x81\x7f\x04\xba\x25\xa8\xe6\x6d\xf6\x72\x14\xc7\x55\x02\x93";
    assert_eq!(siphash(2, 4, KEYS[0], b""), published);
}

#[test]
fn keys_are_not_printed() {
    let key = [123; 16];
    assert_eq!(format!("{:?}", ItemHasher::SipHash { key }), "SipHash { .. }");
    assert_eq!(format!("{:?}", ItemHasher::Xxh3 { seed: 5 }), "Xxh3 { seed: 5 }");
}

#[test]
fn names_survive_their_numbers() {
    for id in 0..=u8::MAX {
        let function = HashFunction::from_id(id);
        assert_eq!(function.map(HashFunction::id), (1..=3).contains(&id).then_some(id));
    }
    let key = [0; 16];
    assert_eq!(ItemHasher::SipHash { key }.function(), HashFunction::SipHash13Keyed);
    assert_eq!(HashFunction::SipHash13Keyed.to_string(), "siphash-1-3-128");
}

proptest! {
    #[test]
    fn xxh3_agrees_with_a_second_implementation(seed: u64, item in vec(any::<u8>(), 0..1200)) {
        let hash = joined(ItemHasher::Xxh3 { seed }.hash(&item));
        prop_assert_eq!(hash, XxHash3_128::oneshot_with_seed(seed, &item));
    }

    #[test]
    fn siphash_agrees_with_its_paper(key: [u8; 16], item in vec(any::<u8>(), 0..80)) {
        let hash = joined(ItemHasher::SipHash { key }.hash(&item));
        prop_assert_eq!(hash, joined_output(siphash(1, 3, key, &item)));
    }
}

#[test]
fn pieces_hash_like_the_whole() {
    let item: Vec<u8> = (0..5000u32).map(|i| (i * 31 % 251) as u8).collect();
    for hasher in [ItemHasher::Xxh3 { seed: 9 }, ItemHasher::SipHash { key: [3; 16] }] {
        for length in [0, 1, 16, 240, 241, 1024, 5000] {
            for piece_bytes in [1, 7, 256, 5000] {
                let mut running = hasher.running();
                item[..length].chunks(piece_bytes).for_each(|piece| running.update(piece));
                assert_eq!(running.finish(), hasher.hash(&item[..length]), "{hasher:?} {length}");
            }
        }
    }
}
