//! Values that are taken as a whole: passed over, or held as text.

use std::io::Read;

use super::{Document, MAX_DEPTH, Outcome, more_or_end};
use crate::digits::digits_of;

/// Bytes that are looked at together.
const BLOCK: usize = 32;

impl<R: Read> Document<R> {
    /// Passes over a value.
    pub(super) fn pass(&mut self) -> Outcome<()> {
        let outside = self.frames.len();
        // The innermost bit is set within an object.
        let (mut objects, mut depth) = (0_u128, 0_usize);
        loop {
            match self.window.peek() {
                open @ (b'{' | b'[') => {
                    if outside + depth == MAX_DEPTH {
                        return Err(self.too_deep());
                    }
                    self.window.pass(1);
                    self.space(false);
                    let is_object = open == b'{';
                    if self.window.peek() == if is_object { b'}' } else { b']' } {
                        self.window.pass(1);
                    } else {
                        (objects, depth) = (objects << 1 | u128::from(is_object), depth + 1);
                        if is_object {
                            self.pass_key()?;
                        }
                        continue;
                    }
                }
                b'"' => self.string()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            // Whatever ends with it.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.space(false);
                let is_object = objects & 1 == 1;
                match self.window.peek() {
                    b',' => {
                        self.window.pass(1);
                        self.space(false);
                        if is_object {
                            self.pass_key()?;
                        }
                        break;
                    }
                    b'}' if is_object => self.window.pass(1),
                    b']' if !is_object => self.window.pass(1),
                    _ => return Err(self.fault(more_or_end(is_object))),
                }
                (objects, depth) = (objects >> 1, depth - 1);
            }
        }
    }

    fn pass_key(&mut self) -> Outcome<()> {
        self.string()?;
        self.space(false);
        if self.window.peek() != b':' {
            return Err(self.fault("a colon"));
        }
        self.window.pass(1);
        self.space(false);
        Ok(())
    }

    /// Takes a value as text.
    pub(super) fn text(&mut self) -> Outcome<Vec<u8>> {
        self.window.hold(Vec::new());
        self.pass()?;
        self.released()
    }

    /// Takes a value that belongs to the text around it, if that is wanted.
    pub(super) fn part_of_text(&mut self) -> Outcome<()> {
        let Some(text) = self.texts.pop() else { return self.pass() };
        self.window.hold(text);
        self.pass()?;
        let text = self.released()?;
        self.texts.push(text);
        Ok(())
    }

    /// What was held since it was begun to be.
    pub(super) fn released(&mut self) -> Outcome<Vec<u8>> {
        self.window.release().ok_or_else(|| self.too_long())
    }

    /// Passes over a string.
    pub(super) fn string(&mut self) -> Outcome<()> {
        if self.window.peek() != b'"' {
            return Err(self.fault("a string"));
        }
        self.window.pass(1);
        loop {
            let plain = plain_bytes(self.window.rest());
            self.window.pass(plain);
            match self.window.peek() {
                b'"' => {
                    self.window.pass(1);
                    return Ok(());
                }
                b'\\' => {
                    self.window.pass(1);
                    self.escape()?;
                }
                0..0x20 => return Err(self.fault("the string's end")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Outcome<()> {
        match self.window.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.window.pass(1),
            b'u' => {
                self.window.pass(1);
                for _ in 0..4 {
                    if !self.window.peek().is_ascii_hexdigit() {
                        return Err(self.fault("four hexadecimal digits"));
                    }
                    self.window.pass(1);
                }
            }
            _ => return Err(self.fault("an escape that JSON has")),
        }
        Ok(())
    }

    /// Passes over a word.
    pub(super) fn word(&mut self, word: &'static [u8]) -> Outcome<()> {
        for &byte in word {
            if self.window.peek() != byte {
                return Err(self.fault("a JSON value"));
            }
            self.window.pass(1);
        }
        Ok(())
    }

    /// Passes over a number.
    pub(super) fn number(&mut self) -> Outcome<()> {
        if self.window.peek() == b'N' {
            return self.word(b"NaN");
        }
        if self.window.peek() == b'-' {
            self.window.pass(1);
        }
        match self.window.peek() {
            b'I' => return self.word(b"Infinity"),
            b'0' => self.window.pass(1),
            b'1'..=b'9' => self.digits()?,
            _ => return Err(self.fault("a JSON value")),
        }
        if self.window.peek() == b'.' {
            self.window.pass(1);
            self.digits()?;
        }
        if matches!(self.window.peek(), b'e' | b'E') {
            self.window.pass(1);
            if matches!(self.window.peek(), b'+' | b'-') {
                self.window.pass(1);
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Outcome<()> {
        if !self.window.peek().is_ascii_digit() {
            return Err(self.fault("a digit"));
        }
        while self.window.peek().is_ascii_digit() {
            self.window.pass(digits_of(self.window.rest()));
        }
        Ok(())
    }
}

/// How many bytes stand first that mean nothing in a string.
#[inline]
fn plain_bytes(text: &[u8]) -> usize {
    let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let mut plain = 0;
    for block in text.chunks_exact(BLOCK) {
        if block.iter().fold(false, |found, &byte| found | special(byte)) {
            break;
        }
        plain += BLOCK;
    }
    plain + text[plain..].iter().take_while(|&&byte| !special(byte)).count()
}
