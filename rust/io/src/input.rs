//! One input from its first line to its last, whatever the lines are about: what all readers of logs share.

use std::io;

use crate::lines::{Line, Lines, MAX_LINE};
use crate::record::{Refused, Skip};
use crate::source::Source;

/// Notices that are kept of each input.
const NOTICES: usize = 5;
/// Lines between two looks at the progress.
const PROGRESS_LINES: u64 = 1 << 14;

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
    let mut lines = Lines::new(opened.bytes);
    let mut number = 0;
    loop {
        number += 1;
        if number % PROGRESS_LINES == 0 && !progress(meter.bytes()) {
            return Err(Failure::Stopped);
        }
        match lines.next_line() {
            Ok(Some(Line::Whole(bytes, _))) if bytes.trim_ascii().is_empty() => {}
            Ok(Some(Line::Whole(bytes, true))) => take(Found::Text(bytes), number),
            Ok(Some(Line::Whole(_, false))) => {
                take(Found::Unreadable(Refused::new(Skip::NotUtf8, "expected UTF-8")), number);
            }
            Ok(Some(Line::TooLong)) => {
                let message = format!("expected lines of at most {MAX_LINE} bytes");
                take(Found::Unreadable(Refused::new(Skip::TooLong, message)), number);
            }
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                number -= 1;
                if !progress(meter.bytes()) {
                    return Err(Failure::Stopped);
                }
            }
            Err(error) if compressed => {
                let message = format!("expected the compressed input to be whole: {error}");
                take(Found::Cut(Refused::new(Skip::Truncated, message)), number);
                break;
            }
            Err(error) => return Err(Failure::Io(name, error)),
        }
    }
    if progress(meter.bytes()) { Ok(meter.bytes()) } else { Err(Failure::Stopped) }
}
