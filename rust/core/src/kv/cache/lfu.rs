//! Least frequently used: the block that was used least often since it was stored leaves; of several, the one that was
//! used least recently.
//!
//! Blocks of one count stand in one queue, to which each comes when it is used: so the queue is in the order of use, and
//! its front is the victim (Shah, Mitra and Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme",
//! 2010). A count is forgotten when its block leaves.

use super::Cache;
use super::queue::{Links, Queue};

/// See the [module](self).
pub(in crate::kv) struct Lfu {
    blocks: u32,
    len: u32,
    links: Links,
    /// How often each block was used since it was stored, the store included; 0 where it is not there.
    counts: Vec<u32>,
    /// The blocks of each count, from 1.
    queues: Vec<Queue>,
    /// The least count of all blocks.
    least: usize,
}

impl Lfu {
    #[inline]
    fn push(&mut self, block: u32, count: u32) {
        self.counts[block as usize] = count;
        let at = count as usize - 1;
        if at == self.queues.len() {
            self.queues.push(Queue::EMPTY);
        }
        self.queues[at].push(&mut self.links, block);
    }
}

impl Cache for Lfu {
    fn new(blocks: u32, distinct: u32) -> Self {
        Self {
            blocks,
            len: 0,
            links: Links::new(distinct),
            counts: vec![0; distinct as usize],
            queues: vec![Queue::EMPTY],
            least: 0,
        }
    }

    #[inline]
    fn hit(&mut self, block: u32) -> bool {
        let count = self.counts[block as usize];
        // More uses than can be counted are as many as can be.
        let more = count.saturating_add(1);
        if count > 0 && more > count {
            let at = count as usize - 1;
            self.queues[at].remove(&mut self.links, block);
            self.push(block, more);
            if at == self.least && self.queues[at].len() == 0 {
                self.least += 1;
            }
        }
        count > 0
    }

    #[inline]
    fn store(&mut self, block: u32) -> Option<u32> {
        let victim = if self.len < self.blocks { None } else { self.queues[self.least].pop(&mut self.links) };
        match victim {
            Some(victim) => self.counts[victim as usize] = 0,
            None => self.len += 1,
        }
        self.push(block, 1);
        self.least = 0;
        victim
    }
}
