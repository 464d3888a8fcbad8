//! A host with a set. It initiates sessions when the world orders it, and responds to those of other
//! hosts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use rand::Rng as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use umbel_ports::{Net as _, Stream};
use umbel_reconcile_engine::{
    Aim, Direction, Item, ItemIndex, OnConflict, Optimize, Options, Resumption, SessionRole,
    SketchSpec, StoredSketch, SymbolKind,
};

use super::context::{Context, Order};
use super::failure::{Failure, IDLE};
use super::items::kind_of;
use super::lie::Liar;
use super::place::Place;
use super::side::{Blow, Side, Task};
use super::transport::{SharedJournal, Transport};
use crate::counters;
use crate::names::{PORT, address_of};
use crate::net::SimNet;
use crate::plan::scenario::{Kept, Scenario, Stranger, Trouble, Way};
use crate::seed::stream;

/// The salt of all hosts' sketches.
const SKETCH_SALT: [u8; 16] = [7; 16];

/// Numbers of coded symbols of the hosts' sketches: some suffice for the difference, some do not.
const SKETCH_CODED_COUNTS: [u64; 3] = [3_000, 200, 800];

/// The set at the start of a session, and its stored sketch if the session uses it.
type Frozen = (Rc<Vec<Item>>, Option<StoredSketch>);

fn sketch_of(spec: SketchSpec, coded_count: u64, items: &BTreeSet<Item>) -> StoredSketch {
    let mut pass = spec.pass(coded_count).expect("a length that sketches have");
    items.iter().for_each(|item| pass.add(ItemIndex(0), item.as_item_ref()));
    StoredSketch::of_pass(spec, pass).expect("items of its kind")
}

/// A machine and its set.
pub(super) struct Host {
    pub(super) number: u32,
    net: SimNet,
    /// The set; it survives a crash.
    pub(super) set: RefCell<BTreeSet<Item>>,
    /// The stored sketch of the set, which is kept up to date and survives a crash, too.
    sketch: RefCell<StoredSketch>,
    /// Journals of sessions that it initiated, by the number of their first run, and of those that it
    /// responded to, by session id. They survive a crash, too.
    begun: RefCell<BTreeMap<usize, SharedJournal>>,
    answered: RefCell<BTreeMap<u128, SharedJournal>>,
    /// Receives the numbers of sessions that it is to begin; useless while the host is down.
    orders: RefCell<Option<UnboundedSender<usize>>>,
}

impl Host {
    pub(super) fn new(seed: u64, number: u32, set: BTreeSet<Item>, kind: SymbolKind) -> Rc<Self> {
        let spec = SketchSpec::new(kind, 0, SKETCH_SALT, 64).expect("64 bits");
        let coded_count = SKETCH_CODED_COUNTS[number as usize % SKETCH_CODED_COUNTS.len()];
        Rc::new(Self {
            number,
            net: SimNet::new(seed, number),
            sketch: RefCell::new(sketch_of(spec, coded_count, &set)),
            set: RefCell::new(set),
            begun: RefCell::default(),
            answered: RefCell::default(),
            orders: RefCell::new(None),
        })
    }

    /// Adds items to the set, and new ones to its sketch.
    pub(super) fn add(&self, items: impl IntoIterator<Item = Item>) {
        let mut set = self.set.borrow_mut();
        let new: BTreeSet<Item> = items.into_iter().filter(|item| !set.contains(item)).collect();
        let mut sketch = self.sketch.borrow_mut();
        let more = sketch_of(sketch.spec(), sketch.coded_count() as u64, &new);
        sketch.add(&more).expect("a sketch of the same spec");
        set.extend(new);
    }

    /// Numbers of the first runs of sessions that it initiated and that have not ended.
    pub(super) fn unfinished(&self) -> Vec<usize> {
        self.begun.borrow().keys().copied().collect()
    }

    /// Orders it to begin a session; false if the host is down.
    pub(super) fn meet(&self, scenario: usize) -> bool {
        self.orders.borrow().as_ref().is_some_and(|orders| orders.send(scenario).is_ok())
    }

    /// The program of its machine.
    pub(super) async fn run(self: Rc<Self>, context: Rc<Context>) -> io::Result<()> {
        let mut listener = self.net.listen(&format!("0.0.0.0:{PORT}")).await?;
        let (orders, mut ordered) = unbounded_channel();
        self.orders.replace(Some(orders));
        loop {
            let (host, context) = (Rc::clone(&self), Rc::clone(&context));
            tokio::select! {
                biased;
                Some(scenario) = ordered.recv() => {
                    tokio::task::spawn_local(host.begin(context, scenario));
                }
                accepted = listener.accept() => {
                    tokio::task::spawn_local(host.answer(context, accepted?.stream));
                }
            }
        }
    }

    async fn begin(self: Rc<Self>, context: Rc<Context>, number: usize) {
        let place = Place { scenario: number, first: true };
        let scenario = context.scenario(number);
        let (frozen, sketch) = self.freeze(&context, place, false);
        let address = address_of(scenario.responder);
        let connected = async {
            let mut stream = self.net.connect(&address).await?;
            stream.write_all(&(number as u64).to_le_bytes()).await?;
            io::Result::Ok(stream)
        };
        match tokio::time::timeout(IDLE, connected).await {
            Ok(Ok(stream)) => self.take_part(context, place, (frozen, sketch), stream).await,
            _ => self.failed(&context, place, Failure::Unreachable),
        }
    }

    /// Agrees with the peer on whether a journalled session is resumed or a new one begins.
    async fn greet(
        &self,
        context: &Context,
        place: Place,
        task: &mut Task,
        frozen: &Rc<Vec<Item>>,
        (reader, writer): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    ) -> Result<Transport, Failure> {
        let first = context.oracle.borrow().origin(place.scenario);
        let own = self.begun.borrow().get(&first).filter(|_| place.first).cloned();
        let fresh = place.first.then_some(place.scenario as u128 + 1);
        let find = |session| self.answered.borrow().get(&session).cloned();
        let (transport, resumption) =
            Transport::greet(place, own, fresh, find, reader, writer).await?;
        let journal = transport.journal();
        match resumption {
            Resumption::Rejoin { .. } => {
                counters::state("session_resumed");
                let journal = journal.borrow();
                (task.options.nonce, task.symbol_bits) = (journal.nonce, journal.symbol_bits);
            }
            Resumption::Anew => {
                let mut journal = journal.borrow_mut();
                (journal.nonce, journal.symbol_bits) = (task.options.nonce, task.symbol_bits);
                journal.frozen = Rc::clone(frozen);
            }
        }
        context.trace(place, "greeted", format_args!("{resumption:?}"));
        if place.first {
            self.begun.borrow_mut().insert(first, journal);
        } else {
            let session = journal.borrow().session;
            self.answered.borrow_mut().insert(session, journal);
        }
        Ok(transport)
    }

    /// Handles the failure of a side of a resumable session: the initiator orders another run, if that is
    /// possible.
    fn failed(&self, context: &Context, place: Place, failure: Failure) {
        let is_stale = matches!(failure, Failure::Stale);
        if is_stale {
            context.oracle.borrow_mut().disturb_one(place.scenario);
        }
        if !failure.is_cut() {
            self.forget(context, place);
        }
        let goes_on = context.scenario(place.scenario).resume && (is_stale || failure.is_cut());
        if place.first && goes_on {
            context.order(Order::Again(place));
        }
        context.end(place, Err(failure), Vec::new());
    }

    /// Removes the journal of a session that has ended.
    fn forget(&self, context: &Context, place: Place) {
        let first = context.oracle.borrow().origin(place.scenario);
        if place.first {
            self.begun.borrow_mut().remove(&first);
        } else {
            let is_other = |session: &u128| {
                let run = usize::try_from(*session - 1).expect("a number of a run");
                context.oracle.borrow().origin(run) != first
            };
            self.answered.borrow_mut().retain(|session, _| is_other(session));
        }
    }

    async fn answer(self: Rc<Self>, context: Rc<Context>, mut stream: Box<dyn Stream>) {
        let mut number = [0; 8];
        let Ok(Ok(_)) = tokio::time::timeout(IDLE, stream.read_exact(&mut number)).await else {
            return;
        };
        let number = usize::try_from(u64::from_le_bytes(number)).expect("a number of a session");
        let place = Place { scenario: number, first: false };
        let is_foreign =
            matches!(context.scenario(number).trouble, Trouble::Stranger { what: Stranger::Kind });
        let frozen = self.freeze(&context, place, is_foreign);
        self.take_part(context, place, frozen, stream).await;
    }

    /// The set as it is now, and its sketch if the session uses it. The set is empty if `is_foreign`.
    fn freeze(&self, context: &Context, place: Place, is_foreign: bool) -> Frozen {
        let frozen = if is_foreign { BTreeSet::new() } else { self.set.borrow().clone() };
        let items = Rc::new(frozen.iter().cloned().collect());
        context.begin(place, self.number, frozen, Rc::clone(&items));
        let sketch = context.scenario(place.scenario).uses_sketch(place.first);
        (items, sketch.then(|| self.sketch.borrow().clone()))
    }

    async fn take_part(
        self: Rc<Self>,
        context: Rc<Context>,
        place: Place,
        (frozen, sketch): Frozen,
        stream: Box<dyn Stream>,
    ) {
        let scenario = context.scenario(place.scenario);
        let mut task = task(&context, place, &scenario, frozen.len());
        let (mut reader, mut writer) = tokio::io::split(stream);
        let transport = if scenario.resume {
            let ends = (&mut reader, &mut writer);
            match self.greet(&context, place, &mut task, &frozen, ends).await {
                Ok(transport) => Some(transport),
                Err(failure) => return self.failed(&context, place, failure),
            }
        } else {
            None
        };
        let was =
            transport.as_ref().map(|transport| Rc::clone(&transport.journal().borrow().frozen));
        let is_same = was.is_some_and(|was| was == frozen);
        let mut side = Side::new(task, Rc::clone(&context), place, (frozen, sketch), transport);
        let result = side.run(&mut reader, &mut writer).await;
        if matches!(result, Err(Failure::Stale)) && is_same && side.is_refuted() {
            context.oracle.borrow().refuted(place);
        }
        let is_over = !matches!(result, Ok(_) | Err(Failure::Session(_)));
        let takes = result.is_ok() && scenario.changes(place.first);
        let taken = if takes { side.applied() } else { Vec::new() };
        // Items that were added during the session are kept.
        self.add(taken.iter().cloned());
        match result {
            Err(failure) if scenario.resume => self.failed(&context, place, failure),
            result => {
                self.forget(&context, place);
                context.end(place, result, taken);
            }
        }
        if is_over {
            return;
        }
        if let Err(failure) = side.linger(&mut reader, &mut writer).await {
            context.trace(place, "lost", failure);
        }
    }
}

impl Scenario {
    /// Whether the session adds items to the set of this side.
    pub(super) const fn changes(&self, first: bool) -> bool {
        match self.way {
            Way::Compare => false,
            Way::Pull => first,
            Way::Push => !first,
            Way::Both => true,
        }
    }

    /// Whether this side begins with its stored sketch. A responder that is incompatible by its domain,
    /// dataset or kind does not.
    const fn uses_sketch(&self, first: bool) -> bool {
        let is_stranger = matches!(self.trouble, Trouble::Stranger { .. });
        match self.kept {
            Kept::Neither => false,
            Kept::First => first,
            Kept::Both => first || !is_stranger,
        }
    }

    /// The side that its fault affects (true: the initiator), and the fault; None for faults of other
    /// kinds.
    const fn blow(&self) -> Option<(bool, Blow)> {
        Some(match self.trouble {
            Trouble::Reset { first, .. } => (first, Blow::Reset),
            Trouble::Crash { first, .. } => (first, Blow::Crash),
            Trouble::Cut { first, .. } | Trouble::Hold { first, .. } => (first, Blow::Link),
            _ => return None,
        })
    }
}

/// The task of a side of a session.
fn task(context: &Context, place: Place, scenario: &Scenario, frozen_count: usize) -> Task {
    let Place { scenario: number, first } = place;
    // An earlier name of sessions, kept so that seeds draw the same numbers as before.
    let mut dice = stream(context.seed, &format!("meeting {number} {first}"));
    let after = match scenario.trouble {
        Trouble::Reset { after, .. }
        | Trouble::Cut { after, .. }
        | Trouble::Hold { after, .. }
        | Trouble::Crash { after, .. } => Some(after),
        _ => None,
    };
    let blow = scenario.blow().filter(|(whose, _)| *whose == first).map(|(_, blow)| blow);
    let loss_per_mille = match scenario.trouble {
        Trouble::Loss { first: whose, per_mille } if whose == first => per_mille,
        _ => 0,
    };
    let liar = match scenario.trouble {
        Trouble::Lie { first: whose, frame, how } if whose == first => {
            Some(Liar::new(how, frame, stream(context.seed, &format!("liar {number}"))))
        }
        _ => None,
    };
    Task {
        options: options(context, first, scenario, dice.next_u64()),
        symbol_bits: (first && scenario.short).then(|| context.short_bits(scenario, frozen_count)),
        chunk_bytes: usize::try_from(scenario.chunk_bytes).expect("a few bytes"),
        blow: after.zip(blow),
        loss_per_mille,
        liar,
        dice,
    }
}

fn options(context: &Context, first: bool, scenario: &Scenario, nonce: u64) -> Options {
    let kind = kind_of(context.items);
    let direction = match scenario.way {
        Way::Compare => Direction::Compare,
        Way::Pull => Direction::Pull,
        Way::Push => Direction::Push,
        Way::Both => Direction::TwoWay,
    };
    let mut options = Options::initiator(kind, direction, nonce);
    options.role = if first {
        SessionRole::Initiator(Aim {
            direction,
            optimize: if scenario.fast { Optimize::Time } else { Optimize::Bytes },
            want_items: scenario.contents,
            notify_responder: scenario.told,
            expected_difference: scenario.expected,
            on_conflict: OnConflict::Report,
            is_b: false,
        })
    } else {
        SessionRole::Responder { accept_items: true, on_conflict: OnConflict::Report }
    };
    if let Some(bytes_max) = scenario.bytes_max {
        options.limits.bytes_max = bytes_max;
    }
    if let (false, Trouble::Stranger { what }) = (first, scenario.trouble) {
        match what {
            Stranger::Domain => options.domain = [1; 16],
            Stranger::Dataset => options.dataset_id = 1,
            Stranger::Kind => {
                options.kind =
                    if kind == SymbolKind::Id64 { SymbolKind::Hashed } else { SymbolKind::Id64 };
            }
        }
    }
    options
}
