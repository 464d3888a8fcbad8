//! Folders of processes that died while they removed them.

use super::crash_test::Place;
use umbel_node::jobs::Workshop;

/// Whatever was removed before the process died, the journal excepted, which goes last.
#[test]
fn a_folder_that_is_half_removed_behind_the_end_is_removed_at_the_next_start() {
    let files = ["runs", "drops", "groups", "asked", "lock"];
    for removed in 0..=files.len() {
        let place = Place::new();
        let folder = place.path("job0");
        let shop = place.open_first();
        shop.mark(b"on the way").unwrap();
        assert!(!shop.has_ended());
        shop.mark_end(b"the end").unwrap();
        drop(shop);
        files[..removed].iter().for_each(|name| std::fs::remove_file(folder.join(name)).unwrap());
        // It is needed no more.
        std::fs::remove_dir_all(place.path("in0")).unwrap();
        let shop = place.open_first();
        assert!(shop.has_ended());
        assert_eq!(shop.marks().unwrap(), [&b"on the way"[..], b"the end"]);
        shop.end(false);
        assert!(!folder.exists(), "behind {removed} files");
    }
}

/// A worker that cannot go on and has not marked an end begins anew: nothing that its folder held counts.
#[test]
fn a_folder_that_is_half_removed_without_an_end_is_a_new_one() {
    let place = Place::new();
    let folder = place.path("job0");
    let shop = place.open_first();
    shop.mark(b"on the way").unwrap();
    drop(shop);
    std::fs::write(folder.join("runs"), b"what was read").unwrap();
    std::fs::remove_file(folder.join("journal")).unwrap();
    let shop = place.open_first();
    assert!(shop.marks().unwrap().is_empty() && !shop.has_ended());
    assert_eq!(std::fs::read(folder.join("runs")).unwrap(), b"");
    shop.end(false);
    assert!(!folder.exists());
}
