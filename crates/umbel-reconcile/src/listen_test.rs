//! Tests of which connections are accepted, and what is read before.

use super::*;
use crate::drive::{Initiative, reconcile};
use crate::endpoint::{Endpoint, RemoteFiles};
use crate::form::Form;
use crate::observer::SessionObserver;
use crate::open::open_set;
use crate::turn::Timeouts;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use umbel_reconcile_engine::{
    Aim, Direction, Limits, OnConflict, Optimize, ResumeFrame, ResumeOffer, SessionRole,
};
use umbel_tls::{Secret, SecretUse};

const SECRET: &str = "8f14e45fceea167a5a36dedd4bea2543";

fn tls(text: &str) -> SecretTls {
    SecretTls::new(&Secret::new(text).unwrap().derive(SecretUse::Reconcile)).unwrap()
}

/// Forwards notices to a channel.
struct ChannelObserver(Mutex<std::sync::mpsc::Sender<String>>);

impl SessionObserver for ChannelObserver {
    fn notice(&self, text: fmt::Arguments<'_>) {
        drop(self.0.lock().unwrap().send(text.to_string()));
    }
}

fn driving(observer: &dyn SessionObserver) -> Driving<'_> {
    let initiative = Initiative { delete: false };
    let timeouts = Timeouts { idle: NEVER, whole: None };
    Driving { initiative, timeouts, journal: None, observer, draw: || 7 }
}

fn options(set: &dyn ItemSet, role: SessionRole) -> Options {
    let (dataset_id, limits) = (Form::Lines.dataset_id(set), Limits::default());
    Options { role, kind: set.kind(), dataset_id, domain: [0; 16], nonce: 5, limits }
}

/// A listener that answers one session over a file, or all.
struct Server {
    folder: tempfile::TempDir,
    address: String,
    messages: Receiver<String>,
    opened: Arc<AtomicUsize>,
    ended: JoinHandle<Result<()>>,
}

impl Server {
    /// Answers one session.
    fn start(secret: Option<SecretTls>) -> Self {
        Self::serving(secret, true, NEVER)
    }

    #[expect(clippy::disallowed_methods, reason = "it serves the test's other thread")]
    fn serving(secret: Option<SecretTls>, once: bool, turn: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b");
        std::fs::write(&path, "2\n3\n").unwrap();
        let (sender, messages) = std::sync::mpsc::channel();
        let opened = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&opened);
        let ended = std::thread::spawn(move || {
            let open = || {
                counted.fetch_add(1, Ordering::SeqCst);
                open_set(&path, &Form::Lines)
            };
            let role =
                SessionRole::Responder { accept_items: false, on_conflict: OnConflict::Report };
            let options = |set: &dyn ItemSet| Ok(options(set, role));
            let address = "127.0.0.1:0";
            let listening = Listening { address, secret, is_insecure: false, once };
            let observer = ChannelObserver(Mutex::new(sender));
            listen_with(listening, open, options, driving(&observer), &Queue::new(turn))
        });
        let listens: String = messages.recv().unwrap();
        let address = listens.strip_prefix("listening on ").unwrap().to_owned();
        Self { folder, address, messages, opened, ended }
    }

    /// Runs a session with the server and returns how many items differ.
    fn ask(&self, secret: Option<&SecretTls>) -> Result<u64> {
        self.ask_with(secret, None)
    }

    fn ask_with(&self, secret: Option<&SecretTls>, journal: Option<&Path>) -> Result<u64> {
        let path: PathBuf = self.folder.path().join("a");
        std::fs::write(&path, "1\n2\n").unwrap();
        ask(&self.address, &path, secret, journal)
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }
}

/// Runs a session over the set at a path with whoever listens, and returns how many items differ.
fn ask(
    address: &str,
    path: &Path,
    secret: Option<&SecretTls>,
    journal: Option<&Path>,
) -> Result<u64> {
    let set = open_set(path, &Form::Lines)?;
    let endpoint = Endpoint::Tcp(address.to_owned());
    let remote_files = RemoteFiles { journals: false, sketch: false };
    let connection = endpoint.connect(&Form::Lines, &[], remote_files, secret)?;
    let aim = Aim {
        direction: Direction::Compare,
        optimize: Optimize::Bytes,
        want_items: true,
        notify_responder: false,
        expected_difference: None,
        on_conflict: OnConflict::Report,
        is_b: false,
    };
    let (sender, _messages) = std::sync::mpsc::channel();
    let observer = ChannelObserver(Mutex::new(sender));
    let ended = reconcile(
        &*set,
        options(&*set, SessionRole::Initiator(aim)),
        connection,
        Driving { journal, ..driving(&observer) },
    )?;
    Ok(ended.outcome.only_here_count + ended.outcome.only_there_count)
}

#[test]
fn who_knows_the_secret_is_answered_whoever_else_knocks() {
    let server = Server::start(Some(tls(SECRET)));
    // The first client stays silent, the second speaks HTTP, the third has another secret, the fourth
    // hangs up.
    let _silent = server.connect();
    let mut plain = server.connect();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = server.messages.recv().unwrap();
    assert!(why.contains("not let in: it speaks no TLS"), "{why}");
    let error = server.ask(Some(&tls(&SECRET.replace('8', "9")))).unwrap_err();
    let whole = format!("tcp://{}: it has another secret", server.address);
    assert_eq!(format!("{error:#}"), whole);
    let why = server.messages.recv().unwrap();
    assert!(why.contains("not let in: it has another secret"), "{why}");
    drop(server.connect());
    let why = server.messages.recv().unwrap();
    assert!(why.contains("it hung up before it said anything"), "{why}");
    let error = server.ask(None).unwrap_err();
    assert!(error.is_unanswered(), "{error:#}");
    assert_eq!(server.opened.load(Ordering::SeqCst), 1, "the set was read for a stranger");

    assert_eq!(server.ask(Some(&tls(SECRET))).unwrap(), 2);
    server.ended.join().unwrap().unwrap();
    assert_eq!(server.opened.load(Ordering::SeqCst), 2);
}

#[test]
fn nothing_is_read_before_somebody_says_something() {
    let server = Server::start(None);
    let silent = server.connect();
    drop(server.connect());
    let why = server.messages.recv().unwrap();
    assert!(why.contains("it hung up before it said anything"), "{why}");
    let error = server.ask(Some(&tls(SECRET))).unwrap_err();
    let error = format!("{error:#}");
    for words in [&*server.address, "ended before it proved itself", "was given no secret"] {
        assert!(error.contains(words), "{error}");
    }
    let why = server.messages.recv().unwrap();
    assert!(why.contains("this side was given no secret"), "{why}");
    assert_eq!(server.opened.load(Ordering::SeqCst), 1);
    // A silent client delays nobody.
    assert_eq!(server.ask(None).unwrap(), 2);
    server.ended.join().unwrap().unwrap();
    drop(silent);
}

/// Regression: its first byte was a session, and others waited for its end until `--idle-timeout`.
#[test]
fn a_stranger_that_says_a_byte_and_stays_delays_nobody() {
    let server = Server::start(None);
    let mut begun = server.connect();
    begun.write_all(&offer()[..1]).unwrap();
    let mut cut = server.connect();
    cut.write_all(&offer()[..9]).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    let why = server.messages.recv().unwrap();
    assert!(why.contains("not let in: it hung up in its first message"), "{why}");
    let mut other = server.connect();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = server.messages.recv().unwrap();
    assert!(why.contains(r"not let in: it began with `GET / HTTP/1.1\r\n"), "{why}");
    assert_eq!(server.opened.load(Ordering::SeqCst), 1, "the set was read for a stranger");
    assert_eq!(server.ask(None).unwrap(), 2);
    server.ended.join().unwrap().unwrap();
    assert_eq!(server.opened.load(Ordering::SeqCst), 2);
    drop(begun);
}

/// The first message of a side that has other items than a [`Server`].
fn hello() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, "1\n2\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&address, &path, None, None));
        let socket = listener.accept().unwrap().0;
        let hello = first_message(&socket, NEVER).unwrap();
        drop(socket);
        asking.join().unwrap().unwrap_err();
        hello
    })
}

/// Regression: others waited for it until `--idle-timeout`.
#[test]
fn a_stranger_that_says_a_whole_message_and_stays_gives_way() {
    let server = Server::serving(None, false, SOON);
    let mut stays = server.connect();
    stays.write_all(&hello()).unwrap();
    // The set is read for it: it has the turn.
    while server.opened.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(server.ask(None).unwrap(), 2);
    let why = server.messages.recv().unwrap();
    assert!(why.contains(": others wait, and this side has waited for it for "), "{why}");
    // It is told so.
    let mut told = Vec::new();
    stays.read_to_end(&mut told).unwrap();
    assert!(String::from_utf8_lossy(&told).contains("others wait, and this session took long"));
}

/// A whole first message.
fn offer() -> Vec<u8> {
    ResumeFrame::Offer(ResumeOffer::first(7)).to_bytes()
}

/// Both ends of a socket.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, there)
}

/// Too short for anybody who waits for more than what has arrived.
const SOON: Duration = Duration::from_millis(20);

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

fn waits(silence: Duration, first_message: Duration) -> Waits {
    Waits { silence, first_message, queue: Queue::new(NEVER) }
}

#[test]
fn a_connection_without_a_whole_first_message_is_given_up_in_time() {
    let cases = [
        (&[][..], waits(SOON, NEVER), "it said nothing within 0 s"),
        (&offer()[..9], waits(NEVER, SOON), "its first message was not whole within 0 s"),
    ];
    for (said, waits, why) in cases {
        let (here, mut there) = sockets();
        there.write_all(said).unwrap();
        let peer = there.local_addr().unwrap();
        let Err(error) = admit(here, peer, None, &waits) else { panic!("let in after {said:?}") };
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn what_was_read_to_know_a_peer_is_the_beginning_of_its_session() {
    let (here, mut there) = sockets();
    let said = [offer(), b"and more".to_vec()].concat();
    there.write_all(&said).unwrap();
    there.shutdown(Shutdown::Write).unwrap();
    let peer = there.local_addr().unwrap();
    let mut connection = admit(here, peer, None, &waits(NEVER, NEVER)).unwrap();
    let mut read = Vec::new();
    connection.reader.read_to_end(&mut read).unwrap();
    assert_eq!(read, said);
}

#[test]
fn silent_connections_that_take_all_places_make_room() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _stops = StopsListening(listener.try_clone().unwrap());
    let (knocked, arrivals) = sync_channel(KNOCKING_MAX);
    let silent: Vec<TcpStream> =
        (0..KNOCKING_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut honest = TcpStream::connect(address).unwrap();
    honest.write_all(&offer()).unwrap();
    // Nobody has to give way for any other reason.
    let waits = waits(NEVER, NEVER);
    let knocking = Accepting { listener, secret: None, waits, knocked };
    spawn(move || knocking.run());
    let is_admitted = |arrived| matches!(arrived, Ok(Knocked::Admitted(_)));
    assert!(arrivals.into_iter().any(is_admitted));
    drop(silent);
}

/// Regression: each took a place for 10 s, as long as whoever knows the secret waits.
#[test]
fn silent_connections_keep_nobody_out_who_knows_the_secret() {
    let server = Server::start(Some(tls(SECRET)));
    let silent: Vec<TcpStream> = (0..2 * KNOCKING_MAX).map(|_| server.connect()).collect();
    assert_eq!(server.ask(Some(&tls(SECRET))).unwrap(), 2);
    server.ended.join().unwrap().unwrap();
    let why = server.messages.recv().unwrap();
    assert!(why.contains("not let in: another connection needed its place"), "{why}");
    drop(silent);
}

/// It need not be for the secret that nobody answers.
#[test]
fn who_is_not_answered_hears_that_there_may_be_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = format!("tcp://{}", listener.local_addr().unwrap());
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    drop(listener.accept().unwrap());
    let error = PeerConnection::dialed(socket, peer.clone(), &tls(SECRET)).err().unwrap();
    let text = format!("{error:#}");
    assert!(text.starts_with(&format!("{peer}, which may be full of others: ")), "{text}");
}

#[test]
fn a_set_that_cannot_be_opened_is_known_before_anybody_comes() {
    let (sender, messages) = std::sync::mpsc::channel();
    let observer = ChannelObserver(Mutex::new(sender));
    let listening =
        Listening { address: "127.0.0.1:0", secret: None, is_insecure: false, once: true };
    let folder = tempfile::tempdir().unwrap();
    let open = || open_set(&folder.path().join("gone"), &Form::Lines);
    let error = listen(listening, open, |_| unreachable!("no set"), driving(&observer));
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("gone: No such file"), "{error}");
    drop(observer);
    assert!(messages.recv().is_err(), "it said that it listens");
}

/// Who asks is told no more than that, and is not led to think of a secret.
#[test]
fn who_asks_for_a_set_that_cannot_be_opened_is_told_so() {
    for secret in [None, Some(tls(SECRET))] {
        let server = Server::start(secret.clone());
        std::fs::remove_file(server.folder.path().join("b")).unwrap();
        let error = server.ask(secret.as_ref()).unwrap_err();
        let said = format!("{error:#}");
        let known = "the peer gave up: it cannot read its set: its own messages say why";
        assert_eq!(said, format!("tcp://{}: {known}", server.address));
        assert!(!error.is_unanswered());
        let error = server.ended.join().unwrap().unwrap_err();
        assert!(format!("{error:#}").contains("b: No such file"), "{error:#}");
    }
}

/// What was offered to resume is answered, too.
#[test]
fn who_would_resume_is_told_of_a_set_that_cannot_be_opened() {
    let server = Server::start(None);
    std::fs::remove_file(server.folder.path().join("b")).unwrap();
    let journal = server.folder.path().join("journal");
    let error = server.ask_with(None, Some(&journal)).unwrap_err();
    assert!(format!("{error:#}").contains("it cannot read its set"), "{error:#}");
    assert!(!journal.exists());
}

#[test]
fn errors_of_accept_pass_unless_the_socket_no_longer_listens() {
    let passing = [Errno::MFILE, Errno::NFILE, Errno::CONNABORTED, Errno::PROTO, Errno::NETDOWN];
    for last in [Errno::INVAL, Errno::BADF] {
        let errors = Mutex::new(passing.into_iter().chain([last]));
        let reported = AtomicUsize::new(0);
        let accept = || Err::<(), _>(std::io::Error::from(errors.lock().unwrap().next().unwrap()));
        let error = accepted(accept, |_| {
            reported.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(error.unwrap_err().raw_os_error(), Some(last.raw_os_error()));
        // Who has hung up is no news.
        assert_eq!(reported.into_inner(), passing.len() - 1);
    }
}

#[test]
fn other_machines_need_a_secret_or_the_users_word() {
    let (sender, _messages) = std::sync::mpsc::channel();
    let observer = ChannelObserver(Mutex::new(sender));
    let listening =
        Listening { address: "0.0.0.0:0", secret: None, is_insecure: false, once: true };
    let open = || unreachable!("nobody is there");
    let error = listen(listening, open, |_| unreachable!("nobody is there"), driving(&observer));
    let error = error.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("--secret-file"), "{error}");
}

#[test]
fn an_address_without_a_port_is_told_what_it_lacks() {
    for address in ["127.0.0.1", "127.0.0.1:99999", "localhost:http"] {
        let (sender, _messages) = std::sync::mpsc::channel();
        let observer = ChannelObserver(Mutex::new(sender));
        let listening = Listening { address, secret: None, is_insecure: false, once: true };
        let open = || unreachable!("nobody is there");
        let error =
            listen(listening, open, |_| unreachable!("nobody is there"), driving(&observer));
        let error = error.unwrap_err();
        let text = error.to_string();
        assert!(error.is_usage() && text.contains("expected HOST:PORT"), "{text}");
    }
}
