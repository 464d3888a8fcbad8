//! One run in a process of its own. Statics and thread locals of any crate begin anew in each, so a
//! run depends on its plan alone.
//!
//! The parent writes an [`Order`] to the child's standard input and reads its report from the
//! standard output, both as JSON. The child's environment is empty.

use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::limits::{Death, Limits};
use crate::plan::Plan;
use crate::promises::EXCEEDED;
use crate::report::{Breach, RunReport};
use crate::{clock, counters, run, trace};

/// The argument that makes this executable a child.
pub(crate) const CHILD: &str = "child";

/// The invariant of every run: no code in it panics, not even where the panic is caught.
pub(crate) const NO_PANIC: &str = "no_panic";

/// How many panics of a run are kept; the first one counts as the cause.
const MAX_PANIC_COUNT: usize = 3;

/// The environment variables that a child inherits; no run depends on them.
const KEPT_VARIABLES: [&str; 3] = ["LD_LIBRARY_PATH", "LLVM_PROFILE_FILE", "RUST_BACKTRACE"];

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The run.
    pub(crate) plan: Plan,
    /// How much of it is traced.
    pub(crate) level: trace::Level,
    /// Where the trace is written.
    pub(crate) trace_file: Option<PathBuf>,
    /// The resources that it may use.
    pub(crate) limits: Limits,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Its report. If the process died, the report has no counters, and after a crash one violation with
    /// the cause.
    pub(crate) report: RunReport,
    /// Microseconds of processor time that its process used.
    pub(crate) cpu_us: u64,
    /// The limit that it exceeded.
    pub(crate) exceeded: Option<String>,
    /// Its standard error: panic messages, mostly.
    pub(crate) messages: String,
}

/// Why a run counts as failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The invariant that was violated, or [`EXCEEDED`]. Failures of one kind count as one.
    pub(crate) kind: String,
    /// A description of what was observed.
    pub(crate) what: String,
}

/// What a child writes to its standard output.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildOutput {
    report: RunReport,
    cpu_us: u64,
}

/// The run could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// The process could not be started or spoken with.
    #[error("a process for a run could not be {0}: {1}")]
    Process(&'static str, #[source] io::Error),
    /// The order could not be written as JSON.
    #[error("a plan could not be handed over: {0}")]
    Order(#[source] serde_json::Error),
    /// The process could not make the run: its plan or its trace file is not as it must be.
    #[error("a run could not be made: {0}")]
    Refused(String),
}

impl Order {
    /// A run of which only the digest of the trace is kept.
    pub(crate) const fn quiet(plan: Plan, limits: Limits) -> Self {
        Self { plan, level: trace::Level::Off, trace_file: None, limits }
    }

    /// Runs the plan in a new process and waits for its end.
    pub(crate) fn run(&self) -> Result<Ended, ChildError> {
        let order = serde_json::to_vec(self).map_err(ChildError::Order)?;
        let mut child = Command::new(this_executable())
            .arg(CHILD)
            .env_clear()
            .envs(kept_environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ChildError::Process("started", error))?;
        if let Some(mut input) = child.stdin.take() {
            match input.write_all(&order) {
                // The child died before it had read the whole order; its exit status says why.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                result => result.map_err(|error| ChildError::Process("told its plan", error))?,
            }
        }
        let output =
            child.wait_with_output().map_err(|error| ChildError::Process("waited for", error))?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success()
            && let Ok(answer) = serde_json::from_slice::<ChildOutput>(&output.stdout)
        {
            let ChildOutput { report, cpu_us } = answer;
            return Ok(Ended { report, cpu_us, exceeded: None, messages });
        }
        if output.status.code() == Some(i32::from(Exit::Usage.code())) {
            return Err(ChildError::Refused(messages.trim_end().to_owned()));
        }
        let death = self.limits.explain(output.status, &messages);
        Ok(Ended::without_report(&self.plan, death, messages))
    }
}

impl Ended {
    fn without_report(plan: &Plan, death: Death, messages: String) -> Self {
        let mut report = RunReport {
            seed: plan.seed,
            profile: plan.profile.clone(),
            planted: plan.planted.clone(),
            ..RunReport::default()
        };
        let exceeded = match death {
            Death::Exceeded(what) => Some(what),
            Death::Crashed(what) => {
                report.violations.push(Breach { invariant: NO_PANIC.into(), at_us: 0, what });
                None
            }
        };
        Self { report, cpu_us: 0, exceeded, messages }
    }

    /// Why the run failed; `None` if no invariant was violated and no limit exceeded.
    pub(crate) fn failure(&self) -> Option<Failure> {
        if let Some(what) = &self.exceeded {
            return Some(Failure { kind: EXCEEDED.to_owned(), what: what.clone() });
        }
        let first = self.report.violations.first()?;
        Some(Failure { kind: first.invariant.clone(), what: first.to_string() })
    }

    /// Whether its failures include one of this kind.
    pub(crate) fn failed_as(&self, kind: &str) -> bool {
        match self.exceeded {
            Some(_) => kind == EXCEEDED,
            None => self.report.violates(kind),
        }
    }

    /// The exit code of a command that makes only this run.
    pub(crate) fn exit(&self) -> Exit {
        match (&self.exceeded, self.report.violations.is_empty()) {
            (Some(_), _) => Exit::Exceeded,
            (None, false) => Exit::Violated,
            (None, true) => Exit::Held,
        }
    }
}

/// Makes the run that the order on standard input describes. No code may draw entropy before it is seeded
/// here: the keys of a thread's first hash map determine the iteration order of all later ones on that
/// thread.
pub(crate) fn serve() -> anyhow::Result<()> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let order: Order = serde_json::from_slice(&text)?;
    drop(text);
    order.plan.check()?;
    order.limits.apply()?;
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(order.plan.seed));
    plant(&order.plan)?;
    watch_for_panics();
    trace::start(order.level, order.trace_file.as_deref())?;

    let clocks = mad_turmoil::time::SimClocksGuard::init();
    let ran = panic::catch_unwind(AssertUnwindSafe(|| run::run(&order.plan)));
    drop(clocks);

    let mut report = ran.unwrap_or_else(|panic| broken_off(&order.plan, panic.as_ref()));
    report.violations.splice(0..0, seen_panics());
    let answer = serde_json::to_vec(&ChildOutput { report, cpu_us: clock::cpu_us() })?;
    io::stdout().write_all(&answer)?;
    Ok(())
}

/// The report of a run that a panic aborted.
fn broken_off(plan: &Plan, panic: &(dyn Any + Send)) -> RunReport {
    let mut report = RunReport {
        seed: plan.seed,
        profile: plan.profile.clone(),
        planted: plan.planted.clone(),
        counters: counters::take(),
        trace: trace::finish(),
        ..RunReport::default()
    };
    if PANICS.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        // The panic was raised without a call of the hook.
        let what = panic_text(panic);
        report.violations.push(Breach { invariant: NO_PANIC.into(), at_us: 0, what });
    }
    report
}

/// The panics of this run, including those that a task's join handle caught.
static PANICS: Mutex<Vec<Breach>> = Mutex::new(Vec::new());

fn watch_for_panics() {
    let show = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or_else(String::new, |place| format!(" ({place})"));
        let elapsed = turmoil::sim_elapsed().as_ref().map_or(0, Duration::as_micros);
        let breach = Breach {
            invariant: NO_PANIC.to_owned(),
            at_us: u64::try_from(elapsed).unwrap_or(u64::MAX),
            what: panic_text(info.payload()) + &place,
        };
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        if panics.len() < MAX_PANIC_COUNT {
            panics.push(breach);
        }
        drop(panics);
        show(info);
    }));
}

fn seen_panics() -> Vec<Breach> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Switches the plan's bug on.
fn plant(plan: &Plan) -> anyhow::Result<()> {
    let Some(name) = &plan.planted else { return Ok(()) };
    let bug = crate::bugs::named(name)?;
    #[cfg(feature = "planted")]
    plant_everywhere(bug);
    anyhow::ensure!(
        umbel_step::planted::PLANTED,
        "the bug {} is not in this build: it needs the feature `planted`",
        bug.name()
    );
    Ok(())
}

/// Switches the bug on in `umbel_step`, and in `umbel_filter` if it is a bug of the tables there.
#[cfg(feature = "planted")]
fn plant_everywhere(bug: umbel_step::planted::Planted) {
    use umbel_filter::planted::TableBug;
    use umbel_step::planted::Planted;
    umbel_step::planted::plant(Some(bug));
    umbel_filter::planted::plant(match bug {
        Planted::QuotientShiftsShort => Some(TableBug::ShiftsShort),
        Planted::CuckooLosesMoved => Some(TableBug::LosesMoved),
        _ => None,
    });
}

/// On Linux this is the file that this process runs, even after a build has replaced it at its path.
fn this_executable() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return running;
    }
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("simulations"))
}

fn kept_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn sample_plan() -> Plan {
        Plan::draw(7, Profile::Mixed, 1_000)
    }

    fn ended(violated: &[&str], exceeded: Option<&str>) -> Ended {
        let breach = |&invariant: &&str| Breach {
            invariant: invariant.to_owned(),
            at_us: 5,
            what: "seen".into(),
        };
        let violations = violated.iter().map(breach).collect();
        Ended {
            report: RunReport { violations, ..RunReport::default() },
            cpu_us: 1,
            exceeded: exceeded.map(str::to_owned),
            messages: String::new(),
        }
    }

    #[test]
    fn a_run_fails_as_its_first_violation_and_is_any_of_them() {
        let run = ended(&["one_new_per_item", "bits_only_rise"], None);
        assert_eq!(run.failure().unwrap().kind, "one_new_per_item");
        assert!(run.failed_as("bits_only_rise") && !run.failed_as(EXCEEDED));
        assert_eq!(run.exit(), Exit::Violated);
    }

    #[test]
    fn a_run_without_violations_held() {
        let run = ended(&[], None);
        assert_eq!((run.failure(), run.exit()), (None, Exit::Held));
    }

    #[test]
    fn a_limit_outweighs_what_was_seen_before() {
        let run = ended(&["bits_only_rise"], Some("exceeded its memory of 1 MiB"));
        assert_eq!(run.failure().unwrap().kind, EXCEEDED);
        assert!(run.failed_as(EXCEEDED) && !run.failed_as("bits_only_rise"));
        assert_eq!(run.exit(), Exit::Exceeded);
    }

    #[test]
    fn a_process_that_crashed_panicked() {
        let plan = sample_plan();
        let death = Death::Crashed("died by signal 6".into());
        let run = Ended::without_report(&plan, death, String::new());
        assert_eq!(run.failure().unwrap().kind, NO_PANIC);
        assert_eq!(run.report.seed, plan.seed);
        let run = Ended::without_report(&plan, Death::Exceeded("hung".into()), String::new());
        assert_eq!(run.failure().unwrap(), Failure { kind: EXCEEDED.into(), what: "hung".into() });
    }

    #[test]
    fn an_order_survives_json() {
        let limits = Limits { cpu_s: 3, memory_mib: 4 };
        let mut order = Order::quiet(sample_plan(), limits);
        order.level = trace::Level::Full;
        order.trace_file = Some("a/b.trace".into());
        let json = serde_json::to_string(&order).unwrap();
        let read: Order = serde_json::from_str(&json).unwrap();
        assert_eq!((read.plan, read.level), (order.plan, order.level));
        assert_eq!((read.trace_file, read.limits), (order.trace_file, order.limits));
    }

    #[test]
    fn a_panic_reports_its_message() {
        assert_eq!(panic_text(&"static"), "static");
        assert_eq!(panic_text(&String::from("made")), "made");
        assert_eq!(panic_text(&7_u8), "a panic without a message");
    }
}
