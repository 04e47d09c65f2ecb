//! Arrays of numbers, straight into columns.

use std::io::Read;

use super::paths::Numbers;
use super::{ABSENT, Document, Fault, Outcome, Value, more_or_end};
use crate::digits::leading_u64;
use crate::record::Skip;

/// A number as a column holds it.
pub(super) trait Number: Copy {
    /// What is wanted, in words.
    const WANTED: &'static str;
    /// In place of null.
    const ABSENT: Self;
    /// The number that stands first, and its length; none if it may be another, or goes on beyond the text.
    fn leading(text: &[u8]) -> Option<(Self, usize)>;
    /// A number of JSON's grammar, or one of the words for what is none.
    fn from_text(text: &str) -> Option<Self>;
}

impl Number for f64 {
    const WANTED: &'static str = "a number or null";
    const ABSENT: Self = Self::NAN;

    #[inline]
    fn leading(text: &[u8]) -> Option<(Self, usize)> {
        let end = number_end(text)?;
        let number = std::str::from_utf8(&text[..end]).ok()?;
        Some((number.parse().ok()?, end))
    }

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "NaN" => Some(Self::NAN),
            "Infinity" => Some(Self::INFINITY),
            "-Infinity" => Some(Self::NEG_INFINITY),
            _ => text.parse().ok(),
        }
    }
}

impl Number for i64 {
    const WANTED: &'static str = "an integer of 64 bits or null";
    const ABSENT: Self = ABSENT;

    #[inline]
    fn leading(text: &[u8]) -> Option<(Self, usize)> {
        let (value, digits) = leading_u64(text);
        let ends = !matches!(text.get(digits)?, b'0'..=b'9' | b'.' | b'e' | b'E');
        let plain = digits > 0 && ends && (digits == 1 || text[0] != b'0');
        if plain { Some((Self::try_from(value).ok()?, digits)) } else { None }
    }

    fn from_text(text: &str) -> Option<Self> {
        if !text.contains(['.', 'e', 'E', 'N', 'I']) {
            return text.parse().ok();
        }
        let value = f64::from_text(text)?;
        let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
        if fits && value.fract() == 0.0 { Some(value as Self) } else { None }
    }
}

/// Where a number of digits, fraction and exponent ends that stands first; none if there is none, or it may go on.
#[inline]
fn number_end(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| from + text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let first = usize::from(*text.first()? == b'-');
    let mut end = digits(first);
    if end == first || (text[first] == b'0' && end > first + 1) {
        return None;
    }
    if *text.get(end)? == b'.' {
        let fraction = end + 1;
        end = digits(fraction);
        if end == fraction {
            return None;
        }
    }
    if matches!(text.get(end)?, b'e' | b'E') {
        let exponent = end + 1 + usize::from(matches!(text.get(end + 1)?, b'+' | b'-'));
        end = digits(exponent);
        if end == exponent {
            return None;
        }
    }
    if end < text.len() { Some(end) } else { None }
}

impl<R: Read> Document<R> {
    /// Takes an array of numbers, or of arrays of them.
    pub(super) fn numbers(&mut self, kind: Numbers, node: usize) -> Outcome<Value> {
        Ok(match (kind.ragged, kind.whole) {
            (false, false) => Value::Floats(self.column(node)?),
            (false, true) => Value::Integers(self.column(node)?),
            (true, false) => {
                let (values, offsets) = self.columns(node)?;
                Value::RaggedFloats(values, offsets)
            }
            (true, true) => {
                let (values, offsets) = self.columns(node)?;
                Value::RaggedIntegers(values, offsets)
            }
        })
    }

    fn column<T: Number>(&mut self, node: usize) -> Outcome<Vec<T>> {
        let mut values = Vec::new();
        self.array(|document| document.elements(&mut values, node))?;
        Ok(values)
    }

    fn columns<T: Number>(&mut self, node: usize) -> Outcome<(Vec<T>, Vec<i64>)> {
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        self.array(|document| {
            match document.window.peek() {
                b'[' => document.array(|document| document.elements(&mut values, node))?,
                b'n' => document.word(b"null")?,
                _ => return Err(document.wrong_type(node, "an array of numbers or null")),
            }
            offsets.push(values.len() as i64);
            Ok(())
        })?;
        Ok((values, offsets))
    }

    /// Takes an array; `elements` is called at the first element, and again at each that it leaves.
    #[inline]
    fn array(&mut self, mut elements: impl FnMut(&mut Self) -> Outcome<()>) -> Outcome<()> {
        self.window.pass(1);
        self.space(false);
        if self.window.peek() == b']' {
            self.window.pass(1);
            return Ok(());
        }
        loop {
            elements(self)?;
            self.space(false);
            match self.window.peek() {
                b',' => self.window.pass(1),
                b']' => {
                    self.window.pass(1);
                    return Ok(());
                }
                _ => return Err(self.fault(more_or_end(false))),
            }
            self.space(false);
        }
    }

    /// Takes numbers as long as they are plain and in memory, or one that is not.
    #[inline]
    fn elements<T: Number>(&mut self, values: &mut Vec<T>, node: usize) -> Outcome<()> {
        let rest = self.window.rest();
        let mut at = 0;
        while let Some((value, length)) = T::leading(&rest[at..]) {
            values.push(value);
            at += length;
            match rest[at..] {
                [b',', b' ', ..] => at += 2,
                [b',', ..] => at += 1,
                _ => {
                    self.window.pass(at);
                    return Ok(());
                }
            }
        }
        self.window.pass(at);
        self.space(false);
        let value = self.element(node)?;
        values.push(value);
        Ok(())
    }

    #[cold]
    fn element<T: Number>(&mut self, node: usize) -> Outcome<T> {
        let quoted = match self.window.peek() {
            b'n' => {
                self.word(b"null")?;
                return Ok(T::ABSENT);
            }
            b'"' => true,
            b't' | b'f' | b'[' | b'{' => return Err(self.wrong_type(node, T::WANTED)),
            _ => false,
        };
        self.window.hold(Vec::new());
        let passed = if quoted { self.string() } else { self.number() };
        passed?;
        let text = self.released()?;
        let number = if quoted { unquoted(&text) } else { std::str::from_utf8(&text).ok() };
        number.and_then(T::from_text).ok_or_else(|| self.wrong_type(node, T::WANTED))
    }

    #[cold]
    fn wrong_type(&mut self, node: usize, wanted: &str) -> Fault {
        let message = format!("expected {wanted} in {:?}", self.tree[node].path);
        self.error(Skip::WrongType, message)
    }
}

/// The number that stands in a string, if it is one as JSON has it.
fn unquoted(text: &[u8]) -> Option<&str> {
    let [b'"', inner @ .., b'"'] = text else { return None };
    let inner = std::str::from_utf8(inner).ok()?;
    let ended = format!("{inner},");
    let is_number = number_end(ended.as_bytes()) == Some(inner.len());
    if is_number || matches!(inner, "NaN" | "Infinity" | "-Infinity") { Some(inner) } else { None }
}
