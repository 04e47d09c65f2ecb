//! The newest time seen, and the guard against a corrupt one.

use crate::bounds::DAY_NS;

/// Refuses a time more than a day ahead of the newest, unless the time before it was so too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Horizon {
    newest: Option<i64>,
    suspect: bool,
}

impl Horizon {
    /// Whether the time may be taken; if so, it may be the newest now.
    #[inline]
    pub fn admit(&mut self, t: i64) -> bool {
        match self.newest {
            Some(newest) if t <= newest => self.suspect = false,
            Some(newest) if t.saturating_sub(newest) > DAY_NS && !self.suspect => {
                self.suspect = true;
                return false;
            }
            _ => {
                self.newest = Some(t);
                self.suspect = false;
            }
        }
        true
    }

    /// Whether this time, and any before it, is certain to be admitted.
    #[must_use]
    pub fn admits_plainly(&self, t: i64) -> bool {
        self.newest.is_some_and(|newest| t.saturating_sub(newest) <= DAY_NS)
    }

    /// The newest time that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }
}
