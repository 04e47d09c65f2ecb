//! A source to batches on several cores: chunks are parsed by whoever is free and applied in their order, by one at a
//! time. So what comes of it does not hang on how many there are.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use crate::batch::Batch;
use crate::chunks::{Chunk, Chunks, Text};
use crate::input::Failure;
use crate::parse::Parser;
use crate::record::{Asked, Refused};
use crate::source::{Meter, Source};

/// How often the caller looks at the progress while others work.
const LOOK: Duration = Duration::from_millis(50);
/// A source smaller than this is read by the caller alone.
const SMALL: u64 = 1 << 18;
/// Chunks under way, for each worker.
const AHEAD: usize = 3;

/// How a source is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// How many read it, the caller included; 0: as many as there are cores. Nothing else depends on it.
    pub threads: usize,
    /// Every line is read the general way: slower, and the same.
    pub plain: bool,
    /// How many bytes are read at once; 0: what is best. Nothing else depends on it.
    pub chunk: usize,
    /// What was read is applied by the caller alone, while others read on.
    pub by_caller: bool,
}

impl Reading {
    fn workers(self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.threads == 0 { cores() } else { self.threads }
    }
}

/// What reading a chunk gave.
type ReadChunk = io::Result<Option<Chunk>>;

/// A chunk under way.
enum Stage {
    /// Somebody reads or parses it.
    Busy,
    /// It can be parsed.
    Raw(Batch, ReadChunk),
    /// It can be applied.
    Parsed(Batch),
}

/// What the workers share.
struct Shared<R> {
    /// Chunks that were read and not yet applied, in order.
    under_way: VecDeque<Stage>,
    /// The number of the first of them.
    first: u64,
    chunks: Option<Chunks<R>>,
    /// Buffers to be used again.
    spare: Vec<Batch>,
    applying: bool,
    /// Nothing more will be read.
    ended: bool,
    stopped: bool,
    error: Option<io::Error>,
    hasher: DefaultHashBuilder,
}

struct Pipeline<R> {
    shared: Mutex<Shared<R>>,
    changed: Condvar,
    compressed: bool,
    /// What may keep a reader waiting for long is read by the caller alone, who notices an interrupt.
    caller_reads: bool,
    caller_applies: bool,
    ahead: usize,
    meter: Meter,
}

/// What there is to do.
enum Task<R> {
    Read(Chunks<R>, Batch),
    Parse(u64, Batch, ReadChunk),
    Apply(Batch),
    Wait,
    Done,
}

/// Reads a source to its end and gives its batches to `apply`, in order. `progress` is called by the caller's thread
/// alone, with the bytes read so far; where it returns false the reading stops. Returns how many bytes there were.
///
/// # Errors
///
/// What the system says of an input that is not compressed, or [`Failure::Stopped`].
pub(crate) fn each_batch(
    source: Source,
    reading: Reading,
    asked: &Arc<Asked>,
    hasher: &DefaultHashBuilder,
    mut progress: impl FnMut(u64) -> bool,
    apply: impl FnMut(&Batch) + Send,
) -> Result<u64, Failure> {
    let name = source.name().to_owned();
    let size = source.size();
    // There is no work for more than one in what one chunk holds.
    let small = reading.chunk == 0 && size.is_some_and(|bytes| bytes < SMALL);
    let workers = if small { 1 } else { reading.workers() };
    let (opened, meter) = source.open().map_err(|error| Failure::Io(name.clone(), error))?;
    let pipeline = Pipeline {
        shared: Mutex::new(Shared {
            under_way: VecDeque::new(),
            first: 0,
            chunks: Some(Chunks::new(opened.bytes, reading.chunk)),
            spare: Vec::new(),
            applying: false,
            ended: false,
            stopped: false,
            error: None,
            hasher: hasher.clone(),
        }),
        changed: Condvar::new(),
        compressed: opened.compressed,
        caller_reads: size.is_none() && workers > 1,
        caller_applies: reading.by_caller,
        ahead: workers * AHEAD,
        meter,
    };
    let apply = Mutex::new(apply);
    let parser = || Parser::new(Arc::clone(asked), reading.plain);
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|| pipeline.work(parser(), false, &apply, |_| true));
        }
        pipeline.work(parser(), true, &apply, &mut progress);
    });
    let shared = pipeline.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    let bytes = pipeline.meter.bytes();
    if shared.stopped || !progress(bytes) {
        return Err(Failure::Stopped);
    }
    shared.error.map_or(Ok(bytes), |error| Err(Failure::Io(name, error)))
}

/// Says that all should stop, should its holder panic.
struct Alarm<'a, R>(&'a Pipeline<R>);

impl<R> Drop for Alarm<'_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().stopped = true;
            self.0.changed.notify_all();
        }
    }
}

impl<R> Pipeline<R> {
    fn lock(&self) -> MutexGuard<'_, Shared<R>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Read> Pipeline<R> {
    fn work(
        &self,
        mut parser: Parser,
        is_caller: bool,
        apply: &Mutex<impl FnMut(&Batch)>,
        mut progress: impl FnMut(u64) -> bool,
    ) {
        let _alarm = Alarm(self);
        let (reads, applies) = (is_caller || !self.caller_reads, is_caller || !self.caller_applies);
        loop {
            if !progress(self.meter.bytes()) {
                self.lock().stopped = true;
                self.changed.notify_all();
            }
            let mut shared = self.lock();
            match shared.task(self.ahead, reads, applies, self.caller_reads) {
                Task::Done => return,
                Task::Wait => drop(self.changed.wait_timeout(shared, LOOK)),
                Task::Apply(batch) => {
                    drop(shared);
                    apply.lock().unwrap_or_else(PoisonError::into_inner)(&batch);
                    let mut shared = self.lock();
                    shared.applying = false;
                    shared.spare.push(batch);
                    drop(shared);
                    self.changed.notify_all();
                }
                Task::Parse(number, batch, read) => {
                    drop(shared);
                    self.parse(&mut parser, number, batch, read);
                }
                Task::Read(mut chunks, mut batch) => {
                    let number = shared.first + shared.under_way.len() as u64;
                    shared.under_way.push_back(Stage::Busy);
                    drop(shared);
                    let read = chunks.next(std::mem::take(&mut batch.text));
                    self.give_back(chunks, read.as_ref());
                    if self.caller_reads {
                        self.lock().put(number, Stage::Raw(batch, read));
                        self.changed.notify_all();
                    } else {
                        self.parse(&mut parser, number, batch, read);
                    }
                }
            }
        }
    }

    fn parse(&self, parser: &mut Parser, number: u64, mut batch: Batch, read: ReadChunk) {
        let cut = self.fill(parser, &mut batch, read);
        let mut shared = self.lock();
        shared.put(number, Stage::Parsed(batch));
        shared.error = shared.error.take().or(cut);
        drop(shared);
        self.changed.notify_all();
    }

    /// Lets somebody else read on, unless there is nothing more.
    fn give_back(&self, chunks: Chunks<R>, read: Result<&Option<Chunk>, &io::Error>) {
        let mut shared = self.lock();
        shared.ended |= match read {
            Ok(chunk) => chunk.is_none(),
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        shared.chunks = Some(chunks);
        drop(shared);
        self.changed.notify_all();
    }

    /// Parses what was read. An error that ends a compressed input is a line that cannot be read.
    fn fill(&self, parser: &mut Parser, batch: &mut Batch, read: ReadChunk) -> Option<io::Error> {
        let refused = match read {
            Ok(Some(Chunk::Lines(text))) => {
                parser.parse(text, batch);
                return None;
            }
            Ok(Some(Chunk::TooLong(text))) => {
                batch.begin(text);
                Refused::too_long()
            }
            Ok(None) => {
                batch.begin(Text::default());
                return None;
            }
            Err(error) => {
                batch.begin(Text::default());
                if error.kind() == io::ErrorKind::Interrupted {
                    return None;
                }
                if !self.compressed {
                    return Some(error);
                }
                Refused::cut(&error)
            }
        };
        batch.refuse(refused);
        batch.lines = 1;
        None
    }
}

impl<R> Shared<R> {
    fn put(&mut self, number: u64, stage: Stage) {
        let place = (number - self.first) as usize;
        self.under_way[place] = stage;
    }

    /// What there is to do: to apply comes first, since what is applied makes room.
    fn task(&mut self, ahead: usize, reads: bool, applies: bool, caller_reads: bool) -> Task<R> {
        if self.stopped {
            return Task::Done;
        }
        if applies && !self.applying && matches!(self.under_way.front(), Some(Stage::Parsed(_))) {
            let Some(Stage::Parsed(batch)) = self.under_way.pop_front() else { return Task::Wait };
            self.first += 1;
            self.applying = true;
            return Task::Apply(batch);
        }
        if reads
            && !self.ended
            && self.under_way.len() < ahead
            && let Some(chunks) = self.chunks.take()
        {
            let new = || Batch::new(self.hasher.clone());
            return Task::Read(chunks, self.spare.pop().unwrap_or_else(new));
        }
        if caller_reads
            && let Some(place) = self.under_way.iter().position(|stage| matches!(stage, Stage::Raw(..)))
            && let Stage::Raw(batch, read) = std::mem::replace(&mut self.under_way[place], Stage::Busy)
        {
            return Task::Parse(self.first + place as u64, batch, read);
        }
        if self.ended && self.under_way.is_empty() && !self.applying { Task::Done } else { Task::Wait }
    }
}
