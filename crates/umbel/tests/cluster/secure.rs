//! Clusters with TLS: which clients they accept, and how certificates are replaced under load.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel_client::{
    Client, ClientError, ClientOptions, Code, KeyPairFiles, NewFilter, TlsConnector, TlsFiles,
};
use umbel_ports::testing::free_port;
use umbel_tls::{Authority, Pem, Subject};

use crate::load::item;
use crate::servers::{Cluster, Server, options, until};

/// The log message of a node that has loaded new certificates.
const READ: &str = "new certificates were read";

/// Items per call while certificates are replaced.
const BATCH_ITEMS: u64 = 100;

pub(crate) fn put(path: &Path, text: &str) {
    let aside = path.with_extension("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, path).unwrap();
}

/// Writes a certificate and its key next to each other, the key first.
pub(crate) fn put_pair(folder: &Path, name: &str, pem: &Pem) -> KeyPairFiles {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    put(&file("key"), &pem.key);
    put(&file("pem"), &pem.certificate);
    KeyPairFiles { certificate: file("pem"), key: file("key") }
}

pub(crate) fn node() -> Subject {
    Subject::Node { hosts: vec!["127.0.0.1".to_owned()] }
}

pub(crate) fn client(name: &str) -> Subject {
    Subject::Client { name: name.to_owned() }
}

/// Three nodes with certificates from one authority.
pub(crate) struct Secure {
    pub(crate) cluster: Cluster,
    pub(crate) authority: Authority,
    own: Pem,
}

impl Secure {
    /// Forms a cluster of nodes with certificates.
    pub(crate) async fn form() -> Self {
        let mut cluster = Cluster::none().await;
        let (authority, own) = Authority::new("cluster", 1).unwrap();
        let folder = cluster.folder.path().to_owned();
        put(&folder.join("ca.pem"), &own.certificate);
        let addresses: Vec<String> = (0..3).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let founders = addresses.join(",");
        for (number, address) in addresses.iter().enumerate() {
            let name = format!("node-{number}");
            let pair = put_pair(&folder, &name, &authority.issue(&node(), 1).unwrap());
            let mut server = Server::new(&folder, address, &["--initial-cluster", &founders]);
            server.set("UMBEL_TLS_CA", folder.join("ca.pem").to_str().unwrap());
            server.set("UMBEL_TLS_CERT", pair.certificate.to_str().unwrap());
            server.set("UMBEL_TLS_KEY", pair.key.to_str().unwrap());
            server.start();
            cluster.nodes.push(server);
        }
        for server in &mut cluster.nodes {
            server.listening().await;
        }
        Self { cluster, authority, own }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.cluster.folder.path().to_owned()
    }

    fn addresses(&self) -> String {
        let addresses: Vec<&str> =
            self.cluster.nodes.iter().map(|node| node.address.as_str()).collect();
        addresses.join(",")
    }

    /// A client with these files.
    pub(crate) fn client(
        &self,
        ca: &Path,
        pair: Option<KeyPairFiles>,
        options: ClientOptions,
    ) -> Client {
        let tls = TlsConnector::open(TlsFiles { ca: ca.to_owned(), pair }).unwrap();
        Client::connect_through(self.addresses(), options, tls).unwrap()
    }

    /// Waits until every node has loaded new files once more than before.
    async fn read_again(&self, before: &[usize]) {
        for (server, before) in self.cluster.nodes.iter().zip(before) {
            let what = format!("{} reads new certificates", server.address);
            until(&what, || async { (reads(server) > *before).then_some(()) }).await;
        }
    }

    fn reads(&self) -> Vec<usize> {
        self.cluster.nodes.iter().map(reads).collect()
    }
}

fn reads(server: &Server) -> usize {
    server.log().matches(READ).count()
}

/// Gives up soon, since it will be refused.
pub(crate) fn impatient() -> ClientOptions {
    ClientOptions {
        first_contact_timeout: std::time::Duration::from_millis(100),
        attempt_count_max: 6,
        ..options()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_callers_learn_nothing() {
    let secure = Secure::form().await;
    let (folder, ca) = (secure.folder(), secure.folder().join("ca.pem"));
    let alice = put_pair(&folder, "alice", &secure.authority.issue(&client("alice"), 1).unwrap());
    let trusted = secure.client(&ca, Some(alice), options());
    trusted.create("seen", &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    assert_eq!(trusted.filter("seen").insert(["a", "b"]).await.unwrap().new_count(), 2);

    // The error is the same whether the filter exists or not.
    let anonymous = secure.client(&ca, None, impatient());
    for name in ["seen", "none"] {
        let error = anonymous.info(name).await.unwrap_err();
        let ClientError::Refused(failure) = &error else { panic!("{error}") };
        assert_eq!(failure.code, Code::Unauthenticated, "{error}");
        assert!(failure.message.contains("umbel cluster certs client"), "{error}");
    }
    let plain = Client::connect_with(secure.addresses(), impatient()).unwrap();
    assert!(matches!(plain.info("seen").await, Err(ClientError::Unavailable(_))));

    let (strangers, own) = Authority::new("cluster", 1).unwrap();
    let eve = put_pair(&folder, "eve", &strangers.issue(&client("eve"), 1).unwrap());
    let foreign = secure.client(&ca, Some(eve.clone()), impatient());
    // A node may have hung up before the call is sent, which then says that alone.
    let error = until("the refusal of eve's certificate", || async {
        let error = foreign.info("seen").await.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
        (error.failure().unwrap().code == Code::Unauthenticated).then_some(error)
    })
    .await;
    let failure = error.failure().unwrap();
    let said =
        format!("{} refused the certificate of this end: it comes from another", failure.node);
    assert!(failure.message.starts_with(&said), "{error}");
    put(&folder.join("other-ca.pem"), &own.certificate);
    let wary = secure.client(&folder.join("other-ca.pem"), Some(eve), impatient());
    let error = wary.info("seen").await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.code, Code::Unauthenticated, "{error}");
    assert!(failure.message.contains("another authority"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_certificates_change_under_load_and_no_call_fails() {
    let mut secure = Secure::form().await;
    let (folder, ca) = (secure.folder(), secure.folder().join("ca.pem"));
    let alice = put_pair(&folder, "alice", &secure.authority.issue(&client("alice"), 1).unwrap());
    let trusted = secure.client(&ca, Some(alice.clone()), options());
    trusted.create("seen", &NewFilter::for_rate(100_000, 0.01)).await.unwrap();

    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&calls));
    let filter = trusted.filter("seen");
    let load = tokio::spawn(async move {
        while !stopped.load(Ordering::SeqCst) {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let items = (number * BATCH_ITEMS..(number + 1) * BATCH_ITEMS).map(item);
            filter.insert(items).await?;
        }
        Ok::<(), ClientError>(())
    });

    // First both authorities are trusted, then all certificates are replaced by ones from the new
    // authority, then the old one is no longer trusted.
    let (authority, own) = Authority::new("cluster", 2).unwrap();
    let before = secure.reads();
    put(&ca, &format!("{}{}", secure.own.certificate, own.certificate));
    secure.read_again(&before).await;
    let before = secure.reads();
    for number in 0..secure.cluster.nodes.len() {
        put_pair(&folder, &format!("node-{number}"), &authority.issue(&node(), 2).unwrap());
    }
    let old_alice = put_pair(&folder, "old", &secure.authority.issue(&client("alice"), 1).unwrap());
    put_pair(&folder, "alice", &authority.issue(&client("alice"), 2).unwrap());
    secure.read_again(&before).await;
    let before = secure.reads();
    put(&ca, &own.certificate);
    secure.read_again(&before).await;

    // New connections, including those of a restarted node.
    let fresh = secure.client(&ca, Some(alice), options());
    assert_eq!(fresh.list("").await.unwrap().len(), 1);
    let begun = calls.load(Ordering::SeqCst);
    until("calls after the change", || async {
        (calls.load(Ordering::SeqCst) > begun + 3).then_some(())
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    load.await.unwrap().unwrap();
    let outdated = secure.client(&ca, Some(old_alice), impatient());
    assert!(matches!(outdated.list("").await, Err(ClientError::Unavailable(_))));
    assert_eq!(secure.cluster.nodes[2].stop().await.code(), Some(0));
    secure.cluster.nodes[2].start();
    secure.cluster.nodes[2].listening().await;
    let inserted = fresh.filter("seen").insert(["after"]).await.unwrap();
    assert_eq!(inserted.new_count(), 1);
}
