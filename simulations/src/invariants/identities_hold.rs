//! Whose certificate is expired, to come or of another authority is nobody, by the clock of who looks; and a
//! certificate makes nobody somebody else (mutual authentication: RFC 8446, section 4.4.2; validity: RFC 5280,
//! section 4.1.2.5).

use umbel_node::ports::PeerIdentity;

use crate::counters;
use crate::identity::{Certificate, OWN_AUTHORITY, Refusal};
use crate::seed::true_wall_ms;
use crate::watch;

/// Name of the invariant: nobody is taken for whom it is not.
pub(crate) const NAME: &str = "identities_hold";

/// Name of the invariant: nobody is refused whose certificate is good.
pub(crate) const SERVED: &str = "good_certificates_serve";

/// Clocks of two machines are no more apart than this, in milliseconds.
const CLOCKS_APART_MS: u64 = 1_000;

/// A machine has looked at a certificate, at this time of its clock, and took the other end for somebody or
/// refused it.
pub(crate) fn judge_taken(
    machine: u32,
    shown: Option<&Certificate>,
    wall_ms: u64,
    taken: Option<&PeerIdentity>,
) {
    let Some(Certificate { authority, uri, valid_ms: (from_ms, to_ms) }) = shown else {
        if !matches!(taken, Some(PeerIdentity::Anonymous)) {
            watch::violated(
                NAME,
                format!("machine {machine} took nobody's connection for {taken:?}"),
            );
        }
        return;
    };
    let is_good = *authority == OWN_AUTHORITY && (*from_ms..*to_ms).contains(&wall_ms);
    counters::checked(if is_good { SERVED } else { NAME }, 1);
    if taken.is_some() && !is_good {
        let what = format!(
            "machine {machine} took {uri} for {taken:?} at {wall_ms}, not in {from_ms}..{to_ms}"
        );
        watch::violated(NAME, what);
    }
    // Whose certificate is good by all clocks is refused by none.
    let now_ms = true_wall_ms();
    let is_good_anywhere = *authority == OWN_AUTHORITY
        && from_ms.saturating_add(CLOCKS_APART_MS) <= now_ms
        && now_ms.saturating_add(CLOCKS_APART_MS) < *to_ms;
    if taken.is_none() && is_good_anywhere {
        let what = format!("machine {machine} refused {uri} at {wall_ms}, in {from_ms}..{to_ms}");
        watch::violated(SERVED, what);
    }
    if !is_good {
        counters::state("certificate_refused");
    }
}

/// Somebody has called as who it is not, and was served or not.
pub(crate) fn judge_served(machine: u32, what: &str, served: Option<&str>) {
    counters::checked(NAME, 1);
    if let Some(answer) = served {
        watch::violated(NAME, format!("machine {machine} served {what}: {answer}"));
    }
}

/// A principal with a certificate has called; `refused` by the certificate, or `denied` by the gate.
pub(crate) fn judge_certified(
    machine: u32,
    (certificate, offset_ms): (&Certificate, i64),
    (from_ms, to_ms): (u64, u64),
    is_served: bool,
    denied: Option<&str>,
) {
    let at = |ms: u64| certificate.refusal(ms.saturating_add_signed(offset_ms));
    // It has one life, so what is wrong at both ends in one way is so in between.
    let is_bad = matches!(
        (at(from_ms), at(to_ms)),
        (Some(Refusal::Expired), _) | (_, Some(Refusal::Early | Refusal::Foreign))
    );
    if is_bad {
        counters::checked(NAME, 1);
    }
    if is_bad && is_served {
        let what = format!("machine {machine} served {certificate:?}, which is not valid there");
        watch::violated(NAME, what);
    }
    if let Some(text) = denied.filter(|_| !is_bad) {
        let what = format!("machine {machine} denied {certificate:?}: {text}");
        watch::violated(SERVED, what);
    }
    if is_served && denied.is_none() {
        counters::checked(SERVED, 1);
    }
}
