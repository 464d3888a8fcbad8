//! Reads any bytes as what a client of the Redis protocol sends, at once and in pieces, understands every
//! request, and writes what the table of commands answers.
//!
//! Input: whether the client is known u8, bytes of a piece u8, the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_resp::{Arguments, Command, Decoder, Protocol, ProtocolError, Reply, Request, table};

fuzz_target!(|input: &[u8]| {
    let Some((&[is_known, piece], bytes)) = input.split_first_chunk() else { return };
    let is_known = is_known % 2 == 1;
    let (whole, failed) = decode(bytes, bytes.len(), is_known);
    assert_eq!((&whole, failed), {
        let (pieces, failed) = decode(bytes, piece.into(), is_known);
        assert_eq!(pieces, whole);
        (&whole, failed)
    });
    for request in &whole {
        understand(request);
        // What is sent again as an array is the same request.
        let mut again = Vec::new();
        request.encode(&mut again);
        assert_eq!(decode(&again, again.len(), true).0, [request.clone()]);
    }
});

fn decode(bytes: &[u8], piece: usize, is_known: bool) -> (Vec<Request>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(is_known);
    let mut found = Vec::new();
    for mut rest in bytes.chunks(piece.max(1)) {
        loop {
            match decoder.decode(&mut rest) {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn understand(request: &Request) {
    let arguments = Arguments::new(request);
    let understood = table::find(arguments).and_then(|spec| {
        let keys = spec.keys_of(arguments).count();
        assert!(keys <= arguments.len());
        spec.parse(arguments)
    });
    let reply = match understood {
        Ok(Command::Commands(query)) => query.answer(),
        Ok(Command::Insert(insert)) => {
            let (mut data, mut lengths) = (Vec::new(), Vec::new());
            insert.items.items.pack(&mut data, &mut lengths);
            assert_eq!(lengths.len(), insert.items.items.len());
            assert_eq!(lengths.iter().map(|&n| n as usize).sum::<usize>(), data.len());
            Reply::OK
        }
        Ok(_) => Reply::OK,
        Err(refusal) => {
            let Reply::Error(text) = Reply::from(refusal) else { panic!("a refusal is an error") };
            assert!(!text.is_empty());
            Reply::Error(text)
        }
    };
    for protocol in [Protocol::Two, Protocol::Three] {
        let mut bytes = Vec::new();
        reply.encode(protocol, &mut bytes);
        assert!(bytes.ends_with(b"\r\n"));
    }
}
