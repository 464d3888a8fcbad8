//! The division into records and the choice of files in jobs over many machines: as in one process, and
//! equal for all workers.

use crate::machines::Job;
use crate::model::{Draws, lines};

/// Rows without a header, with semicolons between fields; some quoted fields contain line ends.
fn rows(seed: u64) -> Vec<u8> {
    let mut draws = Draws(seed);
    let row = |_| {
        let (id, text) = (draws.below(150), draws.below(9));
        if text == 0 { format!("\"{id}\";\"a\n;b\"\n") } else { format!("{id};{text}\r\n") }
    };
    (0..200).map(row).collect::<String>().into_bytes()
}

fn zero_terminated(seed: u64) -> Vec<u8> {
    let line_ends = |byte| if byte == b'\n' { 0 } else { byte };
    lines(seed, 400).into_iter().map(line_ends).collect()
}

#[test]
fn dialects_and_zero_bytes_are_as_in_one_process() {
    let dialect = "--no-header --delimiter ; --key 1 --keep last";
    Job::new(3, "csv", dialect, rows).run_as_one_process();
    Job::new(3, "txt", "-z --exactness bytes", zero_terminated).run_as_one_process();
    let job = Job::new(2, "txt", "--include [01].txt --exclude 0.*", |seed| lines(seed, 300));
    job.run_as_one_process();
    let summary = job.summary("one.json");
    let records = ["in0/1.txt", "in1/1.txt"]
        .map(|name| job.sandbox.read(name).iter().filter(|byte| **byte == b'\n').count() as u64);
    assert_eq!(summary["records"], records.iter().sum::<u64>());
}

#[test]
fn workers_that_cut_otherwise_are_refused() {
    let options = "--no-header --delimiter ; --key 1";
    for other in
        ["--no-header --delimiter , --key 1", "--delimiter ; --no-header --key 1 --format csv"]
    {
        let job = Job::new(2, "csv", options, rows);
        let mut first = job.start(0);
        let other = Job { options: job.options.replace(options, other), ..job };
        other.wait(vec![other.start(1)]).remove(0).refused(1, &["was told another job"]);
        first.kill().unwrap();
        first.wait().unwrap();
    }
    let job = Job::new(2, "txt", "--keep first", |seed| lines(seed, 20));
    let mut first = job.start(0);
    let other = Job { options: format!("-z {}", job.options), ..job };
    other.wait(vec![other.start(1)]).remove(0).refused(1, &["was told another job"]);
    first.kill().unwrap();
    first.wait().unwrap();
}
