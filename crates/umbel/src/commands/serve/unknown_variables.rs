//! Variables of the environment that are named like settings and are none, such as misspelt ones. A node names them
//! and starts nevertheless, because the prefix is not its own: Kubernetes, images and tests use it, too.

use super::settings::all;
use std::collections::BTreeSet;
use std::ffi::OsString;
use strsim::levenshtein;
use umbel_node::config::Setting;

/// How the names of all settings begin in the environment.
const PREFIX: &str = "UMBEL_";

/// What Umbel reads that is no setting of a node, also other commands in the same environment.
const OTHERS: [&str; 5] = [
    "UMBEL_CLUSTER",
    "UMBEL_CONFIG",
    "UMBEL_JOB_TOKEN",
    "UMBEL_RECONCILE_SECRET_FILE",
    "UMBEL_TOKEN_FILE",
];

/// What Kubernetes sets for each port of a Service, and for the Service, behind its name; more may follow after a `_`.
const OF_SERVICES: [&str; 3] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];

/// In how many letters a name may differ from the setting that is suggested: with more, short names suggest any.
const EDITS_MAX: usize = 2;

/// A message for each of these variables that looks like a setting and is none, in the order of their names.
pub(super) fn warnings(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let names: BTreeSet<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.iter().filter(|name| is_unknown(name, &names)).map(|name| warning(name)).collect()
}

/// Whether one of these variables looks like a setting and is none.
fn is_unknown(name: &str, names: &BTreeSet<String>) -> bool {
    name.starts_with(PREFIX)
        && !OTHERS.contains(&name)
        && !is_of_kubernetes(name, names)
        && all().all(|setting| setting.variable() != name)
}

/// Whether Kubernetes has set this variable, for a Service whose own name begins with `umbel`: of each one there is its
/// `..._SERVICE_HOST`, too.
fn is_of_kubernetes(name: &str, names: &BTreeSet<String>) -> bool {
    let is_of = |(at, mark): (usize, &str)| {
        let rest = &name[at + mark.len()..];
        let is_whole = rest.is_empty() || rest.starts_with('_');
        is_whole && names.contains(&format!("{}_SERVICE_HOST", &name[..at]))
    };
    OF_SERVICES.iter().any(|mark| name.match_indices(mark).any(is_of))
}

fn warning(name: &str) -> String {
    let known = all().map(Setting::variable);
    let near = known.map(|known| (levenshtein(name, &known), known));
    let nearest = near.filter(|(edits, _)| *edits <= EDITS_MAX).min();
    let instead = nearest.map_or_else(
        || "`umbel serve --print-config` lists all settings".to_owned(),
        |(_, known)| format!("is {known} meant?"),
    );
    format!("{name} in the environment is no setting, and has no effect: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(names: &[&str]) -> Vec<String> {
        warnings(names.iter().map(OsString::from))
    }

    #[test]
    fn a_misspelt_setting_is_named_with_the_nearest_one() {
        for (name, meant) in [
            ("UMBEL_SHARD", "is UMBEL_SHARDS meant?"),
            ("UMBEL_FSYCN", "is UMBEL_FSYNC meant?"),
            ("UMBEL_LOGLEVEL", "is UMBEL_LOG_LEVEL meant?"),
            ("UMBEL_ELECTION_MS_MIN", "--print-config"),
        ] {
            let said = said(&[name]).concat();
            assert!(said.starts_with(name) && said.contains(meant), "{said}");
        }
        assert_eq!(said(&["UMBEL_Y", "UMBEL_X"]).len(), 2);
        assert!(said(&["UMBEL_Y", "UMBEL_X"])[0].starts_with("UMBEL_X "));
    }

    #[test]
    fn what_others_set_is_passed_over() {
        let settings: Vec<String> = all().map(Setting::variable).collect();
        assert_eq!(said(&settings.iter().map(String::as_str).collect::<Vec<_>>()), [""; 0]);
        assert_eq!(said(&OTHERS), [""; 0]);
        assert_eq!(said(&["HOME", "UMBEL"]), [""; 0]);
        // Kubernetes, for Services named `umbel` and `umbel-port-nodes`.
        let of_services = [
            "UMBEL_SERVICE_HOST",
            "UMBEL_SERVICE_PORT",
            "UMBEL_SERVICE_PORT_GRPC",
            "UMBEL_PORT",
            "UMBEL_PORT_7400_TCP",
            "UMBEL_PORT_7400_TCP_ADDR",
            "UMBEL_PORT_NODES_SERVICE_HOST",
            "UMBEL_PORT_NODES_SERVICE_PORT",
            "UMBEL_PORT_NODES_PORT_6379_TCP_PROTO",
        ];
        assert_eq!(said(&of_services), [""; 0]);
    }

    /// Regression: whatever has a port in its name was taken for one of Kubernetes.
    #[test]
    fn a_port_is_of_kubernetes_only_with_its_service() {
        for name in ["UMBEL_RESP_PORT", "UMBEL_LISTEN_PORT", "UMBEL_PORT", "UMBEL_X_PORT_7_TCP"] {
            let said = said(&["UMBEL_NODES_SERVICE_HOST", name]);
            assert!(said.len() == 1 && said[0].starts_with(name), "{name}: {said:?}");
        }
        let said = said(&["UMBEL_SERVICE_HOST", "UMBEL_PORTS", "UMBEL_SERVICE_NAME"]);
        assert!(said.len() == 2 && said[0].starts_with("UMBEL_PORTS "), "{said:?}");
    }
}
