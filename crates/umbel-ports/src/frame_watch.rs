//! Observes a connection before HTTP/2 sees its bytes: whether it owes the rest of something that it
//! began to send, and how many of its frames had no content.
//!
//! Reads only the heads of frames (RFC 9113, 4.1), before HTTP/2 does: HTTP/2 would wait for the rest
//! of a frame, and of continued headers, as long as the connection lives.

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEAD_BYTES: usize = 9;

/// Types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag of the frame that ends a block of headers.
const END_HEADERS: u8 = 4;

/// The state of one connection.
pub(super) struct FrameWatch {
    part: Part,
    /// A block of headers has begun and not ended.
    is_in_headers: bool,
    /// Number of parts that have ended: the preface, frames, blocks of headers.
    ended_count: u64,
    frames: FrameCount,
}

/// Counts of frames that began, and of their content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FrameCount {
    pub(super) frames: u64,
    /// Blocks of headers; each is a call.
    pub(super) headers: u64,
    /// Bytes in data frames.
    pub(super) data_bytes: u64,
}

#[derive(Clone, Copy)]
enum Part {
    /// This many bytes of the preface have been received.
    Preface(usize),
    /// The connection uses HTTP/1, whose later requests have their own deadline.
    Http1,
    /// The frame head so far, and how many of its bytes have been received.
    Head([u8; FRAME_HEAD_BYTES], usize),
    /// This many bytes of the frame are still missing.
    Payload(usize),
}

impl FrameWatch {
    pub(super) const fn new() -> Self {
        let frames = FrameCount { frames: 0, headers: 0, data_bytes: 0 };
        Self { part: Part::Preface(0), is_in_headers: false, ended_count: 0, frames }
    }

    /// Processes received bytes.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match &mut self.part {
                Part::Http1 => return,
                Part::Preface(seen) => {
                    let wanted = &PREFACE[*seen..];
                    let count = wanted.len().min(bytes.len());
                    if wanted[..count] != bytes[..count] {
                        self.part = Part::Http1;
                        return;
                    }
                    *seen += count;
                    if *seen == PREFACE.len() {
                        self.end();
                    }
                    &bytes[count..]
                }
                Part::Head(head, seen) => {
                    let count = (FRAME_HEAD_BYTES - *seen).min(bytes.len());
                    head[*seen..*seen + count].copy_from_slice(&bytes[..count]);
                    *seen += count;
                    if *seen == FRAME_HEAD_BYTES {
                        let head = *head;
                        self.begin(head);
                    }
                    &bytes[count..]
                }
                Part::Payload(left) => {
                    let count = (*left).min(bytes.len());
                    *left -= count;
                    if *left == 0 {
                        self.end();
                    }
                    &bytes[count..]
                }
            };
        }
    }

    fn begin(&mut self, head: [u8; FRAME_HEAD_BYTES]) {
        let [length_0, length_1, length_2, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, length_0, length_1, length_2]);
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_headers = flags & END_HEADERS == 0;
        }
        self.frames.frames += 1;
        self.frames.headers += u64::from(kind == HEADERS);
        self.frames.data_bytes += if kind == DATA { u64::from(length) } else { 0 };
        match usize::try_from(length) {
            Ok(0) => self.end(),
            // HTTP/2 itself refuses frames above 16 KiB.
            length => self.part = Part::Payload(length.unwrap_or(usize::MAX)),
        }
    }

    /// Ends a part; the next frame may begin.
    fn end(&mut self) {
        self.part = Part::Head([0; FRAME_HEAD_BYTES], 0);
        self.ended_count += u64::from(!self.is_in_headers);
    }

    /// Increases whenever a part has ended; whatever is owed afterwards is owed since then.
    pub(super) const fn ended_count(&self) -> u64 {
        self.ended_count
    }

    /// The frames received since the previous call.
    pub(super) fn take_frames(&mut self) -> FrameCount {
        std::mem::take(&mut self.frames)
    }

    /// Whether more bytes are owed. `has_asked`: whether a request has been received on the connection.
    pub(super) const fn is_owing(&self, has_asked: bool) -> bool {
        match self.part {
            Part::Preface(_) | Part::Http1 => !has_asked,
            Part::Head(_, seen) => seen > 0 || self.is_in_headers,
            Part::Payload(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEAD_BYTES + usize::from(length), 7);
        frame
    }

    /// Where in these bytes something is owed, however they are split.
    fn owed(bytes: &[u8]) -> Vec<bool> {
        let mut watch = FrameWatch::new();
        let owed = bytes.iter().map(|&byte| {
            watch.see(&[byte]);
            watch.is_owing(false)
        });
        let owed: Vec<bool> = owed.collect();
        for (end, &is_owing) in owed.iter().enumerate() {
            let mut watch = FrameWatch::new();
            watch.see(&bytes[..=end]);
            assert_eq!(watch.is_owing(false), is_owing, "{end}");
        }
        owed
    }

    #[test]
    fn frames_are_owed_until_they_end() {
        let settings = [PREFACE.to_vec(), frame(4, 0, 0), frame(4, 1, 6)].concat();
        let ends: Vec<usize> = owed(&settings)
            .iter()
            .enumerate()
            .filter(|(_, owed)| !**owed)
            .map(|(i, _)| i)
            .collect();
        assert_eq!(ends, [23, 32, 47]);
        let mut watch = FrameWatch::new();
        watch.see(&settings);
        assert_eq!(watch.ended_count(), 3);
    }

    #[test]
    fn headers_are_owed_until_the_last_frame_of_them() {
        let parts = [
            PREFACE.to_vec(),
            frame(HEADERS, 1, 3),
            frame(CONTINUATION, 0, 2),
            frame(CONTINUATION, END_HEADERS, 2),
            frame(0, 0, 5),
        ];
        let owed = owed(&parts.concat());
        let ends: Vec<usize> =
            owed.iter().enumerate().filter(|(_, o)| !**o).map(|(i, _)| i).collect();
        assert_eq!(ends, [23, 57, 71]);
        let mut watch = FrameWatch::new();
        watch.see(&parts.concat());
        assert_eq!(watch.ended_count(), 3);
        let frames = FrameCount { frames: 4, headers: 1, data_bytes: 5 };
        assert_eq!((watch.take_frames(), watch.take_frames()), (frames, FrameCount::default()));
    }

    #[test]
    fn http1_is_owed_until_its_first_request() {
        let mut watch = FrameWatch::new();
        assert!(watch.is_owing(false));
        watch.see(b"PRO");
        assert!(watch.is_owing(false) && !watch.is_owing(true));
    }
}
