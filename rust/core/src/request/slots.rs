//! A request's state in nine words, as a table of many keeps it.
//!
//! What is not needed any more gives up its place: once the prefill has begun only that counts, not the schedule; a
//! stall that is open is kept as the sum so far less its beginning; the last emission is the last event, unless
//! something else came after it.

use super::Request;

/// What the milestones of a slot hold.
pub mod flag {
    /// The slot holds a request.
    pub const ACTIVE: u8 = 1;
    /// It has emitted.
    pub const EMITTED: u8 = 2;
    /// Something else came after its last emission, whose time is kept apart.
    pub const APART: u8 = 4;
    /// It was scheduled.
    pub const SCHEDULED: u8 = 8;
    /// Its prefill has begun.
    pub const PREFILLING: u8 = 16;
    /// It is preempted.
    pub const PREEMPTED: u8 = 32;
    /// It was preempted at least once.
    pub const STALLED: u8 = 64;
}

/// A request in flight, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// See [`flag`].
    pub flags: u8,
    /// The time of the last event.
    pub last_event: i64,
    /// Output tokens so far.
    pub tokens: u64,
    /// Arrival, first emission, beginning of the prefill (else the schedule), stall, last emission.
    pub milestones: [i64; 5],
}

impl Slot {
    /// Whether something is so.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The time of the last emission.
    #[must_use]
    pub const fn last_emission(&self) -> Option<i64> {
        match (self.has(flag::EMITTED), self.has(flag::APART)) {
            (false, _) => None,
            (true, true) => Some(self.milestones[4]),
            (true, false) => Some(self.last_event),
        }
    }

    /// Packs a request whose tokens all have times.
    #[must_use]
    pub fn pack(request: &Request) -> Self {
        let set = |condition: bool, flag: u8| if condition { flag } else { 0 };
        let apart = request.last.is_some_and(|last| last != request.last_event);
        let flags = flag::ACTIVE
            | set(request.first.is_some(), flag::EMITTED)
            | set(apart, flag::APART)
            | set(request.schedule.is_some(), flag::SCHEDULED)
            | set(request.prefill.is_some(), flag::PREFILLING)
            | set(request.preempted_at.is_some(), flag::PREEMPTED)
            | set(request.preemptions > 0, flag::STALLED);
        let milestones = [
            request.arrive,
            request.first.unwrap_or(0),
            request.prefill.or(request.schedule).unwrap_or(0),
            request.stall_ns - request.preempted_at.unwrap_or(0),
            request.last.unwrap_or(0),
        ];
        Self { flags, last_event: request.last_event, tokens: request.tokens, milestones }
    }

    /// The request again. How often it was preempted is known as "at least once" only.
    #[must_use]
    pub fn unpack(&self) -> Request {
        let [arrive, first, began, stall_ns, _] = self.milestones;
        let mut request = Request::arrive(arrive);
        request.last_event = self.last_event;
        request.schedule = self.has(flag::SCHEDULED).then_some(began);
        request.prefill = self.has(flag::PREFILLING).then_some(began);
        request.first = self.has(flag::EMITTED).then_some(first);
        request.last = self.last_emission();
        request.tokens = self.tokens;
        // The beginning of an open stall is in the sum already.
        request.preempted_at = self.has(flag::PREEMPTED).then_some(0);
        request.stall_ns = stall_ns;
        request.preemptions = u64::from(self.has(flag::STALLED));
        request
    }
}
