//! `umbel cluster top`: what nodes do, again and again.
//!
//! It asks for what the console shows: the status, the jobs, and what each node measures (`/metrics`). On a terminal
//! it draws a page over the last one; elsewhere it prints a line an interval. While nothing is answered it says so,
//! and since when.

mod figures;
mod page;
mod sample;

use super::connect::ClusterArgs;
use super::look::{Colour, Look, harmless};
use super::show::Printer;
use crate::clock::Stopwatch;
use crate::screen::{Screen, key};
use anyhow::{Context, Result};
use clap::{Args, ColorChoice};
use sample::{Sample, Sources};
use serde_json::json;
use std::io::IsTerminal as _;
use std::time::Duration;
use umbel_client::ClientError;

/// How often a page says how old it is while it waits for the next one.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Keys that end it, besides ctrl-c.
const END_KEYS: &[u8] = b"qQ\x04";

/// Arguments of `umbel cluster top`.
#[derive(Args)]
pub(super) struct TopArgs {
    /// Ask every so many seconds; rates are those of this time
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one page after one interval, and end
    #[arg(long)]
    once: bool,
    /// Colours: on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Where pages go.
enum Output {
    /// Over each other.
    Screen(Screen),
    /// Behind each other, a line a page.
    Lines(Printer),
}

impl TopArgs {
    /// Follows the cluster until it is ended, or nobody reads.
    ///
    /// # Errors
    ///
    /// If the cluster is not reached at first, or the output cannot be written.
    pub(super) async fn run(&self, cluster: &ClusterArgs) -> Result<()> {
        let mut sources = Sources::of(&cluster.addresses(), cluster.credentials()?)?;
        // A wrong address or token is an error, not something to wait for.
        let first = sources.sample().await?;
        let look = Look::of(self.color);
        if self.once {
            tokio::time::sleep(self.interval()).await;
            let sample = sources.sample().await?;
            let mut printer = Printer::new();
            match cluster.json {
                true => printer.json(&page::json(&sample, &first))?,
                false => printer.write(page::page(&sample, &first, look).as_bytes())?,
            }
            return printer.flush();
        }
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let has_screen = std::io::stdout().is_terminal() && !is_dumb && !cluster.json;
        let output = match has_screen {
            true => Output::Screen(Screen::enter().context("cannot draw on the terminal")?),
            false => Output::Lines(Printer::new()),
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

/// Pages one after the other.
struct Following {
    interval: Duration,
    as_json: bool,
    look: Look,
    output: Output,
}

/// What is known of the cluster by now.
struct Known {
    sample: Sample,
    /// The one before, if there is one.
    before: Option<Sample>,
    /// What the last question came to, if to nothing.
    failure: Option<String>,
}

impl Following {
    /// Follows until nobody reads any more.
    async fn run(mut self, mut sources: Sources, first: Sample) -> Result<()> {
        let mut known = Known { sample: first, before: None, failure: None };
        loop {
            self.redraw(&known)?;
            self.wait(&known).await?;
            let asked = Stopwatch::start();
            let outcome = self.ask(&mut sources, &known, asked).await?;
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

    /// Waits an interval; a page tells its age meanwhile.
    async fn wait(&mut self, known: &Known) -> Result<()> {
        let wait = Stopwatch::start();
        while let Some(left) = self.interval.checked_sub(wait.elapsed()) {
            tokio::time::sleep(left.min(REDRAW_INTERVAL)).await;
            self.redraw(known)?;
        }
        Ok(())
    }

    /// Asks; the page, or a line, says since when there is no answer.
    async fn ask(
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
            // A line an interval, as if there were an answer.
            if let Output::Lines(printer) = &mut self.output
                && asked.elapsed().as_secs() >= shown_s + self.interval.as_secs()
            {
                shown_s = asked.elapsed().as_secs();
                printer.write(&nothing_new(self.as_json, known, "no answer yet"))?;
                printer.flush()?;
            }
        }
    }

    /// Draws the page, if there is a screen.
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

    /// Prints a line, if there is no screen; false once nobody reads.
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

/// A line that says that nothing new is known.
fn nothing_new(as_json: bool, known: &Known, why: &str) -> Vec<u8> {
    let age_s = known.sample.age().as_secs();
    match as_json {
        true => format!("{}\n", json!({ "no_answer_for_s": age_s, "why": why })).into_bytes(),
        false => format!("no answer for {age_s} s: {why}\n").into_bytes(),
    }
}
