//! Descriptions of jobs as releases before version 5 of the cluster wrote them: JSON with the words of a command
//! line. Their jobs may still be in the ledger, and clusters of a lower version take jobs from their commands only.

use super::DedupArgs;
use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Deserialize;
use umbel_dedup::{SentJob, SentJobError};
use umbel_engine::limits::JOB_SPEC_BYTES_MAX;

/// A description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// The release of the command.
    release: String,
    /// The arguments after `umbel dedup`.
    words: Vec<String>,
}

/// Parses the arguments of the command.
#[derive(Parser)]
#[command(name = "umbel dedup", no_binary_name = true, disable_help_flag = true)]
struct Words {
    #[command(flatten)]
    args: DedupArgs,
}

/// Whether a description is words: JSON begins with a byte with which no message of a job begins.
pub(super) fn are_words(description: &[u8]) -> bool {
    description.first() == Some(&b'{')
}

/// The job that the words describe, checked as its message would be.
///
/// # Errors
///
/// If the description is malformed, its arguments are wrong, or no message can say what they say.
pub(super) fn read(description: &[u8]) -> Result<SentJob> {
    Ok(SentJob::decode(&parsed(description)?.encode()?)?)
}

fn parsed(description: &[u8]) -> Result<SentJob> {
    let bytes = description.len();
    if bytes > JOB_SPEC_BYTES_MAX {
        return Err(SentJobError::TooLong { bytes }.into());
    }
    let Description { release, words } =
        serde_json::from_slice(description).context("no words of a job")?;
    let words = Words::try_parse_from(words);
    let Words { args } = words.with_context(|| format!("words of a job of release {release}"))?;
    if args.machines.has_others() {
        bail!("--rank: nodes are the workers of a cluster's job, and know their numbers");
    }
    let (own_inputs, names_seed) = (args.on_cluster.on.clone(), args.seed.is_some());
    Ok(SentJob { spec: args.spec()?, own_inputs, names_seed })
}

#[cfg(test)]
mod tests {
    use super::super::cluster::{described_since, spec_of};
    use super::*;
    use serde_json::json;
    use umbel_dedup::JOB_MESSAGES_SINCE;
    use umbel_engine::meta::ClusterVersion;

    fn described(release: &str, line: &str) -> Vec<u8> {
        let words: Vec<&str> = line.split(' ').collect();
        json!({ "release": release, "words": words }).to_string().into_bytes()
    }

    /// The specification without what is the node's own.
    fn shown(mut job: SentJob) -> String {
        let defaults = Words::try_parse_from(["x"]).unwrap().args.spec().unwrap();
        (job.spec.scratch, job.spec.stores) = (defaults.scratch, defaults.stores);
        (job.spec.memory_bytes, job.spec.seed) = (1, 2);
        (job.spec.summary, job.spec.page, job.spec.reach) = (None, None, defaults.reach);
        format!("{job:?}")
    }

    #[test]
    fn words_and_the_message_of_the_same_command_are_the_same_job() {
        for line in [
            "/d/*.txt --output /o/",
            "--cluster a:1 --on 1=/a --on 3=/b/* --output /o/kept.txt --overwrite --seed 7",
            "/d --include *.jsonl --exclude cache/** --key url --key a.b --keep best:at:min -o /o/ --missing-key drop \
             --normalise trim,lower,url --scope dir --empty keep --skip-bad=9 --bad /o/bad --binary skip",
            "/d --key text --granularity paragraph --paragraph-bytes-min 20 -o /o/ --format parquet --report p.html",
            "/d.csv --delimiter ; --no-header --exactness approximate --false-positive-rate 0.01 -o /o/ --filter wide",
            "/d -z --granularity record --keep last --annotate /o/ --summary s.json --quiet",
            "/d -o /o/ --reference /i.umbi --reference umbel:///f/g --add-to umbel:///h --save-index /i --index-bits 96 \
             --duplicates /o/d --groups /o/g",
        ] {
            // An option and its value, also where the line goes on.
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            let description = described("0.0.9", &line);
            let (job, checked) = (parsed(&description).unwrap(), read(&description).unwrap());
            assert_eq!(shown(checked), shown(job), "{line}");
        }
    }

    #[test]
    fn words_of_an_earlier_release_give_each_node_its_inputs() {
        let description = br#"{"release":"0.1.0","words":["/all","--cluster","a:1","--on","2=/own","-o","/o/","--seed","0x10"]}"#;
        assert_eq!(described_since(description), ClusterVersion::FIRST);
        let inputs = |node| spec_of(description, node).unwrap().0.inputs;
        assert_eq!([inputs(1), inputs(2)], [["/all"], ["/own"]]);
        let (spec, names_seed) = spec_of(description, 2).unwrap();
        // The seed itself is in the ledger beside the description.
        assert_eq!((spec.seed, names_seed), (0, true));
        let message = read(description).unwrap().encode().unwrap();
        assert_eq!(described_since(&message), JOB_MESSAGES_SINCE);
        assert_eq!(spec_of(&message, 2).unwrap().0.inputs, ["/own"]);
    }

    #[test]
    fn what_is_neither_words_nor_a_message_is_refused() {
        for (description, expected) in [
            (&b""[..], "inputs: expected at least one"),
            (b"{", "no words of a job"),
            (br#"{"words":["/a"]}"#, "no words of a job"),
            (br#"{"release":"0.0.9","words":["--x"]}"#, "words of a job of release 0.0.9"),
            (br#"{"release":"0.0.9","words":["a","-o","/o/"]}"#, "inputs: expected absolute paths"),
            (br#"{"release":"0.0.9","words":["/a","--workers","2"]}"#, "--workers"),
            (br#"{"release":"0.0.9","words":["/a","--rank","0","--peers","a:1,b:1"]}"#, "--rank"),
            (b"[]", "no message of a job"),
        ] {
            let error = format!("{:#}", spec_of(description, 1).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let long = vec![b'{'; JOB_SPEC_BYTES_MAX + 1];
        let error = spec_of(&long, 1).unwrap_err().to_string();
        assert!(error.contains("at most 262144 are allowed"), "{error}");
    }
}
