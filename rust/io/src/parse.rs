//! The lines of a chunk, read into a batch: by their shapes where they have one, else the general way.

use std::sync::Arc;

use memchr::memchr;

use crate::batch::Batch;
use crate::chunks::{MAX_LINE, Text};
use crate::record::{Asked, Kind, LineEvent, Other, Record, Refused, Wants};
use crate::replay::EngineRecord;
use crate::scan::{Portable, Scan};
use crate::shape::Shapes;

/// Reads chunks. What it has learnt of the lines' shapes changes its speed alone.
pub(crate) struct Parser {
    asked: Arc<Asked>,
    shapes: Shapes,
    record: Record,
    engine: EngineRecord,
    /// Every line is read the general way.
    plain: bool,
}

impl Parser {
    /// A parser that keeps what is asked for; with `plain` every line is read the general way.
    pub(crate) fn new(asked: Arc<Asked>, plain: bool) -> Self {
        // A shape has a place for each label that is kept.
        let plain = plain || matches!(asked.labels, Wants::Every);
        Self { asked, shapes: Shapes::default(), record: Record::default(), engine: EngineRecord::default(), plain }
    }

    /// Reads a chunk.
    pub(crate) fn parse(&mut self, text: Text, batch: &mut Batch) {
        #[cfg(target_arch = "x86_64")]
        if crate::scan::Wide::is_there() {
            return self.parse_wide(text, batch);
        }
        self.lines::<Portable>(text, batch);
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "compiled for what the processor was found to have")]
    fn parse_wide(&mut self, text: Text, batch: &mut Batch) {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn lines(parser: &mut Parser, text: Text, batch: &mut Batch) {
            parser.lines::<crate::scan::Wide>(text, batch);
        }
        // SAFETY: `is_there` said so.
        unsafe { lines(self, text, batch) }
    }

    #[inline(always)]
    fn lines<S: Scan>(&mut self, text: Text, batch: &mut Batch) {
        let len = text.lines().len();
        let utf8 = text.lines().is_ascii() || std::str::from_utf8(text.lines()).is_ok();
        let by_shape = utf8 && len <= MAX_LINE && !self.plain;
        batch.begin(text);
        // The text is apart while the batch is filled; spans are of the same bytes.
        let text = std::mem::take(&mut batch.text);
        let padded = text.padded();
        let mut at = 0;
        while at < len {
            if by_shape && let Some(next) = self.shapes.read::<S>(padded, at, batch) {
                at = next;
            } else {
                let end = at + memchr(b'\n', &padded[at..len]).unwrap_or(len - at);
                self.line(&padded[at..end], utf8, batch);
                if by_shape
                    && end < len
                    && self.record.recognised
                    && let Wants::These(names) = &self.asked.labels
                {
                    self.shapes.learn(&padded[at..=end], names);
                }
                at = end + 1;
            }
            batch.lines += 1;
        }
        batch.text = text;
    }

    /// Reads a line the general way.
    #[cold]
    #[inline(never)]
    fn line(&mut self, line: &[u8], utf8: bool, batch: &mut Batch) {
        self.record.recognised = false;
        if line.trim_ascii().is_empty() {
            return;
        }
        if line.len() > MAX_LINE {
            return batch.refuse(Refused::too_long());
        }
        if !utf8 && std::str::from_utf8(line).is_err() {
            return batch.refuse(Refused::not_utf8());
        }
        let mut read = self.record.read(line, &self.asked);
        batch.recognised += u64::from(self.record.recognised);
        if let Ok(Kind::Event(LineEvent::Other(other))) = read {
            if self.asked.engine {
                read = self.engine.read(line, other).map(|()| Kind::Engine);
            } else if other == Other::Count {
                // A report tells how often memory ran out. A line that says something else, or nothing, only passes.
                self.record.recognised = false;
                if self.engine.read(line, other).is_ok() {
                    read = Ok(Kind::Engine);
                }
            }
        }
        match read {
            Ok(Kind::Engine) => {
                // It says more than a shape has places for.
                self.record.recognised = false;
                batch.push_engine(self.record.t_ns, &self.engine);
            }
            Ok(kind) => batch.push(&self.record, kind, &self.asked.labels),
            Err(refused) => {
                self.record.recognised = false;
                batch.refuse(refused);
            }
        }
    }
}
