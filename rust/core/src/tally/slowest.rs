//! The five slowest requests of a metric.

/// How many are kept.
const KEPT: usize = 5;

/// The largest observations of distinct requests, descending; of equal ones the first that came stands first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slowest {
    /// (nanoseconds, the request's place among arrivals, its id).
    entries: Vec<(i64, u64, String)>,
}

impl Slowest {
    /// Offers an observation.
    #[inline]
    pub fn offer(&mut self, ns: i64, order: u64, id: &str) {
        if self.entries.len() < KEPT || ns > self.entries[KEPT - 1].0 {
            self.insert(ns, order, id);
        }
    }

    #[cold]
    fn insert(&mut self, ns: i64, order: u64, id: &str) {
        if let Some(at) = self.entries.iter().position(|&(_, there, _)| there == order) {
            if self.entries[at].0 >= ns {
                return;
            }
            self.entries.remove(at);
        }
        let at = self.entries.partition_point(|&(there, ..)| there >= ns);
        self.entries.insert(at, (ns, order, id.to_owned()));
        self.entries.truncate(KEPT);
    }

    /// Adds another input's, whose requests are others.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.entries.sort_by_key(|&(ns, ..)| std::cmp::Reverse(ns));
        self.entries.truncate(KEPT);
    }

    /// (nanoseconds, request id), descending.
    pub fn entries(&self) -> impl Iterator<Item = (i64, &str)> {
        self.entries.iter().map(|(ns, _, id)| (*ns, id.as_str()))
    }
}
