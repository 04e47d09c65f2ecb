//! A finished request, whose events are known all at once, as what happens one after the other.
//!
//! What a meter cannot be told by events is told by name. Where only the first and the last token have times, the first
//! is one emission and all others are another, so that TTFT, TPOT, E2E and the tokens are what they should be, and ITL
//! holds the mean gap. Where not even these are known, tokens are counted and nothing is timed but TTFT, if it is known.

use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::tally::Finished;

/// What happens to a request after its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// An event.
    Event(Event),
    /// The first token comes, but the request has no emission.
    FirstToken,
    /// So many tokens are counted, none of which has a time.
    Tokens(u64),
    /// The end; without a time of its own, at the last of the times before.
    End { status: Status, degraded: bool, timed: bool },
}

/// An act, its time, and the time from which on it may happen: no earlier than the acts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub not_before: i64,
    pub t: i64,
    pub act: Act,
}

/// The acts of a request, in order: its five sequences merged by time and rank, the end last. Without a status it is
/// still in flight.
pub(super) fn acts_of(arrival: i64, events: &Finished<'_>, ended: Option<Status>) -> Vec<Timed> {
    let mut acts = Acts { newest: arrival, acts: Vec::with_capacity(events.emissions.len() + 4) };
    let mut shares = Shares::of(events);
    let points = points(arrival, events);
    let emissions = points.len().max(events.emissions.len());
    let emission = |at: usize| points.get(at).copied().or_else(|| events.emissions.get(at).map(|&t| (t, None)));
    let (mut schedule, mut prefill) = (events.schedule, events.prefill);
    let (mut resumes, mut preempts) = (events.resumes, events.preempts);
    let mut next = 0;
    loop {
        let others = [
            schedule.map(|t| (t, Event::Schedule)),
            resumes.first().map(|&t| (t, Event::Resume)),
            prefill.map(|t| (t, Event::Prefill)),
            preempts.first().map(|&t| (t, Event::Preempt)),
        ];
        let other = others.into_iter().flatten().min_by_key(|&(t, event)| (t, event.rank()));
        let until = other.map_or((i64::MAX, u8::MAX), |(t, event)| (t, event.rank()));
        // Emissions up to the next of the other events are taken together.
        while let Some((t, act)) = emission(next).filter(|&(t, _)| (t, Event::Tokens(1).rank()) < until) {
            let act = act.or_else(|| shares.take(next).map(|k| Act::Event(Event::Tokens(k))));
            act.into_iter().for_each(|act| acts.push(t, act));
            next += 1;
        }
        let Some((t, event)) = other else { break };
        match event {
            Event::Schedule => schedule = None,
            Event::Prefill => prefill = None,
            Event::Resume => resumes = &resumes[1..],
            Event::Preempt | Event::Tokens(_) => preempts = &preempts[1..],
        }
        acts.push(t, Act::Event(event));
    }
    debug_assert_eq!(next, emissions);
    if let Some(status) = ended {
        let end = events.end.filter(|_| status != Status::Lost);
        let act = Act::End { status, degraded: events.degraded, timed: end.is_some() };
        acts.push(end.unwrap_or(acts.newest), act);
    }
    acts.acts
}

struct Acts {
    newest: i64,
    acts: Vec<Timed>,
}

impl Acts {
    fn push(&mut self, t: i64, act: Act) {
        self.newest = self.newest.max(t);
        self.acts.push(Timed { not_before: self.newest, t, act });
    }
}

/// What is known of tokens that have no times of their own.
fn points(arrival: i64, events: &Finished<'_>) -> Vec<(i64, Option<Act>)> {
    let emission = |t, k| (t, Some(Act::Event(Event::Tokens(k))));
    let Some(tokens) = events.untimed.filter(|tokens| tokens.n > 0) else { return Vec::new() };
    match (tokens.first, tokens.last) {
        (Some(first), _) if tokens.n == 1 => vec![emission(first, 1)],
        (Some(first), Some(last)) => vec![emission(first, 1), emission(last, tokens.n - 1)],
        (Some(first), None) => vec![(first, Some(Act::FirstToken)), (first, Some(Act::Tokens(tokens.n)))],
        (None, last) => vec![(last.or(events.end).unwrap_or(arrival), Some(Act::Tokens(tokens.n)))],
    }
}

/// How many tokens each emission brings.
struct Shares<'a> {
    counts: &'a [i64],
    /// Tokens and emissions, where only these are known: each is taken to have brought an equal share.
    equal: Option<(u64, usize)>,
}

impl<'a> Shares<'a> {
    fn of(events: &Finished<'a>) -> Self {
        let emissions = events.emissions.len();
        let emitted =
            if events.counts.is_empty() { emissions as u64 } else { events.counts.iter().map(|&k| k as u64).sum() };
        let equal = events.output_tokens.filter(|&n| n != emitted).map(|n| (n, emissions));
        Self { counts: events.counts, equal }
    }

    /// The tokens of an emission, if it brings any.
    fn take(&mut self, at: usize) -> Option<u64> {
        let Some((tokens, emissions)) = self.equal else {
            return Some(self.counts.get(at).map_or(1, |&k| k as u64));
        };
        // Rounded up, so that the first emission has one.
        let before = |at: usize| (at as u128 * u128::from(tokens)).div_ceil(emissions as u128) as u64;
        Some(before(at + 1) - before(at)).filter(|&k| k > 0)
    }
}

#[cfg(test)]
mod tests {
    use tokenpulse_core::request::{Event, Status};
    use tokenpulse_core::tally::{Finished, UntimedTokens};

    use super::{Act, acts_of};

    const NOTHING: Finished<'_> = Finished {
        schedule: None,
        prefill: None,
        emissions: &[],
        counts: &[],
        output_tokens: None,
        untimed: None,
        preempts: &[],
        resumes: &[],
        end: None,
        status: Status::Stop,
        degraded: false,
    };

    fn told(events: &Finished<'_>) -> Vec<(i64, i64, Act)> {
        acts_of(10, events, Some(Status::Stop)).iter().map(|one| (one.not_before, one.t, one.act)).collect()
    }

    const END: Act = Act::End { status: Status::Stop, degraded: false, timed: true };

    #[test]
    fn sequences_are_merged_by_time_and_rank_and_keep_their_order() {
        let found = told(&Finished {
            schedule: Some(20),
            prefill: Some(20),
            emissions: &[20, 15, 40],
            counts: &[1, 2, 1],
            preempts: &[20],
            resumes: &[40],
            end: Some(30),
            ..NOTHING
        });
        let event = Act::Event;
        let expected = [
            (20, 20, event(Event::Schedule)),
            (20, 20, event(Event::Prefill)),
            (20, 20, event(Event::Tokens(1))),
            (20, 15, event(Event::Tokens(2))),
            (20, 20, event(Event::Preempt)),
            (40, 40, event(Event::Resume)),
            (40, 40, event(Event::Tokens(1))),
            (40, 30, END),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn tokens_without_times_are_counted_and_what_is_known_is_timed() {
        let untimed = |n, first, last| {
            told(&Finished { untimed: Some(UntimedTokens { n, first, last }), end: Some(90), ..NOTHING })
        };
        let tokens = |k| Act::Event(Event::Tokens(k));
        assert_eq!(untimed(5, Some(20), Some(60)), [(20, 20, tokens(1)), (60, 60, tokens(4)), (90, 90, END)]);
        assert_eq!(untimed(1, Some(20), Some(60)), [(20, 20, tokens(1)), (90, 90, END)]);
        let first_alone = [(20, 20, Act::FirstToken), (20, 20, Act::Tokens(5)), (90, 90, END)];
        assert_eq!(untimed(5, Some(20), None), first_alone);
        assert_eq!(untimed(0, Some(20), Some(60)), [(90, 90, END)]);
        assert_eq!(untimed(5, None, None), [(90, 90, Act::Tokens(5)), (90, 90, END)]);
    }

    #[test]
    fn chunks_of_unknown_sizes_bring_equal_shares() {
        let shares = |n, emissions: &[i64]| -> Vec<u64> {
            let found = told(&Finished { emissions, output_tokens: Some(n), ..NOTHING });
            found
                .into_iter()
                .filter_map(|(.., act)| if let Act::Event(Event::Tokens(k)) = act { Some(k) } else { None })
                .collect()
        };
        assert_eq!(shares(7, &[1, 2, 3]), [3, 2, 2]);
        assert_eq!(shares(2, &[1, 2, 3]), [1, 1]);
        assert_eq!(shares(3, &[1, 2, 3]), [1, 1, 1]);
        assert_eq!(shares(0, &[1, 2]), [0; 0]);
    }
}
