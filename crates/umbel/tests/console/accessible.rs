//! Accessibility of the pages: names of all controls, contrast in both colour schemes, and the findings
//! of axe-core if it is available.

use serde_json::{Value, json};

use crate::browser;
use crate::servers::Cluster;
use crate::views::{VIEWS, fill};
use crate::webdriver::Browser;

/// Roles of elements that people use or read as a whole; each needs a name.
const NAMED: [&str; 13] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "spinbutton",
    "combobox",
    "image",
    "img",
    "table",
    "region",
    "dialog",
    "navigation",
    "Iframe",
];

/// Texts with less contrast than WCAG 2.1 requires at AA: 4.5, or 3 for large text. The background is
/// that of the nearest element that has one.
const FAINT: &str = "
    const parsed = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
    const ground = (part) => {
      for (let at = part; at; at = at.parentElement) {
        const [red, green, blue, alpha = 1] = parsed(getComputedStyle(at).backgroundColor);
        if (alpha === 1) return [red, green, blue];
      }
      return [255, 255, 255];
    };
    const faint = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const part = texts.currentNode.parentElement;
      if (!texts.currentNode.data.trim() || !part.checkVisibility() || part.closest('svg, :disabled, script, noscript')) continue;
      const style = getComputedStyle(part);
      const [one, other] = [light(parsed(style.color)), light(ground(part))];
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      const size = parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (ratio < (isLarge ? 3 : 4.5)) faint.push(`${ratio.toFixed(2)}: ${texts.currentNode.data.trim()}`);
    }
    return faint;";

/// The source of axe-core, if it is available.
pub(crate) fn axe() -> Option<String> {
    let file = std::env::var_os("UMBEL_AXE").filter(|file| !file.is_empty());
    if file.is_none() {
        eprintln!("skipped in part: there is no axe-core (UMBEL_AXE names its axe.min.js)");
    }
    file.map(|file| std::fs::read_to_string(file).unwrap())
}

impl Browser {
    /// Asserts that the page has no such problems.
    pub(crate) fn assert_accessible(&self, what: &str, axe: Option<&str>) {
        let nameless: Vec<String> = self
            .accessible()
            .into_iter()
            .filter(|(role, name)| NAMED.contains(&role.as_str()) && name.trim().is_empty())
            .map(|(role, _)| role)
            .collect();
        assert!(nameless.is_empty(), "{what}: without a name: {nameless:?}");
        assert_eq!(self.run(FAINT), json!([]), "{what}: texts without contrast");
        let Some(axe) = axe else { return };
        self.run(axe);
        let found = self.run(
            "return axe.run(document).then(({ violations }) => violations.map((found) => \
             `${found.id}: ${found.nodes.map((node) => node.html).join(' | ')}`));",
        );
        assert_eq!(found, json!([]), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_without_a_name_or_too_faint() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let cluster = Cluster::form_with(3, |node| node.set("UMBEL_CONSOLE", "full")).await;
    fill(&cluster.client()).await;
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    for (view, sign) in VIEWS {
        browser.choose(view, sign);
        for scheme in ["light", "dark"] {
            browser.look((1280, 860), scheme);
            browser.assert_accessible(&format!("{view}, {scheme}"), axe.as_deref());
        }
    }
    browser.choose(VIEWS[1].0, VIEWS[1].1);
    for (button, focused) in [("Create a filter", "order-name"), ("Drop crawl.seen", "order-typed")]
    {
        browser.press_button(button);
        // Opening a dialog moves the focus into it, and closing it returns the focus.
        browser.until_shown(
            "its first field has the focus",
            &format!("document.activeElement.id === '{focused}'"),
        );
        for scheme in ["light", "dark"] {
            browser.look((320, 720), scheme);
            browser.assert_accessible(&format!("{button}, {scheme}"), axe.as_deref());
            let width: Value = browser.run(
                "return document.documentElement.scrollWidth <= innerWidth \
                 && document.querySelector('dialog').scrollWidth <= innerWidth;",
            );
            assert_eq!(width, true, "{button} at 320 pixels");
        }
        browser.press("\u{e00c}");
        browser.until_shown("Escape closes it", "!document.querySelector('dialog')");
        let back = browser.run("return document.activeElement.getAttribute('aria-label');");
        assert_eq!(back, button);
    }
    browser.assert_content();
}
