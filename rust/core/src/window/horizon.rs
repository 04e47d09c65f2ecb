//! The newest time seen, and the guard against a corrupt one.

use crate::bounds::DAY_NS;

/// Refuses a time more than a day ahead of the newest, unless the time before it was so too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Horizon {
    newest: Option<i64>,
    suspect: bool,
}

impl Horizon {
    /// Whether an event of this time may be looked at further. The newest time begins with the first event, whatever
    /// becomes of it.
    #[inline]
    pub fn admits(&mut self, t: i64) -> bool {
        let newest = *self.newest.get_or_insert(t);
        let ahead = t.saturating_sub(newest) > DAY_NS;
        if ahead && self.suspect {
            self.newest = Some(t);
        }
        let admits = !ahead || self.suspect;
        self.suspect = !admits;
        admits
    }

    /// Whether this time, and any before it, is certain to be admitted.
    #[must_use]
    pub fn admits_plainly(&self, t: i64) -> bool {
        self.newest.is_some_and(|newest| t.saturating_sub(newest) <= DAY_NS)
    }

    /// An event of this time was accepted: it may be the newest now.
    #[inline]
    pub fn accept(&mut self, t: i64) {
        self.newest = self.newest.max(Some(t));
    }

    /// Events were accepted whose times were certain to be admitted; none of them is newer than this one.
    #[inline]
    pub fn accept_run(&mut self, newest: i64) {
        self.suspect = false;
        self.accept(newest);
    }

    /// The newest time that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }
}
