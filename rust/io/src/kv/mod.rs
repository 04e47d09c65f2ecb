//! What a KV cache did, from logs: events to a tracker, or requests to a trace.
//!
//! One streaming pass over each input. Of a log of events nothing is kept but what the trackers keep: memory depends on
//! the blocks that are resident, on those that are remembered, and on how many caches there are, of which an input may
//! have 1,024. A trace is kept whole, since it is for being replayed.
//!
//! An input is one cache, or as many as publishers sent batches: one for each topic and data-parallel rank. Batches of
//! one publisher are numbered; what the numbers say of batches that were lost is counted, and the cache is followed on
//! as it was.

mod batch;
mod cache;
pub(crate) mod record;

use tokenpulse_core::bounds;
use tokenpulse_core::kv::{Refused as Rejected, Settings, Tier, Totals, Trace, TraceBuilder, Tracker};

use crate::input::{Failure, Found, Notice, each_line, note};
use crate::record::{Refused, Skip};
use crate::source::Source;
use cache::Cache;
use record::{Kind, Record};

/// Caches of one input.
const CACHES: usize = 1024;

/// What is known of an input after it was read.
#[derive(Clone, Debug, Default)]
pub struct KvInput {
    /// Its name.
    pub path: String,
    /// Lines that are not blank.
    pub lines: u64,
    /// Events of a cache that were read; a batch may have several.
    pub events: u64,
    /// Requests of a trace that were read.
    pub requests: u64,
    /// Lines of ours that say nothing of a cache.
    pub passed: u64,
    /// Lines passed over, by [`Skip`]; and events of batches whose type is not known.
    pub skipped: [u64; 11],
    /// The first few things that were not as they should be.
    pub notices: Vec<Notice>,
    /// Lines that told of a cache.
    told: u64,
    recognised: u64,
}

/// What the numbers of batches say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How often numbers were left out.
    pub gaps: u64,
    /// How many were.
    pub batches: u64,
    /// How often numbers went back or stood still: the publisher began anew, or a batch came late or twice.
    pub restarts: u64,
}

/// What the events of all caches come to.
#[derive(Clone, Debug)]
pub struct KvEvents {
    /// What was counted and measured.
    pub totals: Totals,
    /// Blocks resident at the end, by [`Tier`].
    pub resident: [u64; Tier::ALL.len()],
    /// Blocks resident anywhere.
    pub blocks: u64,
    /// Evicted blocks that are remembered.
    pub remembered: u64,
    /// How many caches there were.
    pub caches: u64,
    /// What was lost.
    pub loss: Loss,
    /// How each cache was followed.
    pub settings: Settings,
}

/// What logs were about.
#[derive(Clone, Debug)]
pub enum KvContent {
    /// Events of caches.
    Events(Box<KvEvents>),
    /// Requests with the hashes of their blocks.
    Trace(Trace),
}

/// What all inputs come to.
#[derive(Clone, Debug)]
pub struct KvLog {
    /// The inputs, in the order given.
    pub inputs: Vec<KvInput>,
    /// Everything together.
    pub content: KvContent,
}

/// Reads all sources, with a tracker of these settings for each cache. `progress` is told (bytes read, bytes in all or
/// 0) now and then; where it returns false the reading stops.
///
/// # Errors
///
/// An input that cannot be read or is none of ours, inputs that are about nothing or about both kinds of thing, or wrong
/// settings. Lines at fault are no errors.
pub fn read_kv(
    sources: Vec<Source>,
    settings: &Settings,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<KvLog, Failure> {
    settings.check().map_err(Failure::Settings)?;
    let sizes: Option<Vec<u64>> = sources.iter().map(Source::size).collect();
    let total = sizes.map_or(0, |sizes| sizes.iter().sum());
    let mut reader = Reader {
        events: KvEvents {
            totals: Totals::new(bounds::DEFAULT_SCALE).map_err(Failure::Settings)?,
            resident: [0; Tier::ALL.len()],
            blocks: 0,
            remembered: 0,
            caches: 0,
            loss: Loss::default(),
            settings: *settings,
        },
        trace: TraceBuilder::default(),
        caches: Vec::new(),
        input: KvInput::default(),
        record: Record::default(),
    };
    let (mut done, mut inputs) = (0, Vec::new());
    for source in sources {
        reader.input = KvInput { path: source.name().to_owned(), ..KvInput::default() };
        done += each_line(source, |bytes| progress(done + bytes, total), |found, number| reader.line(found, number))?;
        inputs.push(reader.finish_input()?);
    }
    let has = |count: fn(&KvInput) -> u64| inputs.iter().find(|&input| count(input) > 0).map(|input| &input.path);
    let content = match (has(|input| input.told), has(|input| input.requests)) {
        (Some(_), None) => KvContent::Events(Box::new(reader.events)),
        (None, Some(_)) => KvContent::Trace(reader.trace.finish()),
        (Some(events), Some(requests)) => {
            let message =
                format!("expected either KV events or block hashes, found events here and hashes in {requests}");
            return Err(Failure::Format(events.clone(), message));
        }
        (None, None) => {
            let name = inputs.first().map_or(String::new(), |input| input.path.clone());
            return Err(Failure::Format(name, NOTHING.to_owned() + &first_fault(inputs.first())));
        }
    };
    Ok(KvLog { inputs, content })
}

const NOTHING: &str = "expected KV events or block hashes, found none";

/// What was wrong with the first line that had a fault.
fn first_fault(input: Option<&KvInput>) -> String {
    let notice = input.and_then(|input| input.notices.first());
    notice.map_or(String::new(), |notice| format!("; line {}: {}", notice.line, notice.message))
}

struct Reader {
    events: KvEvents,
    trace: TraceBuilder,
    /// Those of the input that is read; the one that was needed last comes first.
    caches: Vec<Cache>,
    input: KvInput,
    record: Record,
}

impl KvInput {
    fn skip(&mut self, line: u64, refused: Refused) {
        self.skipped[refused.skip as usize] += 1;
        note(&mut self.notices, line, refused.skip.name(), refused.message);
    }
}

impl Reader {
    #[inline]
    fn line(&mut self, found: Found<'_>, number: u64) {
        self.input.lines += u64::from(!matches!(found, Found::Cut(_)));
        let bytes = match found {
            Found::Text(bytes) => bytes,
            Found::Unreadable(refused) | Found::Cut(refused) => return self.input.skip(number, refused),
        };
        let read = self.record.read(bytes);
        self.input.recognised += u64::from(self.record.recognised);
        match read {
            Err(refused) => {
                self.input.skip(number, refused);
                if self.record.is_numbered {
                    // It is no loss: it came, and could not be used.
                    self.cache(true, number);
                }
            }
            Ok(Kind::Other) => self.input.passed += 1,
            Ok(Kind::Request) => {
                let record = &self.record;
                match self.trace.push(record.t_ns, &record.hashes, record.input_tokens) {
                    Ok(()) => self.input.requests += 1,
                    Err(error) => self.input.skip(number, Refused::new(Skip::BadValue, error.to_string())),
                }
            }
            Ok(kind) => self.take_events(kind == Kind::Batch, number),
        }
    }

    /// The cache that the record is about, its number told; none, and the line is skipped, where there are too many.
    fn cache(&mut self, is_batch: bool, number: u64) -> Option<&mut Cache> {
        let record = &self.record;
        let publisher = is_batch.then_some((record.topic.as_str(), record.rank));
        let at = match self.caches.iter().position(|cache| cache.is_of(publisher)) {
            Some(at) => at,
            None if self.caches.len() == CACHES => {
                let message = format!("expected at most {CACHES} publishers in one input");
                self.input.skip(number, Refused::new(Skip::BadValue, message));
                return None;
            }
            None => match Cache::new(publisher, self.events.settings) {
                Ok(cache) => {
                    self.caches.push(cache);
                    self.caches.len() - 1
                }
                Err(error) => {
                    self.input.skip(number, Refused::new(Skip::BadValue, error.to_string()));
                    return None;
                }
            },
        };
        self.caches.swap(0, at);
        let cache = &mut self.caches[0];
        if let Some(seq) = record.seq.filter(|_| is_batch) {
            cache.number(seq, &mut self.events.loss, |reason, message| {
                note(&mut self.input.notices, number, reason, message);
            });
        }
        Some(cache)
    }

    fn take_events(&mut self, is_batch: bool, number: u64) {
        if self.cache(is_batch, number).is_none() {
            return;
        }
        let (record, cache) = (&self.record, &mut self.caches[0]);
        self.input.told += 1;
        self.input.events += record.told;
        cache.take(record, |rejected| {
            // Once for each reason: what was lost makes many blocks unknown.
            if self.input.notices.iter().all(|notice| notice.reason != rejected.name()) {
                note(&mut self.input.notices, number, rejected.name(), explain(rejected));
            }
        });
        if let Some((name, n)) = self.record.unknown().filter(|_| is_batch) {
            self.input.skipped[Skip::UnknownKind as usize] += n;
            let message = format!("expected BlockStored, BlockRemoved or AllBlocksCleared, got {name:?}");
            note(&mut self.input.notices, number, Skip::UnknownKind.name(), message);
        }
    }

    /// Adds up what the caches of an input came to.
    fn finish_input(&mut self) -> Result<KvInput, Failure> {
        let input = std::mem::take(&mut self.input);
        let nothing = input.recognised == 0 && (input.lines > 0 || input.skipped.iter().any(|&n| n > 0));
        if nothing {
            let message = NOTHING.to_owned() + &first_fault(Some(&input));
            return Err(Failure::Format(input.path, message));
        }
        let events = &mut self.events;
        for cache in self.caches.drain(..) {
            let (tracker, totals): (Tracker, Totals) = cache.into_parts();
            events.totals.absorb(&totals).map_err(Failure::Settings)?;
            events.resident.iter_mut().zip(tracker.resident()).for_each(|(sum, n)| *sum += n);
            events.blocks += tracker.blocks();
            events.remembered += tracker.remembered();
            events.caches += 1;
        }
        Ok(input)
    }
}

fn explain(rejected: Rejected) -> &'static str {
    match rejected {
        Rejected::Negative => "expected a time of 0 or later; the event is passed over",
        Rejected::Future => "expected a time at most a day ahead of the newest; the event is passed over",
        Rejected::Tier => "expected the tier gpu, cpu, disk or remote; the event is passed over",
        Rejected::Invalid => {
            "expected a group from 0 to 4095, and no more tokens hit than queried; the event is passed over"
        }
        Rejected::Full => "expected room for the block; as many are resident as are followed",
        Rejected::Unknown => "expected a block that is resident in that tier; it was never stored there, or has gone",
    }
}
