//! Successes by time to first token and time per output token: the count behind attainment at any pair of limits.

use crate::request::Ending;
use crate::sketch::Mapping;

/// Buckets an octave, as a power of two: those of a sketch of this scale.
pub const SCALE: u8 = 3;
/// Columns of a row: the buckets, and after them the requests without a TPOT.
const COLUMNS: usize = Mapping::slots(SCALE) + 1;
const NO_TPOT: usize = COLUMNS - 1;

/// A count for each pair of buckets. A row is made when its first request comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    rows: Vec<Option<Box<[u64; COLUMNS]>>>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { rows: vec![None; Mapping::slots(SCALE)] }
    }
}

impl Grid {
    /// Counts a request that ended, if it was a success with a token whose time to first token is known, and its time
    /// per output token too if it has several.
    pub(super) fn count(&mut self, ending: &Ending) {
        let Some(ttft) = ending.ttft.filter(|_| ending.status.succeeded()) else { return };
        let mapping = Mapping::of(SCALE);
        let column = match (ending.tokens, ending.tpot) {
            (1, _) => NO_TPOT,
            (2.., Some(tpot)) => mapping.slot(tpot),
            _ => return,
        };
        self.row(mapping.slot(ttft))[column] += 1;
    }

    fn row(&mut self, slot: usize) -> &mut [u64; COLUMNS] {
        self.rows[slot].get_or_insert_with(|| Box::new([0; COLUMNS]))
    }

    /// Adds another run's.
    pub(super) fn merge(&mut self, other: &Self) {
        for (slot, theirs) in other.rows.iter().enumerate() {
            if let Some(theirs) = theirs {
                self.row(slot).iter_mut().zip(theirs.iter()).for_each(|(mine, theirs)| *mine += theirs);
            }
        }
    }

    /// The counts that are not 0: bucket indices of TTFT and TPOT (none: a single token) and how many, in order, those
    /// without a TPOT first. An index one below the first bucket's is the zero bucket, one above the last's the
    /// overflow bucket.
    pub fn cells(&self) -> impl Iterator<Item = (i32, Option<i32>, u64)> {
        let index = |slot: usize| Mapping::first_index(SCALE) + slot as i32 - 1;
        let rows = self.rows.iter().enumerate().filter_map(|(slot, row)| Some((slot, row.as_deref()?)));
        rows.flat_map(move |(slot, row)| {
            let alone = std::iter::once((None, row[NO_TPOT]));
            let others = row[..NO_TPOT].iter().enumerate().map(move |(column, &n)| (Some(index(column)), n));
            alone.chain(others).filter(|&(_, n)| n > 0).map(move |(tpot, n)| (index(slot), tpot, n))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Event, Request, Status};

    const MS: i64 = 1_000_000;

    fn ended(ttft: i64, gaps: &[i64], status: Status) -> Ending {
        let mut request = Request::arrive(0);
        let mut t = ttft;
        request.take(t, Event::Tokens(1)).unwrap();
        for gap in gaps {
            t += gap;
            request.take(t, Event::Tokens(1)).unwrap();
        }
        request.end(t, status)
    }

    #[test]
    fn counts_pairs_of_buckets_in_order() {
        let mut grid = Grid::default();
        grid.count(&ended(1000 * MS, &[500 * MS], Status::Stop));
        grid.count(&ended(1000 * MS, &[500 * MS, 500 * MS], Status::Length));
        grid.count(&ended(1000 * MS, &[], Status::Stop));
        grid.count(&ended(1000 * MS, &[500 * MS], Status::Error));
        grid.count(&ended(0, &[5_000_000 * MS], Status::Stop));
        grid.count(&ended(1000 * MS + 1, &[0], Status::Stop));
        grid.count(&Request::arrive(0).end(0, Status::Stop));
        // Buckets are open below and closed above: one second ends bucket -1.
        let expected = [(-161, Some(96), 1), (-1, None, 1), (-1, Some(-9), 2), (0, Some(-161), 1)];
        assert!(grid.cells().eq(expected), "{:?}", grid.cells().collect::<Vec<_>>());
        let mut twice = grid.clone();
        twice.merge(&grid);
        assert!(twice.cells().eq(expected.map(|(ttft, tpot, n)| (ttft, tpot, 2 * n))));
    }

    #[test]
    fn a_success_of_several_tokens_without_their_times_is_left_out() {
        let mut request = Request::arrive(0);
        request.set_untimed_tokens(3);
        request.take_first_token(5).unwrap();
        let mut grid = Grid::default();
        grid.count(&request.end(9, Status::Stop));
        assert_eq!(grid.cells().count(), 0);
    }
}
