//! Lines of one log look alike: what differs between two of them are numbers and ids.
//!
//! A [`Shape`] is a line that was read the general way, taken apart into the text that stays and the places where
//! values stand. A line that has the same text between values of the same kinds says the same with other values, and
//! is read by comparing that text and reading those values, without looking for its structure. Any other line, and any
//! value that is not of the plainest kind, is no match and is read the general way: so shapes never change an answer.

mod learn;

use std::ops::Range;

use tokenpulse_core::bounds;
use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::tally::UntimedTokens;

use crate::batch::{ArrivalRow, Batch, Entry, Label, RequestRow, Span, What};
use crate::record::LineEvent;
use crate::scan::{Scan, number_end};

/// Shapes that are kept.
const SHAPES: usize = 16;
/// Values that a shape may have.
const PLACES: usize = 40;
/// What learning a shape costs, in lines that match one; and how many may be saved up.
const COST: i32 = 8;
const SAVED: i32 = 512;

/// Fields of one number.
const NUMBERS: [&[u8]; 13] = [
    b"t_ns",
    b"k",
    b"prompt_tokens",
    b"ctx",
    b"arrive_ns",
    b"arrival_mono_ns",
    b"schedule_ns",
    b"prefill_ns",
    b"output_tokens",
    b"first_token_ns",
    b"last_token_ns",
    b"end_ns",
    b"cached_tokens",
];
const T: usize = 0;
const K: usize = 1;
const PROMPT: usize = 2;
const CTX: usize = 3;
const ARRIVE: usize = 4;
const ARRIVAL_MONO: usize = 5;
const SCHEDULE: usize = 6;
const PREFILL: usize = 7;
const OUTPUT: usize = 8;
const FIRST: usize = 9;
const LAST: usize = 10;
const END: usize = 11;
const CACHED: usize = 12;

/// Fields of many.
const ARRAYS: [&[u8]; 5] = [b"token_ns", b"dt_ns", b"n", b"preempt_ns", b"resume_ns"];
const TOKEN: usize = 0;
const DT: usize = 1;
const N: usize = 2;
const PREEMPT: usize = 3;
const RESUME: usize = 4;

/// What stands in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// A number that means something.
    Number(u8),
    /// An array of such.
    Numbers(u8),
    /// The id, within its quotes.
    Id,
    /// The id as a number.
    IdDigits,
    /// A label that is asked for, within its quotes.
    Label(u32),
    /// A label that is asked for, as a number.
    LabelDigits(u32),
    /// A string, a number, numbers that mean nothing here.
    AnyText,
    AnyDigits,
    AnyNumber,
    AnyNumbers,
}

/// Text that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Literal {
    /// Its first bytes, and which bits of a comparison count.
    first: ([u8; 32], u32),
    /// The same for the rest.
    more: Box<[([u8; 32], u32)]>,
    len: usize,
}

impl Literal {
    fn new(bytes: &[u8]) -> Self {
        let block = |bytes: &[u8]| {
            let mut block = [0; 32];
            block[..bytes.len()].copy_from_slice(bytes);
            (block, ((1_u64 << bytes.len()) - 1) as u32)
        };
        let (first, rest) = bytes.split_at(bytes.len().min(32));
        Self { first: block(first), more: rest.chunks(32).map(block).collect(), len: bytes.len() }
    }

    #[inline(always)]
    fn stands_at<S: Scan>(&self, text: &[u8], at: usize) -> bool {
        let stands = |at, (block, counts): &([u8; 32], u32)| S::differs(text, at, block) & counts == 0;
        stands(at, &self.first)
            && (self.len <= 32 || self.more.iter().zip(1..).all(|(block, i)| stands(at + 32 * i, block)))
    }
}

/// A line as text that stays and places for values. The last literal ends the line.
#[derive(Clone, Debug)]
struct Shape {
    places: Vec<(Literal, Slot)>,
    tail: Literal,
    event: Option<LineEvent>,
    status: Status,
    degraded: bool,
    /// Which numbers and arrays it has, by bit.
    numbers: u32,
    arrays: u32,
}

/// What was read in the places of a line; what its shape has no place for is from a line before.
#[derive(Debug)]
struct Values {
    numbers: [i64; NUMBERS.len()],
    arrays: [Range<u32>; ARRAYS.len()],
    id: Span,
}

/// The shapes of the lines so far.
#[derive(Debug)]
pub(crate) struct Shapes {
    kept: Vec<Shape>,
    /// How many places two shapes have in common at their beginning.
    common: [[u8; SHAPES]; SHAPES],
    /// Which shape came after a shape the last time.
    next: [u8; SHAPES],
    last: usize,
    /// Where the next one goes when there is no room.
    oldest: usize,
    saved: i32,
    values: Values,
    /// Where each place of the line was come to.
    came: [usize; PLACES + 1],
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            common: [[0; SHAPES]; SHAPES],
            next: [0; SHAPES],
            last: 0,
            oldest: 0,
            saved: SAVED / 2,
            values: Values { numbers: [0; NUMBERS.len()], arrays: [const { 0..0 }; ARRAYS.len()], id: Span::default() },
            came: [0; PLACES + 1],
        }
    }
}

impl Shapes {
    /// Reads the line that begins at `at` into the batch if it has one of the shapes, and says where the next begins.
    #[inline(always)]
    pub(crate) fn read<S: Scan>(&mut self, text: &[u8], at: usize, batch: &mut Batch) -> Option<usize> {
        if self.kept.is_empty() {
            return None;
        }
        let (numbers, labels) = (batch.numbers.len(), batch.labels.len());
        self.came[0] = at;
        self.values.id = Span::default();
        let expected = usize::from(self.next[self.last]);
        let found = match self.kept[expected].follow::<S>(0, text, &mut self.came, &mut self.values, batch) {
            Ok(end) => Some((expected, end)),
            Err(place) => self.others::<S>((expected, place), labels, text, batch),
        };
        if let Some((which, end)) = found
            && self.kept[which].conclude(text, &self.values, labels as u32, batch).is_some()
        {
            self.next[self.last] = which as u8;
            self.last = which;
            self.saved = SAVED.min(self.saved + 1);
            return Some(end);
        }
        batch.numbers.truncate(numbers);
        batch.labels.truncate(labels);
        None
    }

    /// Tries the other shapes, after one of them failed in a place: each from where they part.
    #[cold]
    #[inline(never)]
    fn others<S: Scan>(
        &mut self,
        (mut failed, mut place): (usize, usize),
        labels: usize,
        text: &[u8],
        batch: &mut Batch,
    ) -> Option<(usize, usize)> {
        let mut left: u32 = ((1 << self.kept.len()) - 1) & !(1 << failed);
        while left != 0 {
            let which = left.trailing_zeros() as usize;
            left &= left - 1;
            let common = usize::from(self.common[failed][which]);
            // What failed there fails here too.
            if common > place {
                continue;
            }
            let shape = &self.kept[which];
            let is_label = |(_, slot): &&(Literal, Slot)| matches!(slot, Slot::Label(_) | Slot::LabelDigits(_));
            batch.labels.truncate(labels + shape.places[..common].iter().filter(is_label).count());
            match shape.follow::<S>(common, text, &mut self.came, &mut self.values, batch) {
                Ok(end) => return Some((which, end)),
                Err(at) => (failed, place) = (which, at),
            }
        }
        None
    }

    /// Keeps the shape of a line, its end included, that was read the general way and is one of ours.
    pub(crate) fn learn(&mut self, line: &[u8], wants: &[String]) {
        self.saved -= COST;
        if self.saved < 0 {
            // A log whose lines are all different is read the general way, and looked at now and then.
            self.saved += COST + 1;
            return;
        }
        let Some(shape) = Shape::of(line, wants) else { return };
        let place = if self.kept.len() < SHAPES {
            self.kept.push(shape);
            self.kept.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % SHAPES;
            self.kept[self.oldest] = shape;
            self.oldest
        };
        for (other, there) in self.kept.iter().enumerate() {
            let pairs = there.places.iter().zip(&self.kept[place].places);
            let common = pairs.take_while(|(theirs, ours)| theirs == ours).count() as u8;
            self.common[place][other] = common;
            self.common[other][place] = common;
        }
        self.next[self.last] = place as u8;
        self.next[place] = place as u8;
        self.last = place;
    }
}

impl Shape {
    /// Reads a line from a place on. Where it does not fit it says in which place.
    #[inline(always)]
    fn follow<S: Scan>(
        &self,
        from: usize,
        text: &[u8],
        came: &mut [usize; PLACES + 1],
        values: &mut Values,
        batch: &mut Batch,
    ) -> Result<usize, usize> {
        let mut at = came[from];
        for (place, ((literal, slot), came)) in (from..).zip(self.places[from..].iter().zip(&mut came[from..])) {
            *came = at;
            if !literal.stands_at::<S>(text, at) {
                return Err(place);
            }
            at += literal.len;
            let end = match *slot {
                Slot::Number(field) => {
                    let (value, digits) = number::<S>(text, at);
                    values.numbers[usize::from(field)] = value;
                    (digits > 0).then_some(at + digits)
                }
                Slot::Id => {
                    let end = S::string_end(text, at);
                    values.id = Span::of_text(at, end.unwrap_or(at));
                    end
                }
                Slot::Numbers(field) => {
                    let start = batch.numbers.len() as u32;
                    let end = array::<S>(text, at, &mut batch.numbers);
                    values.arrays[usize::from(field)] = start..batch.numbers.len() as u32;
                    end
                }
                slot => seldom::<S>(slot, text, at, values, batch),
            };
            match end {
                Some(end) => at = end,
                None => return Err(place),
            }
        }
        let place = self.places.len();
        came[place] = at;
        if self.tail.stands_at::<S>(text, at) { Ok(at + self.tail.len) } else { Err(place) }
    }

    /// Adds what was read to the batch, unless a value is outside its range: the general way names it.
    #[inline(always)]
    fn conclude(&self, text: &[u8], values: &Values, labels: u32, batch: &mut Batch) -> Option<()> {
        let (t, what) = match self.event {
            Some(LineEvent::Request(Event::Tokens(_))) => {
                let k = self.number(values, K).unwrap_or(1);
                if !bounds::EMISSION_TOKENS.contains(k) {
                    return None;
                }
                (values.numbers[T], What::Event(Event::Tokens(k as u64)))
            }
            Some(LineEvent::Request(event)) => (values.numbers[T], What::Event(event)),
            Some(LineEvent::End { .. }) => {
                (values.numbers[T], What::End { status: self.status, degraded: self.degraded })
            }
            Some(LineEvent::Other(_)) => (values.numbers[T], What::Other),
            Some(LineEvent::Arrive) => {
                let arrival = arrival(self.number(values, PROMPT), self.number(values, CACHED), labels, batch)?;
                batch.arrivals.push(arrival);
                (values.numbers[T], What::Arrive(batch.arrivals.len() as u32 - 1))
            }
            None => {
                let arrive = self.number(values, ARRIVE).or(self.number(values, ARRIVAL_MONO))?;
                let row = self.request(arrive, values, labels, batch)?;
                batch.requests.push(row);
                (arrive, What::Request(batch.requests.len() as u32 - 1))
            }
        };
        let hash = batch.hash(values.id.within(text));
        batch.entries.push(Entry { t, hash, id: values.id, line: batch.lines as u32, what });
        batch.recognised += 1;
        Some(())
    }

    #[inline(always)]
    fn number(&self, values: &Values, field: usize) -> Option<i64> {
        (self.numbers >> field & 1 == 1).then_some(values.numbers[field])
    }

    fn array(&self, values: &Values, field: usize) -> Option<Range<u32>> {
        (self.arrays >> field & 1 == 1).then(|| values.arrays[field].clone())
    }

    fn request(&self, arrive: i64, values: &Values, labels: u32, batch: &mut Batch) -> Option<RequestRow> {
        let prompt_tokens = self.number(values, PROMPT).or(self.number(values, CTX));
        let timed = match (self.array(values, TOKEN), self.array(values, DT)) {
            (Some(tokens), _) => Some(tokens),
            (None, Some(offsets)) => {
                let times = &mut batch.numbers[offsets.start as usize..offsets.end as usize];
                // None is negative: what all bits together make is no less than any of them.
                let bits = times.iter().fold(0, |bits, time| bits | time);
                arrive.checked_add(bits)?;
                times.iter_mut().for_each(|time| *time += arrive);
                Some(offsets)
            }
            (None, None) => None,
        };
        let counts = self.array(values, N).unwrap_or(0..0);
        let are_counts = |&k: &i64| bounds::EMISSION_TOKENS.contains(k);
        if !batch.numbers(&counts).iter().all(are_counts)
            || self.array(values, N).is_some() && timed.as_ref().is_some_and(|times| times.len() != counts.len())
        {
            return None;
        }
        let untimed = match self.number(values, OUTPUT).filter(|_| timed.is_none()) {
            Some(n) if !bounds::REQUEST_TOKENS.contains(n) => return None,
            Some(n) if n > 0 => {
                Some(UntimedTokens { n: n as u64, first: self.number(values, FIRST), last: self.number(values, LAST) })
            }
            _ => None,
        };
        Some(RequestRow {
            arrival: arrival(prompt_tokens, self.number(values, CACHED), labels, batch)?,
            schedule: self.number(values, SCHEDULE),
            prefill: self.number(values, PREFILL),
            counts: if timed.is_some() { counts } else { 0..0 },
            tokens: timed.unwrap_or(0..0),
            preempts: self.array(values, PREEMPT).unwrap_or(0..0),
            resumes: self.array(values, RESUME).unwrap_or(0..0),
            untimed,
            end: self.number(values, END),
            status: self.status,
            degraded: self.degraded,
        })
    }
}

fn arrival(prompt_tokens: Option<i64>, cached: Option<i64>, labels: u32, batch: &Batch) -> Option<ArrivalRow> {
    let [prompt_tokens, cached_tokens] = [prompt_tokens, cached].map(|tokens| tokens.unwrap_or(0));
    if ![prompt_tokens, cached_tokens].into_iter().all(|tokens| bounds::REQUEST_TOKENS.contains(tokens)) {
        return None;
    }
    Some(ArrivalRow {
        prompt_tokens: prompt_tokens as u64,
        cached_tokens: cached_tokens as u64,
        labels: labels..batch.labels.len() as u32,
    })
}

/// What stands in a place that few lines have.
#[inline(never)]
fn seldom<S: Scan>(slot: Slot, text: &[u8], at: usize, values: &mut Values, batch: &mut Batch) -> Option<usize> {
    let digits = |at| {
        let (_, digits) = S::number(text, at);
        (digits > 0).then_some(at + digits)
    };
    match slot {
        Slot::Label(want) => {
            let end = S::string_end(text, at)?;
            batch.labels.push(Label { want, value: Span::of_text(at, end) });
            Some(end)
        }
        Slot::LabelDigits(want) => {
            let end = digits(at)?;
            batch.labels.push(Label { want, value: Span::of_text(at, end) });
            Some(end)
        }
        Slot::IdDigits => {
            let end = digits(at)?;
            values.id = Span::of_text(at, end);
            Some(end)
        }
        Slot::AnyText => S::string_end(text, at),
        Slot::AnyDigits => digits(at),
        Slot::AnyNumber => number_end(text, at),
        Slot::AnyNumbers => {
            let before = batch.numbers.len();
            let end = array::<S>(text, at, &mut batch.numbers);
            batch.numbers.truncate(before);
            end
        }
        Slot::Id | Slot::Number(_) | Slot::Numbers(_) => None,
    }
}

/// The number at `at`; see [`Scan::number`]. Many have one digit.
#[inline(always)]
fn number<S: Scan>(text: &[u8], at: usize) -> (i64, usize) {
    if text[at].is_ascii_digit() && !text[at + 1].is_ascii_digit() {
        return (i64::from(text[at] - b'0'), 1);
    }
    S::number(text, at)
}

/// Reads an array of plain numbers, and says where it ends.
#[inline(always)]
fn array<S: Scan>(text: &[u8], at: usize, numbers: &mut Vec<i64>) -> Option<usize> {
    if text[at] != b'[' {
        return None;
    }
    if text[at + 1] == b']' { Some(at + 2) } else { S::numbers(text, at + 1, numbers) }
}
