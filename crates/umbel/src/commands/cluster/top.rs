//! `umbel cluster top`: shows repeatedly what nodes do.
//!
//! It requests what the console shows: the status, the jobs, and the metrics of each node (`/metrics`).
//! On a terminal it redraws one page; elsewhere it prints a line per interval. While the cluster does not
//! answer, it reports that, and for how long.

mod figures;
mod page;
mod sample;

use super::connect::{ClusterArgs, tell_waits};
use super::look::{Colour, Look, harmless};
use crate::clock::Stopwatch;
use crate::printer::Printer;
use crate::screen::{Screen, key};
use crate::units::some_seconds;
use anyhow::{Context, Result};
use clap::{Args, ColorChoice};
use sample::{Sample, Sources};
use serde_json::json;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use umbel_client::ClientError;

/// How often the page is redrawn with its age while the next sample is pending.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Keys that end the command, besides ctrl-c.
const END_KEYS: &[u8] = b"qQ\x04";

/// Longest time between samples: a page that is older than an hour shows nothing of now.
const INTERVAL_S_MAX: u64 = 3600;

/// Arguments of `umbel cluster top`.
#[derive(Args)]
pub(super) struct TopArgs {
    /// Seconds between samples; rates are averages over this time
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = parse_interval)]
    interval: u64,
    /// Print one page after one interval, and exit
    #[arg(long)]
    once: bool,
    /// Colours: on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Parses the time between samples.
fn parse_interval(text: &str) -> Result<u64, String> {
    let interval = some_seconds(text)?;
    if interval <= INTERVAL_S_MAX {
        Ok(interval)
    } else {
        Err(format!("expected at most {INTERVAL_S_MAX} seconds"))
    }
}

/// Where pages are shown.
enum Output {
    /// On a screen, each page over the last one.
    Screen(Screen),
    /// On standard output, one line per page.
    Lines(Printer),
}

impl TopArgs {
    /// Follows the cluster until the user ends the command, or the reader closes the output.
    ///
    /// # Errors
    ///
    /// If the cluster cannot be reached at first, or the output cannot be written.
    pub(super) async fn run(&self, cluster: &ClusterArgs) -> Result<()> {
        let addresses = cluster.addresses();
        let mut sources = Sources::of(&addresses, cluster.credentials()?)?;
        // What is shown later says itself that there is no answer.
        let is_begun = Arc::new(AtomicBool::new(false));
        let is_shown = Arc::clone(&is_begun);
        let is_wanted = move || !is_shown.load(Ordering::Relaxed);
        tell_waits(sources.cluster(), &addresses, is_wanted);
        // The first sample must succeed: with a wrong address or token, waiting does not help.
        let first = sources.sample().await?;
        let look = Look::of(self.color);
        if self.once {
            tokio::time::sleep(self.interval()).await;
            let sample = sources.sample().await?;
            let mut printer = Printer::new();
            if cluster.json {
                printer.json(&page::json(&sample, &first))?;
            } else {
                printer.write(page::page(&sample, &first, look).as_bytes())?;
            }
            return printer.flush();
        }
        is_begun.store(true, Ordering::Relaxed);
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let has_screen = std::io::stdout().is_terminal() && !is_dumb && !cluster.json;
        let output = if has_screen {
            Output::Screen(Screen::enter().context("cannot draw on the terminal")?)
        } else {
            Output::Lines(Printer::new())
        };
        let following =
            Following { interval: self.interval(), as_json: cluster.json, look, output };
        tokio::select! {
            biased;
            () = key(END_KEYS), if has_screen => Ok(()),
            outcome = following.run(sources, first) => outcome,
        }
    }

    const fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}

/// Samples the cluster at an interval and shows each sample.
struct Following {
    interval: Duration,
    as_json: bool,
    look: Look,
    output: Output,
}

/// The samples to show.
struct Known {
    sample: Sample,
    /// The previous sample, if there is one.
    before: Option<Sample>,
    /// Why the last request failed; None if it succeeded.
    failure: Option<String>,
}

impl Following {
    /// Samples and shows until the reader closes the output.
    async fn run(mut self, mut sources: Sources, first: Sample) -> Result<()> {
        let mut known = Known { sample: first, before: None, failure: None };
        loop {
            self.redraw(&known)?;
            self.wait(&known).await?;
            let asked = Stopwatch::start();
            let outcome = self.poll(&mut sources, &known, asked).await?;
            match outcome {
                Ok(sample) => {
                    let before = Some(std::mem::replace(&mut known.sample, sample));
                    known = Known { before, failure: None, ..known };
                }
                Err(error) => known.failure = Some(harmless(&error.to_string())),
            }
            if !self.draw(&known)? {
                return Ok(());
            }
        }
    }

    /// Waits for an interval and redraws the page meanwhile, so that it shows its age.
    async fn wait(&mut self, known: &Known) -> Result<()> {
        let wait = Stopwatch::start();
        while let Some(left) = self.interval.checked_sub(wait.elapsed()) {
            tokio::time::sleep(left.min(REDRAW_INTERVAL)).await;
            self.redraw(known)?;
        }
        Ok(())
    }

    /// Takes a sample; until it is there, the page or a line per interval shows for how long the cluster
    /// has not answered.
    async fn poll(
        &mut self,
        sources: &mut Sources,
        known: &Known,
        asked: Stopwatch,
    ) -> Result<Result<Sample, ClientError>> {
        let mut shown_s = 0;
        let sampling = sources.sample();
        tokio::pin!(sampling);
        loop {
            match tokio::time::timeout(REDRAW_INTERVAL, &mut sampling).await {
                Ok(outcome) => return Ok(outcome),
                Err(_) => self.redraw(known)?,
            }
            // One line per interval, as with answers.
            if let Output::Lines(printer) = &mut self.output
                && asked.elapsed().as_secs() >= shown_s + self.interval.as_secs()
            {
                shown_s = asked.elapsed().as_secs();
                printer.write(&nothing_new(self.as_json, known, "no answer yet"))?;
                printer.flush()?;
            }
        }
    }

    /// Draws the page if there is a screen.
    fn redraw(&self, known: &Known) -> Result<()> {
        let Output::Screen(screen) = &self.output else { return Ok(()) };
        let look = Look { columns: Look::of(ColorChoice::Auto).columns, ..self.look };
        let age_s = known.sample.age().as_secs();
        let before = known.before.as_ref().unwrap_or(&known.sample);
        let state = match &known.failure {
            Some(why) => look.paint(Colour::ALARM, &format!("{age_s} s old: {why}")),
            None if age_s > 2 * self.interval.as_secs() => {
                look.paint(Colour::CHANGE, &format!("{age_s} s old: waits for an answer"))
            }
            None => look.paint(Colour::QUIET, &format!("every {} s", self.interval.as_secs())),
        };
        let text = format!("{state}  q ends\n{}", page::page(&known.sample, before, look));
        screen.draw(&text).context("cannot draw on the terminal")
    }

    /// Prints a line if there is no screen; returns false once the reader has closed the output.
    fn draw(&mut self, known: &Known) -> Result<bool> {
        let Output::Lines(printer) = &mut self.output else { return Ok(true) };
        let before = known.before.as_ref().unwrap_or(&known.sample);
        match &known.failure {
            Some(why) => printer.write(&nothing_new(self.as_json, known, why))?,
            None if self.as_json => printer.json(&page::json(&known.sample, before))?,
            None => printer.write(page::line(&known.sample, before).as_bytes())?,
        }
        printer.flush()?;
        Ok(!printer.is_closed())
    }
}

/// A line that reports that no new sample is available.
fn nothing_new(as_json: bool, known: &Known, why: &str) -> Vec<u8> {
    let age_s = known.sample.age().as_secs();
    if as_json {
        format!("{}\n", json!({ "no_answer_for_s": age_s, "why": why })).into_bytes()
    } else {
        format!("no answer for {age_s} s: {why}\n").into_bytes()
    }
}
