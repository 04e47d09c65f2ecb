//! One input from its first line to its last, whatever the lines are about: what all readers of logs share.

use std::io;

use memchr::memchr_iter;

use crate::chunks::{Chunk, Chunks, MAX_LINE, Text};
use crate::record::Refused;
use crate::source::Source;

/// Notices that are kept of each input.
const NOTICES: usize = 5;

/// A line that was passed over, or of which an event was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The line, counted from 1.
    pub line: u64,
    /// The reason's name.
    pub reason: &'static str,
    /// What was expected, in words.
    pub message: String,
}

/// Why an input is not read.
#[derive(Debug)]
pub enum Failure {
    /// An input cannot be read: its name, and what the system says.
    Io(String, io::Error),
    /// An input is in no format that we know: its name, and what was found.
    Format(String, String),
    /// Wrong settings.
    Settings(tokenpulse_core::Error),
    /// The caller wants no more.
    Stopped,
}

/// What stands on a line.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// UTF-8 that is not blank.
    Text(&'a [u8]),
    /// A line that cannot be read.
    Unreadable(Refused),
    /// No line: here a compressed input ends early or is damaged. Nothing follows.
    Cut(Refused),
}

/// Keeps a notice, unless there are enough, or one of that line and reason.
pub(crate) fn note(notices: &mut Vec<Notice>, line: u64, reason: &'static str, message: impl Into<String>) {
    let known = notices.iter().any(|notice| notice.line == line && notice.reason == reason);
    if notices.len() < NOTICES && !known {
        notices.push(Notice { line, reason, message: message.into() });
    }
}

/// Reads a source to its end, and returns how many bytes it had. `take` is given each line with its number, blank ones
/// left out; `progress` is told the bytes read now and then, and stops the reading where it returns false.
///
/// # Errors
///
/// What the system says of an input that is not compressed, or [`Failure::Stopped`].
pub(crate) fn each_line(
    source: Source,
    mut progress: impl FnMut(u64) -> bool,
    mut take: impl FnMut(Found<'_>, u64),
) -> Result<u64, Failure> {
    let name = source.name().to_owned();
    let (opened, meter) = source.open().map_err(|error| Failure::Io(name.clone(), error))?;
    let compressed = opened.compressed;
    let mut chunks = Chunks::new(opened.bytes, 0);
    let mut text = Text::default();
    let mut number = 0;
    while progress(meter.bytes()) {
        match chunks.next(text) {
            Ok(Some(Chunk::Lines(chunk))) => {
                let utf8 = std::str::from_utf8(chunk.lines()).is_ok();
                let mut start = 0;
                for end in memchr_iter(b'\n', chunk.lines()) {
                    number += 1;
                    let line = &chunk.lines()[start..end];
                    start = end + 1;
                    if line.len() > MAX_LINE {
                        take(Found::Unreadable(Refused::too_long()), number);
                    } else if !utf8 && std::str::from_utf8(line).is_err() {
                        take(Found::Unreadable(Refused::not_utf8()), number);
                    } else if !line.trim_ascii().is_empty() {
                        take(Found::Text(line), number);
                    }
                }
                text = chunk;
            }
            Ok(Some(Chunk::TooLong(chunk))) => {
                number += 1;
                take(Found::Unreadable(Refused::too_long()), number);
                text = chunk;
            }
            Ok(None) => return if progress(meter.bytes()) { Ok(meter.bytes()) } else { Err(Failure::Stopped) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => text = Text::default(),
            Err(error) if compressed => {
                take(Found::Cut(Refused::cut(&error)), number + 1);
                text = Text::default();
            }
            Err(error) => return Err(Failure::Io(name, error)),
        }
    }
    Err(Failure::Stopped)
}
