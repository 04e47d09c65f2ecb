//! Least recently used: a hit brings a block to the back of the queue, the front one leaves.

use super::Cache;
use super::queue::{Links, Queue};

/// See the [module](self).
pub(in crate::kv) struct Lru {
    blocks: u32,
    links: Links,
    queue: Queue,
    resident: Vec<bool>,
}

impl Cache for Lru {
    fn new(blocks: u32, distinct: u32) -> Self {
        let resident = vec![false; distinct as usize];
        Self { blocks, links: Links::new(distinct), queue: Queue::EMPTY, resident }
    }

    #[inline]
    fn hit(&mut self, block: u32) -> bool {
        let there = self.resident[block as usize];
        if there {
            self.queue.remove(&mut self.links, block);
            self.queue.push(&mut self.links, block);
        }
        there
    }

    #[inline]
    fn store(&mut self, block: u32) -> Option<u32> {
        let victim = if self.queue.len() < self.blocks { None } else { self.queue.pop(&mut self.links) };
        if let Some(victim) = victim {
            self.resident[victim as usize] = false;
        }
        self.resident[block as usize] = true;
        self.queue.push(&mut self.links, block);
        victim
    }
}
