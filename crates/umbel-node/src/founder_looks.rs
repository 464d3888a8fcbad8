//! Looks at the founders of a cluster that is not formed yet: which of them do not answer this node, and why.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;
use umbel_proto::v1::{WhoAreYouRequest, WhoAreYouResponse};
use umbel_raft::peer::peer_client;

use crate::awaited::{Awaited, NAMED_MAX, log_conflict};
use crate::leader_calls::LeaderCalls;
use crate::ports::Ports;
use crate::reasons::{Reasons, reason_of};

/// How long a founder may take to say whether there is a cluster already: a running node responds within it.
pub(crate) const FOUNDER_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between looks which founders are missing, and before the first one that counts: a cluster whose nodes all start
/// forms in less.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Asks a node who it is.
///
/// # Errors
/// Why it does not answer this node within this time.
pub(crate) async fn who_is(
    ports: &Ports,
    address: &str,
    within: Duration,
) -> Result<WhoAreYouResponse, Status> {
    let mut client = peer_client(&ports.net, address)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    match timeout(within, client.who_are_you(WhoAreYouRequest {})).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Status::deadline_exceeded("no answer")),
    }
}

/// Asks all of these nodes who they are, together: one that is silent takes all of this time.
pub(crate) async fn who_are<'f>(
    ports: &Ports,
    nodes: impl Iterator<Item = &'f String>,
    within: Duration,
) -> Vec<(&'f str, Result<WhoAreYouResponse, Status>)> {
    let asked = nodes.map(|node| async move { (node.as_str(), who_is(ports, node, within).await) });
    join_all(asked).await
}

/// What a node tells of its looks.
pub(crate) struct FounderLooks<'n> {
    awaited: &'n Awaited,
    /// Whether this node speaks TLS.
    has_tls: bool,
    logged: Reasons,
}

impl<'n> FounderLooks<'n> {
    pub(crate) fn new(awaited: &'n Awaited, has_tls: bool) -> Self {
        Self { awaited, has_tls, logged: Reasons::default() }
    }

    /// Notes which founders do not answer, and logs it with the reasons, unless it was logged a moment ago.
    pub(crate) fn note(&mut self, missing: &[(&str, Status)]) {
        let founders: Vec<&str> = missing.iter().map(|&(founder, _)| founder).collect();
        let Some(text) = self.awaited.note_missing(&founders) else { return };
        if self.logged.is_due(&text, Instant::now()) {
            let reasons = reasons_text(missing, self.has_tls);
            tracing::info!(missing = text, reasons, "the cluster is not formed yet");
        }
    }

    /// Notes, and logs unless it was logged a moment ago, why the founders cannot found a cluster as they were started, or
    /// that they can.
    pub(crate) fn note_conflict(&mut self, conflict: Option<String>) {
        if let Some(reason) = &conflict {
            log_conflict(reason, &mut self.logged);
        }
        self.awaited.note_conflict(conflict);
    }

    /// Notes what the founder does that has adopted this node.
    fn note_adopter(&mut self, adopter: &str, answer: Result<WhoAreYouResponse, Status>) {
        match answer {
            // It waits for nobody: this node has not heard of the cluster yet.
            Ok(answer) if answer.is_formed => self.note(&[]),
            Ok(_) => self.awaited.note_adopted(adopter),
            Err(status) => self.note(&[(adopter, status)]),
        }
    }
}

/// Why founders do not answer, of as many as are named.
fn reasons_text(missing: &[(&str, Status)], has_tls: bool) -> String {
    let reason =
        |(founder, status): &(&str, Status)| format!("{founder}: {}", reason_of(status, has_tls));
    missing.iter().take(NAMED_MAX).map(reason).collect::<Vec<_>>().join("; ")
}

/// Looks again and again which of the other founders do not answer.
pub(crate) async fn watch_others(
    mut looks: FounderLooks<'_>,
    ports: &Ports,
    others: &[String],
) -> Infallible {
    loop {
        sleep(LOOK_PAUSE).await;
        let answers = who_are(ports, others.iter(), FOUNDER_REQUEST_TIMEOUT).await.into_iter();
        let missing = answers.filter_map(|(founder, answer)| Some((founder, answer.err()?)));
        looks.note(&missing.collect::<Vec<_>>());
    }
}

/// Notes again and again, until the catalogue of this node shows the cluster, whether the founder that adopted this node
/// answers: it waits for the others, and may end before it has formed the cluster, or this node may start anew.
pub(crate) async fn watch_adopter(
    calls: Arc<LeaderCalls>,
    ports: Ports,
    adopter: String,
    has_tls: bool,
) {
    let mut looks = FounderLooks::new(calls.awaited(), has_tls);
    loop {
        sleep(LOOK_PAUSE).await;
        if calls.read_meta(|_| ()).is_ok() {
            break;
        }
        let answer = who_is(&ports, &adopter, FOUNDER_REQUEST_TIMEOUT).await;
        looks.note_adopter(&adopter, answer);
    }
    looks.note(&[]);
}

#[cfg(test)]
mod tests {
    use umbel_ports::Net as _;
    use umbel_ports::testing::MemoryNet;

    use super::*;

    /// Of a list whose machines are gone, each would hold up the question to the next one.
    #[tokio::test(start_paused = true)]
    async fn founders_are_asked_together() {
        let (net, folder) = (Arc::new(MemoryNet::default()), tempfile::tempdir().unwrap());
        let founders: Vec<String> = (1..=9).map(|number| format!("n{number}:1")).collect();
        let mut silent = Vec::new();
        for founder in &founders {
            silent.push(net.listen(founder).await.unwrap());
        }
        let real = Ports::real(folder.path()).unwrap();
        let ports = Ports { net: Arc::clone(&net) as _, ..real };
        let began = Instant::now();
        let answers = who_are(&ports, founders.iter(), Duration::from_secs(5)).await;
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        assert!(answers.iter().map(|&(founder, _)| founder).eq(&founders), "in their order");
        assert!(answers.iter().all(|(_, answer)| answer.is_err()));
    }

    /// A founder that runs may refuse this node: only the reason tells it from one that does not run.
    #[test]
    fn all_founders_that_are_named_have_their_reasons() {
        let refusal = || Status::permission_denied("of another cluster");
        let two = [("n2:1", refusal()), ("n3:1", Status::deadline_exceeded("no answer"))];
        assert_eq!(reasons_text(&two, true), "n2:1: of another cluster; n3:1: no answer");
        let many: Vec<_> = (0..NAMED_MAX + 3).map(|_| ("n:1", refusal())).collect();
        assert_eq!(reasons_text(&many, true).matches("n:1: ").count(), NAMED_MAX);
    }

    #[test]
    fn what_was_noted_last_counts() {
        let awaited = Awaited::default();
        let mut looks = FounderLooks::new(&awaited, true);
        looks.note(&[("n2:1", Status::deadline_exceeded("no answer"))]);
        assert!(awaited.failure().to_string().contains("the founder n2:1 does not answer"));
        looks.note(&[]);
        assert_eq!(awaited.failure(), Awaited::default().failure());
    }

    /// It may end, and start again, before the cluster is formed.
    #[test]
    fn an_adopter_is_said_to_form_the_cluster_while_it_does() {
        let awaited = Awaited::default();
        let mut looks = FounderLooks::new(&awaited, true);
        let forms = || Ok(WhoAreYouResponse::default());
        let silent = || Err(Status::deadline_exceeded("no answer"));
        for _ in 0..2 {
            looks.note_adopter("n1:1", forms());
            assert!(awaited.failure().to_string().contains("the founder n1:1 forms it"));
            looks.note_adopter("n1:1", silent());
            assert!(awaited.failure().to_string().contains("the founder n1:1 does not answer"));
        }
        let formed = WhoAreYouResponse { is_formed: true, ..WhoAreYouResponse::default() };
        looks.note_adopter("n1:1", Ok(formed));
        assert_eq!(awaited.failure(), Awaited::default().failure());
    }
}
