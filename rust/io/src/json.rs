//! A cursor over one JSON value that reads what is wanted and checks the grammar of the rest.
//!
//! One pass, no allocation but for strings with escapes. It takes what Python's `json.loads` takes: the grammar of
//! RFC 8259 and the bare words `NaN`, `Infinity` and `-Infinity`.

use std::borrow::Cow;

use crate::digits::{digits_of, leading_digits, leading_u64};

/// Text of a line, which is UTF-8 as a whole; kept as bytes so that short strings need no second check.
pub type Text<'a> = Cow<'a, [u8]>;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: u32 = 128;

/// Why a text is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not JSON.
    Syntax,
    /// Nested deeper than [`MAX_DEPTH`].
    Depth,
}

/// Whether brackets nest too deep, whatever else may be wrong with the text.
#[cold]
pub fn nests_too_deep(text: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_i64, false, false);
    for &byte in text {
        if in_string {
            (in_string, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > i64::from(MAX_DEPTH) {
            return true;
        }
    }
    false
}

/// A result of reading.
pub type Read<T> = Result<T, Fault>;

/// A field's value as far as it could be taken for what it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not there, or null.
    #[default]
    Absent,
    /// Of another type.
    WrongType,
    /// Of the right type, but too large to be held.
    BadValue,
    /// There.
    Given(T),
}

/// A place in a text.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// The beginning of a text, which must be UTF-8.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        // No JSON token begins with 0, so the end of the text reads as a fault.
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Read<()> {
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(Fault::Syntax)
        }
    }

    /// Whether nothing but space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// Whether the next value is an object.
    pub fn is_object(&mut self) -> bool {
        self.skip_space();
        self.peek() == b'{'
    }

    /// Whether a value that begins here is an array.
    pub fn is_array(&self) -> bool {
        self.peek() == b'['
    }

    fn enter(&mut self) -> Read<()> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Fault::Depth) } else { Ok(()) }
    }

    /// Reads an object; `member` is called at each value and must take it.
    #[inline]
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &[u8]) -> Read<()>) -> Read<()> {
        self.enter()?;
        self.skip_space();
        if self.peek() == b'}' {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            self.skip_space();
            self.expect(b':')?;
            self.skip_space();
            member(self, &key)?;
            self.skip_space();
            match self.peek() {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    self.depth -= 1;
                    return Ok(());
                }
                _ => return Err(Fault::Syntax),
            }
        }
    }

    /// Reads an array; `element` is called at each value and must take it.
    #[inline]
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.enter()?;
        self.skip_space();
        if self.peek() == b']' {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            element(self)?;
            self.skip_space();
            match self.peek() {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    self.depth -= 1;
                    return Ok(());
                }
                _ => return Err(Fault::Syntax),
            }
        }
    }

    /// Reads a string.
    #[inline]
    pub fn string(&mut self) -> Read<Text<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.peek() {
                b'"' => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(raw));
                }
                b'\\' => return self.escaped_string(start),
                0..0x20 => return Err(Fault::Syntax),
                _ => self.at += 1,
            }
        }
    }

    #[cold]
    fn escaped_string(&mut self, start: usize) -> Read<Text<'a>> {
        let mut bytes = self.text[start..self.at].to_vec();
        loop {
            let byte = self.peek();
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(Cow::Owned(bytes));
                }
                b'\\' => {
                    self.at += 1;
                    let letter = self.peek();
                    self.at += 1;
                    let plain = match letter {
                        b'"' | b'\\' | b'/' => letter,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => {
                            let character = self.unicode_escape()?;
                            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                            continue;
                        }
                        _ => return Err(Fault::Syntax),
                    };
                    bytes.push(plain);
                }
                0..0x20 => return Err(Fault::Syntax),
                _ => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// The character of a `\u` escape (and of the second half of a pair); half a pair alone is U+FFFD.
    fn unicode_escape(&mut self) -> Read<char> {
        let high = self.four_hex_digits()?;
        if (0xD800..0xDC00).contains(&high) && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.four_hex_digits()?;
            if (0xDC00..0xE000).contains(&low) {
                let scalar = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_hex_digits(&mut self) -> Read<u32> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Fault::Syntax)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, &digit| {
            let digit = char::from(digit).to_digit(16).ok_or(Fault::Syntax)?;
            Ok(code << 4 | digit)
        })
    }

    /// Passes over any value, checking its grammar.
    pub fn skip(&mut self) -> Read<()> {
        match self.peek() {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|cursor, _| cursor.skip()),
            b'[' if self.plain_numbers(digits_of) => Ok(()),
            b'[' => self.array(Self::skip),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'1'..=b'9' if self.skip_digits() => Ok(()),
            _ => self.number().map(|_| ()),
        }
    }

    /// Passes over a number of digits alone; anything else is left as it was.
    #[inline]
    fn skip_digits(&mut self) -> bool {
        let end = self.at + digits_of(&self.text[self.at..]);
        let plain = !matches!(self.text.get(end), Some(b'.' | b'e' | b'E'));
        if plain {
            self.at = end;
        }
        plain
    }

    fn word(&mut self, word: &[u8]) -> Read<()> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(Fault::Syntax)
        }
    }

    /// Passes over a number and returns its text.
    #[cold]
    fn number(&mut self) -> Read<&'a str> {
        let start = self.at;
        if self.peek() == b'N' {
            self.word(b"NaN")?;
        } else {
            self.at += usize::from(self.peek() == b'-');
            match self.peek() {
                b'I' => self.word(b"Infinity")?,
                b'0' => {
                    self.at += 1;
                    self.fraction_and_exponent()?;
                }
                b'1'..=b'9' => {
                    self.digits()?;
                    self.fraction_and_exponent()?;
                }
                _ => return Err(Fault::Syntax),
            }
        }
        std::str::from_utf8(&self.text[start..self.at]).map_err(|_| Fault::Syntax)
    }

    fn fraction_and_exponent(&mut self) -> Read<()> {
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(Fault::Syntax) }
    }

    /// Reads an integer; a float that is whole is one.
    #[inline]
    pub fn integer(&mut self) -> Read<Field<i64>> {
        let start = self.at;
        let (value, digits) = leading_digits(&self.text[start..]);
        self.at += digits;
        let plain = (1..=16).contains(&digits)
            && !matches!(self.peek(), b'0'..=b'9' | b'.' | b'e' | b'E')
            && (digits == 1 || self.text[start] != b'0');
        if plain {
            return Ok(Field::Given(value as i64));
        }
        self.at = start;
        self.odd_integer()
    }

    #[cold]
    fn odd_integer(&mut self) -> Read<Field<i64>> {
        match self.peek() {
            b'-' | b'0'..=b'9' | b'N' | b'I' => {
                let text = self.number()?;
                if !text.contains(['.', 'e', 'E', 'N', 'I']) {
                    return Ok(text.parse().map_or(Field::BadValue, Field::Given));
                }
                let value: f64 = match text {
                    "NaN" => f64::NAN,
                    "Infinity" | "-Infinity" => f64::INFINITY,
                    _ => text.parse().map_err(|_| Fault::Syntax)?,
                };
                Ok(if !value.is_finite() || value.fract() != 0.0 {
                    Field::WrongType
                } else if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
                    Field::Given(value as i64)
                } else {
                    Field::BadValue
                })
            }
            _ => self.other(),
        }
    }

    /// Passes over a value that is not what was expected: absent if null, else of the wrong type.
    #[cold]
    pub fn other<T>(&mut self) -> Read<Field<T>> {
        let absent = self.peek() == b'n';
        self.skip()?;
        Ok(if absent { Field::Absent } else { Field::WrongType })
    }

    /// Reads an array of integers into `values`, up to the first element that is none.
    #[inline]
    pub fn integers(&mut self, values: &mut Vec<i64>) -> Read<Field<()>> {
        values.clear();
        if self.peek() != b'[' {
            return self.other();
        }
        if self.plain_integers(values) {
            return Ok(Field::Given(()));
        }
        let mut field = Field::Given(());
        self.array(|cursor| {
            let element = cursor.integer()?;
            if field == Field::Given(()) {
                match element {
                    Field::Given(value) => values.push(value),
                    Field::BadValue => field = Field::BadValue,
                    Field::Absent | Field::WrongType => field = Field::WrongType,
                }
            }
            Ok(())
        })?;
        Ok(field)
    }

    /// Reads an array of plain integers; anything else is left as it was, for the general way.
    #[inline]
    fn plain_integers(&mut self, values: &mut Vec<i64>) -> bool {
        let plain = self.plain_numbers(|rest| {
            let (value, digits) = leading_digits(rest);
            values.push(value as i64);
            digits
        });
        if !plain {
            values.clear();
        }
        plain
    }

    /// Reads an array of integers of 64 bits, signed or not, and appends them to `hashes` up to the first element that
    /// is none. They may stand in strings; below 0 they are taken as their two's complement.
    #[inline]
    pub fn hashes(&mut self, hashes: &mut Vec<u64>) -> Read<Field<()>> {
        if self.peek() != b'[' {
            return self.other();
        }
        let before = hashes.len();
        let plain = self.plain_numbers(|rest| {
            let (value, digits) = leading_u64(rest);
            hashes.push(value);
            digits
        });
        if plain {
            return Ok(Field::Given(()));
        }
        hashes.truncate(before);
        let mut field = Field::Given(());
        self.array(|cursor| {
            let element = cursor.hash()?;
            if field == Field::Given(()) {
                match element {
                    Field::Given(hash) => hashes.push(hash),
                    Field::BadValue => field = Field::BadValue,
                    Field::Absent | Field::WrongType => field = Field::WrongType,
                }
            }
            Ok(())
        })?;
        Ok(field)
    }

    #[cold]
    fn hash(&mut self) -> Read<Field<u64>> {
        let fits = |value: i128| i64::try_from(value).map(|value| value as u64).or(u64::try_from(value));
        let text = match self.peek() {
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => Cow::Borrowed(self.number()?.as_bytes()),
            _ => return self.other(),
        };
        let digits = text.strip_prefix(b"-").unwrap_or(&text);
        if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
            let value = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            return Ok(value.and_then(|value| fits(value).ok()).map_or(Field::BadValue, Field::Given));
        }
        Ok(Field::WrongType)
    }

    /// Reads a number as an integer, or else as a float.
    pub fn integer_or_float(&mut self) -> Read<(Field<i64>, Field<f64>)> {
        let start = self.at;
        let integer = self.integer()?;
        if matches!(integer, Field::Given(_) | Field::Absent) {
            return Ok((integer, Field::Absent));
        }
        self.at = start;
        Ok((integer, self.float()?))
    }

    /// Reads a number.
    pub fn float(&mut self) -> Read<Field<f64>> {
        match self.peek() {
            b'-' | b'0'..=b'9' | b'N' | b'I' => Ok(Field::Given(match self.number()? {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                text => text.parse().map_err(|_| Fault::Syntax)?,
            })),
            _ => self.other(),
        }
    }

    /// Reads an array of plain numbers: digits alone, of which `number` says how many there are that it can take (0:
    /// none). Anything else is left as it was, for the general way.
    #[inline(always)]
    fn plain_numbers(&mut self, mut number: impl FnMut(&[u8]) -> usize) -> bool {
        let mut at = self.at + 1;
        loop {
            if self.text.get(at) == Some(&b' ') {
                at += 1;
            }
            let rest = self.text.get(at..).unwrap_or_default();
            let digits = number(rest);
            let leads_with_zero = digits > 1 && rest[0] == b'0';
            let next = rest.get(digits).copied().unwrap_or(0);
            if digits == 0 || leads_with_zero || (next != b',' && next != b']') {
                return false;
            }
            at += digits + 1;
            if next == b']' {
                self.at = at;
                return true;
            }
        }
    }

    /// Reads a string.
    pub fn text(&mut self) -> Read<Field<Text<'a>>> {
        if self.peek() == b'"' { Ok(Field::Given(self.string()?)) } else { self.other() }
    }

    /// Reads a boolean.
    pub fn boolean(&mut self) -> Read<Field<bool>> {
        match self.peek() {
            b't' => self.word(b"true").map(|()| Field::Given(true)),
            b'f' => self.word(b"false").map(|()| Field::Given(false)),
            _ => self.other(),
        }
    }

    /// Reads a boolean as its text; none, and nothing is read, where there is no boolean.
    pub fn boolean_text(&mut self) -> Read<Option<&'static [u8]>> {
        Ok(match self.peek() {
            b't' => self.word(b"true").map(|()| Some(&b"true"[..]))?,
            b'f' => self.word(b"false").map(|()| Some(&b"false"[..]))?,
            _ => None,
        })
    }

    /// Reads a string, or an integer as its text.
    #[inline]
    pub fn text_or_integer(&mut self) -> Read<Field<Text<'a>>> {
        match self.peek() {
            b'"' => Ok(Field::Given(self.string()?)),
            b'-' | b'0'..=b'9' => {
                let text = self.number()?;
                let whole = !text.contains(['.', 'e', 'E', 'I']);
                Ok(if whole { Field::Given(Cow::Borrowed(text.as_bytes())) } else { Field::WrongType })
            }
            _ => self.other(),
        }
    }
}
