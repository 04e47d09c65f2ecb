//! The transition: a request's state and an event give the next state and what is observed.

use super::{Metric, Status};

/// What can happen to a request between its arrival and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Put into a running batch for the first time.
    Schedule,
    /// Back in the running batch.
    Resume,
    /// The prompt's computation began.
    Prefill,
    /// So many tokens became visible.
    Tokens(u64),
    /// Lost its place in the running batch.
    Preempt,
}

impl Event {
    /// The place among events of the same time.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match self {
            Self::Schedule => 0,
            Self::Resume => 1,
            Self::Prefill => 2,
            Self::Tokens(_) => 3,
            Self::Preempt => 4,
        }
    }
}

/// What an accepted event shows. Durations are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Scheduled, after so long in the queue.
    Queue(i64),
    /// The prefill began; how long after the schedule, if that is known.
    Scheduling(Option<i64>),
    /// The first emission.
    First {
        /// Arrival to first token.
        ttft: i64,
        /// The prefill, if the schedule is known.
        prefill: Option<i64>,
    },
    /// A later emission, so long after the one before.
    Gap(i64),
    /// Preempted.
    Preempted,
    /// Resumed.
    Resumed,
}

/// Why an event was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It lies before the request's last event.
    Negative,
    /// It can come but once, or not in this state.
    Duplicate,
}

/// The state of a request in flight. Times are nanoseconds on one clock.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) arrive: i64,
    pub(super) last_event: i64,
    pub(super) schedule: Option<i64>,
    pub(super) prefill: Option<i64>,
    pub(super) first: Option<i64>,
    pub(super) last: Option<i64>,
    pub(super) tokens: u64,
    pub(super) preempted_at: Option<i64>,
    pub(super) stall_ns: i64,
    pub(super) preemptions: u64,
    /// False where only the two outer times of its tokens are known, or those of chunks that are not its tokens.
    token_times_known: bool,
    /// Emissions, where they are not its tokens.
    chunks: u64,
}

impl Request {
    /// A request that arrives.
    #[must_use]
    pub const fn arrive(t: i64) -> Self {
        Self {
            arrive: t,
            last_event: t,
            schedule: None,
            prefill: None,
            first: None,
            last: None,
            tokens: 0,
            preempted_at: None,
            stall_ns: 0,
            preemptions: 0,
            token_times_known: true,
            chunks: 0,
        }
    }

    /// When it arrived.
    #[must_use]
    pub const fn arrival(&self) -> i64 {
        self.arrive
    }

    /// The time of the last event that was accepted.
    #[must_use]
    pub const fn last_event(&self) -> i64 {
        self.last_event
    }

    /// The time of the first emission.
    #[must_use]
    pub const fn first_emission(&self) -> Option<i64> {
        self.first
    }

    /// The time of the last emission.
    #[must_use]
    pub const fn last_emission(&self) -> Option<i64> {
        self.last
    }

    /// Takes emissions of one token each after the first, the last of them at `t`, whose times are known to be in
    /// order.
    pub fn take_tokens(&mut self, t: i64, n: u64) {
        self.tokens += n;
        self.last = Some(t);
        self.last_event = t;
    }

    /// The output tokens so far.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How often it was preempted.
    #[must_use]
    pub const fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Takes an event.
    ///
    /// # Errors
    ///
    /// Why the event was refused; the request is as it was.
    #[inline]
    pub fn take(&mut self, t: i64, event: Event) -> Result<Observation, Refusal> {
        if t < self.last_event {
            return Err(Refusal::Negative);
        }
        let observation = match event {
            Event::Tokens(k) => {
                self.tokens += k;
                self.emit(t)
            }
            Event::Schedule if self.schedule.is_none() => {
                self.schedule = Some(t);
                Observation::Queue(t - self.arrive)
            }
            Event::Prefill if self.prefill.is_none() => {
                self.prefill = Some(t);
                Observation::Scheduling(self.schedule.map(|s| t - s))
            }
            Event::Preempt if self.preempted_at.is_none() => {
                self.preempted_at = Some(t);
                self.preemptions += 1;
                Observation::Preempted
            }
            Event::Resume if self.preempted_at.is_some() => {
                self.settle_stall(t);
                Observation::Resumed
            }
            _ => return Err(Refusal::Duplicate),
        };
        self.last_event = t;
        Ok(observation)
    }

    #[inline]
    fn emit(&mut self, t: i64) -> Observation {
        if let Some(last) = self.last.replace(t) {
            return Observation::Gap(t - last);
        }
        self.first = Some(t);
        let began = self.prefill.or(self.schedule);
        let prefill = self.schedule.and(began).map(|began| t - began);
        Observation::First { ttft: t - self.arrive, prefill }
    }

    /// Says that so many tokens came at times that are not known, but for the outer two.
    pub fn set_untimed_tokens(&mut self, tokens: u64) {
        self.tokens = tokens;
        self.token_times_known = false;
    }

    /// Says that so many tokens came in what was taken as emissions of one token each.
    pub fn set_tokens_in_chunks(&mut self, tokens: u64) {
        self.chunks = self.tokens;
        self.set_untimed_tokens(tokens);
    }

    /// Takes the time of the first of its untimed tokens.
    ///
    /// # Errors
    ///
    /// A time before the last event.
    pub fn take_first_token(&mut self, t: i64) -> Result<Observation, Refusal> {
        if t < self.last_event {
            return Err(Refusal::Negative);
        }
        self.last_event = t;
        let observation = self.emit(t);
        self.last = None;
        Ok(observation)
    }

    /// Takes the time of the last of its untimed tokens.
    ///
    /// # Errors
    ///
    /// A time before the last event.
    pub fn take_last_token(&mut self, t: i64) -> Result<(), Refusal> {
        if t < self.last_event {
            return Err(Refusal::Negative);
        }
        self.last_event = t;
        self.last = Some(t);
        Ok(())
    }

    fn settle_stall(&mut self, t: i64) {
        if let Some(since) = self.preempted_at.take() {
            self.stall_ns += t - since;
        }
    }

    /// Ends the request: what is known of it as a whole. An end before its last event is taken at that event's time.
    #[must_use]
    pub fn end(&self, t: i64, status: Status) -> Ending {
        let clamped = t < self.last_event;
        let stalled = self.preempted_at.map_or(0, |since| t.max(self.last_event) - since);
        let succeeded = status.succeeded();
        let (n, first, last) = (self.tokens, self.first, self.last);
        // The first of one token is all of them.
        let token_times_known = self.token_times_known || (n == 1 && first.is_some() && self.chunks == 0);
        let e2e = last.filter(|_| succeeded && n >= 1).map(|l| l - self.arrive);
        let tpot = first.zip(last).filter(|_| succeeded && n >= 2).map(|(f, l)| (l - f) / (n as i64 - 1));
        let missing = [
            (Metric::Ttft, first.is_none()),
            (Metric::Queue, self.schedule.is_none()),
            (Metric::Scheduling, self.schedule.is_none() || self.prefill.is_none()),
            (Metric::Prefill, first.is_none() || self.schedule.is_none()),
            (Metric::Tpot, succeeded && n >= 2 && tpot.is_none()),
            (Metric::E2e, succeeded && n >= 1 && e2e.is_none()),
            (Metric::Itl, n >= 2 && !token_times_known && self.chunks < 2),
        ];
        Ending {
            at: t.max(self.last_event),
            clamped,
            status,
            tokens: n,
            token_times_known,
            ttft: first.map(|f| f - self.arrive),
            tpot,
            e2e,
            stall: (self.preemptions > 0).then_some(self.stall_ns + stalled),
            missing: missing.into_iter().filter(|&(_, is)| is).fold(0, |set, (metric, _)| set | 1 << metric as u8),
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When.
    pub at: i64,
    /// Whether the end was given a time before the last event.
    pub clamped: bool,
    /// How.
    pub status: Status,
    /// Output tokens.
    pub tokens: u64,
    /// Whether each emission has a time.
    pub token_times_known: bool,
    /// Time to first token.
    pub ttft: Option<i64>,
    /// Time per output token, for successes.
    pub tpot: Option<i64>,
    /// Arrival to last token, for successes.
    pub e2e: Option<i64>,
    /// The time spent preempted, if it ever was.
    pub stall: Option<i64>,
    missing: u8,
}

impl Ending {
    /// What is observed at the end.
    pub fn observed(&self) -> impl Iterator<Item = (Metric, i64)> {
        let observed = [(Metric::Tpot, self.tpot), (Metric::E2e, self.e2e), (Metric::PreemptionStall, self.stall)];
        observed.into_iter().filter_map(|(metric, ns)| Some((metric, ns?)))
    }

    /// Whether the metric should have been observed but lacks a milestone.
    #[must_use]
    pub const fn lacks(&self, metric: Metric) -> bool {
        self.missing >> metric as u8 & 1 == 1
    }
}
