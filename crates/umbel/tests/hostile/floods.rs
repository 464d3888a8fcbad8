//! Endless frames on open connections, which cost the sender little and the node much (RFC 9113, 10.5).

use std::time::Duration;

use tokio::runtime::Builder;

use crate::frames::{
    END_HEADERS, END_STREAM, Flood, Raw, call_head, field, frame, indexed_field, kind,
};
use crate::siege::{Bounds, Siege};

/// Clients that flood at the same time.
const CONNECTIONS: u64 = 4;

/// Frames per write.
const BLOCK_FRAMES: u32 = 100;

/// The last stream number that a flood uses before it needs another connection.
const STREAM_MAX: u32 = 1 << 30;

/// The pause before a refused client connects again.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// For every flood: what each of its connections may make the node hold, including answers that nobody
/// reads.
const BOUNDS: Bounds = Bounds { memory_mib: 48, descriptors: 4 * CONNECTIONS };

/// A method that every node has.
const PATH: &str = "/umbel.v1.Filters/List";

/// A flood.
#[derive(Clone, Copy)]
struct Storm {
    name: &'static str,
    /// The bytes that it begins with.
    opening: fn() -> Vec<u8>,
    /// The bytes that it repeats; the argument is the first stream number.
    block: fn(u32) -> Vec<u8>,
}

fn nothing() -> Vec<u8> {
    Vec::new()
}

/// The header of a call whose body never follows.
fn opened_stream() -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS, 1, &call_head(PATH))
}

fn repeated(bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(BLOCK_FRAMES as usize)
}

/// Frames for consecutive new streams.
fn of_streams(first: u32, of_stream: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..BLOCK_FRAMES).flat_map(|number| of_stream(first + 2 * number)).collect()
}

fn settings_of(pairs: &[(u16, u32)]) -> Vec<u8> {
    let bytes = pairs.iter().flat_map(|(id, value)| {
        id.to_be_bytes().into_iter().chain(value.to_be_bytes()).collect::<Vec<u8>>()
    });
    frame(kind::SETTINGS, 0, 0, &bytes.collect::<Vec<u8>>())
}

/// 4,000 bytes are put into the node's header table; each byte after them refers to all of them.
fn bomb(stream: u32) -> Vec<u8> {
    let mut head = call_head(PATH);
    head.extend(indexed_field("x", &[b'a'; 4000]));
    head.extend([0x80 | 62; 12_000]);
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &head)
}

const STORMS: [Storm; 14] = [
    Storm {
        name: "settings",
        opening: nothing,
        block: |_| repeated(&settings_of(&[(3, 100), (4, 65_535)])),
    },
    Storm {
        name: "settings with windows that change below open streams",
        opening: opened_stream,
        block: |_| repeated(&[settings_of(&[(4, 0)]), settings_of(&[(4, 1 << 30)])].concat()),
    },
    Storm {
        name: "settings with a table of 4 GiB",
        opening: nothing,
        block: |_| repeated(&settings_of(&[(1, u32::MAX)])),
    },
    Storm {
        name: "pings",
        opening: nothing,
        block: |_| repeated(&frame(kind::PING, 0, 0, &[7; 8])),
    },
    Storm {
        name: "acknowledged pings that nobody sent",
        opening: nothing,
        block: |_| repeated(&frame(kind::PING, 1, 0, &[7; 8])),
    },
    Storm {
        name: "calls that are reset at once",
        opening: nothing,
        block: |first| {
            of_streams(first, |stream| {
                let mut bytes = frame(kind::HEADERS, END_HEADERS, stream, &call_head(PATH));
                bytes.extend(frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                bytes
            })
        },
    },
    Storm {
        name: "calls that have the node reset them",
        opening: nothing,
        block: |first| {
            of_streams(first, |stream| {
                let mut bytes = frame(kind::HEADERS, END_HEADERS, stream, &call_head(PATH));
                // An increment of zero is an error of the stream.
                bytes.extend(frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]));
                bytes
            })
        },
    },
    Storm {
        name: "calls without bodies, more than are allowed",
        opening: nothing,
        block: |first| {
            of_streams(first, |stream| frame(kind::HEADERS, END_HEADERS, stream, &call_head(PATH)))
        },
    },
    Storm {
        name: "calls whose answers nobody reads",
        opening: || settings_of(&[(4, 0)]),
        block: |first| {
            of_streams(first, |stream| {
                let mut bytes = frame(kind::HEADERS, END_HEADERS, stream, &call_head(PATH));
                bytes.extend(frame(kind::DATA, END_STREAM, stream, &[0; 5]));
                bytes
            })
        },
    },
    Storm { name: "headers that unfold", opening: nothing, block: |first| of_streams(first, bomb) },
    Storm {
        name: "headers without end",
        opening: || frame(kind::HEADERS, 0, 1, &call_head(PATH)),
        block: |_| repeated(&frame(kind::CONTINUATION, 0, 1, &field("x", &[b'a'; 16_000]))),
    },
    Storm {
        name: "headers without end and without bytes",
        opening: || frame(kind::HEADERS, 0, 1, &call_head(PATH)),
        block: |_| repeated(&frame(kind::CONTINUATION, 0, 1, &[])),
    },
    Storm {
        name: "data without bytes",
        opening: opened_stream,
        block: |_| repeated(&frame(kind::DATA, 0, 1, &[])),
    },
    Storm {
        name: "priorities and windows",
        opening: opened_stream,
        block: |first| {
            of_streams(first, |stream| {
                let mut bytes = frame(kind::PRIORITY, 0, stream, &[0, 0, 0, 0, 200]);
                bytes.extend(frame(kind::WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()));
                bytes
            })
        },
    },
];

/// Floods until it is stopped, and connects again whenever the node closes the connection.
async fn pour(address: String, storm: Storm) {
    loop {
        // The attack may be over, or the node may accept no further connections from this address.
        let Ok(mut raw) = Raw::try_open(&address).await else {
            tokio::time::sleep(REFUSED_PAUSE).await;
            continue;
        };
        let mut ended = raw.send(&(storm.opening)()).await;
        let mut stream = 3;
        while ended == Flood::Taken && stream < STREAM_MAX {
            ended = raw.send(&(storm.block)(stream)).await;
            stream += 2 * BLOCK_FRAMES;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_cost_their_connections_alone() {
    let siege = Siege::begin().await;
    for storm in STORMS {
        // On a thread of their own, so that they do not slow the honest client down.
        let attackers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for _ in 0..CONNECTIONS {
            attackers.spawn(pour(siege.address(), storm));
        }
        siege.holds(storm.name, BOUNDS).await;
        attackers.shutdown_background();
    }
    siege.recovers("floods").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_protocol_end_their_connections() {
    use crate::frames::lying_frame;
    let siege = Siege::begin().await;
    let broken: [(&str, Vec<u8>); 15] = [
        ("a frame of 16 MiB", lying_frame(0xff_ffff, kind::DATA, 0, 1, &[0; 64])),
        ("a frame on a stream of the node", frame(kind::HEADERS, END_HEADERS, 2, &call_head(PATH))),
        ("data on stream 0", frame(kind::DATA, 0, 0, b"x")),
        ("data on a stream that is not open", frame(kind::DATA, 0, 9, b"x")),
        ("headers on stream 0", frame(kind::HEADERS, END_HEADERS, 0, &call_head(PATH))),
        ("headers that are no HPACK", frame(kind::HEADERS, END_HEADERS, 1, &[0xff; 40])),
        ("padding beyond the frame", frame(kind::HEADERS, END_HEADERS | 8, 1, &[250, 0, 0])),
        ("continuation of nothing", frame(kind::CONTINUATION, END_HEADERS, 1, &[])),
        ("settings of 5 bytes", frame(kind::SETTINGS, 0, 0, &[0; 5])),
        ("settings of a window above 2^31", settings_of(&[(4, u32::MAX)])),
        ("a promise of a client", frame(kind::PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("a ping of 7 bytes", frame(kind::PING, 0, 0, &[0; 7])),
        (
            "windows above 2^31",
            frame(kind::WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()).repeat(2),
        ),
        ("farewell in 3 bytes", frame(kind::GOAWAY, 0, 0, &[0; 3])),
        // Each frame is valid and needs no answer.
        ("answers to pings that nobody sent", frame(kind::PING, 1, 0, &[7; 8]).repeat(20_000)),
    ];
    for (name, bytes) in broken {
        let mut raw = Raw::open(&siege.address()).await;
        raw.send(&bytes).await;
        let limit = crate::servers::PATIENCE;
        assert!(raw.is_closed_within(limit).await, "{name}: the connection stays open");
    }
    siege.holds("broken frames", BOUNDS).await;
    siege.recovers("broken frames").await;
}
