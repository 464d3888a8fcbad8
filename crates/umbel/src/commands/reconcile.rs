//! `umbel reconcile`: finds the difference of two sets and applies or prints it.

use super::form::FormArgs;
use crate::amounts::parse_bytes;
use crate::exit::{Exit, UsageError};
use crate::stderr::eprint_text;
use crate::units::some_seconds;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgGroup, Args, ValueEnum};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use umbel_reconcile::{
    Driving, Ended, Endpoint, Form, Initiative, ItemSet, Listening, PeerConnection, RemoteFiles,
    SessionObserver, answer, listen, open_set, reconcile,
};
use umbel_reconcile_engine::{Aim, Direction, Optimize, Options, SessionRole};

mod bounds;
mod checks;
mod observers;
mod offline;
mod page;
mod report;
mod secret;
mod sets;

use observers::{Notices, Terminal};
use report::{Report, ReportOutputs, count_changed, show_difference};

const RESULTS: &str = "Results";
const SESSION: &str = "Session";

/// The end of the text of `--help`.
const HELP_END: &str = "\
A and B are paths, ssh://HOST/PATH, tcp://HOST:PORT or exec:COMMAND; one of them
is a path. F.sketch and sketch:- (standard input) are sketches, see `umbel
sketch`. The difference is printed, `- ` before what only A has, `+ ` before
what only B has, `~ ` before files that differ and `> ` before renamed ones,
unless --pull, --push or --two-way applies it; items that only a sketch's set
has are printed as #SYMBOL, except ids of 64 bits. With --two-way, records that
differ on both sides are only counted; without it they are shown.

Examples:
  umbel reconcile mine.txt ssh://backup/srv/theirs.txt
  umbel reconcile --dir site/ ssh://mirror/srv/site --push --delete
  umbel reconcile --kv a.tsv tcp://10.0.0.7:7400 --two-way --on-conflict a

docs/reconcile.md has every detail.
Exit codes, like those of diff: 0 the sets are equal, or are now; 1 they differ;
2 failed or wrong usage; 130 interrupted.";

/// Arguments of `umbel reconcile`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("change").multiple(false),
    // Earlier builds pass it over ssh. It says what the session does now.
    arg = Arg::new("as-a").long("as-a").hide(true).action(ArgAction::SetTrue),
    after_help = HELP_END
)]
pub(crate) struct ReconcileArgs {
    /// The sets A and B; with --stdio or --listen one file, the responder's set
    #[arg(required = true, num_args = 1..=2, value_name = "SET")]
    sets: Vec<OsString>,
    #[command(flatten)]
    form: FormArgs,
    /// A takes what only B has
    #[arg(long, group = "change", help_heading = "Changes")]
    pull: bool,
    /// B takes what only A has
    #[arg(long, group = "change", help_heading = "Changes")]
    push: bool,
    /// Each takes what only the other has
    #[arg(long, group = "change", help_heading = "Changes")]
    two_way: bool,
    /// Print the difference and change nothing (default)
    #[arg(long, group = "change", help_heading = "Changes")]
    dry_run: bool,
    /// With --pull or --push, remove what only the receiving side has; a responder that listens needs this
    /// option, too
    #[arg(long, help_heading = "Changes")]
    delete: bool,
    /// With --two-way, for a record that differs: report how many there are, or let the version of a or b
    /// win; with --stdio or --listen, a or b refuses sessions with another rule [default: report]
    #[arg(
        long,
        value_enum,
        value_name = "RULE",
        help_heading = "Changes",
        hide_possible_values = true
    )]
    on_conflict: Option<OnConflict>,
    /// Save bytes, or time: fewer round trips at about twice the bytes
    #[arg(long, value_enum, value_name = "WHAT", default_value = "bytes", help_heading = SESSION, hide_possible_values = true)]
    optimize: Save,
    /// Print only how many items differ
    #[arg(long, short, help_heading = RESULTS)]
    quiet: bool,
    /// Write the result and its cost as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = RESULTS)]
    report: Option<PathBuf>,
    /// Write the same as an HTML page with charts
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["stdio", "listen"], help_heading = RESULTS)]
    report_html: Option<PathBuf>,
    /// Most bytes to transfer, in both directions
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Limits")]
    max_bytes: Option<u64>,
    /// Most items that may differ
    #[arg(long, value_name = "COUNT", help_heading = "Limits")]
    max_diff: Option<u64>,
    /// Allow sets of very different sizes
    #[arg(long, help_heading = "Limits")]
    allow_skew: bool,
    /// Give up when nothing arrives for this long: seconds, or like 10m
    #[arg(long, value_name = "TIME", default_value_t = 600, value_parser = some_seconds, help_heading = "Limits")]
    idle_timeout: u64,
    /// Give up when a session takes this long in total, including the contents of files [default with
    /// --listen: 3600]
    #[arg(long, value_name = "TIME", value_parser = some_seconds, help_heading = "Limits")]
    max_time: Option<u64>,
    /// Continue an interrupted session by its journal in this file; with --stdio or --listen a folder, for
    /// all sessions
    #[arg(long, value_name = "PATH", help_heading = SESSION)]
    resume: Option<PathBuf>,
    /// Begin with this sketch of the local set, which is read only if something differs; both sides need
    /// one of the same salt
    #[arg(long, value_name = "F.sketch", conflicts_with = "resume", help_heading = SESSION)]
    sketch: Option<PathBuf>,
    /// The same over ssh, which passes it: the set's sketch has this name if it has one.
    #[arg(long, conflicts_with_all = ["resume", "sketch"], requires = "stdio", hide = true)]
    sketch_if_any: Option<PathBuf>,
    /// With --listen and tcp://, the secret that authenticates both sides [default:
    /// UMBEL_RECONCILE_SECRET_FILE]
    #[arg(long, value_name = "FILE", help_heading = SESSION)]
    secret_file: Option<PathBuf>,
    /// Answer one session over standard input and output
    #[arg(long, conflicts_with_all = ["listen", "change"], help_heading = "Answering")]
    stdio: bool,
    /// Answer sessions at this address
    #[arg(long, value_name = "ADDR", conflicts_with = "change", help_heading = "Answering")]
    listen: Option<String>,
    /// End after one session
    #[arg(long, requires = "listen", help_heading = "Answering")]
    once: bool,
    /// Allow whoever connects to change the file
    #[arg(long, help_heading = "Answering")]
    writable: bool,
    /// Listen without a secret, for anybody, on addresses that other machines reach
    #[arg(long, requires = "listen", help_heading = "Answering")]
    insecure: bool,
}

/// What becomes of a record that differs on both sides, when both take what they lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnConflict {
    /// Both keep what they have; the command ends with code 1
    Report,
    /// The version of A wins
    A,
    /// The version of B wins
    B,
}

impl From<OnConflict> for umbel_reconcile_engine::OnConflict {
    fn from(on_conflict: OnConflict) -> Self {
        match on_conflict {
            OnConflict::Report => Self::Report,
            OnConflict::A => Self::A,
            OnConflict::B => Self::B,
        }
    }
}

/// What is saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Save {
    /// Bytes on the wire
    Bytes,
    /// Round trips
    Time,
}

/// Runs the command.
///
/// # Errors
///
/// A [`UsageError`] if arguments contradict each other; else the error of the session or of a file.
/// Errors are printed here and turned into [`Exit::Unanswered`].
pub(crate) fn run(args: &ReconcileArgs) -> Result<Exit> {
    // Code 1 means that the sets differ, so a failure exits with 2.
    match args.run() {
        Ok(exit) => Ok(exit),
        Err(error) => {
            crate::stderr::eprint_line(format_args!("{error:#}"));
            Ok(Exit::Unanswered)
        }
    }
}

/// Draws the nonce of a session. It is drawn after the set is frozen, so that nobody can choose items
/// that collide.
#[expect(clippy::disallowed_methods, reason = "decides only whose symbols collide")]
fn draw_nonce() -> u64 {
    rand::random()
}

/// Draws the name or the key of a journal.
#[expect(clippy::disallowed_methods, reason = "decides only who can name a journal")]
fn draw_key() -> u128 {
    rand::random()
}

fn usage(text: impl Into<String>) -> anyhow::Error {
    UsageError(text.into()).into()
}

impl ReconcileArgs {
    fn run(&self) -> Result<Exit> {
        let form = self.form.form();
        self.check_delete()?;
        self.check_on_conflict()?;
        self.check_permission()?;
        self.check_roles(&form)?;
        if self.stdio || self.listen.is_some() {
            if self.report.is_some() {
                return Err(usage(
                    "--report is for the side that begins the session: give it there, with --stdio and --listen leave it out",
                ));
            }
            return self.answer(&form);
        }
        let [a, b] = &self.sets[..] else {
            return Err(usage("two sets are compared: A and B"));
        };
        let (a, b) = (Endpoint::parse(a)?, Endpoint::parse(b)?);
        let is_far = |end: &Endpoint| end.path().is_none() && end.sketch().is_none();
        if self.resume.is_some() && !is_far(&a) && !is_far(&b) {
            return Err(usage("--resume is for a session with another process or machine"));
        }
        if !is_far(&a) && !is_far(&b) {
            self.refuse_secret()?;
        }
        if self.sketch.is_some() && !is_far(&a) && !is_far(&b) {
            return Err(usage(
                "--sketch is for a session with another process or machine: here, compare A.sketch with B.sketch",
            ));
        }
        let outputs = ReportOutputs::open(self.report.as_deref(), self.report_html.as_deref())?;
        let (exit, json) = match (a.path(), b.path()) {
            _ if a.sketch().is_some() || b.sketch().is_some() => self.offline(&form, &a, &b),
            (Some(a), Some(b)) => self.both_here(&form, a, b),
            (Some(a), None) => self.one_here(&form, a, &b, false),
            (None, Some(b)) => self.one_here(&form, b, &a, true),
            (None, None) => Err(usage("one of the two sets must be a file of this machine")),
        }?;
        outputs.write(&json)?;
        Ok(exit)
    }

    /// The direction of the changes, from the initiator's view; `is_b` says that the initiator has B.
    fn direction(&self, is_b: bool) -> Direction {
        match (self.pull, self.push, self.two_way) {
            (_, _, true) => Direction::TwoWay,
            (true, ..) if !is_b => Direction::Pull,
            (true, ..) => Direction::Push,
            (_, true, _) if !is_b => Direction::Push,
            (_, true, _) => Direction::Pull,
            _ => Direction::Compare,
        }
    }

    fn driving<'d>(&'d self, observer: &'d dyn SessionObserver) -> Driving<'d> {
        let (initiative, timeouts) = (Initiative { delete: self.delete }, self.timeouts());
        let journal = self.resume.as_deref();
        Driving { initiative, timeouts, journal, observer, draw: draw_key }
    }

    fn options(&self, form: &Form, set: &dyn ItemSet, role: SessionRole) -> Options {
        Options {
            role,
            kind: set.kind(),
            dataset_id: form.dataset_id(set),
            domain: [0; 16],
            nonce: draw_nonce(),
            limits: self.limits(),
        }
    }

    fn initiator(&self, form: &Form, set: &dyn ItemSet, is_b: bool) -> Options {
        let aim = Aim {
            direction: self.direction(is_b),
            optimize: match self.optimize {
                Save::Bytes => Optimize::Bytes,
                Save::Time => Optimize::Time,
            },
            want_items: !self.quiet,
            // The responder must learn which items only it has, because it is to delete them.
            notify_responder: self.delete && self.direction(is_b) == Direction::Push,
            expected_difference: None,
            on_conflict: self.conflict_rule(),
            is_b,
        };
        self.options(form, set, SessionRole::Initiator(aim))
    }

    fn responder(&self, accept_items: bool) -> SessionRole {
        SessionRole::Responder { accept_items, on_conflict: self.conflict_rule() }
    }

    fn conflict_rule(&self) -> umbel_reconcile_engine::OnConflict {
        self.on_conflict.unwrap_or(OnConflict::Report).into()
    }

    fn answer(&self, form: &Form) -> Result<Exit> {
        let [path] = &self.sets[..] else {
            return Err(usage("one file is answered for"));
        };
        let path = Path::new(path);
        let responder = |set: &dyn ItemSet| {
            if self.writable {
                set.check_writable()?;
            }
            Ok(self.options(form, set, self.responder(self.writable)))
        };
        let driving = self.driving(&Notices);
        if let Some(address) = &self.listen {
            let open = || self.open(path, form);
            let (secret, is_insecure, once) = (self.secret()?, self.insecure, self.once);
            let listening = Listening { address, secret, is_insecure, once };
            listen(listening, open, responder, driving)?;
            return Ok(Exit::Done);
        }
        self.refuse_secret()?;
        let _begun = self.begin(path, form, self.writable)?;
        let set = self.open(path, form)?;
        let connection = PeerConnection::stdio();
        match answer(&*set, responder(&*set)?, connection, driving) {
            Ok(_) => Ok(Exit::Done),
            // Whoever has started this process shows it, mostly on the same terminal.
            Err(error) if error.is_told() => Ok(Exit::Unanswered),
            Err(error) => Err(error.into()),
        }
    }

    fn both_here(&self, form: &Form, a: &Path, b: &Path) -> Result<(Exit, Value)> {
        let report = Report::start();
        let direction = self.direction(false);
        self.check_apart(form, a, b)?;
        let form = &form.with_id_bytes_of(&[a, b])?;
        let _begun = [
            self.begin(a, form, direction.to_initiator())?,
            self.begin(b, form, direction.to_responder())?,
        ];
        let (here, there) = (open_set(a, form)?, open_set(b, form)?);
        self.check_writable(&*here, direction.to_initiator())?;
        self.check_writable(&*there, direction.to_responder())?;
        let mut options = self.initiator(form, &*here, false);
        let role = self.responder(direction.to_responder());
        let mut answering = self.options(form, &*there, role);
        // It protects from a peer, and both sets are the caller's own.
        (options.limits.allow_skew, answering.limits.allow_skew) = (true, true);
        // Each end is called like its own set: "here" in its messages is where that is.
        let names = [b, a].map(|path| path.display().to_string());
        let [to_b, to_a] = PeerConnection::pair(names)?;
        let terminal = Terminal::start();
        let (answered, ended) = std::thread::scope(|scope| {
            let answering =
                scope.spawn(|| answer(&*there, answering, to_a, self.driving(&Notices)));
            let ended = reconcile(&*here, options, to_b, self.driving(&terminal));
            let answered = answering.join().expect("it does not panic");
            match (answered, ended) {
                // An error of the responder says more than the initiator's error that the connection
                // ended.
                (Err(there), Err(here)) => Err(if there.is_peer_gone() { here } else { there }),
                (Err(there), _) => Err(there),
                (Ok(answered), ended) => ended.map(|ended| (answered, ended)),
            }
        })?;
        let replaced_there = answered.map_or(0, |answered| answered.change.replaced.len());
        self.conclude(&report, &*here, (&ended, replaced_there), false)
    }

    fn one_here(
        &self,
        form: &Form,
        path: &Path,
        other: &Endpoint,
        is_b: bool,
    ) -> Result<(Exit, Value)> {
        let report = Report::start();
        let secret = match other {
            Endpoint::Tcp(_) => self.secret()?,
            _ => self.refuse_secret().map(|()| None)?,
        };
        let direction = self.direction(is_b);
        let form = &form.with_id_bytes_of(&[path])?;
        let _begun = self.begin(path, form, direction.to_initiator())?;
        let set = self.open(path, form)?;
        self.check_writable(&*set, direction.to_initiator())?;
        let mut arguments = Vec::new();
        if direction.to_responder() {
            arguments.push("--writable".to_owned());
            if self.delete {
                arguments.push("--delete".to_owned());
            }
        }
        if self.allow_skew {
            arguments.push("--allow-skew".to_owned());
        }
        let remote_files =
            RemoteFiles { journals: self.resume.is_some(), sketch: self.sketch.is_some() };
        let connection = other.connect(form, &arguments, remote_files, secret.as_ref())?;
        let options = self.initiator(form, &*set, is_b);
        let terminal = Terminal::start();
        let ended = reconcile(&*set, options, connection, self.driving(&terminal));
        let ended = ended.map_err(|error| match other {
            Endpoint::Tcp(_) if secret.is_none() && error.is_unanswered() => {
                anyhow::Error::from(error)
                    .context("without --secret-file; the other side may ask for one")
            }
            _ => error.into(),
        })?;
        // This process does not know how many files the other process has replaced.
        self.conclude(&report, &*set, (&ended, 0), is_b)
    }

    fn check_writable(&self, set: &dyn ItemSet, is_changed: bool) -> Result<()> {
        if is_changed { Ok(set.check_writable()?) } else { Ok(()) }
    }

    fn conclude(
        &self,
        report: &Report,
        set: &dyn ItemSet,
        (ended, replaced_there): (&Ended, usize),
        is_b: bool,
    ) -> Result<(Exit, Value)> {
        let is_dry = self.direction(is_b) == Direction::Compare;
        let mut changed = None;
        if is_dry && !self.quiet {
            show_difference(set, ended, is_b)?;
            changed = count_changed(set, ended)?;
        } else if ended.change.differing_count > 0 {
            changed = Some(ended.change.differing_count);
        }
        let json = report.json(ended, is_b, changed);
        eprint_text(report.text(ended, is_b, changed));
        let outcome = &ended.outcome;
        let (here, there) = (outcome.only_here_count, outcome.only_there_count);
        let stays = match self.direction(is_b) {
            Direction::Compare => here + there,
            Direction::Pull | Direction::Push if self.delete => 0,
            // Items whose file was replaced exist no more.
            Direction::Pull => here.saturating_sub(ended.change.replaced.len() as u64),
            Direction::Push => there.saturating_sub(replaced_there as u64),
            Direction::TwoWay => ended.change.conflict_count,
        };
        Ok((if stays == 0 { Exit::Done } else { Exit::No }, json))
    }
}
