//! The moments at which a meter is read while a log goes through it.

use tokenpulse_core::window::Horizon;

/// In silence, moments are told of for so long.
const SILENCE_NS: i64 = 3_600_000_000_000;

/// The times of the lines so far, and the next moment. A time that is refused as one too far ahead is none.
#[derive(Debug)]
pub(super) struct Clock {
    every_ns: i64,
    horizon: Horizon,
    first: i64,
    /// From here on a line brings moments; it may lie beyond all times.
    due: u64,
    told: Option<i64>,
}

impl Clock {
    pub fn new(every_ns: i64) -> Self {
        Self { every_ns, horizon: Horizon::default(), first: i64::MAX, due: 0, told: None }
    }

    /// Reads a time.
    #[inline]
    pub fn read(&mut self, t: i64) -> Read {
        let before = self.horizon.newest();
        if !self.horizon.admits(t) {
            return Read::Refused;
        }
        self.horizon.accept(t);
        self.first = self.first.min(t);
        if (t as u64) < self.due { Read::Plain } else { self.moments(before, t).map_or(Read::Plain, Read::Moments) }
    }

    #[cold]
    fn moments(&mut self, before: Option<i64>, t: i64) -> Option<Moments> {
        let (next, every) = (self.due as i64, self.every_ns as u64);
        self.due = (t as u64 / every + 1) * every;
        let until = t.min(before?.saturating_add(SILENCE_NS));
        (next <= until).then_some(Moments { next: Some(next), until, every_ns: self.every_ns })
    }

    /// The caller was told of a moment.
    pub fn tell(&mut self, t: i64) {
        self.told = Some(t);
    }

    /// The earliest and the newest time.
    pub fn times(&self) -> Option<(i64, i64)> {
        self.horizon.newest().map(|newest| (self.first, newest))
    }

    /// The newest time, if the caller was told of no such moment.
    pub fn rest(&self) -> Option<i64> {
        self.times().map(|(_, newest)| newest).filter(|&newest| self.told.is_none_or(|told| newest > told))
    }
}

/// What a time means.
#[derive(Debug)]
pub(super) enum Read {
    /// It lies too far ahead.
    Refused,
    /// No moment comes before it.
    Plain,
    /// It is the first at or past the next moment: these come before it.
    Moments(Moments),
}

/// Moments, one after the other.
#[derive(Debug)]
pub(super) struct Moments {
    next: Option<i64>,
    until: i64,
    every_ns: i64,
}

impl Iterator for Moments {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let moment = self.next.filter(|&moment| moment <= self.until)?;
        self.next = moment.checked_add(self.every_ns);
        Some(moment)
    }
}
