//! What becomes of the sets of `umbel reconcile`: what goes, what stands in the way, what is kept of a file, what a set
//! begins from.

use crate::reconcile::{over_ssh, reconcile, script};
use crate::sandbox::Sandbox;

#[test]
fn what_is_pushed_to_loses_what_only_it_has_where_that_is_asked_for() {
    let ids = |ids: &[u64]| ids.iter().map(|id| format!("{id:032x}\n")).collect::<String>();
    for (form, a, b, after) in [
        ("--lines", "1\n2\n2\n".into(), "2\n3\n4\n".to_owned(), "2\n1\n2\n".to_owned()),
        ("--ids", ids(&[1, 2]), ids(&[2, 3, 4]), ids(&[2, 1])),
        ("--kv", "x\t1\ny\t1\n".into(), "y\t2\nz\t2\n".into(), "y\t1\nx\t1\n".into()),
    ] {
        let sandbox = Sandbox::with(&[("a", &a), ("b", &b), ("c", &b), ("d", &b)]);
        reconcile(&sandbox, &format!("{form} a b --push --delete")).kept();
        assert_eq!((sandbox.text("a"), sandbox.text("b")), (a.clone(), after.clone()), "{form}");
        reconcile(&sandbox, &format!("{form} a b")).kept();
        over_ssh(&sandbox, &format!("{form} a --push --delete"), "c").kept();
        assert_eq!(sandbox.text("c"), after, "{form}");
        // The A of the command may be there, and take: then that is where items go.
        script(&sandbox, &format!("{form} --writable --delete --as-a d"));
        reconcile(&sandbox, &format!("{form} exec:./there.sh a --pull --delete")).kept();
        assert_eq!((sandbox.text("d"), sandbox.text("a")), (after, a), "{form}");
    }
}

#[test]
fn who_answers_removes_nothing_unless_both_sides_were_told() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("b", "1\n2\n")]);
    script(&sandbox, "--writable b");
    let refused = reconcile(&sandbox, "a exec:./there.sh --push --delete");
    refused.refused(2, &["answer with --writable --delete", "this side's is unchanged"]);
    assert_eq!(sandbox.text("b"), "1\n2\n");
    script(&sandbox, "--writable --delete b");
    reconcile(&sandbox, "a exec:./there.sh --push").ended_with(1);
    assert_eq!(sandbox.text("b"), "1\n2\n");
    reconcile(&sandbox, "a exec:./there.sh --push --delete").kept();
    assert_eq!(sandbox.text("b"), "1\n");
}

#[test]
fn a_directory_that_is_pushed_to_becomes_the_other() {
    let files = [("a/x", "1"), ("a/new/y", "2"), ("b/x", "0"), ("b/old/z", "3")];
    let sandbox = Sandbox::with(&files);
    reconcile(&sandbox, "--dir a b --push --delete").kept();
    assert_eq!(sandbox.files(), ["a/new/y", "a/x", "b/new/y", "b/x"]);
    assert_eq!(sandbox.text("b/x"), "1");
}
