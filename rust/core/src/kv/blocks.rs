//! The blocks that are known, resident or remembered as evicted, in one index.
//!
//! A block that is evicted keeps its place in the index, and so does one that is refilled: only its number becomes that
//! of an entry of the other kind. A block that was evicted and came back to a lower tier has two.

use super::Tier;
use super::ghost::Ghost;
use super::index::{Index, Place};
use super::pool::{Block, Entry};
use super::residency::Residency;
use crate::prefetch::prefetch;

/// Marks the numbers of blocks that are remembered as evicted.
const EVICTED: u32 = 1 << 31;

/// So many blocks fit into the caches of a processor.
const NEAR: u32 = 1 << 14;

/// A resident block that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    place: Place,
    pub number: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Blocks {
    index: Index,
    pub residency: Residency,
    ghost: Ghost,
}

impl Blocks {
    /// Room for so many resident and so many remembered blocks, at once or as they come.
    ///
    /// What is at once: the pools, and an index for all that are remembered and an eighth of those that may be resident.
    /// An index is touched all over, however few blocks there are; most engines have far fewer than they might.
    pub(super) fn new(max_blocks: u32, remember: u32, reserved: bool) -> Self {
        let room = if reserved { remember as usize + max_blocks as usize / 8 } else { 64 };
        let (residency, ghost) = (Residency::new(max_blocks, reserved), Ghost::new(remember, reserved));
        Self { index: Index::new(room), residency, ghost }
    }

    /// Blocks that are resident.
    pub(super) fn resident(&self) -> u32 {
        self.residency.pool().len()
    }

    /// Blocks that are remembered as evicted.
    pub(super) fn remembered(&self) -> u32 {
        self.ghost.pool().len()
    }

    /// A resident block.
    #[inline(always)]
    pub(super) fn find(&self, block: Block) -> Option<Found> {
        let pool = self.residency.pool();
        let is = |number| number & EVICTED == 0 && pool.entry(number).is(block);
        self.index.find(block.mixed, is).map(|(place, number)| Found { place, number })
    }

    /// The place of a remembered block, and its number.
    #[inline(always)]
    fn find_evicted(&self, block: Block) -> Option<(Place, u32)> {
        let pool = self.ghost.pool();
        let is = |number| number & EVICTED != 0 && pool.entry(number & !EVICTED).is(block);
        self.index.find(block.mixed, is).map(|(place, number)| (place, number & !EVICTED))
    }

    /// A block that is not resident, and for which there is room, is so now. If it was `computed`, it is no longer
    /// remembered as evicted: when it was, if it was.
    #[inline]
    pub(super) fn insert(&mut self, block: Block, tier: Tier, t: i64, computed: bool) -> Option<i64> {
        let evicted = if computed { self.find_evicted(block) } else { None };
        if evicted.is_none() && self.resident() as usize + self.remembered() as usize == self.index.room() {
            self.grow();
        }
        let number = self.residency.insert(block, tier, t)?;
        if let Some((place, was)) = evicted {
            self.index.replace(place, number);
            Some(self.ghost.remove(was).t)
        } else {
            self.index.insert(block.mixed, number);
            None
        }
    }

    /// A resident block that no tier has any more is remembered as evicted at a time. Returns the block, maybe this one,
    /// that had to be forgotten for want of room.
    #[inline]
    pub(super) fn evict(&mut self, block: Block, found: Found, t: i64) -> Option<Block> {
        self.residency.remove(found.number);
        if let Some((place, number)) = self.find_evicted(block) {
            self.index.remove(block.mixed, place);
            self.ghost.remove(number);
        }
        let forgotten = if self.ghost.pool().room() == 0 { self.forget_front() } else { None };
        if let Some(number) = self.ghost.push(block, t) {
            self.index.replace(found.place, number | EVICTED);
            forgotten
        } else {
            self.index.remove(block.mixed, found.place);
            Some(block)
        }
    }

    /// Forgets the first of the queue.
    fn forget_front(&mut self) -> Option<Block> {
        let (number, evicted) = self.ghost.front()?;
        let block = evicted.block();
        if let Some((place, _)) = self.index.find(block.mixed, |found| found == number | EVICTED) {
            self.index.remove(block.mixed, place);
        }
        self.ghost.remove(number);
        if let Some((_, next)) = self.ghost.front() {
            // Before it is the next one's turn, as a rule in another call.
            self.index.prefetch(next.block().mixed);
        }
        Some(block)
    }

    /// Forgets the first of the queue if it lies more than `ttl_ns` before `newest`.
    #[inline]
    pub(super) fn forget_overdue(&mut self, newest: i64, ttl_ns: i64) -> Option<Block> {
        let (_, oldest) = self.ghost.front()?;
        if newest.saturating_sub(oldest.t) > ttl_ns { self.forget_front() } else { None }
    }

    /// No block is resident any more.
    pub(super) fn clear(&mut self) {
        for (number, resident) in self.residency.pool().iter() {
            let mixed = resident.block().mixed;
            if let Some((place, _)) = self.index.find(mixed, |found| found == number) {
                self.index.remove(mixed, place);
            }
        }
        self.residency.clear();
    }

    #[cold]
    fn grow(&mut self) {
        self.index = Index::new(2 * self.index.room());
        for (number, resident) in self.residency.pool().iter() {
            self.index.insert(resident.block().mixed, number);
        }
        for (number, evicted) in self.ghost.pool().iter() {
            self.index.insert(evicted.block().mixed, number | EVICTED);
        }
    }

    /// Has brought near what the next events are likely to need: memory then serves many of them at once, where one
    /// event after another would wait for it.
    #[inline]
    pub(super) fn prefetch(&self, blocks: &[Block], evicts: bool) {
        if self.resident() + self.remembered() < NEAR {
            return;
        }
        blocks.iter().for_each(|block| self.index.prefetch(block.mixed));
        if evicts {
            self.ghost.leaving(blocks.len()).for_each(|evicted| self.index.prefetch(evicted.block().mixed));
        }
        let (resident, evicted) = (self.residency.pool(), self.ghost.pool());
        let likely = || blocks.iter().filter_map(|block| self.index.likely(block.mixed));
        for number in likely() {
            if number & EVICTED == 0 {
                resident.get(number).into_iter().for_each(prefetch);
            } else {
                evicted.get(number & !EVICTED).into_iter().for_each(prefetch);
            }
        }
        if !evicts {
            // Those that are stored again leave the queue, where the one before and the one after are told of it.
            let leaving = likely().filter(|number| number & EVICTED != 0);
            for entry in leaving.filter_map(|number| evicted.get(number & !EVICTED)) {
                [entry.before(), entry.after()].iter().filter_map(|&beside| evicted.get(beside)).for_each(prefetch);
            }
        }
    }
}
