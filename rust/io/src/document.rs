//! JSON documents of any size in bounded memory: what is asked for is given part by part, the rest is passed over.
//!
//! A text holds any number of values one after the other. They are read once, front to back, through a window; of a
//! value only those parts are held that are asked for and not complete yet. What is passed over is checked as well:
//! all of the text must be UTF-8 and JSON, with the bare words `NaN`, `Infinity` and `-Infinity`.

mod numbers;
mod paths;
mod values;
mod window;

use std::io::{self, Read};
use std::mem;

pub use paths::Wanted;

use paths::{Node, Role};
use window::{Ending, Window};

use crate::record::Skip;
use crate::source::{Meter, Source};

/// A part that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The number of its path, for [`Document::path`].
    pub path: usize,
    /// The number of the value at the top, then the index of each array element on the way.
    pub at: Vec<u64>,
    /// The line on which it ends.
    pub line: u64,
    /// What it is.
    pub value: Value,
}

/// A part's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Its text, without the parts of it that are given by themselves.
    Text(Vec<u8>),
    /// Numbers; NaN where there is null.
    Floats(Vec<f64>),
    /// Arrays of them one after the other, and where each begins and the last ends.
    RaggedFloats(Vec<f64>, Vec<i64>),
    /// Integers; [`ABSENT`] where there is null.
    Integers(Vec<i64>),
    /// Arrays of them.
    RaggedIntegers(Vec<i64>, Vec<i64>),
    /// A key came again: what was given of its value before counts no more.
    Again,
}

impl Value {
    /// What it takes in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Floats(values) => 8 * values.len(),
            Self::Integers(values) => 8 * values.len(),
            Self::RaggedFloats(values, offsets) => 8 * (values.len() + offsets.len()),
            Self::RaggedIntegers(values, offsets) => 8 * (values.len() + offsets.len()),
            Self::Again => 0,
        }
    }
}

/// An integer that is not there.
pub const ABSENT: i64 = i64::MIN;

/// Why a text is not read on.
#[derive(Debug)]
pub enum Fault {
    /// It is at fault.
    Text {
        /// Why.
        skip: Skip,
        /// The line, from 1.
        line: u64,
        /// The place of the fault: bytes before it.
        byte: u64,
        /// What was expected.
        message: String,
    },
    /// What the system says, or the decoder of a compressed text.
    Io(io::Error),
    /// The caller wants no more.
    Stopped,
}

type Outcome<T> = Result<T, Fault>;

/// How deep arrays and objects may nest.
const MAX_DEPTH: usize = crate::json::MAX_DEPTH as usize;

/// What must follow a member or an element.
fn more_or_end(is_object: bool) -> &'static str {
    if is_object { "a comma or the object's end" } else { "a comma or the array's end" }
}

/// A value that is taken apart.
struct Frame {
    node: usize,
    is_object: bool,
    /// Something of it has been read.
    begun: bool,
    /// Something of it is in the text around it.
    written: bool,
    /// Those of its members' nodes that have been seen.
    seen: Vec<usize>,
}

enum Next {
    /// A value at the top.
    Top,
    /// A value at this node.
    Value(usize),
    /// What comes after a value.
    After,
    Nothing,
}

/// A text of JSON values; see the module.
pub struct Document<R> {
    window: Window<R>,
    tree: Vec<Node>,
    lines: bool,
    limit: usize,
    next: Next,
    frames: Vec<Frame>,
    /// The texts of values that are taken apart, innermost last.
    texts: Vec<Vec<u8>>,
    at: Vec<u64>,
    values: u64,
    /// The value at the top is a number or a word, which only space can end.
    is_bare: bool,
    key: Vec<u8>,
}

/// A document whose text is in a file or in memory.
pub struct OpenDocument {
    /// The document.
    pub document: Document<Box<dyn Read + Send>>,
    /// Whether it is compressed: then [`Fault::Io`] means that it is damaged.
    pub compressed: bool,
    meter: Meter,
}

impl OpenDocument {
    /// Opens a document. `goes_on` is asked now and then.
    ///
    /// # Errors
    ///
    /// What the system says; of wrong paths, an error of kind `InvalidInput`.
    pub fn open(source: Source, wanted: &Wanted, goes_on: Box<dyn FnMut() -> bool + Send>) -> io::Result<Self> {
        let (opened, meter) = source.open()?;
        let document = Document::new(opened.bytes, wanted, goes_on)
            .map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
        Ok(Self { document, compressed: opened.compressed, meter })
    }

    /// Tells the bytes read so far, compressed as they are.
    #[must_use]
    pub fn bytes_read(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        let meter = self.meter.clone();
        Box::new(move || meter.bytes())
    }
}

impl<R: Read> Document<R> {
    /// The parts that are wanted of what a reader gives. `goes_on` is asked now and then.
    ///
    /// # Errors
    ///
    /// What is wrong with the paths.
    pub fn new(reader: R, wanted: &Wanted, goes_on: Box<dyn FnMut() -> bool + Send>) -> Result<Self, String> {
        Ok(Self {
            window: Window::new(reader, wanted.limit, goes_on),
            tree: wanted.tree()?,
            lines: wanted.lines,
            limit: wanted.limit,
            next: Next::Top,
            frames: Vec::new(),
            texts: Vec::new(),
            at: Vec::new(),
            values: 0,
            is_bare: false,
            key: Vec::new(),
        })
    }

    /// A path by its number.
    #[must_use]
    pub fn path(&self, number: usize) -> &str {
        &self.tree[number].path
    }

    /// How many paths there are: those that were asked for, and those on the way.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.tree.len()
    }

    /// The next part; none at the end, and after a fault.
    ///
    /// # Errors
    ///
    /// The fault of the text that comes next. With lines, [`skip_line`](Self::skip_line) passes over it.
    pub fn next_part(&mut self) -> Outcome<Option<Part>> {
        let outcome = self.run();
        if outcome.is_err() {
            self.next = Next::Nothing;
            self.window.let_go();
        }
        outcome
    }

    /// After a fault, goes on behind the line that it is on.
    pub fn skip_line(&mut self) {
        self.frames.clear();
        self.texts.clear();
        self.window.pass_line();
        self.next = Next::Top;
    }

    fn run(&mut self) -> Outcome<Option<Part>> {
        loop {
            let part = match mem::replace(&mut self.next, Next::Nothing) {
                Next::Top => {
                    if !self.begin()? {
                        return Ok(None);
                    }
                    None
                }
                Next::Value(node) => self.value(node)?,
                Next::After if self.frames.is_empty() => {
                    self.end_of_value()?;
                    self.next = Next::Top;
                    None
                }
                Next::After => self.after()?,
                Next::Nothing => return Ok(None),
            };
            if part.is_some() {
                return Ok(part);
            }
        }
    }

    /// Comes to the next value at the top.
    fn begin(&mut self) -> Outcome<bool> {
        if self.window.offset() == 0 && self.window.peek() == 0xEF {
            // Of the characters that begin so only the byte order mark may stand here.
            for _ in 0.."\u{FEFF}".len() {
                self.key.push(self.window.take());
            }
            if mem::take(&mut self.key) != "\u{FEFF}".as_bytes() {
                return Err(self.fault("a JSON value"));
            }
        }
        self.space(true);
        if self.window.peek() == 0 && self.is_at_end()? {
            return Ok(false);
        }
        self.is_bare = !matches!(self.window.peek(), b'{' | b'[' | b'"');
        self.at.clear();
        self.at.push(self.values);
        self.values += 1;
        self.next = Next::Value(0);
        Ok(true)
    }

    /// Whether the text ends here, as it may between values.
    fn is_at_end(&mut self) -> Outcome<bool> {
        match self.window.ending() {
            Some(Ending::End) => Ok(true),
            Some(_) => Err(self.fault("a JSON value")),
            None => Ok(false),
        }
    }

    /// What may follow a value at the top.
    fn end_of_value(&mut self) -> Outcome<()> {
        if self.lines {
            self.space(false);
            return match self.window.peek() {
                b'\n' => Ok(()),
                0 if self.is_at_end()? => Ok(()),
                _ => Err(self.fault("one value on a line")),
            };
        }
        match self.window.peek() {
            b' ' | b'\t' | b'\n' | b'\r' => Ok(()),
            0 if self.is_at_end()? => Ok(()),
            _ if self.is_bare => Err(self.fault("space after the value")),
            _ => Ok(()),
        }
    }

    /// Takes a value.
    fn value(&mut self, node: usize) -> Outcome<Option<Part>> {
        self.next = Next::After;
        let Node { role, each, ref keys, .. } = self.tree[node];
        let byte = self.window.peek();
        if let Role::Numbers(numbers) = role {
            let value = if byte == b'[' { self.numbers(numbers, node)? } else { Value::Text(self.text()?) };
            return Ok(Some(self.part(node, value)));
        }
        let apart = (byte == b'{' && !keys.is_empty()) || (byte == b'[' && each.is_some());
        match role {
            Role::Nothing => self.pass()?,
            Role::Text if !apart => {
                let value = Value::Text(self.text()?);
                return Ok(Some(self.part(node, value)));
            }
            Role::Part if !apart => self.part_of_text()?,
            _ => {
                if role == Role::Text {
                    self.texts.push(Vec::new());
                }
                self.open(node, byte == b'{')?;
            }
        }
        Ok(None)
    }

    /// Begins to take a value apart.
    fn open(&mut self, node: usize, is_object: bool) -> Outcome<()> {
        if self.frames.len() == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.window.pass(1);
        self.write(if is_object { b"{" } else { b"[" })?;
        if !is_object {
            self.at.push(0);
        }
        self.frames.push(Frame { node, is_object, begun: false, written: false, seen: Vec::new() });
        Ok(())
    }

    /// Comes to the next member or element of the innermost value that is taken apart, or ends it.
    fn after(&mut self) -> Outcome<Option<Part>> {
        self.space(false);
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        let (node, is_object, begun) = (frame.node, frame.is_object, mem::replace(&mut frame.begun, true));
        let byte = self.window.peek();
        if byte == if is_object { b'}' } else { b']' } {
            self.window.pass(1);
            return self.close(node, is_object);
        }
        if begun {
            if byte != b',' {
                return Err(self.fault(more_or_end(is_object)));
            }
            self.window.pass(1);
            self.space(false);
        }
        if is_object {
            return self.member(node);
        }
        if begun && let Some(index) = self.at.last_mut() {
            *index += 1;
        }
        if let Some(each) = self.tree[node].each {
            if self.tree[each].role == Role::Part {
                self.separate(b"")?;
            }
            self.next = Next::Value(each);
        }
        Ok(None)
    }

    fn close(&mut self, node: usize, is_object: bool) -> Outcome<Option<Part>> {
        self.frames.pop();
        if !is_object {
            self.at.pop();
        }
        self.write(if is_object { b"}" } else { b"]" })?;
        self.next = Next::After;
        if self.tree[node].role != Role::Text {
            return Ok(None);
        }
        let text = self.texts.pop().unwrap_or_default();
        Ok(Some(self.part(node, Value::Text(text))))
    }

    /// Takes a key, and the value if nobody asks for it.
    fn member(&mut self, node: usize) -> Outcome<Option<Part>> {
        let mut raw = mem::take(&mut self.key);
        raw.clear();
        self.window.hold(raw);
        self.string()?;
        let raw = self.released()?;
        self.space(false);
        if self.window.peek() != b':' {
            return Err(self.fault("a colon"));
        }
        self.window.pass(1);
        self.space(false);
        let found = crate::json::Cursor::new(&raw).string().ok().and_then(|key| self.tree[node].member(&key));
        let mut again = None;
        self.next = Next::After;
        if let Some(member) = found {
            if self.tree[member].role == Role::Part {
                self.separate(&raw)?;
            }
            if self.tree[member].is_inner() && self.is_again(member) {
                again = Some(self.part(member, Value::Again));
            }
            self.next = Next::Value(member);
        } else {
            self.separate(&raw)?;
            self.part_of_text()?;
        }
        self.key = raw;
        Ok(again)
    }

    fn is_again(&mut self, member: usize) -> bool {
        let Some(frame) = self.frames.last_mut() else { return false };
        let again = frame.seen.contains(&member);
        if !again {
            frame.seen.push(member);
        }
        again
    }

    fn part(&mut self, path: usize, value: Value) -> Part {
        Part { path, at: self.at.clone(), line: self.window.line(), value }
    }

    /// Writes into the text around, if there is one: a comma where one is needed, and a key.
    fn separate(&mut self, key: &[u8]) -> Outcome<()> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let comma: &[u8] = if mem::replace(&mut frame.written, true) { b"," } else { b"" };
        self.write(comma)?;
        if key.is_empty() {
            return Ok(());
        }
        self.write(key)?;
        self.write(b":")
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        let Some(text) = self.texts.last_mut() else { return Ok(()) };
        text.extend_from_slice(bytes);
        if text.len() > self.limit { Err(self.too_long()) } else { Ok(()) }
    }

    /// Passes over space; where a value must end on its line, over no end of a line within one.
    #[inline(always)]
    fn space(&mut self, between: bool) {
        loop {
            match self.window.peek() {
                b' ' | b'\t' | b'\r' => self.window.pass(1),
                b'\n' if between || !self.lines => self.window.pass(1),
                _ => return,
            }
        }
    }

    fn error(&mut self, skip: Skip, message: String) -> Fault {
        Fault::Text { skip, line: self.window.line(), byte: self.window.offset(), message }
    }

    /// The fault of a text in which something else stands here.
    #[cold]
    fn fault(&mut self, expected: &str) -> Fault {
        let lines = self.lines;
        let line_ends = lines && self.window.peek() == b'\n';
        match self.window.ending() {
            None if line_ends => self.error(Skip::NotJson, format!("expected {expected}, but the line ends")),
            None => self.error(Skip::NotJson, format!("expected {expected}")),
            Some(Ending::End) => {
                let skip = if lines { Skip::NotJson } else { Skip::Truncated };
                self.error(skip, format!("expected {expected}, but the text ends"))
            }
            Some(Ending::NotUtf8) => self.error(Skip::NotUtf8, "expected UTF-8".to_owned()),
            Some(Ending::Stopped) => Fault::Stopped,
            Some(ending @ Ending::Io(_)) => match mem::replace(ending, Ending::End) {
                Ending::Io(error) => Fault::Io(error),
                _ => Fault::Stopped,
            },
        }
    }

    #[cold]
    fn too_deep(&mut self) -> Fault {
        self.error(Skip::TooDeep, format!("expected arrays and objects to nest at most {MAX_DEPTH} deep"))
    }

    #[cold]
    fn too_long(&mut self) -> Fault {
        self.error(Skip::TooLong, format!("expected a value of at most {} bytes", self.limit))
    }
}
