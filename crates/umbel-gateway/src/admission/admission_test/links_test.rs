//! Messages of links between nodes make room for each other.

use super::*;

/// Sends a body as a link to a service that reads all of it, where links may hold two messages of 1,000 KiB.
struct LinkService(Router);

impl LinkService {
    fn new() -> Self {
        let read = async |request: Request<axum::body::Body>| match axum::body::to_bytes(
            request.into_body(),
            usize::MAX,
        )
        .await
        {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let of_links = Budget::of_bytes(LINKS_BYTES);
        let budgets = Budgets { of_links, ..Budgets::new(Budget::new(1)) };
        Self(Router::new().fallback(read).layer(from_fn_with_state(budgets, admit)))
    }

    async fn send(&self, body: Slow) -> StatusCode {
        let request = Request::post("/umbel.v1.Peer/Link").body(axum::body::Body::new(body));
        self.0.clone().oneshot(request.unwrap()).await.unwrap().status()
    }
}

/// Two messages of 1,000 KiB, each with its head.
const LINKS_BYTES: u64 = 2 * (1000 * KIB as u64 + 5);

/// Strangers could begin messages on hundreds of links, and a node held all that came of them.
#[tokio::test(start_paused = true)]
async fn messages_of_links_that_do_not_come_make_room_for_others() {
    let service = Arc::new(LinkService::new());
    let halves: Vec<_> = (0..10)
        .map(|_| {
            let service = Arc::clone(&service);
            let half = message(1000 * KIB, KIB, 900, Duration::ZERO);
            tokio::spawn(async move { service.send(half).await })
        })
        .collect();
    // Nothing is late on a link, however long it takes.
    sleep(10 * PATIENCE).await;
    let is_ended = halves.iter().filter(|half| half.is_finished()).count();
    assert_eq!(is_ended, 8, "two halves fit");
    let whole = message(1000 * KIB, 10 * KIB, 101, Duration::ZERO);
    assert_eq!(service.send(whole).await, StatusCode::OK);
    sleep(SECOND).await;
    let is_ended = halves.iter().filter(|half| half.is_finished()).count();
    assert_eq!(is_ended, 9);
}

/// The body of a link with these messages, of which each poll brings a piece.
fn link(budget: &Arc<Budget>, messages: impl IntoIterator<Item = Slow>) -> AdmittedBody {
    let pieces = messages.into_iter().flat_map(|message| message.pieces).collect();
    let body = Slow { pieces, pause: Duration::ZERO, waiting: None, ends: false };
    AdmittedBody::of_link(axum::body::Body::new(body), budget.lease())
}

/// The bytes of the next pieces of a link, at most `count`; an error if the link has ended.
fn come(link: &mut AdmittedBody, count: usize) -> Result<usize, ()> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut bytes = 0;
    for _ in 0..count {
        match Pin::new(&mut *link).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, Bytes::len),
            Poll::Ready(Some(Err(_))) => return Err(()),
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_link_gives_way_by_the_age_of_its_last_message() {
    let budget = Budget::of_bytes(LINKS_BYTES);
    let whole = |kib| message(kib * KIB, 100 * KIB, 11, Duration::ZERO);
    let half = || message(1000 * KIB, 100 * KIB, 9, Duration::ZERO);
    let mut old = link(&budget, [whole(10), whole(1000)]);
    assert!(come(&mut old, 1).is_ok());
    let mut stranger = link(&budget, [half()]);
    assert_eq!(come(&mut stranger, 10), Ok(900 * KIB));
    // A message that is younger than the stranger's begins on the old link.
    assert_eq!(come(&mut old, 2), Ok(200 * KIB));
    let mut second = link(&budget, [half()]);
    assert_eq!(come(&mut second, 9), Ok(900 * KIB));
    assert_eq!(come(&mut stranger, 1), Ok(0), "there is room for all of them");
    // The rest of it needs the stranger's place.
    assert_eq!(come(&mut old, 10), Ok(800 * KIB + 5));
    assert_eq!(come(&mut stranger, 1), Err(()));
    assert_eq!(come(&mut second, 1), Ok(0));
}

/// Short messages do not make a link younger than a long one that comes meanwhile on another.
#[tokio::test]
async fn a_link_that_keeps_a_buffer_gives_way_whatever_short_messages_it_sends() {
    let budget = Budget::of_bytes(LINKS_BYTES);
    let whole = |kib| message(kib * KIB, 1100 * KIB, 1, Duration::ZERO);
    let short = || message(KIB, 2 * KIB, 1, Duration::ZERO);
    let mut kept = [(); 2].map(|()| link(&budget, [whole(600), short(), short()]));
    for link in &mut kept {
        assert_eq!(come(link, 1), Ok(600 * KIB + 5));
    }
    let mut long = link(&budget, [message(1000 * KIB, 100 * KIB, 11, Duration::ZERO)]);
    assert_eq!(come(&mut long, 7), Ok(700 * KIB));
    for link in &mut kept {
        assert!(come(link, 1).is_ok());
    }
    assert_eq!(come(&mut long, 4), Ok(300 * KIB + 5), "another one gave way");
    let ended = kept.iter_mut().filter_map(|link| come(link, 1).err()).count();
    assert_eq!(ended, 1);
}

/// Both other nodes of three send their largest messages piece by piece, again and again: neither waits for the other,
/// and neither is ended.
#[tokio::test]
async fn the_largest_messages_of_three_nodes_come_side_by_side() {
    let budget = Budget::of_bytes(LINKS_BYTES);
    let largest = || message(1000 * KIB, 30 * KIB, 34, Duration::ZERO);
    let mut links = [(); 2].map(|()| link(&budget, [largest(), largest(), largest()]));
    let mut came = [0; 2];
    for _ in 0..3 * 34 {
        for (link, came) in links.iter_mut().zip(&mut came) {
            *came += come(link, 1).unwrap();
        }
    }
    assert_eq!(came, [3 * (1000 * KIB + 5); 2]);
    // What tonic keeps of them makes room for others.
    let mut third = link(&budget, [largest()]);
    assert_eq!(come(&mut third, 34), Ok(1000 * KIB + 5));
    assert_eq!(links.map(|mut link| come(&mut link, 1)), [Err(()), Ok(0)]);
}
