//! The five slowest requests of a metric.

/// How many are kept.
const KEPT: usize = 5;

/// The largest observations of distinct requests, descending; of equal ones the first that came stands first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slowest {
    entries: Vec<(i64, String)>,
}

impl Slowest {
    /// Offers an observation.
    #[inline]
    pub fn offer(&mut self, ns: i64, id: &str) {
        if self.entries.len() < KEPT || ns > self.entries[KEPT - 1].0 {
            self.insert(ns, id);
        }
    }

    #[cold]
    fn insert(&mut self, ns: i64, id: &str) {
        if let Some(at) = self.entries.iter().position(|(_, there)| there == id) {
            if self.entries[at].0 >= ns {
                return;
            }
            self.entries.remove(at);
        }
        let at = self.entries.partition_point(|&(there, _)| there >= ns);
        self.entries.insert(at, (ns, id.to_owned()));
        self.entries.truncate(KEPT);
    }

    /// Adds another input's, whose requests are others.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.entries.sort_by_key(|&(ns, _)| std::cmp::Reverse(ns));
        self.entries.truncate(KEPT);
    }

    /// (nanoseconds, request id), descending.
    #[must_use]
    pub fn entries(&self) -> &[(i64, String)] {
        &self.entries
    }
}
