//! `umbel index build` and `ask`: which of many files may contain an item.

use crate::sandbox::{Ran, Sandbox};
use crate::serve::{run, umbel};
use serde_json::Value;

fn index(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("index {args}"))
}

fn asked(sandbox: &Sandbox, args: &str) -> String {
    index(sandbox, &format!("ask {args}")).kept_text()
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("line-{number}\n")).collect()
}

/// A pseudo-random sequence of this many bases.
fn bases(mut state: u64, count: usize) -> String {
    let base = |_| {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        char::from(b"ACGT"[(state >> 62) as usize])
    };
    (0..count).map(base).collect()
}

fn reverse_complement(bases: &str) -> String {
    let other = |base| match base {
        'A' => 'T',
        'C' => 'G',
        'G' => 'C',
        _ => 'A',
    };
    bases.chars().rev().map(other).collect()
}

#[test]
fn files_with_a_line_are_named() {
    let sandbox = Sandbox::with(&[
        ("a", lines(0..3000)),
        ("b", lines(2000..2500)),
        ("c", String::new()),
        ("d", lines(2400..2401)),
    ]);
    let said = index(&sandbox, "build a b c d -o f.umbx --rate 1e-9 -k 8 --json").kept_text();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["files"], &said["item_count"]), (&4.into(), &3501.into()));
    assert_eq!((&said["items"], &said["probes"]), (&"lines".into(), &8.into()));
    assert_eq!(asked(&sandbox, "f.umbx line-7"), "a\n");
    assert_eq!(asked(&sandbox, "f.umbx line-2400"), "a\nb\nd\n");
    assert_eq!(asked(&sandbox, "f.umbx line-2400 line-2300"), "a\nb\n");
    let half = asked(&sandbox, "f.umbx line-2300 line-2400 --share 0.5");
    assert_eq!(half, "1.000\ta\n1.000\tb\n0.500\td\n");
    assert_eq!(index(&sandbox, "ask f.umbx line-3000").ended_with(1), b"");
    sandbox.write("folder/e", "");
    for (named, files) in [(".", "./*"), ("a folder/", "folder/*")] {
        let said = format!(": a directory, expected files: name them, like {files}\n");
        index(&sandbox, &format!("build {named} -o g.umbx")).refused(2, &[&said]);
    }
    index(&sandbox, "ask none.umbx x").refused(2, &["none.umbx"]);
    index(&sandbox, "ask f.umbx x --share 0").refused(2, &["share"]);
}

#[test]
fn words_and_pieces_of_lines_are_found() {
    let sandbox = Sandbox::with(&[
        ("mon.log", "10:02 Connection refused by db-7\n10:03 timeout\n"),
        ("tue.log", "10:02 Retry: connection restored\n"),
    ]);
    let build = |args: &str| index(&sandbox, &format!("build mon.log tue.log {args}")).kept();
    build("-o w.umbx --items words --rate 1e-6 -q");
    assert_eq!(asked(&sandbox, "w.umbx CONNECTION"), "mon.log\ntue.log\n");
    assert_eq!(asked(&sandbox, "w.umbx connection,refused"), "mon.log\n");
    index(&sandbox, "ask w.umbx ...").refused(2, &["`...` has none of the index's items, words"]);
    build("-o t.umbx --items trigrams --rate 1e-6 -k 8 -q");
    assert_eq!(asked(&sandbox, "t.umbx estor"), "tue.log\n");
    assert_eq!(asked(&sandbox, "t.umbx onnect"), "mon.log\ntue.log\n");
    index(&sandbox, "ask t.umbx on").refused(2, &["`on` has none", "trigrams"]);
}

#[test]
fn genes_are_found_on_either_strand_and_by_a_share() {
    let genomes: Vec<String> = (0..20).map(|number| bases(number * 77 + 1, 4000)).collect();
    let names: Vec<String> = (0..20).map(|number| format!("g{number}.fa")).collect();
    let sandbox = Sandbox::new();
    for (name, genome) in names.iter().zip(&genomes) {
        let wrapped: Vec<&str> =
            (0..4000).step_by(70).map(|at| &genome[at..4000.min(at + 70)]).collect();
        sandbox.write(name, format!(">{name}\n{}\n", wrapped.join("\n")));
    }
    index(&sandbox, &format!("build {} -o g.umbx --items kmers:31", names.join(" "))).kept();
    let gene = &genomes[7][1000..1400];
    for gene in [gene, &reverse_complement(gene), &gene.to_lowercase()] {
        assert_eq!(asked(&sandbox, &format!("g.umbx {gene}")), "g7.fa\n");
    }
    // A change affects 31 of 370 k-mers, of which at most 30 % are false positives.
    let mut changed = gene.to_owned();
    changed.replace_range(200..201, if &gene[200..201] == "A" { "C" } else { "A" });
    index(&sandbox, &format!("ask g.umbx {changed}")).ended_with(1);
    let found = asked(&sandbox, &format!("g.umbx {changed} --share 0.8"));
    let (share, name) = found.trim_end().split_once('\t').unwrap();
    assert_eq!(name, "g7.fa");
    assert!((0.91..1.0).contains(&share.parse::<f64>().unwrap()), "{share}");
}

#[test]
fn bytes_depend_on_nothing_but_the_files() {
    let sandbox = Sandbox::with(&[("a", lines(0..5000)), ("b", lines(100..110))]);
    let reversed: String = lines(0..5000).lines().rev().map(|line| format!("{line}\n")).collect();
    index(&sandbox, "build a b -o f.umbx -q").kept();
    sandbox.write("a", reversed.clone() + &reversed);
    index(&sandbox, "build a b -o g.umbx -q").kept();
    assert!(sandbox.read("f.umbx") == sandbox.read("g.umbx"));
    index(&sandbox, "build a b -o f.umbx").refused(2, &["f.umbx exists: --overwrite replaces it"]);
    index(&sandbox, "build a b -o f.umbx --overwrite --seed 1 -q").kept();
    assert!(sandbox.read("f.umbx") != sandbox.read("g.umbx"));
    index(&sandbox, "build a b -o b --overwrite").refused(2, &["b", "input"]);
    index(&sandbox, "build a none -o h.umbx").refused(1, &["none: cannot read"]);
    index(&sandbox, "build a -o h.umbx -k 9").refused(2, &["9"]);
    index(&sandbox, "build a -o h.umbx --items kmers:33").refused(2, &["kmers:K"]);
    assert!(!sandbox.exists("h.umbx"));
}

#[test]
fn info_tells_the_kinds_of_indexes_apart() {
    let sandbox = Sandbox::with(&[("a", lines(0..100)), ("b", lines(0..10))]);
    index(&sandbox, "build a b -o f.umbx -q").kept();
    sandbox.run("a --save-index s.umbi --output /dev/null --seed 7 --quiet").kept();
    let said = index(&sandbox, "info f.umbx s.umbi").kept_text();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("index\thashes\t") && lines[1].starts_with("s.umbi\t100\t"));
    assert_eq!(lines[2], "index\tfiles\titems\tkind\tprobes\trate\tbytes\tbits an item\tseed");
    // 100 items need 1,236 bits, 10 need 124: rounded up to 1,536 and 512. In addition 56 bytes of
    // header, 5 of a text, 24 of two rows and 4 of a checksum.
    let bytes = (1536 + 512) / 8 + 56 + 5 + 24 + 4;
    let expected = format!("f.umbx\t2\t110\tlines\t3\t0.01\t{bytes}\t25.09\t0x0000000000000000");
    assert_eq!(lines[3], expected);
}

#[test]
fn a_secret_key_is_needed_where_one_was_given() {
    let digits = "000102030405060708090a0b0c0d0e0f00000000000000ff\n";
    let sandbox = Sandbox::with(&[("a", "x\n"), ("k", digits)]);
    index(&sandbox, "build a -o f.umbx --hash-key k -q").kept();
    assert_eq!(asked(&sandbox, "f.umbx x --hash-key k"), "a\n");
    index(&sandbox, "ask f.umbx x").refused(2, &["f.umbx", "00000000000000ff", "--hash-key"]);
    index(&sandbox, "build a -o g.umbx -q").kept();
    index(&sandbox, "ask g.umbx x --hash-key k").refused(2, &["without a secret key"]);
}

#[test]
fn damaged_indexes_are_refused() {
    let sandbox = Sandbox::with(&[("a", lines(0..3000))]);
    index(&sandbox, "build a -o f.umbx -q").kept();
    let whole = sandbox.read("f.umbx");
    let damaged = |at: usize, xor: u8| -> Vec<u8> {
        let mut bytes = whole.clone();
        bytes[at] ^= xor;
        bytes
    };
    let cases = [
        ("cut", whole[..whole.len() - 1].to_vec(), "ends too early"),
        ("short", whole[..20].to_vec(), "ends too early"),
        ("longer", [&whole[..], b"x"].concat(), "bytes, expected"),
        ("rows", damaged(whole.len() - 20, 1), "checksum of page 0"),
        ("name", damaged(73, 1), "checksum of the head"),
        ("newer", damaged(4, 3), "version 2, expected 1: a newer release wrote it"),
    ];
    for (name, bytes, said) in cases {
        sandbox.write(name, bytes);
        index(&sandbox, &format!("info {name}")).refused(1, &[name, said]);
        index(&sandbox, &format!("ask {name} line-5")).refused(2, &[name, said]);
    }
    index(&sandbox, "ask a x")
        .refused(2, &["a: not an index of files", "`UMBX` (an index of files)"]);
    let said = "expected `UMBI` or `UMBX`";
    index(&sandbox, "info a").refused(1, &["a: not an index: begins with", said]);
    sandbox.write("s.umbs", "UMBS and more");
    index(&sandbox, "info s.umbs").refused(1, &[said, "`umbel static info` describes it"]);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n")]);
    index(&sandbox, "build a -o f.umbx -q").kept();
    for args in ["index info f.umbx", "index ask f.umbx 1"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = umbel(&sandbox, args).stdout(writer).output().unwrap();
        let ran = sandbox.ended(output);
        assert_eq!((ran.code, &ran.stderr[..]), (Some(0), ""), "{args}");
    }
}

#[test]
fn a_file_with_bytes_and_no_item_is_told() {
    let sandbox = Sandbox::with(&[("day.log", "job done\n"), ("empty", "")]);
    let built = index(&sandbox, "build day.log empty -o f.umbx -q --items kmers:31");
    assert_eq!(built.stderr, "umbel: day.log has none of the items kmers:31\n");
    built.kept();
}
