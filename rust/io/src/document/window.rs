//! The part of a text that is in memory: it moves on over the text, whatever the sizes in which that is read.
//!
//! Memory: the window itself, and what is held of the text for the caller, up to a limit.

use std::io::{self, ErrorKind, Read};

use memchr::{memchr, memchr_iter};

/// Bytes of the text that are in memory at a time.
const WINDOW: usize = 256 << 10;
/// Readings between two questions whether to go on.
const PATIENCE: u32 = 16;

/// Why nothing comes after the text that has been read.
#[derive(Debug)]
pub(super) enum Ending {
    /// It is the end.
    End,
    /// What follows is not UTF-8.
    NotUtf8,
    /// What the system says.
    Io(io::Error),
    /// The caller wants no more.
    Stopped,
}

/// A part of the text that is kept.
struct Held {
    bytes: Vec<u8>,
    /// Where in the buffer that begins which is not in `bytes` yet.
    from: usize,
    /// It became too long, and is not kept any more.
    too_long: bool,
}

/// See the module.
pub(super) struct Window<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    /// The end of what is known to be UTF-8.
    end: usize,
    /// The end of what has been read.
    filled: usize,
    /// Bytes of the text before the buffer.
    before: u64,
    /// The line of `counted`, from 1.
    line: u64,
    counted: usize,
    ending: Option<Ending>,
    held: Option<Held>,
    limit: usize,
    readings: u32,
    goes_on: Box<dyn FnMut() -> bool + Send>,
}

impl<R: Read> Window<R> {
    /// Over what a reader gives. At most `limit` bytes of it are held; `goes_on` is asked now and then.
    pub fn new(reader: R, limit: usize, goes_on: Box<dyn FnMut() -> bool + Send>) -> Self {
        Self {
            reader,
            buffer: vec![0; WINDOW],
            at: 0,
            end: 0,
            filled: 0,
            before: 0,
            line: 1,
            counted: 0,
            ending: None,
            held: None,
            limit,
            readings: 0,
            goes_on,
        }
    }

    /// The next byte; 0, which begins no token, at the end.
    #[inline(always)]
    pub fn peek(&mut self) -> u8 {
        if self.at == self.end && !self.fill() {
            return 0;
        }
        self.buffer[self.at]
    }

    /// What is in memory of the rest, of whole characters.
    #[inline(always)]
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Moves on by so many bytes of the [rest](Self::rest).
    #[inline(always)]
    pub fn pass(&mut self, bytes: usize) {
        self.at += bytes;
        debug_assert!(self.at <= self.end);
    }

    /// Moves on by a byte.
    #[inline(always)]
    pub fn take(&mut self) -> u8 {
        let byte = self.peek();
        self.at += usize::from(self.at < self.end);
        byte
    }

    /// Why nothing follows, where nothing does.
    pub fn ending(&mut self) -> Option<&mut Ending> {
        if self.at == self.end { self.ending.as_mut() } else { None }
    }

    /// The offset of the next byte in the text.
    pub fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The line of the next byte, from 1.
    pub fn line(&mut self) -> u64 {
        // A window that was passed over in part by `pass_line` was counted to its new place.
        self.line += memchr_iter(b'\n', &self.buffer[self.counted..self.at]).count() as u64;
        self.counted = self.at;
        self.line
    }

    /// From here on the text is held, behind `bytes`.
    pub fn hold(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.held.is_none());
        self.held = Some(Held { bytes, from: self.at, too_long: false });
    }

    /// What was held; none if that was too much.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        self.keep();
        let held = self.held.take()?;
        if held.too_long { None } else { Some(held.bytes) }
    }

    /// Nothing is held any more.
    pub fn let_go(&mut self) {
        self.held = None;
    }

    /// Copies what has been passed and is to be held.
    fn keep(&mut self) {
        let Some(held) = &mut self.held else { return };
        let passed = &self.buffer[held.from..self.at];
        held.from = self.at;
        held.too_long |= held.bytes.len() + passed.len() > self.limit;
        if held.too_long {
            held.bytes = Vec::new();
        } else {
            held.bytes.extend_from_slice(passed);
        }
    }

    /// Reads on; false at the end.
    #[cold]
    fn fill(&mut self) -> bool {
        while self.at == self.end && self.ending.is_none() {
            self.keep();
            self.shift();
            self.read();
            self.check();
        }
        self.at < self.end
    }

    /// Makes room: what has been passed goes.
    fn shift(&mut self) {
        self.line();
        self.buffer.copy_within(self.at..self.filled, 0);
        self.before += self.at as u64;
        self.filled -= self.at;
        (self.at, self.end, self.counted) = (0, self.end - self.at, 0);
        if let Some(held) = &mut self.held {
            held.from = 0;
        }
    }

    fn read(&mut self) {
        self.readings = self.readings.wrapping_add(1);
        if self.readings.is_multiple_of(PATIENCE) && !(self.goes_on)() {
            self.ending = Some(Ending::Stopped);
            return;
        }
        match self.reader.read(&mut self.buffer[self.filled..]) {
            // A character that is cut off by the end is none.
            Ok(0) => self.ending = Some(if self.filled > self.end { Ending::NotUtf8 } else { Ending::End }),
            Ok(n) => self.filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                if !(self.goes_on)() {
                    self.ending = Some(Ending::Stopped);
                }
            }
            Err(error) => self.ending = Some(Ending::Io(error)),
        }
    }

    /// Looks at what has been read and not been looked at.
    fn check(&mut self) {
        let new = &self.buffer[self.end..self.filled];
        if new.is_ascii() {
            self.end = self.filled;
            return;
        }
        match std::str::from_utf8(new) {
            Ok(_) => self.end = self.filled,
            Err(error) => {
                self.end += error.valid_up_to();
                if error.error_len().is_some() && self.ending.is_none() {
                    self.ending = Some(Ending::NotUtf8);
                }
            }
        }
    }

    /// Passes over the rest of the line, whatever it is.
    pub fn pass_line(&mut self) {
        self.let_go();
        loop {
            let found = memchr(b'\n', &self.buffer[self.at..self.filled]);
            let is_over = matches!(self.ending, Some(Ending::End | Ending::Io(_) | Ending::Stopped));
            self.at = found.map_or(self.filled, |found| self.at + found + 1);
            self.end = self.end.max(self.at);
            if found.is_some() || is_over {
                break;
            }
            self.ending = None;
            self.shift();
            self.read();
        }
        if matches!(self.ending, Some(Ending::NotUtf8)) {
            self.ending = None;
        }
        self.check();
    }
}
