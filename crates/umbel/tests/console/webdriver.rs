//! A headless browser that is driven by the WebDriver protocol: JSON requests over HTTP/1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use umbel_ports::testing::free_port;

/// Longest wait for the browser or for content of a page: it only ends a hang, so it is far above the time
/// that anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The pause between two checks of a page.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Names of the driver in distributions.
const DRIVERS: [&str; 2] = ["chromedriver", "/usr/lib/chromium/chromedriver"];

/// A browser with one window, which is closed when the test ends.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    /// Starts a browser; None if Chromium or its driver is not installed.
    pub(crate) fn start() -> Option<Self> {
        let port = free_port();
        let spawn = |program: &&str| {
            let mut command = Command::new(program);
            command.arg(format!("--port={port}")).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        };
        let driver = DRIVERS.iter().find_map(spawn)?;
        let address = format!("127.0.0.1:{port}");
        let mut browser = Self { driver, address, session: String::new() };
        browser.until("the driver is ready", |browser| {
            let status = browser.request("GET", "/status", None).ok()?;
            status["value"]["ready"].as_bool()?.then_some(())
        });
        // In containers, where tests run as root, Chromium has no sandbox and little shared memory.
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        });
        let logs = json!({ "browser": "ALL" });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs,
        } } });
        let begun = browser.request("POST", "/session", Some(&wanted)).unwrap();
        let session = begun["value"]["sessionId"].as_str();
        browser.session = session.unwrap_or_else(|| panic!("no session: {begun}")).to_owned();
        Some(browser)
    }

    /// Sends a request to the driver.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        // The driver keeps connections open, even if it is told not to.
        let mut answer = BufReader::new(stream);
        let mut body_bytes = 0;
        loop {
            let mut line = String::new();
            if answer.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                body_bytes = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; body_bytes];
        answer.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Sends a command of the session; returns its value.
    fn command(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        let answer = self.request("POST", &path, Some(body)).unwrap();
        let value = &answer["value"];
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value.clone()
    }

    /// Sends a command of the Chrome DevTools protocol.
    fn developer(&self, name: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    /// Navigates to an address.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// Runs a script in the page; returns its value.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn until_shown(&self, what: &str, expression: &str) {
        let script = format!("return Boolean({expression});");
        self.until(what, |browser| browser.run(&script).as_bool()?.then_some(()));
    }

    fn until<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = condition(self) {
                return found;
            }
            if Instant::now() > deadline {
                let shown = if self.session.is_empty() { Value::Null } else { self.text() };
                panic!("not within {PATIENCE:?}: {what}; the page shows {shown}");
            }
            // There is no event for a change of a page.
            #[expect(clippy::disallowed_methods, reason = "a pause between looks at a condition")]
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// All visible text of the page.
    pub(crate) fn text(&self) -> Value {
        self.run("return document.body.innerText;")
    }

    /// Presses the keys of a text in the focused element.
    pub(crate) fn press(&self, keys: &str) {
        let key = |key: char| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.chars().flat_map(key).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("actions", &json!({ "actions": [keyboard] }));
    }

    /// Presses the button with this name.
    pub(crate) fn press_button(&self, name: &str) {
        let found = format!(
            "[...document.querySelectorAll('button')].find((button) => !button.hidden && button.offsetParent \
             && (button.getAttribute('aria-label') ?? button.innerText) === {})",
            json!(name)
        );
        self.until_shown(&format!("a button {name:?}"), &found);
        // With the focus, as by keyboard, so that closing a dialog returns there.
        self.run(&format!("const found = {found}; found.focus(); found.click();"));
    }

    /// Fills in a field of the open dialog.
    pub(crate) fn fill(&self, field: &str, text: &str) {
        let text = json!(text);
        self.run(&format!(
            "const field = document.getElementById('order-{field}'); field.value = {text}; \
             field.dispatchEvent(new Event('input'));"
        ));
    }

    /// Submits the open dialog, and waits for an outcome of this kind with these words.
    pub(crate) fn order(&self, kind: &str, words: &str) {
        self.run("document.querySelector('dialog button[type=submit]').click();");
        self.until_shown(
            words,
            &format!(
                "document.querySelector('.outcome')?.dataset.kind === '{kind}' \
                 && document.querySelector('.outcome').textContent.includes({})",
                json!(words)
            ),
        );
    }

    /// Closes the dialog.
    pub(crate) fn leave(&self) {
        self.run("document.querySelector('dialog button[type=button]').click();");
        self.until_shown("the dialog is closed", "!document.querySelector('dialog')");
    }

    /// The accessibility tree: role and name of each element.
    pub(crate) fn accessible(&self) -> Vec<(String, String)> {
        let tree = self.developer("Accessibility.getFullAXTree", &json!({}));
        let told = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != true);
        let text = |node: &Value, field: &str| {
            node[field]["value"].as_str().unwrap_or_default().to_owned()
        };
        told.map(|node| (text(node, "role"), text(node, "name"))).collect()
    }

    /// Sets the page's size, and its colour scheme.
    pub(crate) fn look(&self, (width, height): (u32, u32), scheme: &str) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.developer("Emulation.setDeviceMetricsOverride", &size);
        let wanted = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.developer("Emulation.setEmulatedMedia", &json!({ "features": wanted }));
    }

    /// A screenshot in PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let taken = self.developer("Page.captureScreenshot", &json!({ "format": "png" }));
        from_base64(taken["data"].as_str().unwrap())
    }

    /// Messages that pages have logged since the last call, except those about failed requests, which
    /// some tests cause on purpose.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let logged = self.command("se/log", &json!({ "type": "browser" }));
        let is_complaint = |entry: &&Value| entry["source"] != "network";
        let entries = logged.as_array().unwrap().iter();
        entries.filter(is_complaint).map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Killing the driver does not end the browser, but closing the session does.
            let _ = self.request("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no digit of base64: {byte}"),
    };
    let digits: Vec<u8> = text.bytes().take_while(|&byte| byte != b'=').map(digit).collect();
    let three = |four: &[u8]| {
        let bits = four.iter().fold(0, |bits, &digit| bits << 6 | u32::from(digit));
        let bits = bits << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(three).collect()
}

#[test]
fn base64_is_decoded() {
    assert_eq!(from_base64("Zm9vYmFy"), b"foobar");
    assert_eq!(from_base64("Zm9vYg=="), b"foob");
    assert_eq!(from_base64("/+8="), [0xff, 0xef]);
}
