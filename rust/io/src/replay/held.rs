//! Lines that must be put in order before they are applied: those of a log that begins with request lines.
//!
//! A finished request tells of a long time at once. Lines are held as numbers: eight bytes an emission (sixteen where
//! emissions have sizes), and some 350 bytes a request. Then they are gone through in the order of their times; the
//! events of a request are made when it arrives, and given up when it has ended. What has the same time comes in the
//! order of the lines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::tally::{Finished, UntimedTokens};

use super::request::{Timed, acts_of};
use super::writer::{Bearing, Writer};
use crate::batch::EngineRow;
use crate::part::Id;

/// A line that is held.
#[derive(Debug)]
enum Line {
    Request(Box<Request>),
    Arrive(Text, Bearing),
    Event(Text, Event),
    End(Text, Status, bool),
    Engine(EngineRow),
}

/// An id: its hash and its place among the texts.
#[derive(Debug)]
struct Text {
    hash: u64,
    at: Range<usize>,
}

/// A finished request; the ranges are of [`Held::numbers`].
#[derive(Debug)]
struct Request {
    bearing: Bearing,
    schedule: Option<i64>,
    prefill: Option<i64>,
    emissions: Range<usize>,
    counts: Range<usize>,
    output_tokens: Option<u64>,
    untimed: Option<UntimedTokens>,
    preempts: Range<usize>,
    resumes: Range<usize>,
    end: Option<i64>,
    ended: Option<Status>,
    degraded: bool,
}

/// Lines that are held.
#[derive(Debug, Default)]
pub(super) struct Held {
    lines: Vec<(i64, Line)>,
    numbers: Vec<i64>,
    hashes: Vec<u64>,
    texts: Vec<u8>,
}

/// A request under way: the acts that are left, and the last time that was taken.
struct UnderWay {
    handle: i64,
    bearing: Bearing,
    arrival: i64,
    newest: i64,
    acts: std::vec::IntoIter<Timed>,
}

impl Held {
    fn text(&mut self, id: Id<'_>) -> Text {
        let start = self.texts.len();
        self.texts.extend_from_slice(id.bytes);
        Text { hash: id.hash, at: start..self.texts.len() }
    }

    fn keep(&mut self, numbers: &[i64]) -> Range<usize> {
        let start = self.numbers.len();
        self.numbers.extend_from_slice(numbers);
        start..self.numbers.len()
    }

    /// Holds a finished request; without a status it is still in flight.
    pub fn request(&mut self, t: i64, bearing: Bearing, events: &Finished<'_>, ended: Option<Status>) {
        let request = Request {
            bearing,
            schedule: events.schedule,
            prefill: events.prefill,
            emissions: self.keep(events.emissions),
            counts: self.keep(events.counts),
            output_tokens: events.output_tokens,
            untimed: events.untimed,
            preempts: self.keep(events.preempts),
            resumes: self.keep(events.resumes),
            end: events.end,
            ended,
            degraded: events.degraded,
        };
        self.lines.push((t, Line::Request(Box::new(request))));
    }

    pub fn arrive(&mut self, id: Id<'_>, t: i64, bearing: Bearing) {
        let id = self.text(id);
        self.lines.push((t, Line::Arrive(id, bearing)));
    }

    pub fn event(&mut self, id: Id<'_>, t: i64, event: Event) {
        let id = self.text(id);
        self.lines.push((t, Line::Event(id, event)));
    }

    pub fn end(&mut self, id: Id<'_>, t: i64, status: Status, degraded: bool) {
        let id = self.text(id);
        self.lines.push((t, Line::End(id, status, degraded)));
    }

    pub fn engine(&mut self, t: i64, row: &EngineRow, hashes: &[u64]) {
        let mut keep = |range: &Range<u32>| {
            let start = self.hashes.len() as u32;
            self.hashes.extend_from_slice(&hashes[range.start as usize..range.end as usize]);
            start..self.hashes.len() as u32
        };
        let row = match row {
            EngineRow::Store(blocks, tier, group) => EngineRow::Store(keep(blocks), *tier, *group),
            EngineRow::Evict(blocks, tier, group) => EngineRow::Evict(keep(blocks), *tier, *group),
            row => row.clone(),
        };
        self.lines.push((t, Line::Engine(row)));
    }

    fn numbers(&self, range: &Range<usize>) -> &[i64] {
        &self.numbers[range.clone()]
    }

    fn acts(&self, t: i64, request: &Request) -> Vec<Timed> {
        let events = Finished {
            schedule: request.schedule,
            prefill: request.prefill,
            emissions: self.numbers(&request.emissions),
            counts: self.numbers(&request.counts),
            output_tokens: request.output_tokens,
            untimed: request.untimed,
            preempts: self.numbers(&request.preempts),
            resumes: self.numbers(&request.resumes),
            end: request.end,
            status: request.ended.unwrap_or_default(),
            degraded: request.degraded,
        };
        acts_of(t, &events, request.ended)
    }

    /// Applies all of it, in order. `go_on` is asked now and then.
    pub fn play<P: FnMut(i64) -> bool>(mut self, writer: &mut Writer<'_, P>, mut go_on: impl FnMut() -> bool) -> bool {
        let lines = std::mem::take(&mut self.lines);
        let mut order: Vec<u32> = (0..lines.len() as u32).collect();
        order.sort_by_key(|&line| lines[line as usize].0);
        let mut order = order.into_iter().peekable();
        // The next act of each request under way: when, of which line, and where the rest of it is.
        let mut heads: BinaryHeap<Reverse<(i64, u32, u32)>> = BinaryHeap::new();
        let mut under_way: Vec<UnderWay> = Vec::new();
        let mut free: Vec<u32> = Vec::new();
        let mut taken = 0_u64;
        loop {
            taken += 1;
            if writer.is_stopped() || (taken.is_multiple_of(1 << 18) && !go_on()) {
                return false;
            }
            let next = order.peek().map(|&line| (lines[line as usize].0, line));
            let head = heads.peek().map(|Reverse((t, line, _))| (*t, *line));
            if head.is_some_and(|head| next.is_none_or(|next| head < next)) {
                let Some(mut head) = heads.peek_mut() else { return false };
                let Reverse((not_before, _, place)) = &mut *head;
                let request = &mut under_way[*place as usize];
                if let Some(act) = request.acts.next() {
                    request.take(act, writer);
                }
                if let Some(act) = request.acts.as_slice().first() {
                    *not_before = act.not_before;
                } else {
                    free.push(*place);
                    PeekMut::pop(head);
                }
                continue;
            }
            let Some((t, line)) = next else { return true };
            order.next();
            match &lines[line as usize].1 {
                Line::Request(request) => {
                    let Some(started) = UnderWay::start(t, request.bearing, None, writer, || self.acts(t, request))
                    else {
                        continue;
                    };
                    let Some(first) = started.acts.as_slice().first().map(|act| act.not_before) else { continue };
                    let place = free.pop().unwrap_or(under_way.len() as u32);
                    match under_way.get_mut(place as usize) {
                        Some(there) => *there = started,
                        None => under_way.push(started),
                    }
                    heads.push(Reverse((first, line, place)));
                }
                Line::Arrive(id, bearing) => writer.arrive(self.id(id), t, *bearing),
                Line::Event(id, event) => writer.event(self.id(id), t, *event),
                Line::End(id, status, degraded) => writer.end(self.id(id), t, *status, *degraded),
                Line::Engine(row) => writer.engine(t, row, &self.hashes),
            }
        }
    }

    fn id(&self, text: &Text) -> Id<'_> {
        Id { hash: text.hash, bytes: &self.texts[text.at.clone()] }
    }
}

impl UnderWay {
    /// A request that arrives; none where it is refused, and with it all that would have come.
    fn start<P: FnMut(i64) -> bool>(
        t: i64,
        bearing: Bearing,
        id: Option<Id<'_>>,
        writer: &mut Writer<'_, P>,
        acts: impl FnOnce() -> Vec<Timed>,
    ) -> Option<Self> {
        let handle = writer.arrive_whole(id, t, bearing)?;
        Some(Self { handle, bearing, arrival: t, newest: t, acts: acts().into_iter() })
    }

    fn take<P: FnMut(i64) -> bool>(&mut self, act: Timed, writer: &mut Writer<'_, P>) {
        writer.act(self.handle, self.bearing, (self.arrival, &mut self.newest), act);
    }
}

/// Applies a whole request at once, unless one of its id is in flight.
pub(super) fn apply_whole<P: FnMut(i64) -> bool>(
    writer: &mut Writer<'_, P>,
    id: Id<'_>,
    t: i64,
    bearing: Bearing,
    events: &Finished<'_>,
) {
    let acts = || acts_of(t, events, Some(events.status));
    if let Some(mut request) = UnderWay::start(t, bearing, Some(id), writer, acts) {
        while let Some(act) = request.acts.next() {
            if writer.is_stopped() {
                return;
            }
            request.take(act, writer);
        }
    }
}
