//! `umbel access` against a real server.

use crate::sandbox::Sandbox;
use crate::serve::Server;

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
