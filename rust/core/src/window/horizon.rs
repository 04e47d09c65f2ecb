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

    /// The newest time that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }
}
