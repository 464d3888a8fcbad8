//! Inputs in an object store: results equal those of local files with the same content, despite faults;
//! and errors for objects that cannot be read.

use crate::machines::{TOKEN, peers};
use crate::model::{lines, unlike_lines};
use crate::object_store::{Asked, BUCKET, Faults, ObjectStore, SECRET_ACCESS_KEY};
use crate::packed::{gzip, zstd};
use crate::parquet::{SCHEMA, json_lines, rows, table};
use crate::sandbox::{Ran, Sandbox};

/// Files with the same content below `local/` and as objects.
pub(crate) struct Twice {
    pub(crate) sandbox: Sandbox,
    pub(crate) store: ObjectStore,
}

impl Twice {
    pub(crate) fn new<Bytes: AsRef<[u8]>>(files: &[(&str, Bytes)]) -> Self {
        let sandbox = Sandbox::new();
        files.iter().for_each(|(name, bytes)| sandbox.write(format!("local/{name}"), bytes));
        Self { sandbox, store: ObjectStore::with(files) }
    }

    pub(crate) fn run(&self, args: &str) -> Ran {
        let mut command = self.store.known_to(self.sandbox.command(args));
        self.sandbox.ended(command.output().unwrap())
    }

    /// Runs over local files and over objects, and compares what they print; `AT` stands for the place.
    #[track_caller]
    fn assert_equal(&self, args: &str) -> Vec<u8> {
        let local = self.sandbox.run(&args.replace("AT", "local")).kept();
        let remote = self.run(&args.replace("AT", &format!("s3://{BUCKET}"))).kept();
        assert!(local == remote, "{args}: {} and {} bytes", local.len(), remote.len());
        local
    }

    /// Like [`assert_equal`](Self::assert_equal), and compares the files of an output directory, too.
    #[track_caller]
    fn assert_equal_files(&self, args: &str) {
        let local = args.replace("AT", "local");
        self.sandbox.run(&format!("{local} -o here/ --overwrite")).kept();
        let remote = args.replace("AT", &format!("s3://{BUCKET}"));
        self.run(&format!("{remote} -o there/ --overwrite")).kept();
        let below = |root: &str| -> Vec<(String, Vec<u8>)> {
            let files = self.sandbox.files();
            let files = files.iter().filter_map(|name| name.strip_prefix(root));
            files
                .map(|name| (name.to_owned(), self.sandbox.read(format!("{root}{name}"))))
                .collect()
        };
        let (local, remote) = (below("here/"), below("there/"));
        let names = |files: &[(String, Vec<u8>)]| {
            files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&local), names(&remote), "{args}");
        assert!(!local.is_empty() && local == remote, "{args}");
    }
}

/// The byte ranges that a job requested of an object.
fn parts(asked: &[Asked], key: &str) -> Vec<(u64, u64)> {
    let span = |asked: &Asked| {
        let (start, end) = asked.range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()?))
    };
    let of_key = asked.iter().filter(|asked| asked.key == key).filter_map(span);
    of_key.filter(|span| *span != (0, 63)).collect()
}

#[test]
fn lines_of_objects_are_lines_of_files_in_every_packing() {
    let (a, b, c) = (lines(1, 90_000), unlike_lines(2, 40_000), lines(3, 20_000));
    let twice = Twice::new(&[
        ("a.txt", a.clone()),
        ("b.txt.gz", gzip(&[&b[..], &a[..5000]].concat())),
        ("c.txt.zst", zstd(&[&c[..], &b[..]].concat())),
        ("d.txt", b),
        ("empty.txt", Vec::new()),
        ("dir/deep/e f+é.txt", c),
        ("dir/.hidden.txt", b"x\nx\n".to_vec()),
    ]);
    for inputs in ["AT/a.txt", "AT/*.txt", "AT/*.txt*", "AT/", "AT/**/*.txt AT/[bc].txt.*"] {
        assert!(!twice.assert_equal(&format!("{inputs} --workers 3 -q")).is_empty());
    }
    twice.assert_equal("AT/ --workers 1 -q");
    twice.assert_equal("AT/[ab].txt* --workers 2 --exactness bytes --keep last -q");
    twice.assert_equal("AT/ --scope dir -q");
    twice.assert_equal("AT/ --scope file -q");
    twice.assert_equal_files("AT/ -q");
    twice.assert_equal_files("AT/dir/ --granularity file -q");
    let report = "--duplicates - -o out --overwrite -q";
    let ran = twice.run(&format!("s3://{BUCKET}/dir/*.txt {report}")).kept_text();
    assert!(ran.contains(&format!("\"file\":\"s3://{BUCKET}/dir/.hidden.txt\",\"record\":2")));
}

#[test]
fn records_of_objects_are_records_of_files_in_every_format() {
    let rows = rows(3000);
    let json = json_lines(&rows);
    let csv = "id,url\n".to_owned() + &"1,a\n2,\"b\nc\"\n3,a\n".repeat(300);
    let twice = Twice::new(&[
        ("json/a.jsonl.gz", gzip(json.as_bytes())),
        ("json/b.ndjson", json.into_bytes()),
        ("csv/a.csv", csv.clone().into_bytes()),
        ("csv/b.csv.zst", zstd(csv.as_bytes())),
        ("table/a.parquet", table(SCHEMA, &rows, 700)),
        ("table/b.parquet", table(SCHEMA, &rows[100..900], 80)),
    ]);
    twice.assert_equal("AT/json/* --key url --workers 3 -q");
    twice.assert_equal_files("AT/json/ --key id -q");
    twice.assert_equal("AT/csv/*.csv* --key url -q");
    twice.assert_equal_files("AT/csv/ --granularity record -q");
    twice.assert_equal_files("AT/table/*.parquet --key url --workers 3 -q");
    twice.assert_equal_files("AT/table/ AT/json/ --key url -q");
    twice.assert_equal_files("AT/table/ -q");
}

#[test]
fn columns_of_parquet_that_are_not_compared_are_not_fetched() {
    let rows: Vec<_> = (0..200_000).map(|id| (id * id, Some("https://example.org/"))).collect();
    let bytes = table(SCHEMA, &rows, 50_000);
    let length = bytes.len() as u64;
    assert!(length > 600_000, "{length}");
    let twice = Twice::new(&[("a.parquet", bytes)]);
    twice.run(&format!("s3://{BUCKET}/a.parquet --key url --plan")).kept();
    twice.store.asked();
    twice.run(&format!("s3://{BUCKET}/a.parquet --key url -o out/ -q --keep last")).kept();
    // Two readings: the key column, and the only row group with a kept row.
    let read: u64 = parts(&twice.store.asked(), "a.parquet").iter().map(|(a, b)| b + 1 - a).sum();
    assert!(read < length, "{read} of {length} bytes");
}

#[test]
fn overload_and_broken_connections_change_nothing() {
    let twice =
        Twice::new(&[("a.txt", unlike_lines(1, 120_000)), ("b.gz", gzip(&lines(2, 50_000)))]);
    twice.store.set_faults(Faults { overloads: 2, cuts: 5, ..Faults::default() });
    twice.assert_equal("AT/* --workers 2 -q");
    let asked = twice.store.asked();
    assert_eq!(asked.iter().filter(|asked| asked.status == 503).count(), 2);
    // Bytes before a cut are not requested again.
    let spans = parts(&asked, "a.txt");
    let resumed = spans.iter().filter(|(start, end)| {
        start.checked_sub(1000).is_some_and(|from| spans.contains(&(from, *end)))
    });
    assert!(resumed.count() > 0, "{spans:?}");
}

/// Runs a job once per request for bytes; each time, the object changes before another request.
#[track_caller]
fn assert_changes_end_the_job(key: &str, before: &[u8], after: &[u8], options: &str) {
    let args = format!("s3://{BUCKET}/a/* -o out/ --skip-bad --workers 1 -q {options}");
    let twice = Twice::new(&[(key, before)]);
    twice.run(&args).kept();
    let requests = u32::try_from(twice.store.asked().len()).unwrap();
    // In addition to the listing and the opening: requests for the plan, for header or footer, and for
    // both readings.
    assert!(requests > 5, "{requests}");
    for request in 2..requests {
        let twice = Twice::new(&[(key, before)]);
        let change = Some((request, key.to_owned(), after.to_vec()));
        twice.store.set_faults(Faults { change, ..Faults::default() });
        let said = [&format!("s3://{BUCKET}/{key}")[..], "changed while it was read"];
        twice.run(&args).refused(1, &said);
        assert!(twice.sandbox.files().iter().all(|name| name.starts_with("local/")));
    }
}

#[test]
fn an_object_that_changes_ends_the_job() {
    let before = unlike_lines(1, 25_000);
    let longer = [&before[..], b"one more\n"].concat();
    let mut same_length = before.clone();
    same_length[0] ^= 1;
    assert_changes_end_the_job("a/b.txt", &before, &longer, "");
    assert_changes_end_the_job("a/b.txt", &before, &same_length, "");
    let table_of =
        |rows: u32| (0..rows).fold("id\n".to_owned(), |text, id| text + &format!("{id}\n"));
    let (before, after) = (table_of(300), table_of(299));
    assert_changes_end_the_job("a/b.csv", before.as_bytes(), after.as_bytes(), "--key id");
    let twice: Vec<_> = (0..2000).map(|id| (id % 1500, Some("x"))).collect();
    let (before, after) = (table(SCHEMA, &twice, 700), table(SCHEMA, &twice[1..], 700));
    assert_changes_end_the_job("a/b.parquet", &before, &after, "--key id");
}

#[test]
fn what_cannot_be_had_is_said() {
    let twice = Twice::new(&[("a.txt", "x\n"), ("b.txt", "y\n"), ("c.txt", "z\n")]);
    let refused = |args: &str, code, said: &[&str]| twice.run(args).refused(code, said);
    refused("s3://bucket/none", 1, &["s3://bucket/none: cannot read", "no such object", "404"]);
    refused("s3://other/a.txt", 1, &["s3://other/a.txt", "no such bucket"]);
    refused("s3://other/*.txt", 1, &["s3://other/*.txt: cannot list", "no such bucket"]);
    refused("s3://bucket/*.csv", 2, &["s3://bucket/*.csv: no object matches"]);
    refused("s3://bucket/dir/", 2, &["s3://bucket/dir/: no object below this prefix"]);
    refused("s3://bucket/[", 2, &["s3://bucket/["]);
    refused("s3:///a.txt", 2, &["expected s3://BUCKET/KEY"]);
    refused("s3://bucket/a.txt --cluster 127.0.0.1:1 -o /out", 2, &["read no objects"]);
    let cut = Faults { cut_lists: 1, ..Faults::default() };
    twice.store.set_faults(cut);
    refused(
        "s3://bucket/*.txt",
        1,
        &["s3://bucket/*.txt: cannot list", "cannot be understood: XML"],
    );
}

#[test]
fn a_refused_reader_gets_the_reason_and_no_secret() {
    let twice = Twice::new(&[("a.txt", "x\n")]);
    let run = |names: &[(&str, &str)]| {
        let mut command = twice.store.known_to(twice.sandbox.command("s3://bucket/a.txt"));
        for (name, value) in names {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        let ran = twice.sandbox.ended(command.output().unwrap());
        assert!(!ran.stderr.contains(SECRET_ACCESS_KEY) && !ran.stderr.contains("hunter2"));
        ran
    };
    let secret = "AWS_SECRET_ACCESS_KEY";
    run(&[(secret, "hunter2")]).refused(1, &["access denied with these credentials", "403"]);
    run(&[(secret, ""), ("AWS_ACCESS_KEY_ID", "")])
        .refused(1, &["access denied without credentials", "AWS_ACCESS_KEY_ID"]);
    run(&[(secret, "")]).refused(2, &["AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"]);
    run(&[("AWS_REGION", "us-west-2")]).refused(1, &["set AWS_REGION=eu-test-1"]);
    run(&[("AWS_ENDPOINT_URL", "127.0.0.1:9")]).refused(2, &["AWS_ENDPOINT_URL: expected http://"]);
    run(&[("AWS_SESSION_TOKEN", "token")]).kept();
}

#[test]
fn a_store_that_is_away_is_given_up() {
    let twice = Twice::new(&[("a.txt", "x\n")]);
    twice.store.set_faults(Faults { overloads: 100, ..Faults::default() });
    let said = ["s3://bucket/a.txt: cannot read", "no answer", "after 7 tries", "SlowDown"];
    twice.run("s3://bucket/a.txt").refused(1, &said);
}

#[test]
fn workers_read_objects_as_they_read_files() {
    let twice = Twice::new(&[("0/a.txt", lines(1, 5000)), ("1/b.txt.gz", gzip(&lines(2, 5000)))]);
    let peers = peers(2);
    let expected = twice.sandbox.run("local/ -q").kept();
    let start = |rank: usize| {
        let args = format!(
            "s3://{BUCKET}/{rank}/* --rank {rank} --peers {peers} --job-dir job{rank} -o out{rank} -q"
        );
        let mut command = twice.store.known_to(twice.sandbox.command(&args));
        command.env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
    };
    let workers = [start(0), start(1)];
    let outputs = workers.map(|worker| worker.wait_with_output().unwrap());
    for output in outputs {
        twice.sandbox.ended(output).kept();
    }
    let kept = [twice.sandbox.read("out0"), twice.sandbox.read("out1")].concat();
    assert!(kept == expected);
}
