//! One cache of a log: its tracker, what that comes to, and the numbers of its batches.

use tokenpulse_core::bounds;
use tokenpulse_core::kv::{Judged, Refused, Settings, Sink, Totals, Tracker};

use super::Loss;
use super::record::{Record, What};

/// See the [module](self).
pub struct Cache {
    /// Topic and rank of who publishes its batches; none: it is told of by event lines.
    publisher: Option<(String, Option<i64>)>,
    seq: Option<i64>,
    /// The next events that are taken are those of a cache that was empty.
    begins_anew: bool,
    tracker: Tracker,
    totals: Totals,
}

impl Cache {
    pub fn new(publisher: Option<(&str, Option<i64>)>, settings: Settings) -> tokenpulse_core::Result<Self> {
        Ok(Self {
            publisher: publisher.map(|(topic, rank)| (topic.to_owned(), rank)),
            seq: None,
            begins_anew: false,
            tracker: Tracker::new(settings)?,
            totals: Totals::new(bounds::DEFAULT_SCALE)?,
        })
    }

    #[inline]
    pub fn is_of(&self, publisher: Option<(&str, Option<i64>)>) -> bool {
        match (&self.publisher, publisher) {
            (None, None) => true,
            (Some((topic, rank)), Some(other)) => (topic.as_str(), *rank) == other,
            _ => false,
        }
    }

    /// A batch has a number; `tell` is given, with a reason, what that says. A publisher that begins anew is a server
    /// that did, and its cache is empty.
    pub fn number(&mut self, seq: i64, loss: &mut Loss, mut tell: impl FnMut(&'static str, String)) {
        match self.seq.replace(seq) {
            Some(last) if seq <= last => {
                loss.restarts += 1;
                let taken = if seq == 0 { "the cache is taken to be empty" } else { "its events are taken" };
                tell("restart", format!("expected a batch after number {last}, got {seq}; {taken}"));
                self.begins_anew |= seq == 0;
            }
            Some(last) if seq.abs_diff(last) > 1 => {
                let left_out = seq.abs_diff(last) - 1;
                loss.gaps += 1;
                loss.batches = loss.batches.saturating_add(left_out);
                tell("gap", format!("expected batch number {}, got {seq}", last + 1));
            }
            _ => {}
        }
    }

    /// Takes the events of a line; `rejected` is told of what was refused.
    #[inline]
    pub fn take(&mut self, record: &Record, mut rejected: impl FnMut(Refused)) {
        let (t, tracker, totals) = (record.t_ns, &mut self.tracker, &mut self.totals);
        let before = totals.refused;
        // A line is one reading of the clock, however many events it has: a time that is too far ahead refuses all of
        // them. One below 0 is no reading, and one without events is none.
        let admits = t >= 0 && (self.begins_anew || !record.events.is_empty()) && totals.admit(t);
        let mut sink = Judged { totals, admits };
        if self.begins_anew {
            tracker.clear(t, &mut sink);
            self.begins_anew = !admits;
        }
        for event in &record.events {
            match event {
                What::Store(range, tier, group) => {
                    tracker.store(t, &record.hashes[range.clone()], *tier, *group, &mut sink);
                }
                What::Evict(range, tier, group) => {
                    tracker.evict(t, &record.hashes[range.clone()], *tier, *group, &mut sink);
                }
                What::Lookup { queried, hit, preempted } => tracker.lookup(t, *queried, *hit, *preempted, &mut sink),
                What::Clear => tracker.clear(t, &mut sink),
            }
        }
        let totals = &self.totals;
        if totals.refused != before {
            for (reason, (after, before)) in Refused::ALL.into_iter().zip(totals.refused.into_iter().zip(before)) {
                if after > before {
                    rejected(reason);
                }
            }
        }
    }

    pub fn into_parts(self) -> (Tracker, Totals) {
        (self.tracker, self.totals)
    }
}
