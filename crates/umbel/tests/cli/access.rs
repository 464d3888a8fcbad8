//! `umbel access` against a real server.

use crate::sandbox::Sandbox;
use crate::serve::{Server, run};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{SendResponse, handshake};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpListener;

#[test]
fn only_a_principal_that_exists_is_replaced() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let root = server.run(&sandbox, "access add root --may admin").kept_text();
    sandbox.write("root", &root);
    let access = |args: &str| server.run(&sandbox, &format!("access {args} --token-file root"));
    let names = || -> Vec<String> {
        let listed = access("list").kept_text();
        listed.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    access("add crawler --grant a:read").kept();
    for keep in ["", "--keep-token"] {
        access(&format!("add crowler --grant a:read --replace {keep}")).refused(
            1,
            &[
                "no principal named crowler to replace",
                "leave --replace out",
                "nothing was changed",
            ],
        );
    }
    assert_eq!(names(), ["crawler", "root"]);
    let token = access("add crawler --grant b:read --replace").kept_text();
    assert!(token.starts_with("crawler."), "{token}");
    let kept = access("add crawler --grant c:read --replace --keep-token").kept_text();
    assert_eq!(kept, "principal crawler changed: it keeps its token or certificate\n");
    assert!(access("list").kept_text().contains("c:read"));
}

#[test]
fn a_revocation_says_what_it_does() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let root = server.run(&sandbox, "access add root --may admin").kept_text();
    sandbox.write("root", &root);
    let access = |args: &str| server.run(&sandbox, &format!("access {args} --token-file root"));
    access("add crawler --grant a:read").kept();
    let said = access("revoke crawler").kept_text();
    assert!(said.starts_with("principal crawler revoked: ") && said.lines().count() == 1, "{said}");
    access("add crawler --grant a:read").kept();
    let json = access("revoke crawler --json").kept_text();
    assert_eq!(json, "{\"principal\":\"crawler\"}\n");
    access("revoke crawler").refused(1, &["there is no principal named crawler"]);
}

/// The address of a node that knows of no principal, and does not say whether it carries an order about one out.
async fn node_that_leaves_orders_open() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = handshake(stream).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond));
                }
            });
        }
    });
    address
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, mut body) = request.into_parts();
    while let Some(Ok(_)) = body.data().await {}
    let response = Response::builder().header("content-type", "application/grpc");
    if head.uri.path().ends_with("/WhoAmI") {
        let mut sent = respond.send_response(response.body(()).unwrap(), false).unwrap();
        // A message without fields.
        sent.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
        let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        sent.send_trailers(HeaderMap::from_iter([ok])).unwrap();
    } else {
        // Internal errors leave open what was done; whatever else is called is not there.
        let status = if head.uri.path().ends_with("/Put") { "13" } else { "12" };
        let refused = response.header("grpc-status", status).body(()).unwrap();
        drop(respond.send_response(refused, true));
    }
}

/// It cannot be printed again, and may be that of the only administrator.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_printed_also_if_its_principal_may_not_be_there() {
    let sandbox = Sandbox::new();
    let address = node_that_leaves_orders_open().await;
    let ran = run(&sandbox, &format!("access add root --may admin --cluster {address}"));
    let said = ran.stderr.clone();
    let token = String::from_utf8(ran.ended_with(1)).unwrap();
    assert!(token.starts_with("root.") && token.lines().count() == 1, "{token}");
    for words in ["outcome unknown", "keep the token", "whoami --token-file", "--replace if"] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    assert!(!said.contains("from now on"), "{said}");
}
