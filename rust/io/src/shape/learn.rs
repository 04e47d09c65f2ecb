//! The shape of a line: taken apart into the text that stays and the places of values.

use tokenpulse_core::request::Status;

use super::{ARRAYS, ARRIVAL_MONO, ARRIVE, CTX, Literal, NUMBERS, PLACES, PROMPT, Shape, Slot};
use crate::record::event_named;

impl Shape {
    /// The shape of a line that was read the general way; none where it is too odd to be worth one.
    pub(super) fn of(line: &[u8], wants: &[String]) -> Option<Self> {
        let mut learner = Learner { line, at: 0, kept: 0, places: Vec::new() };
        let mut shape = Self {
            places: Vec::new(),
            tail: Literal::new(b"\n"),
            event: None,
            status: Status::default(),
            degraded: false,
            numbers: 0,
            arrays: 0,
        };
        let mut keys: Vec<&[u8]> = Vec::new();
        learner.object(|learner, key| {
            if keys.contains(&key) {
                return None;
            }
            keys.push(key);
            match (key, learner.peek()) {
                (_, b'n') => learner.word(b"null"),
                (b"ev", b'"') => {
                    shape.event = Some(event_named(learner.string()?)?);
                    Some(())
                }
                (b"status", b'"') => {
                    // Of an event that has no use for it, it may be anything.
                    let name = std::str::from_utf8(learner.string()?).ok()?;
                    shape.status = Status::from_name(name)?;
                    Some(())
                }
                (b"degraded", b't') => {
                    shape.degraded = true;
                    learner.word(b"true")
                }
                (b"id", b'"') => learner.text(Slot::Id),
                (b"id", b'0'..=b'9') => learner.number(Slot::IdDigits),
                (b"labels", b'{') => learner.labels(wants),
                (b"id" | b"labels", _) => None,
                (key, b'0'..=b'9') if NUMBERS.contains(&key) => {
                    let field = NUMBERS.iter().position(|name| *name == key)?;
                    shape.numbers |= 1 << field;
                    learner.number(Slot::Number(field as u8))
                }
                (key, b'[') if ARRAYS.contains(&key) => {
                    let field = ARRAYS.iter().position(|name| *name == key)?;
                    shape.arrays |= 1 << field;
                    learner.numbers(Slot::Numbers(field as u8))
                }
                (_, b'"') => learner.text(Slot::AnyText),
                (_, b'[') => learner.numbers(Slot::AnyNumbers),
                (_, b't') => learner.word(b"true"),
                (_, b'f') => learner.word(b"false"),
                // It may mean something: -0 is a time.
                (key, b'-') if NUMBERS.contains(&key) => None,
                (_, b'-' | b'0'..=b'9') => learner.number(Slot::AnyNumber),
                _ => None,
            }
        })?;
        let both = |one: &[u8], other: &[u8]| keys.contains(&one) && keys.contains(&other);
        if learner.places.len() > PLACES
            || both(NUMBERS[PROMPT], NUMBERS[CTX])
            || both(NUMBERS[ARRIVE], NUMBERS[ARRIVAL_MONO])
        {
            return None;
        }
        shape.tail = Literal::new(&line[learner.kept..]);
        shape.places = learner.places;
        Some(shape)
    }
}

/// Takes a line apart that is known to be a JSON object. What it does not expect ends it.
struct Learner<'a> {
    line: &'a [u8],
    at: usize,
    /// Where the text begins that stands before the next place.
    kept: usize,
    places: Vec<(Literal, Slot)>,
}

impl<'a> Learner<'a> {
    fn peek(&self) -> u8 {
        self.line.get(self.at).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let there = self.line[self.at..].starts_with(word);
        self.at += word.len();
        there.then_some(())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let len = self.line[start..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        self.at = start + len + 1;
        (self.line[start + len] == b'"').then(|| &self.line[start..start + len])
    }

    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.skip_space();
        self.word(b"{")?;
        self.skip_space();
        if self.peek() == b'}' {
            return self.word(b"}");
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            self.skip_space();
            self.word(b":")?;
            self.skip_space();
            member(self, key)?;
            self.skip_space();
            if self.peek() == b'}' {
                return self.word(b"}");
            }
            self.word(b",")?;
        }
    }

    /// A value stands from `start` to `end`.
    fn place(&mut self, slot: Slot, start: usize, end: usize) {
        self.places.push((Literal::new(&self.line[self.kept..start]), slot));
        self.kept = end;
    }

    /// A string is a value, without its quotes.
    fn text(&mut self, slot: Slot) -> Option<()> {
        let start = self.at + 1;
        let len = self.string()?.len();
        self.place(slot, start, start + len);
        Some(())
    }

    fn number(&mut self, slot: Slot) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let plain = self.line[start..self.at].iter().all(u8::is_ascii_digit);
        if !plain && slot != Slot::AnyNumber {
            return None;
        }
        self.place(slot, start, self.at);
        Some(())
    }

    fn numbers(&mut self, slot: Slot) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), b'[' | b'0'..=b'9' | b',' | b' ') {
            self.at += 1;
        }
        self.word(b"]")?;
        self.place(slot, start, self.at);
        Some(())
    }

    fn labels(&mut self, wants: &[String]) -> Option<()> {
        let mut keys: Vec<&[u8]> = Vec::new();
        self.object(|learner, key| {
            if keys.contains(&key) {
                return None;
            }
            keys.push(key);
            let want = wants.iter().position(|want| want.as_bytes() == key).map(|want| want as u32);
            match (learner.peek(), want) {
                (b'"', Some(want)) => learner.text(Slot::Label(want)),
                (b'"', None) => learner.text(Slot::AnyText),
                (b'0'..=b'9', Some(want)) => learner.number(Slot::LabelDigits(want)),
                (b'0'..=b'9', None) => learner.number(Slot::AnyDigits),
                (b'n', _) => learner.word(b"null"),
                (b't', None) => learner.word(b"true"),
                (b'f', None) => learner.word(b"false"),
                _ => None,
            }
        })
    }
}
