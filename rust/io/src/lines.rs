//! The lines of a stream of bytes, one at a time, in bounded memory.

use std::io::{self, Read};

use memchr::memchr;

/// The longest line that is read: longer ones are passed over without being held.
pub const MAX_LINE: usize = 64 << 20;
const CHUNK: usize = 1 << 20;

/// A line as it was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes, without the line's end; UTF-8 if the flag says so.
    Whole(&'a [u8], bool),
    /// Longer than [`MAX_LINE`].
    TooLong,
}

/// Splits a reader into lines.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// Everything in the buffer is ASCII.
    ascii: bool,
    finished: bool,
    skipping: bool,
    /// An error of the reader, kept until the lines before it have been given.
    error: Option<io::Error>,
}

impl<R: Read> Lines<R> {
    /// The lines of a reader.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            ascii: true,
            finished: false,
            skipping: false,
            error: None,
        }
    }

    /// The next line, or none at the end.
    ///
    /// # Errors
    ///
    /// What the reader says, after the whole lines before it. A line that is cut off by it is not given. After
    /// [`Interrupted`](io::ErrorKind::Interrupted) one may go on.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[searched..self.end]) {
                let (from, to) = (self.start, searched + at);
                self.start = to + 1;
                return Ok(Some(self.line(from, to)));
            }
            if self.end - self.start > MAX_LINE {
                self.skipping = true;
            }
            if self.skipping {
                self.start = self.end;
            }
            if self.finished {
                if let Some(error) = self.error.take() {
                    self.start = self.end;
                    return Err(error);
                }
                let (from, to) = (self.start, self.end);
                self.start = to;
                let nothing = from == to && !self.skipping;
                return Ok(if nothing { None } else { Some(self.line(from, to)) });
            }
            searched = self.fill()?;
        }
    }

    #[inline]
    fn line(&mut self, from: usize, to: usize) -> Line<'_> {
        if std::mem::take(&mut self.skipping) || to - from > MAX_LINE {
            return Line::TooLong;
        }
        let bytes = &self.buffer[from..to];
        Line::Whole(bytes, self.ascii || std::str::from_utf8(bytes).is_ok())
    }

    /// Reads more, and returns where what is new begins.
    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let new = self.end;
        if self.buffer.len() - self.end < CHUNK / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        } else if self.buffer.len() > 4 * CHUNK && self.end < CHUNK {
            self.buffer.truncate(CHUNK);
            self.buffer.shrink_to_fit();
        }
        match self.reader.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.finished = true,
            Ok(n) => self.end += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.finished = true;
                self.error = Some(error);
            }
        }
        self.ascii = (new == 0 || self.ascii) && self.buffer[new..self.end].is_ascii();
        Ok(new)
    }
}
