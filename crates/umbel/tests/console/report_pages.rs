//! Report pages of jobs and comparisons in a browser: they open as files, at every width and in both
//! schemes, and load nothing else.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::browser;
use crate::pictures::folder;
use crate::webdriver::Browser;

/// A name that would be markup if it were not escaped.
const HOSTILE: &str = "<img src=x onerror=alert('1')>.txt";

/// From a small phone to a large screen, in both colour schemes.
const LOOKS: [((u32, u32), &str); 6] = [
    ((320, 720), "light"),
    ((320, 720), "dark"),
    ((768, 1024), "light"),
    ((1280, 860), "dark"),
    ((1920, 1080), "light"),
    ((1920, 1080), "dark"),
];

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; low ones are more frequent.
    fn below(&mut self, end: u64) -> u64 {
        (self.next() % end).min(self.next() % end)
    }
}

/// Files of a crawl: one directory per language, some of which repeat others.
fn crawl(root: &Path) {
    let mut numbers = Numbers(7);
    for (language, first, width) in
        [("de", 0, 9000), ("en", 30_000, 25_000), ("fr", 26_000, 9000), ("it", 90_000, 40_000)]
    {
        fs::create_dir_all(root.join("crawl").join(language)).unwrap();
        for day in 1..3 {
            let mut text = String::new();
            for _ in 0..5000 {
                let page = first + numbers.below(width) * (day + 2) / 4;
                writeln!(text, "https://example.org/{page}").unwrap();
            }
            fs::write(root.join(format!("crawl/{language}/2026-11-0{day}.txt")), text).unwrap();
        }
    }
}

/// Two files of ids, each with some that the other lacks.
fn ids(root: &Path) {
    let mut numbers = Numbers(11);
    let ids: Vec<String> = (0..50_000).map(|_| format!("{:016x}\n", numbers.next())).collect();
    fs::write(root.join("mine.txt"), ids[..49_700].concat()).unwrap();
    fs::write(root.join("theirs.txt"), ids[120..].concat()).unwrap();
}

/// Runs `umbel` in this folder. The result is not checked here, but by the page that it writes.
fn run(root: &Path, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    let output = command.args(args).current_dir(root).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
}

/// A folder with the pages of a job and of a comparison.
fn pages() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    crawl(root);
    run(root, &["dedup", "crawl", "-o", "clean/", "--report", "dedup.html"]);
    ids(root);
    let args = ["reconcile", "--ids", "mine.txt", "theirs.txt", "--report-html", "reconcile.html"];
    run(root, &args);
    folder
}

fn open(browser: &Browser, page: &Path) {
    browser.open(&format!("file://{}", page.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_open_alone_and_fit_every_window() {
    let Some(browser) = browser() else { return };
    let folder = pages();
    for page in ["dedup.html", "reconcile.html"] {
        open(&browser, &folder.path().join(page));
        for (size, scheme) in LOOKS {
            browser.look(size, scheme);
            let shown = browser.run(
                "return [document.documentElement.scrollWidth, innerWidth, \
                 getComputedStyle(document.body).backgroundColor];",
            );
            assert!(shown[0].as_u64() <= shown[1].as_u64(), "{page} at {size:?}: {shown}");
            // The page's own style is applied, so its policy allows it.
            let ground = if scheme == "dark" { "rgb(16, 22, 27)" } else { "rgb(255, 255, 255)" };
            assert_eq!(shown[2], ground, "{page}");
        }
        let alone = browser.run(
            "return [document.scripts.length, performance.getEntriesByType('resource').length, \
             document.querySelectorAll('[style]').length];",
        );
        assert_eq!(alone, json!([0, 0, 0]), "{page}");
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{page}: {}", complaints.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_have_names_and_tables_behind_them() {
    let Some(browser) = browser() else { return };
    let folder = pages();
    for (page, pictures) in [("dedup.html", 2), ("reconcile.html", 1)] {
        open(&browser, &folder.path().join(page));
        let told = browser.run(
            "const words = (id) => document.getElementById(id)?.textContent ?? ''; \
             const images = [...document.querySelectorAll('[role=img]')]; \
             return [images.length, \
               images.every((image) => image.getAttribute('aria-labelledby').split(' ').every(words)), \
               [...document.querySelectorAll('svg')].every((svg) => svg.role === 'img' || svg.ariaHidden === 'true'), \
               [...document.querySelectorAll('.scroll')].every((part) => part.ariaLabel && part.tabIndex === 0), \
               document.querySelectorAll('caption').length === document.querySelectorAll('table').length, \
               document.querySelectorAll('main, h1').length, document.title === document.querySelector('h1').innerText];",
        );
        assert_eq!(told, json!([pictures, true, true, true, true, 2, true]), "{page}");
    }
    open(&browser, &folder.path().join("dedup.html"));
    // By keyboard only: the table behind the matrix.
    browser.run("document.querySelector('summary').focus();");
    browser.press("\u{e007}");
    browser.until_shown(
        "the table is unfolded",
        "document.querySelector('details table').checkVisibility()",
    );
}

/// Contrast of texts in both schemes as WCAG 2.2 measures it for small text.
#[tokio::test(flavor = "multi_thread")]
async fn texts_can_be_read_in_both_colours() {
    let Some(browser) = browser() else { return };
    let folder = pages();
    open(&browser, &folder.path().join("dedup.html"));
    for scheme in ["light", "dark"] {
        browser.look((1280, 860), scheme);
        let least = browser.run(
            "const light = (color) => { \
               const part = (byte) => byte <= 10.3 ? byte / 3295 : ((byte / 255 + 0.055) / 1.055) ** 2.4; \
               const [r, g, b] = color.match(/\\d+/g).map(Number).map(part); \
               return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
             const ground = light(getComputedStyle(document.body).backgroundColor); \
             const texts = [...document.querySelectorAll('p, h1, h2, th, td, dt, dd, li, caption, summary, footer')]; \
             const all = texts.map((text) => light(getComputedStyle(text).color)); \
             return Math.min(...all.map((text) => (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05)));",
        );
        assert!(least.as_f64().unwrap() >= 4.5, "{scheme}: {least}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_like_markup_are_text() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(HOSTILE), "x\nx\ny\n").unwrap();
    fs::write(folder.path().join("b.txt"), "y\n").unwrap();
    let args = ["dedup", HOSTILE, "b.txt", "-o", "out.txt", "--report", "page.html"];
    run(folder.path(), &args);
    open(&browser, &folder.path().join("page.html"));
    let shown = browser.run(
        "return [document.querySelectorAll('img').length, document.querySelector('tbody th').innerText.trim()];",
    );
    assert_eq!(shown, json!([0, HOSTILE]));
    assert!(browser.complaints().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes pictures for people"]
async fn pictures() {
    let Some(browser) = browser() else { return };
    let there = pages();
    for (page, scheme, size) in
        [("dedup", "light", (1100, 1480)), ("reconcile", "dark", (1100, 1200))]
    {
        open(&browser, &there.path().join(page).with_extension("html"));
        browser.look(size, scheme);
        browser.run("document.documentElement.style.overflow = 'hidden';");
        fs::write(folder().join(format!("report-{page}.png")), browser.picture()).unwrap();
    }
}
