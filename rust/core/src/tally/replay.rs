//! A finished request, all of whose events are known at once: the five sequences merged by time and rank.
//!
//! Emissions of one token each, which nearly all are, go through as a column.

use super::flight::{Arrival, Class, Flight};
use super::run::Run;
use crate::request::{Event, Metric, Observation, Status};
use crate::sketch::Gaps;

/// Emissions that are taken as one column at most.
const COLUMN: usize = 1024;

/// Tokens of which only the number and the outer times are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntimedTokens {
    /// How many.
    pub n: u64,
    /// When the first came.
    pub first: Option<i64>,
    /// When the last came.
    pub last: Option<i64>,
}

/// A finished request's events, each sequence in its own order.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// The first schedule.
    pub schedule: Option<i64>,
    /// The prefill's beginning.
    pub prefill: Option<i64>,
    /// The times of the emissions.
    pub emissions: &'a [i64],
    /// Tokens by emission; empty: one each.
    pub counts: &'a [i64],
    /// Output tokens, where they were counted apart from the emissions.
    pub output_tokens: Option<u64>,
    /// In place of emissions.
    pub untimed: Option<UntimedTokens>,
    /// The times of preemptions.
    pub preempts: &'a [i64],
    /// The times of resumptions.
    pub resumes: &'a [i64],
    /// The end; none: the last event.
    pub end: Option<i64>,
    /// How it ended.
    pub status: Status,
    /// Served by a fallback path.
    pub degraded: bool,
}

impl Finished<'_> {
    /// The tokens that the emissions say.
    fn emitted(&self) -> u64 {
        if self.counts.is_empty() { self.emissions.len() as u64 } else { self.counts.iter().map(|&k| k as u64).sum() }
    }
}

/// How many tokens the emissions of a request say, and how many it has.
#[derive(Clone, Copy)]
struct Tokens {
    emitted: u64,
    output: u64,
}

/// Tokens that came in emissions of unknown sizes: each is taken to have brought an equal share.
struct Chunks {
    tokens: u64,
    emissions: usize,
    /// Tokens counted so far.
    counted: u64,
}

impl Chunks {
    /// The tokens of emissions from one place to another, which are now counted.
    fn take(&mut self, from: usize, to: usize) -> u64 {
        let before = |at: usize| at as u128 * u128::from(self.tokens) / self.emissions as u128;
        let tokens = (before(to) - before(from)) as u64;
        self.counted += tokens;
        tokens
    }
}

impl Run {
    /// Takes a whole request at once, whose arrival was admitted and whose id is free.
    pub fn request(&mut self, arrival: &Arrival<'_>, events: &Finished<'_>, line: u64) {
        let (class, tokens) = self.class_of(arrival, events);
        let mut flight = self.depart(arrival, class);
        self.take_all(&mut flight, events, tokens, line);
        let last = flight.request.last_event();
        if events.status == Status::Lost {
            self.finish(&mut flight, last, last, Status::Lost, false);
        } else {
            // The end is a reading of the clock, given or not.
            let given = events.end.unwrap_or(last);
            let end = if self.admit(given, line) { given } else { last };
            self.finish(&mut flight, end, end, events.status, events.degraded);
        }
        self.reuse(flight);
    }

    /// The same for a request of which all is known but its end: status and end are not looked at.
    #[must_use]
    pub fn request_in_flight(&mut self, arrival: &Arrival<'_>, events: &Finished<'_>, line: u64) -> Flight {
        let (class, tokens) = self.class_of(arrival, events);
        let mut flight = self.depart(arrival, class);
        self.take_all(&mut flight, events, tokens, line);
        flight
    }

    /// The class of a request all of whose tokens are known, and how many these are.
    fn class_of(&mut self, arrival: &Arrival<'_>, events: &Finished<'_>) -> (Class, Tokens) {
        let emitted = events.emitted();
        let output = events.untimed.map_or(events.output_tokens.unwrap_or(emitted), |tokens| tokens.n);
        let class = match &mut self.strata {
            _ if !self.settings.is_inside(arrival.t) => Class::Outside,
            None => Class::None,
            Some(strata) => Class::Known(strata.class(arrival.prompt_tokens, output, |name| arrival.label(name))),
        };
        (class, Tokens { emitted, output })
    }

    /// Takes all that happens to a request between its arrival and its end.
    fn take_all(&mut self, flight: &mut Flight, events: &Finished<'_>, tokens: Tokens, line: u64) {
        let Tokens { emitted, output } = tokens;
        let rest = match events.untimed {
            Some(tokens) => {
                self.replay(flight, events, None, line);
                if let Some(rows) = &mut self.rows {
                    let (first, last) = (flight.request.first_emission(), flight.request.last_emission());
                    rows.set_untimed(flight.order, UntimedTokens { n: tokens.n, first, last });
                }
                tokens.n
            }
            None if output == emitted => {
                self.replay(flight, events, None, line);
                0
            }
            None => {
                let mut chunks = Chunks { tokens: output, emissions: events.emissions.len(), counted: 0 };
                self.replay(flight, &Finished { counts: &[], ..*events }, Some(&mut chunks), line);
                flight.request.set_tokens_in_chunks(output);
                output - chunks.counted
            }
        };
        if rest > 0 {
            let at =
                flight.request.last_emission().or(flight.request.first_emission()).unwrap_or(flight.request.arrival());
            self.each_block(&flight.class, at, |mut block| block.tokens(rest));
        }
    }

    /// Merges the five sequences of a finished request by time and rank.
    fn replay(&mut self, flight: &mut Flight, events: &Finished<'_>, mut chunks: Option<&mut Chunks>, line: u64) {
        let untimed = events.untimed.map(|tokens| {
            flight.request.set_untimed_tokens(tokens.n);
            [tokens.first, tokens.last]
        });
        let points: Vec<i64> = untimed.iter().flatten().filter_map(|&t| t).collect();
        let emissions = if untimed.is_some() { &points } else { events.emissions };
        let first_is_first = untimed.is_none_or(|[first, _]| first.is_some());
        let mut schedule = events.schedule;
        let mut prefill = events.prefill;
        let (mut resumes, mut preempts) = (events.resumes, events.preempts);
        let mut next = 0;
        let mut as_column = events.counts.is_empty();
        loop {
            // Emissions up to the next of the other events need no comparison.
            let others = [schedule, prefill, resumes.first().copied(), preempts.first().copied()];
            let until = others.into_iter().flatten().min().unwrap_or(i64::MAX);
            while untimed.is_none() && next < emissions.len() && emissions[next] < until {
                let before = flight.request.tokens();
                let taken = if as_column { self.take_column(flight, &emissions[next..], until) } else { 0 };
                next += taken;
                if taken == 0 {
                    // What is no column at once is none later: no more is looked at twice.
                    as_column &= flight.request.last_emission().is_none();
                    let (t, k) = (emissions[next], events.counts.get(next).map_or(1, |&k| k as u64));
                    next += 1;
                    if self.admit(t, line) {
                        self.take(flight, t, Event::Tokens(k), line);
                    }
                }
                self.share(flight, before, next, chunks.as_deref_mut());
            }
            let heads = [
                schedule.map(|t| (t, Event::Schedule)),
                resumes.first().map(|&t| (t, Event::Resume)),
                prefill.map(|t| (t, Event::Prefill)),
                emissions.get(next).map(|&t| (t, Event::Tokens(events.counts.get(next).map_or(1, |&k| k as u64)))),
                preempts.first().map(|&t| (t, Event::Preempt)),
            ];
            let Some((t, event)) = heads.into_iter().flatten().min_by_key(|&(t, event)| (t, event.rank())) else {
                break;
            };
            match event {
                Event::Schedule => schedule = None,
                Event::Resume => resumes = &resumes[1..],
                Event::Prefill => prefill = None,
                Event::Tokens(_) => next += 1,
                Event::Preempt => preempts = &preempts[1..],
            }
            if !self.admit(t, line) {
                continue;
            }
            if untimed.is_some() && matches!(event, Event::Tokens(_)) {
                self.point(flight, t, next == 1 && first_is_first, line);
            } else {
                let before = flight.request.tokens();
                self.take(flight, t, event, line);
                self.share(flight, before, next, chunks.as_deref_mut());
            }
        }
    }

    /// Where tokens came in chunks: counts those of the emissions up to place `to` that were just taken as one token
    /// each, which is how many tokens the request has beyond `before`.
    fn share(&mut self, flight: &Flight, before: u64, to: usize, chunks: Option<&mut Chunks>) {
        let Some(chunks) = chunks else { return };
        let taken = flight.request.tokens() - before;
        if let Some(at) = flight.request.last_emission().filter(|_| taken > 0) {
            let tokens = chunks.take(to - taken as usize, to);
            self.each_block(&flight.class, at, |mut block| block.recount(taken, tokens));
        }
    }

    /// Takes emissions of one token each, up to `until`, as a column, if their times are in order and not far ahead.
    /// Returns how many; 0 where they, or the first emission of all, are for the general way.
    fn take_column(&mut self, flight: &mut Flight, times: &[i64], until: i64) -> usize {
        let Some(before) = flight.request.last_emission() else { return 0 };
        // All of a column counts in one bin.
        let until = self.timeline.as_ref().map_or(until, |timeline| until.min(timeline.end_of_bin(times[0])));
        let times = &times[..times.len().min(COLUMN)];
        let times = match times.last() {
            Some(&last) if last < until => times,
            _ => &times[..times.iter().position(|&t| t >= until).unwrap_or(times.len())],
        };
        // Far ahead or not is asked once for all: it can only be so if the last is.
        let Some(&last) = times.last().filter(|&&last| self.horizon.admits_plainly(last)) else { return 0 };
        let mut gaps = std::mem::take(&mut self.gaps);
        let in_order = times[0] >= flight.request.last_event() && gaps.read(self.settings.scale, before, times);
        if in_order {
            self.horizon.accept_run(last);
            flight.request.take_tokens(last, times.len() as u64);
            self.last_emission = self.last_emission.max(Some(last));
            self.flow.emissions += times.len() as u64;
            if let Some(rows) = &mut self.rows {
                rows.take_emissions(flight.order, times);
            }
            self.observe_gaps(flight, before, times, &gaps);
        }
        self.gaps = gaps;
        if in_order { times.len() } else { 0 }
    }

    /// Observes the gaps of emissions of one token each, all of which count in one bin.
    fn observe_gaps(&mut self, flight: &mut Flight, before: i64, times: &[i64], gaps: &Gaps) {
        if flight.is_outside() {
            return;
        }
        let largest = gaps.largest_ns();
        flight.max_itl = flight.max_itl.max(Some(largest));
        self.slowest[Metric::Itl as usize].offer(largest, flight.order, &flight.id);
        for (index, fluidity) in &mut flight.deadlines {
            fluidity.emissions(&self.settings.slos[*index], gaps, before, times);
        }
        self.each_block(&flight.class, times[0], |mut block| block.gaps(gaps));
    }

    /// Takes one of the two known times of untimed tokens.
    fn point(&mut self, flight: &mut Flight, t: i64, is_first: bool, line: u64) {
        let taken = if is_first {
            flight.request.take_first_token(t).map(Some)
        } else {
            flight.request.take_last_token(t).map(|()| None)
        };
        match taken {
            Err(refusal) => self.count(line, refusal.into()),
            Ok(observation) => {
                self.horizon.accept(t);
                self.last_emission = self.last_emission.max(Some(t));
                if let Some(Observation::First { ttft, prefill }) = observation {
                    self.flow.first_emission(flight.request.arrival(), ttft);
                    if flight.request.tokens() == 1 {
                        for (index, fluidity) in &mut flight.deadlines {
                            fluidity.emission(&self.settings.slos[*index], true, ttft, 1);
                        }
                    }
                    self.latency(flight, t, Metric::Ttft, Some(ttft));
                    self.latency(flight, t, Metric::Prefill, prefill);
                }
            }
        }
    }
}
