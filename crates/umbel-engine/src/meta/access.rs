//! Access control: which principals a cluster has.

use super::principal::{Principal, PrincipalName};
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use crate::meta::Result;

/// Most principals of a cluster: every node holds all of them, and each snapshot contains them.
pub const PRINCIPAL_COUNT_MAX: usize = 4_096;

impl MetaState {
    /// Whether callers must be principals: true once there is one.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !self.principals.is_empty()
    }

    /// A principal by its name.
    #[must_use]
    pub fn principal(&self, name: &str) -> Option<&Principal> {
        self.principals.get(name)
    }

    /// All principals, sorted by name.
    pub fn principals(&self) -> impl Iterator<Item = (&PrincipalName, &Principal)> {
        self.principals.iter()
    }

    /// Checks that another lasting administrator remains: without one, nobody could change principals
    /// any more.
    fn check_admin_beside(&self, name: &PrincipalName) -> Result<()> {
        let others = self.principals.iter().filter(|(other, _)| *other != name);
        if others.into_iter().any(|(_, principal)| principal.is_lasting_admin()) {
            return Ok(());
        }
        let what = if self.principals.is_empty() {
            "the first principal must be an administrator: umbel access add NAME --may admin, without --days"
                .to_owned()
        } else {
            format!(
                "then no principal beside {name} would have the verb admin and no expiry: add one first"
            )
        };
        Err(MetaError::BadPrincipal { what })
    }

    pub(super) fn put_principal(
        &mut self,
        name: &PrincipalName,
        principal: &Principal,
        replace: bool,
    ) -> Result<MetaReply> {
        principal.rights.check()?;
        match self.principals.get(name) {
            // The request is a retry.
            Some(known) if known.is_like(principal) => return Ok(MetaReply::Done),
            Some(_) if !replace => {
                let what = format!("there is a principal named {name} already");
                return Err(MetaError::BadPrincipal { what });
            }
            Some(_) => {}
            None if self.principals.len() >= PRINCIPAL_COUNT_MAX => {
                let what =
                    format!("{PRINCIPAL_COUNT_MAX} principals are allowed, and there are as many");
                return Err(MetaError::Quota { what });
            }
            None => {}
        }
        if !principal.is_lasting_admin() {
            self.check_admin_beside(name)?;
        }
        self.principals.insert(name.clone(), principal.clone());
        Ok(MetaReply::Done)
    }

    pub(super) fn drop_principal(&mut self, name: &PrincipalName) -> Result<MetaReply> {
        if !self.principals.contains_key(name) {
            let what = format!("there is no principal named {name}");
            return Err(MetaError::BadPrincipal { what });
        }
        self.check_admin_beside(name)?;
        self.principals.remove(name);
        self.quotas.remove(name);
        Ok(MetaReply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::MetaCommand;
    use crate::meta::testing::form;
    use crate::meta::{ClusterVerb, FilterVerb, GRANT_COUNT_MAX, Grant, Proof, Rights};

    fn named(name: &str) -> PrincipalName {
        PrincipalName::new(name).unwrap()
    }

    fn admin() -> Principal {
        Principal {
            proof: Proof::Token { digest: [7; 32] },
            rights: Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() },
            created_ms: 1,
            expires_ms: None,
        }
    }

    fn reader() -> Principal {
        let grant = Grant { pattern: "crawl.*".to_owned(), verbs: [FilterVerb::Read].into() };
        let rights = Rights { grants: vec![grant], ..Rights::default() };
        Principal { proof: Proof::Certificate, rights, ..admin() }
    }

    fn formed() -> MetaState {
        let mut state = MetaState::new();
        state.apply(1, &form(3, 1, 3));
        state
    }

    fn put(state: &mut MetaState, name: &str, principal: Principal, replace: bool) -> MetaReply {
        state.apply(2, &MetaCommand::PutPrincipal { name: named(name), principal, replace })
    }

    fn revoke(state: &mut MetaState, name: &str) -> MetaReply {
        state.apply(3, &MetaCommand::DropPrincipal { name: named(name) })
    }

    fn refusal(reply: &MetaReply) -> String {
        let MetaReply::Refused(error) = reply else { panic!("{reply:?} is no refusal") };
        error.to_string()
    }

    #[test]
    fn the_first_principal_is_an_administrator_and_the_last_one_stays() {
        let mut state = formed();
        let first = refusal(&put(&mut state, "reader", reader(), false));
        assert!(first.contains("the first principal must be an administrator"), "{first}");
        let mortal = Principal { expires_ms: Some(9), ..admin() };
        assert!(
            refusal(&put(&mut state, "root", mortal.clone(), false)).contains("without --days")
        );
        assert!(!state.is_guarded());

        assert_eq!(put(&mut state, "root", admin(), false), MetaReply::Done);
        assert!(state.is_guarded());
        assert_eq!(put(&mut state, "reader", reader(), false), MetaReply::Done);
        let last = refusal(&revoke(&mut state, "root"));
        assert!(last.contains("verb admin and no expiry: add one first"), "{last}");
        assert!(refusal(&put(&mut state, "root", mortal, true)).contains("add one first"));
        assert_eq!(put(&mut state, "heir", admin(), false), MetaReply::Done);
        assert_eq!(revoke(&mut state, "root"), MetaReply::Done);
        assert_eq!(state.principals().count(), 2);
    }

    #[test]
    fn a_repeated_request_is_done_and_another_one_takes_no_name() {
        let mut state = formed();
        put(&mut state, "root", admin(), false);
        let later = Principal { created_ms: 5, ..admin() };
        assert_eq!(put(&mut state, "root", later, false), MetaReply::Done);
        assert_eq!(state.principal("root").unwrap().created_ms, 1);
        assert!(refusal(&put(&mut state, "root", reader(), false)).contains("already"));
        assert!(refusal(&revoke(&mut state, "nobody")).contains("no principal named nobody"));
    }

    #[test]
    fn rights_without_sense_are_refused() {
        let mut state = formed();
        put(&mut state, "root", admin(), false);
        let mut with = |rights: Rights| {
            refusal(&put(&mut state, "x", Principal { rights, ..reader() }, false))
        };
        assert!(with(Rights::default()).contains("needs a grant"));
        let grant = |pattern: &str, verbs: &[FilterVerb]| Grant {
            pattern: pattern.to_owned(),
            verbs: verbs.iter().copied().collect(),
        };
        let grants = |grants| Rights { grants, ..Rights::default() };
        assert!(with(grants(vec![grant("a", &[])])).contains("no verb"));
        assert!(with(grants(vec![grant("", &[FilterVerb::Read])])).contains("1 to 1024 bytes"));
        let many = vec![grant("a", &[FilterVerb::Read]); GRANT_COUNT_MAX + 1];
        assert!(with(grants(many)).contains("65 grants"));
    }
}
