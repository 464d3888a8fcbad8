//! A side of `umbel reconcile --dir` that lies about contents: a few bytes on the wire decompress to many
//! more zeros than were announced.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use umbel_reconcile::{
    Change, Contents, Driving, Form, Initiative, ItemSet, OpenedContent, PeerConnection,
    ReconcileError, SessionObserver, Timeouts, Wanted, answer, open_set,
};
use umbel_reconcile_engine::{Item, ItemIndex, Options, Pass, SymbolKind};

use crate::servers::umbel;

/// Largest file that the honest side may write, in the units of 512 bytes of `ulimit -f`; the system
/// kills a process that exceeds it.
const FILE_BLOCKS_MAX: u64 = 2048;

/// How long the lying side waits for the other one.
const PATIENCE: Duration = Duration::from_secs(60);

/// An honest directory whose contents are this many zeros.
struct Liar {
    tree: Box<dyn ItemSet>,
    bytes: u64,
}

impl ItemSet for Liar {
    fn kind(&self) -> SymbolKind {
        self.tree.kind()
    }

    fn item_count(&self) -> u64 {
        self.tree.item_count()
    }

    fn scan(&self, pass: &mut Pass) -> Result<(), ReconcileError> {
        self.tree.scan(pass)
    }

    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>, ReconcileError> {
        self.tree.items(wanted)
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        self.tree.text(item)
    }

    fn key<'i>(&self, item: &'i Item) -> Option<&'i [u8]> {
        self.tree.key(item)
    }

    fn contents(&self) -> Option<&dyn Contents> {
        Some(self)
    }

    fn check_writable(&self) -> Result<(), ReconcileError> {
        self.tree.check_writable()
    }

    fn apply(&self, change: &Change) -> Result<(), ReconcileError> {
        self.tree.apply(change)
    }
}

impl Contents for Liar {
    fn wanted(&self, change: &Change, salt: u64) -> Result<Vec<Wanted>, ReconcileError> {
        self.tree.contents().unwrap().wanted(change, salt)
    }

    fn open(&self, _: [u8; 8]) -> Result<OpenedContent, ReconcileError> {
        let (name, content) = ("zeros".to_owned(), Box::new(std::io::repeat(0)));
        Ok(OpenedContent { name, bytes: self.bytes, content })
    }

    fn stage(&self, _: [u8; 32], _: u64, _: &mut dyn Read) -> Result<(), ReconcileError> {
        unreachable!("nobody gives it anything")
    }

    fn sync(&self) -> Result<(), ReconcileError> {
        unreachable!("nobody gives it anything")
    }
}

struct Silent;

impl SessionObserver for Silent {
    fn notice(&self, _: std::fmt::Arguments<'_>) {}
}

/// Answers one session, and lies.
fn lie(listener: &TcpListener, folder: &Path, bytes: u64) {
    let (stream, from) = listener.accept().unwrap();
    let set = Liar { tree: open_set(folder, &Form::Tree).unwrap(), bytes };
    let dataset_id = Form::Tree.dataset_id(&set);
    let options = Options { dataset_id, ..Options::responder(set.kind(), 7) };
    let driving = Driving {
        initiative: Initiative { delete: false },
        timeouts: Timeouts { idle: PATIENCE, whole: Some(PATIENCE) },
        journal: None,
        observer: &Silent,
        draw: || 7,
    };
    let connection = PeerConnection::tcp(stream, from.to_string()).unwrap();
    // It fails if the other side hangs up in the middle; it has sent a short lie by then.
    let _ = answer(&set, options, connection, driving);
}

/// The names of all files in a folder and below.
fn names(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(names(&entry.path()));
        }
        found.insert(entry.file_name().into_string().unwrap());
    }
    found
}

/// The command, which the system kills if it writes a large file.
fn pull(folder: &Path, address: &str) -> std::process::Output {
    let from = format!("tcp://{address}");
    let command = umbel(&["reconcile", "here", &from, "--dir", "--pull"]);
    let mut bounded = Command::new("sh");
    let script = format!("ulimit -f {FILE_BLOCKS_MAX}; exec \"$0\" \"$@\"");
    bounded.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    bounded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bounded.current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn contents_that_are_longer_than_their_item_says_are_not_unfolded() {
    let folder = tempfile::Builder::new().prefix("umbel-hostile-").tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&there).unwrap();
    std::fs::write(here.join("kept"), "as it was").unwrap();
    std::fs::write(there.join("small"), "twelve bytes").unwrap();
    let before = names(folder.path());
    let lies = [
        // These are some hundred bytes on the wire.
        ("sixteen mebibytes", 16 << 20, "its item says 12"),
        ("one byte more", 13, "its item says 12"),
        ("other bytes", 12, "not what was asked for"),
    ];
    for (name, bytes, expected) in lies {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let output = std::thread::scope(|scope| {
            scope.spawn(|| lie(&listener, &there, bytes));
            pull(folder.path(), &address)
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(expected) && !said.contains("panicked"), "{name}: {said}");
        assert_eq!(names(folder.path()), before, "{name}: something is left");
        assert_eq!(std::fs::read(here.join("kept")).unwrap(), b"as it was", "{name}");
    }
}
