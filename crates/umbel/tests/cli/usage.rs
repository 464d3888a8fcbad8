//! Wrong usage, empty inputs, `--plan`, `--quiet` and the final table.

use crate::model::lines;
use crate::sandbox::Sandbox;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn nothing_to_do_is_exit_code_2() {
    let sandbox = Sandbox::with(&[("empty.txt", "")]);
    fs::create_dir(sandbox.path("bare")).unwrap();
    for (args, said) in [
        ("*.nothing", "*.nothing"),
        ("bare", "bare"),
        ("bare/*", "bare/*"),
        ("http://host/x", "http://host/x: only s3:// is read; umbel:// goes to --reference"),
        ("S3://bucket/*", "only s3:// is read"),
    ] {
        sandbox.run(args).refused(2, &[said]);
        assert_eq!(sandbox.files(), ["empty.txt"], "{args}");
    }
}

#[test]
fn wrong_options_are_exit_code_2_and_are_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("a.jsonl", "{\"k\":1}\n")]);
    let files = sandbox.files();
    for (args, said) in [
        ("a.txt --no-such-flag", "--no-such-flag"),
        ("a.txt --workers 0", "--workers"),
        ("a.txt --workers 1025", "--workers"),
        ("a.txt --memory 1M", "64M"),
        ("a.txt --memory 64", "--memory is 64 bytes"),
        ("a.txt --memory much", "--memory"),
        ("a.txt --memory 99999999999T", "--memory"),
        ("a.txt --granularity key", "--key"),
        ("a.jsonl --granularity line --key k", "--key"),
        ("a.jsonl --key a..b", "--key a..b"),
        ("a.txt --exactness approximate --false-positive-rate 0", "--false-positive-rate"),
        ("a.txt --exactness approximate --false-positive-rate 1", "--false-positive-rate"),
        ("a.txt --exactness approximate --false-positive-rate NaN", "--false-positive-rate"),
        ("a.txt --exactness exactly", "exactly"),
        ("a.txt --keep middle", "middle"),
        ("a.txt --skip-bad=some", "--skip-bad"),
        ("a.txt --skip-bad=-1", "expected a number of records"),
        ("a.txt --seed x", "expected a whole number below 2^64"),
        ("a.txt --worker-timeout 90s", "--rank"),
        ("/a.txt --cluster 127.0.0.1:1 --worker-timeout 90s", "--rank"),
    ] {
        sandbox.run(&format!("{args} --output out.txt")).refused(2, &[said]);
        assert_eq!(sandbox.files(), files, "{args}");
    }
}

/// A job removes its files when it ends.
#[test]
fn a_job_folder_that_holds_something_else_is_refused() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("thesis/groups", "mine")]);
    let files = sandbox.files();
    let args = "a.txt --rank 0 --peers 127.0.0.1:1 --job-dir thesis --output out.txt";
    let mut command = sandbox.command(args);
    command.env("UMBEL_JOB_TOKEN", "0123456789abcdef0123456789abcdef");
    let said = ["thesis: holds groups, which is of no job", "--job-dir", "new or an empty folder"];
    sandbox.ended(command.output().unwrap()).refused(2, &said);
    assert_eq!(sandbox.files(), files);
    assert_eq!(sandbox.text("thesis/groups"), "mine");
}

/// No cluster answers there: it is not asked.
#[test]
fn what_the_command_of_a_clusters_job_cannot_write_is_told_before_the_job_begins() {
    let sandbox = Sandbox::with(&[("old", "x\n")]);
    for (args, code, said) in [
        ("--summary gone/s.json", 1, ["gone/s.json: cannot create", "No such file"]),
        ("--report gone/p.html", 1, ["gone/p.html: cannot create", "No such file"]),
        ("--summary old", 2, ["old exists", "--overwrite"]),
        ("--summary . --overwrite", 2, [". is a directory", "expected a file"]),
        ("--summary new --report ./new", 2, ["--report ./new: two outputs", "--summary new"]),
        ("--summary - --report -", 2, ["two outputs would go to", "standard output"]),
    ] {
        let job = "/x/* --cluster 127.0.0.1:1 --output /o/";
        sandbox.run(&format!("{job} {args}")).refused(code, &said);
        assert_eq!(sandbox.files(), ["old"], "{args}");
    }
}

/// No cluster is asked.
#[test]
fn a_page_and_json_do_not_share_standard_output() {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_umbel"));
    let output = binary.args(["job", "report", "7", "-", "--json"]).output().unwrap();
    Sandbox::new().ended(output).refused(2, &["the page and --json would both", "name a file"]);
}

#[test]
fn a_missing_file_is_exit_code_1_and_is_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n")]);
    for args in ["gone.txt", "a.txt gone.txt", "a.txt gone.txt --output out/"] {
        sandbox.run(args).refused(1, &["gone.txt", "No such file"]);
        assert_eq!(sandbox.files(), ["a.txt"], "{args}");
    }
}

#[test]
fn keys_of_a_text_are_wrong_usage_with_the_way_out() {
    let sandbox = Sandbox::with(&[("a.txt", "{\"k\":1}\n"), ("b.jsonl", "{\"k\":1}\n")]);
    for args in ["a.txt", "b.jsonl a.txt", "b.jsonl --format text"] {
        let name = if args.contains("a.txt") { "a.txt" } else { "b.jsonl" };
        sandbox
            .run(&format!("{args} --key k --output out.txt"))
            .refused(2, &[name, "--format jsonl"]);
        assert!(!sandbox.exists("out.txt"));
    }
    sandbox.write("empty.parquet", "");
    sandbox.run("empty.parquet --key k").refused(2, &["(it is named .parquet and read as text)"]);
    sandbox.run_piped("- --key k", b"{\"k\":1}\n").refused(2, &["--format jsonl"]);
}

#[test]
fn a_scratch_directory_that_is_missing_is_named() {
    let sandbox = Sandbox::new();
    sandbox.run_piped("- --scratch gone", b"x\n").refused(1, &["gone"]);
}

#[test]
fn a_plan_only_prints_a_forecast() {
    let sandbox = Sandbox::with(&[("in/a.txt", lines(1, 5000)), ("in/b.txt", lines(2, 100))]);
    let files = sandbox.files();
    for options in ["", "--workers 8", "--exactness bytes --workers 8", "--memory 64M"] {
        let ran = sandbox.run(&format!(
            "in {options} --plan --output out/ --duplicates d.jsonl --summary s.json"
        ));
        assert_eq!(ran.stderr, "", "{options}");
        assert_eq!(sandbox.files(), files, "{options}");
        let forecast = ran.kept_text();
        for row in ["input", "records", "workers", "memory", "scratch"] {
            assert!(forecast.lines().any(|line| line.starts_with(row)), "{row}: {forecast}");
        }
        assert!(forecast.contains("2 file"), "{forecast}");
        assert!(!sandbox.exists("out"), "a directory was made");
    }
}

#[test]
fn a_plan_counts_what_groups_cost_on_many_machines() {
    let sandbox = Sandbox::with(&[("a.txt", lines(1, 2500))]);
    let bytes = |options: &str| -> Option<u64> {
        let forecast = sandbox.run(&format!("a.txt --plan --workers 8 {options}")).kept_text();
        let (_, groups) = forecast.split_once("\ngroups ")?;
        let row = groups.lines().last()?;
        let number = row.strip_suffix(" bytes")?.rsplit(' ').next()?;
        Some(number.parse().unwrap())
    };
    assert_eq!(bytes("--output out.txt"), None);
    let listed = bytes("--output out.txt --groups g.jsonl").unwrap();
    let annotated = bytes("--annotate out.jsonl").unwrap();
    // 17 % of 2,500 records occur twice: 212 are dropped, with one or two bytes each, and one more for
    // the size.
    assert!((212..637).contains(&listed), "{listed}");
    assert!((listed + 200..listed + 225).contains(&annotated), "{annotated}, {listed}");
}

#[test]
fn a_plan_refuses_what_the_job_would_refuse() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n")]);
    sandbox.run("a.txt --plan --memory 1M").refused(2, &["64M"]);
    sandbox.run("*.nothing --plan").refused(2, &["*.nothing"]);
    sandbox.run("gone.txt --plan").refused(1, &["gone.txt"]);
}

#[test]
fn quiet_is_silent() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    for option in ["--quiet", "-q"] {
        let ran = sandbox.run(&format!("a.txt {option} --workers 3"));
        assert_eq!((ran.stderr.clone(), ran.kept_text()), (String::new(), "x\n".into()));
    }
}

#[test]
fn quiet_still_tells_why_it_failed() {
    Sandbox::new().run("gone.txt --quiet").refused(1, &["gone.txt"]);
}

#[test]
fn the_closing_table_counts_and_is_plain_text() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n".repeat(1999) + "y\n")]);
    for workers in [1, 3] {
        let ran = sandbox.run(&format!("a.txt --workers {workers}"));
        let table = ran.stderr;
        let row = |name: &str| {
            let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name));
            row.unwrap_or_else(|| panic!("no {name}: {table}")).trim().to_owned()
        };
        assert_eq!((row("records"), row("kept")), ("2,000".into(), "2".into()));
        assert_eq!(row("dropped"), "1,998 (99.90 %)");
        assert!(row("equal by").contains("128 bits"), "{table}");
        let is_control = |c: char| c.is_control() && c != '\n';
        assert!(!table.contains(is_control), "{table:?}");
    }
}

#[test]
fn help_and_version_are_exit_code_0() {
    let sandbox = Sandbox::new();
    let help = sandbox.run("--help").kept_text();
    for word in ["--skip-bad", "--workers", "Exit codes", "standard input"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

/// At most two screens of 50 lines and 80 columns.
#[test]
fn help_is_read_on_two_screens() {
    let output = Sandbox::new().command("--help").env("COLUMNS", "80").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.lines().count() <= 96, "{} lines", help.lines().count());
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    for heading in ["Input:", "What is equal:", "Output:", "Reports:", "Examples:", "Exit codes:"] {
        assert!(help.contains(heading), "{heading}");
    }
}

/// Every command's help explains at 80 columns what it does, with three examples, and its exit codes.
#[test]
fn help_of_every_command_fits_two_screens_and_has_examples() {
    for command in ["reconcile", "serve", "filter", "cluster", "job", "plan", "sketch", "index"] {
        let run = |arguments: &[&str]| {
            let binary = Command::new(env!("CARGO_BIN_EXE_umbel"));
            let output = { binary }.args(arguments).env("COLUMNS", "80").output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{arguments:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let help = run(&[command, "--help"]);
        assert!(help.lines().count() <= 100, "{command}: {} lines", help.lines().count());
        for word in ["Exit codes", "0 ", "wrong", "docs/"] {
            assert!(help.contains(word), "{command}: {word}");
        }
        let examples = help.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{command}"));
        let examples: Vec<&str> = examples.lines().take_while(|line| !line.is_empty()).collect();
        assert!(examples.len() >= 3, "{command}: {examples:?}");
        let is_of_it = |line: &&&str| line.contains(&format!("umbel {command} "));
        assert_eq!(examples.iter().filter(is_of_it).count(), 3, "{command}: {examples:?}");
        for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
            assert!(line.chars().count() <= 80 || line.starts_with("  umbel"), "{command}: {line}");
        }
    }
}

/// What one command alone has is not scattered among what all have.
#[test]
fn options_of_every_command_have_a_heading_of_their_own() {
    let help_of = |words: &str| {
        let mut binary = Command::new(env!("CARGO_BIN_EXE_umbel"));
        let output = binary.args(words.split(' ')).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (words, option) in
        [("filter create", "--late"), ("cluster drain", "--dry-run"), ("access add", "--may")]
    {
        let help = help_of(words);
        let (own, shared) = help.split_once("Options of every command:").unwrap();
        assert!(own.contains(option) && !own.contains("--tls-ca"), "{help}");
        assert!(shared.contains("--tls-ca") && shared.contains("--json"), "{help}");
    }
    // A full stop at the end of a help text is not shown.
    assert!(help_of("access add").contains("any of `-_.`"));
}

/// Whoever meets an option of the service in a script can look it up.
#[test]
fn options_of_the_service_are_in_its_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let documents: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
    for words in ["serve", "filter create"] {
        let mut binary = Command::new(env!("CARGO_BIN_EXE_umbel"));
        let output = binary.args(words.split(' ')).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let own = help.split("Options of every command:").next().unwrap();
        let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        let options = own.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        let options: Vec<&str> = options
            .map(|rest| rest.split(|letter: char| !is_of_name(letter)).next().unwrap_or_default())
            .collect();
        assert!(options.len() >= 5, "{help}");
        for option in options {
            assert!(documents.contains(&format!("--{option}")), "{words} --{option}");
        }
    }
}
