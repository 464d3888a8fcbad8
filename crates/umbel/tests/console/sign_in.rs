//! Principals that sign in see what they were granted, and the page keeps the token to itself.

use umbel_client::Client;
use umbel_client::proto::{ClusterVerb, Grant, Principal, PutPrincipalRequest};

use crate::browser;
use crate::servers::Cluster;

/// Adds a principal with a token whose secret is its name.
pub(crate) async fn add(client: &Client, name: &str, may: &[ClusterVerb], grants: Vec<Grant>) {
    let principal = Principal {
        name: name.to_owned(),
        token_digest: blake3::hash(name.as_bytes()).as_bytes().to_vec().into(),
        cluster_verbs: may.iter().map(|&verb| verb.into()).collect(),
        grants,
        ..Principal::default()
    };
    let request = PutPrincipalRequest { principal: Some(principal), ..Default::default() };
    client.put_principal(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_the_view_and_is_kept_nowhere() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form(1).await;
    let client = cluster.client();
    add(&client, "root", &[ClusterVerb::Admin, ClusterVerb::Metrics], Vec::new()).await;
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    browser.until_shown("a token is asked for", "document.activeElement.id === 'token'");
    let shown = browser.text().to_string();
    assert!(!shown.contains(&cluster.nodes[0].address), "{shown}");
    browser.press("root.wrong\u{e007}");
    browser.until_shown(
        "the token is refused",
        "document.getElementById('sign-in-why').textContent.includes('unknown, revoked or expired')",
    );
    browser.press("root.root\u{e007}");
    browser.until_shown("the view is live", "document.querySelectorAll('.range-row').length === 1");
    let kept = browser.run(
        "return [localStorage.length, sessionStorage.length, document.cookie, location.href, \
         document.documentElement.outerHTML.includes('root.root')];",
    );
    let url = format!("http://{}/console", cluster.nodes[0].address);
    assert_eq!(kept, serde_json::json!([0, 0, "", url, false]));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
