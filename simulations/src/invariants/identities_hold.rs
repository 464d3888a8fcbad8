//! A peer is rejected if its certificate is expired, not yet valid or of another authority, by the
//! clock of the machine that checks it; and no certificate lets its owner act as somebody else (mutual
//! authentication: RFC 8446, section 4.4.2; validity: RFC 5280, section 4.1.2.5).

use umbel_ports::PeerIdentity;

use crate::certificate::{Certificate, OWN_AUTHORITY, Refusal};
use crate::counters;
use crate::seed::true_wall_ms;
use crate::watch;

/// Name of the invariant: nobody is accepted under another identity.
pub(crate) const NAME: &str = "identities_hold";

/// Name of the invariant: nobody with a valid certificate is rejected.
pub(crate) const SERVED: &str = "good_certificates_serve";

/// Maximum difference between the clocks of two machines, in milliseconds.
const CLOCKS_APART_MS: u64 = 1_000;

/// A machine has checked a certificate at this time of its clock, and accepted or rejected the peer.
pub(crate) fn check_taken(
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
    // A certificate that is valid by all clocks must be accepted.
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

/// A caller has used an identity that is not its own, and was served or not.
pub(crate) fn check_served(machine: u32, what: &str, served: Option<&str>) {
    counters::checked(NAME, 1);
    if let Some(answer) = served {
        watch::violated(NAME, format!("machine {machine} served {what}: {answer}"));
    }
}

/// A principal with a certificate has called; it was `refused` for the certificate, or `denied` by the
/// gate.
pub(crate) fn check_certified(
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
