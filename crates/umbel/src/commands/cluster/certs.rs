//! `umbel cluster certs`: creates a certificate authority and the certificates that it signs.

use crate::exit::{UsageError, refuse};
use crate::printer::{facts, print};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use umbel_files::write_whole;
use umbel_tls::{Authority, AuthorityError, NodeIdentity, Pem, Subject};

/// Permissions of the folder, which holds private keys.
const FOLDER_MODE: u32 = 0o700;

/// Permissions of private keys.
const KEY_MODE: u32 = 0o600;

/// Permissions of certificates, before the process's umask: certificates are public.
const CERTIFICATE_MODE: u32 = 0o644;

/// Default validity of an authority, in days.
const AUTHORITY_DAYS: u32 = 3650;

/// Default validity of other certificates, in days.
const DAYS: u32 = 365;

/// Arguments of `umbel cluster certs`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel cluster certs init\n  \
      umbel cluster certs node node-1 10.0.0.1\n  \
      umbel cluster certs client alice --days 30\n\n\
    docs/security.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage or a file exists, 130 interrupted.")]
pub(super) struct CertsArgs {
    #[command(subcommand)]
    verb: CertsVerb,
}

#[derive(Subcommand)]
enum CertsVerb {
    /// Create an authority: ca.pem for all nodes and clients, ca.key to sign certificates
    Init {
        #[command(flatten)]
        made: Made,
    },
    /// Create a node's certificate, NAME.pem and NAME.key, where NAME is the first host
    Node {
        /// Names and IP addresses at which others reach the node, without ports
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// Name this node of this cluster in it, so that it is valid for no other
        #[arg(long, value_name = "CLUSTER/NODE")]
        identity: Option<NodeIdentity>,
        #[command(flatten)]
        signed: Signed,
    },
    /// Create a client's certificate, client-NAME.pem and client-NAME.key
    Client {
        /// Its name, which the audit log shows
        name: String,
        #[command(flatten)]
        signed: Signed,
    },
}

/// Who signs a certificate.
#[derive(Args)]
struct Signed {
    /// Folder with ca.pem and ca.key [default: that of --out, which gets a ca.pem if it has none]
    #[arg(long, value_name = "DIR")]
    authority: Option<PathBuf>,
    #[command(flatten)]
    made: Made,
}

/// Where certificates come to lie, and how long they last.
#[derive(Args)]
struct Made {
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value = "certs")]
    out: PathBuf,
    /// Validity in days [default: 365, for an authority 3650]
    #[arg(long, value_name = "N")]
    days: Option<u32>,
    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,
}

impl CertsArgs {
    /// Creates the certificate that the arguments ask for, and prints the paths of the files.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if a name or host is invalid, or a file exists already; if a file cannot be read
    /// or written.
    pub(super) fn run(&self, json: bool) -> Result<()> {
        self.check_folders()?;
        let (name, made, pem) = match &self.verb {
            CertsVerb::Init { made } => {
                let days = made.days.unwrap_or(AUTHORITY_DAYS);
                let (_, pem) = Authority::new("Umbel", days).map_err(asked_wrongly)?;
                ("ca".to_owned(), made, pem)
            }
            CertsVerb::Node { hosts, identity, signed } => {
                let hosts = hosts.clone();
                let name = hosts.first().cloned().unwrap_or_default();
                let subject = match *identity {
                    Some(identity) => Subject::Member { identity, hosts },
                    None => Subject::Node { hosts },
                };
                (name, &signed.made, signed.issue(&subject)?)
            }
            CertsVerb::Client { name, signed } => {
                let subject = Subject::Client { name: name.clone() };
                (format!("client-{name}"), &signed.made, signed.issue(&subject)?)
            }
        };
        let (certificate, key) = made.write(&name, &pem)?;
        print(json, &json!({ "certificate": certificate, "key": key }), || {
            facts(&[("certificate", certificate.clone()), ("key", key.clone())])
        })
    }

    /// Refuses `-` as a folder: elsewhere it is a stream, and keys are not printed.
    fn check_folders(&self) -> Result<(), UsageError> {
        let (made, authority) = match &self.verb {
            CertsVerb::Init { made } => (made, None),
            CertsVerb::Node { signed, .. } | CertsVerb::Client { signed, .. } => {
                (&signed.made, signed.authority.as_deref())
            }
        };
        for (flag, folder) in [("--out", Some(made.out.as_path())), ("--authority", authority)] {
            if folder == Some(Path::new("-")) {
                refuse!("{flag} -: a stream, expected a folder; ./- is a folder of that name");
            }
        }
        Ok(())
    }
}

impl Signed {
    /// Signs a certificate. Copies the authority's certificate into the output folder if there is none.
    fn issue(&self, subject: &Subject) -> Result<Pem> {
        let folder = self.authority.as_ref().unwrap_or(&self.made.out);
        let read = |name: &str| {
            let path = folder.join(name);
            let message = || {
                format!(
                    "{}: cannot read the authority; `umbel cluster certs init --out {}` makes one",
                    path.display(),
                    folder.display()
                )
            };
            std::fs::read_to_string(&path).with_context(message)
        };
        let own = Pem { certificate: read("ca.pem")?, key: read("ca.key")? };
        let authority =
            Authority::read(&own).with_context(|| folder.join("ca.key").display().to_string())?;
        let pem =
            authority.issue(subject, self.made.days.unwrap_or(DAYS)).map_err(asked_wrongly)?;
        let trusted = self.made.out.join("ca.pem");
        // An existing ca.pem is kept: it may hold a second authority as well.
        if !trusted.exists() {
            self.made.make_folder()?;
            write(&trusted, &own.certificate, CERTIFICATE_MODE)?;
        }
        Ok(pem)
    }
}

impl Made {
    fn make_folder(&self) -> Result<()> {
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(FOLDER_MODE);
        let message = || format!("{}: cannot make the folder", self.out.display());
        folder.create(&self.out).with_context(message)
    }

    /// Writes the key first, then the certificate: a program that waits for the certificate finds its
    /// key.
    fn write(&self, name: &str, pem: &Pem) -> Result<(String, String)> {
        self.make_folder()?;
        let file = |ending: &str| self.out.join(format!("{name}.{ending}"));
        let (certificate, key) = (file("pem"), file("key"));
        for path in [&certificate, &key] {
            if !self.overwrite && path.symlink_metadata().is_ok() {
                refuse!("{} exists; --overwrite replaces it", path.display());
            }
        }
        write(&key, &pem.key, KEY_MODE)?;
        write(&certificate, &pem.certificate, CERTIFICATE_MODE)?;
        Ok((certificate.display().to_string(), key.display().to_string()))
    }
}

/// Turns errors that the user can correct into usage errors.
fn asked_wrongly(error: AuthorityError) -> anyhow::Error {
    match error {
        AuthorityError::NoHost
        | AuthorityError::Host { .. }
        | AuthorityError::Name { .. }
        | AuthorityError::Days { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let cannot = || format!("{}: cannot write", path.display());
    write_whole(path, mode, text.as_bytes()).with_context(cannot)
}
