//! Jobs of a cluster of real processes: the nodes find duplicates within and across their own files; one
//! node is killed in the middle of a job, and jobs are cancelled and refused.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::servers::{Cluster, umbel, until};

/// Lines of each node's file: enough that a node can be killed before a job ends.
const LINES: u64 = 60_000;

/// A cluster that may read and write below its own folder, and an input file for each node.
struct Site {
    cluster: Cluster,
    inputs: Vec<PathBuf>,
}

impl Site {
    async fn new(nodes: usize, lines: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("umbel-roots-").tempdir().unwrap();
        // Nodes need their roots before they start, but the cluster creates its own folder.
        let root = folder.keep();
        let text = root.display().to_string();
        let cluster = Cluster::form_with(nodes, |node| {
            node.set("UMBEL_JOB_ROOTS", &text);
            node.set("UMBEL_JOB_MEMORY_BYTES", "67108864");
        })
        .await;
        let inputs = (1..=nodes).map(|node| root.join(format!("{node}.txt"))).collect();
        let site = Self { cluster, inputs };
        for (node, input) in (1..).zip(&site.inputs) {
            std::fs::write(input, text_of(node, lines)).unwrap();
        }
        site
    }

    fn root(&self) -> &Path {
        self.inputs[0].parent().unwrap()
    }

    /// A command with which each node reads its file, with more arguments.
    async fn dedup(&self, output: &Path, more: &[&str]) -> Output {
        self.ask("--output", output, more).await
    }

    /// Like `Self::dedup`, with another flag for the output.
    async fn ask(&self, flag: &str, output: &Path, more: &[&str]) -> Output {
        let mut args = vec!["dedup".to_owned(), "--cluster".to_owned()];
        args.push(self.cluster.nodes[0].address.clone());
        for (node, input) in (1..).zip(&self.inputs) {
            args.extend(["--on".to_owned(), format!("{node}={}", input.display())]);
        }
        args.extend([flag.to_owned(), format!("{}/", output.display())]);
        args.extend(more.iter().map(ToString::to_string));
        run(args).await
    }

    /// Runs a verb of `umbel job`; returns what it printed.
    async fn job(&self, verb: &[&str]) -> String {
        let mut args = vec!["job".to_owned(), "--cluster".to_owned()];
        args.push(self.cluster.nodes[0].address.clone());
        args.extend(verb.iter().map(ToString::to_string));
        let output = run(args).await;
        assert!(output.status.success(), "{verb:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The kept lines of each file if one process on one machine does the same, with more arguments.
    async fn expected(&self, more: &[&str]) -> Vec<Vec<u8>> {
        let folder = self.root().join("expected");
        let mut args = vec!["dedup".to_owned(), "--quiet".to_owned()];
        args.extend(self.inputs.iter().map(|input| input.display().to_string()));
        args.extend(["--output".to_owned(), format!("{}/", folder.display())]);
        args.extend(more.iter().map(ToString::to_string));
        let output = run(args).await;
        assert!(output.status.success(), "{}", said(&output));
        self.files(&folder)
    }

    fn files(&self, folder: &Path) -> Vec<Vec<u8>> {
        let read =
            |input: &PathBuf| std::fs::read(folder.join(input.file_name().unwrap())).unwrap();
        self.inputs.iter().map(read).collect()
    }

    /// The scratch folders of the nodes' jobs.
    fn scratch(&self) -> Vec<PathBuf> {
        let folders = self.cluster.nodes.iter().map(|node| node.data.join("jobs"));
        let jobs = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        jobs.map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until no job has left files there.
    async fn cleared(&self) {
        until("scratch removed", || async { self.scratch().is_empty().then_some(()) }).await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.root());
    }
}

/// Lines of which a third are in other files, too, and a few are twice in this one.
fn text_of(node: u64, lines: u64) -> String {
    let line = |number: u64| match number % 6 {
        0 | 1 => format!("shared {}\n", number / 3),
        2 if number > 20 => format!("line {} of {node}\n", number - 20),
        _ => format!("line {number} of {node}\n"),
    };
    (0..lines).map(line).collect()
}

async fn run(args: Vec<String>) -> Output {
    let words = move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        umbel(&args).output().unwrap()
    };
    tokio::task::spawn_blocking(words).await.unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_keep_what_one_machine_keeps() {
    let site = Site::new(3, 4000).await;
    let (kept, summary) = (site.root().join("kept"), site.root().join("summary.json"));
    let (page, again) = (site.root().join("page.html"), site.root().join("again.html"));
    let [summary_path, page_path, again_path] =
        [&summary, &page, &again].map(|path| path.display().to_string());
    let output = site.dedup(&kept, &["--summary", &summary_path, "--report", &page_path]).await;
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(site.files(&kept), site.expected(&[]).await);
    let text = std::fs::read_to_string(&summary).unwrap();
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&told["records"], &told["files"]["all"]["records"]),
        (&12000.into(), &12000.into())
    );
    assert_eq!(told["overlap"]["workers"], serde_json::json!([0, 1, 2]));
    let rows = told["overlap"]["dropped"].as_array().unwrap().iter();
    let cells = rows.flat_map(|row| row.as_array().unwrap()).map(|cell| cell.as_u64().unwrap());
    let repeats = told["dropped"]["input"].as_u64().unwrap();
    assert_eq!(cells.sum::<u64>(), repeats);
    let page = std::fs::read_to_string(&page).unwrap();
    let thousands = |number: u64| format!("{},{:03}", number / 1000, number % 1000);
    let sums = page.split(">All files<").nth(1).expect("a row of all files");
    let sums = sums.split("</tr>").next().unwrap();
    let counts = [">12,000<".to_owned(), format!(">{}<", thousands(repeats))];
    assert!(counts.iter().all(|count| sums.contains(count)), "{counts:?} not in {sums}");
    let third = format!("worker 2: {}", site.inputs[2].display());
    assert!(page.contains(&third), "{third} not in {page}");
    let listed = site.job(&["list"]).await;
    let number = listed.split('\t').next().unwrap().to_owned();
    assert!(listed.contains("\tdone\t1\t1,2,3\t"), "{listed}");
    let status = site.job(&["status", &number]).await;
    assert!(status.contains("records\t12000"), "{status}");
    site.job(&["report", &number, &again_path]).await;
    assert_eq!(std::fs::read_to_string(&again).unwrap(), page);
    assert_eq!(site.job(&["report", &number, "-"]).await, page);
    site.cleared().await;
    // Existing outputs are not overwritten.
    let again = site.dedup(&kept, &[]).await;
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("exists: --overwrite replaces it"), "{}", said(&again));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_earlier_jobs_have_kept_is_dropped_by_all_nodes() {
    let site = Site::new(3, 2000).await;
    let index = site.root().join("old.umbi").display().to_string();
    let [input, old] = [&site.inputs[1], &site.root().join("old.txt")];
    let [input, old] = [input, old].map(|path| path.display().to_string());
    let args = ["dedup", "-q", &input, "--output", &old, "--save-index", &index];
    assert!(run(args.map(str::to_owned).to_vec()).await.status.success());
    // The seed is that of the index, which the nodes read and the command does not.
    let (kept, reference) = (site.root().join("kept"), ["--reference", &index]);
    let output = site.dedup(&kept, &reference).await;
    assert!(output.status.success(), "{}", said(&output));
    let files = site.files(&kept);
    assert_eq!(files, site.expected(&reference).await);
    assert!(files[1].is_empty() && !files[0].is_empty());
    let outside = site.dedup(&site.root().join("other"), &["--reference", "/etc/hosts"]).await;
    assert!(said(&outside).contains("/etc/hosts: may not be read by jobs"), "{}", said(&outside));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_the_cluster_is_queried_and_updated_by_its_nodes() {
    let site = Site::new(3, 2000).await;
    let address = site.cluster.nodes[1].address.clone();
    let filter = |words: &[&str]| {
        let mut args = vec!["filter".to_owned(), "--cluster".to_owned(), address.clone()];
        args.extend(words.iter().map(ToString::to_string));
        run(args)
    };
    let created = filter(&["create", "seen", "--capacity", "1e5", "--rate", "1e-7"]).await;
    assert!(created.status.success(), "{}", said(&created));
    let known = site.root().join("known.txt");
    std::fs::write(&known, "shared 8\nline 9 of 2\nelse\n").unwrap();
    let inserted = filter(&["insert", "seen", "--file", &known.display().to_string()]).await;
    assert!(inserted.status.success(), "{}", said(&inserted));
    let kept = site.root().join("kept");
    let both = ["--reference", "umbel:///seen", "--add-to", "umbel:///seen", "--summary", "-"];
    let output = site.dedup(&kept, &both).await;
    assert!(output.status.success(), "{}", said(&output));
    let without = |file: Vec<u8>| {
        let text = String::from_utf8(file).unwrap();
        let lines = text.lines().filter(|line| !["shared 8", "line 9 of 2"].contains(line));
        lines.map(|line| format!("{line}\n")).collect::<String>().into_bytes()
    };
    let expected: Vec<Vec<u8>> = site.expected(&[]).await.into_iter().map(without).collect();
    assert!(site.files(&kept) == expected);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["references"]["online"][0]["filter"], "umbel:///seen");
    assert_eq!(value["dropped"]["reference"], 2);
    // The filter now has all kept lines.
    for input in &site.inputs {
        let kept = kept.join(input.file_name().unwrap()).display().to_string();
        let counted = filter(&["contains", "seen", "--file", &kept, "--count"]).await;
        let lines = std::fs::read_to_string(&kept).unwrap().lines().count();
        let text = String::from_utf8(counted.stdout).unwrap();
        assert!(text.starts_with(&format!("present\t{lines}\n")), "{text}");
    }
    // A job cannot make nodes connect to other addresses.
    let foreign = format!("umbel://{address}/seen");
    let refused = site.dedup(&site.root().join("none"), &["--add-to", &foreign]).await;
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("write umbel:///seen for a filter"), "{}", said(&refused));
    site.cleared().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_and_groups_of_nodes_are_those_of_one_machine() {
    let site = Site::new(3, 2000).await;
    let path = |name: &str| site.root().join(name).display().to_string();
    let (groups, summary) = (path("groups.jsonl"), path("summary.json"));
    let outside = site.ask("--annotate", &site.root().join("none"), &["--groups", "/groups"]).await;
    assert!(said(&outside).contains("/groups: may not be written by jobs"), "{}", said(&outside));
    // Nodes cannot write a common list of groups on one machine, but the summary counts the groups of
    // all.
    let more = ["--keep", "last", "--summary", &summary];
    let notes = site.root().join("notes");
    let output = site.ask("--annotate", &notes, &more).await;
    assert!(output.status.success(), "{}", said(&output));
    let one = site.root().join("one");
    let mut args =
        vec!["dedup".to_owned(), "-q".to_owned(), "--keep".to_owned(), "last".to_owned()];
    args.extend(site.inputs.iter().map(|input| input.display().to_string()));
    args.extend(["--annotate".to_owned(), format!("{}/", one.display())]);
    args.extend(["--groups".to_owned(), groups.clone(), "--summary".to_owned(), path("one.json")]);
    let alone = run(args).await;
    assert!(alone.status.success(), "{}", said(&alone));
    for (worker, input) in site.inputs.iter().enumerate() {
        let name = format!("{}.jsonl", input.file_name().unwrap().to_str().unwrap());
        let told = std::fs::read_to_string(notes.join(&name)).unwrap();
        assert!(told.lines().all(|line| line.starts_with(&format!("{{\"worker\":{worker},"))));
        assert!(told.contains("\"group\":{\"worker\":2,"), "{name}");
        let told = (0..3).fold(told, |text, n| text.replace(&format!("\"worker\":{n},"), ""));
        assert!(told == std::fs::read_to_string(one.join(&name)).unwrap(), "{name}");
    }
    let value = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
    };
    assert_eq!(value("summary.json")["groups"], value("one.json")["groups"]);
    assert_eq!(value("summary.json")["most_repeated"].as_array().unwrap().len(), 20);
    let count = std::fs::read_to_string(&groups).unwrap().lines().count();
    assert_eq!(value("summary.json")["groups"]["count"], count);
    site.cleared().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_in_the_middle_goes_on_where_it_was() {
    let mut site = Site::new(3, LINES).await;
    let kept = site.root().join("kept");
    // Neither is written, so they are not in each other's way.
    let submitted = site.dedup(&kept, &["--detach", "--summary", "-", "--report", "-"]).await;
    assert!(submitted.status.success(), "{}", said(&submitted));
    for hint in [" --json` has its summary, unless it was", " -` draws its page, unless its"] {
        assert!(said(&submitted).contains(hint), "{}", said(&submitted));
    }
    let number = String::from_utf8(submitted.stdout).unwrap().trim().to_owned();
    let journal = site.cluster.nodes[1].data.join(format!("jobs/job-{number}/journal"));
    until("node 2 has begun", || async {
        std::fs::metadata(&journal).is_ok_and(|data| data.len() > 0).then_some(())
    })
    .await;
    site.cluster.nodes[1].kill();
    site.cluster.nodes[1].start();
    site.cluster.nodes[1].ready().await;
    site.job(&["wait", &number]).await;
    assert_eq!(site.files(&kept), site.expected(&[]).await);
    site.cleared().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_says_for_whom_and_can_be_cancelled() {
    let mut site = Site::new(3, 100).await;
    site.cluster.nodes[2].kill();
    let kept = site.root().join("kept");
    let submitted = site.dedup(&kept, &["--detach"]).await;
    assert!(submitted.status.success(), "{}", said(&submitted));
    let number = String::from_utf8(submitted.stdout).unwrap().trim().to_owned();
    until("the job waits for node 3", || async {
        let status = site.job(&["status", &number]).await;
        status.contains("waits for node 3\n").then_some(())
    })
    .await;
    site.job(&["cancel", &number]).await;
    until("the job is cancelled", || async {
        let status = site.job(&["status", &number]).await;
        status.contains("state\tcancelled\n").then_some(())
    })
    .await;
    site.cleared().await;
    assert!(std::fs::read_dir(&kept).map_or(true, |mut kept| kept.next().is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_may_not_do_is_refused() {
    let site = Site::new(1, 10).await;
    let outside = tempfile::tempdir().unwrap();
    let output = site.dedup(&outside.path().join("kept"), &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("may not be written by jobs here"), "{}", said(&output));
    let relative = site.dedup(Path::new("kept"), &[]).await;
    assert!(said(&relative).contains("nodes need absolute paths"), "{}", said(&relative));
    let secret = outside.path().join("secret.txt");
    std::fs::write(&secret, "a\n").unwrap();
    let link = site.root().join("link.txt");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let kept = site.root().join("kept");
    let on = format!("1={}", link.display());
    let read = site.dedup(&kept, &["--on", &on]).await;
    assert!(said(&read).contains("may not be read by jobs here"), "{}", said(&read));
    drop(site);
    let cluster = Cluster::form(1).await;
    let args = ["dedup", "--cluster", &cluster.nodes[0].address, "/x/*", "--output", "/x/kept/"];
    let none = run(args.map(str::to_owned).to_vec()).await;
    assert!(said(&none).contains("takes no part in jobs"), "{}", said(&none));
}
