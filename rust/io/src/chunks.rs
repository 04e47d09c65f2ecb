//! A stream of bytes in chunks of whole lines, in bounded memory.

use std::io::{self, Read};

use memchr::{memchr, memrchr};

/// The longest line that is read: longer ones are passed over without being held.
pub(crate) const MAX_LINE: usize = 64 << 20;
/// How much is read at once: text and what is made of it stay in a core's own cache.
const CHUNK: usize = 256 << 10;
/// Zeros behind the text, so that a scanner may look at many bytes at once wherever it stands.
pub(crate) const PADDING: usize = 64;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Whole lines, each with its end, and [`PADDING`] behind them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    bytes: Vec<u8>,
    len: usize,
}

impl Text {
    /// The lines.
    pub(crate) fn lines(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The lines and the padding.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes[..self.len + PADDING]
    }

    /// Room for so many bytes of text, whatever it held.
    fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len + PADDING {
            self.bytes.resize(len + PADDING, 0);
        }
    }

    /// The text is what the first bytes are.
    fn finish(&mut self, len: usize) {
        self.len = len;
        self.bytes[len..len + PADDING].fill(0);
    }
}

/// What a stream gives next.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Some lines.
    Lines(Text),
    /// A line longer than [`MAX_LINE`]. The buffer is given back.
    TooLong(Text),
}

/// Splits a reader into chunks.
pub(crate) struct Chunks<R> {
    reader: R,
    /// How much is read at once.
    size: usize,
    /// What was read beyond the last whole line.
    carry: Vec<u8>,
    started: bool,
    finished: bool,
    skipping: bool,
    /// An error of the reader, kept until the lines before it have been given.
    error: Option<io::Error>,
}

impl<R: Read> Chunks<R> {
    /// The chunks of a reader, of about `size` bytes; 0: of the best size.
    pub(crate) fn new(reader: R, size: usize) -> Self {
        let size = if size == 0 { CHUNK } else { size };
        Self { reader, size, carry: Vec::new(), started: false, finished: false, skipping: false, error: None }
    }

    /// The next chunk, or none at the end; `text` is a buffer to be used again. A last line without an end is given
    /// one; a byte-order mark at the beginning is passed over.
    ///
    /// # Errors
    ///
    /// What the reader says, after the whole lines before it. A line that is cut off by it is not given. After
    /// [`Interrupted`](io::ErrorKind::Interrupted) one may go on.
    pub(crate) fn next(&mut self, mut text: Text) -> io::Result<Option<Chunk>> {
        if text.bytes.len() > 4 * self.size {
            text = Text::default();
        }
        text.reserve(self.size.max(2 * self.carry.len()));
        let mut filled = self.carry.len();
        text.bytes[..filled].copy_from_slice(&self.carry);
        self.carry.clear();
        while !self.finished {
            let room = text.bytes.len() - PADDING;
            if filled == room {
                if filled > MAX_LINE || self.skipping {
                    self.skipping = true;
                    filled = 0;
                } else {
                    text.reserve(2 * room);
                }
                continue;
            }
            let new = filled;
            match self.reader.read(&mut text.bytes[filled..room]) {
                Ok(0) => self.finished = true,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.carry.extend_from_slice(&text.bytes[..filled]);
                    return Err(error);
                }
                Err(error) => {
                    self.finished = true;
                    self.error = Some(error);
                }
            }
            if !self.started && (filled >= BYTE_ORDER_MARK.len() || self.finished) {
                self.started = true;
                if text.bytes[..filled].starts_with(BYTE_ORDER_MARK) {
                    text.bytes.copy_within(BYTE_ORDER_MARK.len()..filled, 0);
                    filled -= BYTE_ORDER_MARK.len();
                    continue;
                }
            }
            if self.skipping {
                if let Some(at) = memchr(b'\n', &text.bytes[new..filled]) {
                    self.skipping = false;
                    self.carry.extend_from_slice(&text.bytes[new + at + 1..filled]);
                    return Ok(Some(Chunk::TooLong(text)));
                }
                filled = 0;
            } else if filled == room
                && let Some(at) = memrchr(b'\n', &text.bytes[..filled])
            {
                self.carry.extend_from_slice(&text.bytes[at + 1..filled]);
                text.finish(at + 1);
                return Ok(Some(Chunk::Lines(text)));
            }
        }
        self.last(text, filled)
    }

    /// What is left when the reader has no more.
    fn last(&mut self, mut text: Text, filled: usize) -> io::Result<Option<Chunk>> {
        if let Some(error) = self.error.take() {
            self.skipping = false;
            return match memrchr(b'\n', &text.bytes[..filled]) {
                Some(at) => {
                    self.error = Some(error);
                    text.finish(at + 1);
                    Ok(Some(Chunk::Lines(text)))
                }
                None => Err(error),
            };
        }
        if std::mem::take(&mut self.skipping) {
            return Ok(Some(Chunk::TooLong(text)));
        }
        if filled == 0 {
            return Ok(None);
        }
        let mut len = filled;
        if text.bytes[filled - 1] != b'\n' {
            text.bytes[filled] = b'\n';
            text.bytes.push(0);
            len += 1;
        }
        text.finish(len);
        Ok(Some(Chunk::Lines(text)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::{CHUNK, Chunk, Chunks, MAX_LINE, PADDING, Text};

    /// Gives so many bytes at a time, and an error in the end.
    struct Trickle<'a>(&'a [u8], usize, bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() && std::mem::take(&mut self.2) {
                return Err(io::Error::other("damaged"));
            }
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// All lines of a stream; a line that is too long is `None`; and whether it ended in an error.
    fn lines(bytes: &[u8], step: usize, damaged: bool) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut chunks = Chunks::new(Trickle(bytes, step, damaged), if step < 100 { 10 } else { 0 });
        let mut found = Vec::new();
        let mut text = Text::default();
        loop {
            match chunks.next(std::mem::take(&mut text)) {
                Ok(None) => return (found, false),
                Ok(Some(Chunk::TooLong(back))) => {
                    found.push(None);
                    text = back;
                }
                Ok(Some(Chunk::Lines(chunk))) => {
                    assert!(chunk.lines().ends_with(b"\n"));
                    assert_eq!(chunk.padded()[chunk.lines().len()..], [0; PADDING]);
                    found.extend(chunk.lines().split_inclusive(|&byte| byte == b'\n').map(|line| Some(line.to_vec())));
                    text = chunk;
                }
                Err(_) => return (found, true),
            }
        }
    }

    #[test]
    fn chunks_together_are_the_lines() {
        let text = (0..40_000).map(|i| format!("{{\"line\":{i}}}\r\n")).collect::<Vec<_>>().concat();
        assert!(text.len() > 2 * CHUNK);
        let expected: Vec<_> = text.split_inclusive('\n').map(|line| Some(line.as_bytes().to_vec())).collect();
        for step in [7, 4096, usize::MAX] {
            assert_eq!(lines(text.as_bytes(), step, false), (expected.clone(), false));
            assert_eq!(lines(&text.as_bytes()[..text.len() - 2], step, false).0.len(), 40_000);
            let (mut before, failed) = lines(&text.as_bytes()[..text.len() - 2], step, true);
            assert!(failed);
            assert_eq!(before.len(), 39_999);
            before.push(expected[39_999].clone());
            assert_eq!(before, expected);
        }
        assert_eq!(lines(b"", 1, false), (vec![], false));
        assert_eq!(lines(b"\n\nx", 1, false).0, [Some(b"\n".to_vec()), Some(b"\n".to_vec()), Some(b"x\n".to_vec())]);
    }

    #[test]
    fn a_byte_order_mark_is_passed_over_at_the_beginning_alone() {
        for step in [1, 2, 3, 4, 100] {
            let (found, _) = lines("\u{feff}a\n\u{feff}b\n".as_bytes(), step, false);
            assert_eq!(found, [Some(b"a\n".to_vec()), Some("\u{feff}b\n".as_bytes().to_vec())]);
            assert_eq!(lines("\u{feff}".as_bytes(), step, false).0, []);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_is_given() {
        for (length, fits) in [(MAX_LINE, true), (3 * MAX_LINE, false)] {
            let long = vec![b'x'; length];
            let (found, _) = lines(&[b"a\n", &long[..], b"\nb"].concat(), 1 << 20, false);
            assert_eq!(found.len(), 3);
            assert_eq!(found[1].is_some(), fits, "{length}");
            assert_eq!(found[2], Some(b"b\n".to_vec()));
            assert_eq!(lines(&[b"a\n", &long[..]].concat(), 1 << 20, false).0.len(), 2);
        }
    }
}
