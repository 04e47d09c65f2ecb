//! First in, first out: blocks leave in the order in which they were stored, whatever was used.

use std::collections::VecDeque;

use super::Cache;

/// See the [module](self).
pub(in crate::kv) struct Fifo {
    blocks: u32,
    queue: VecDeque<u32>,
    resident: Vec<bool>,
}

impl Cache for Fifo {
    fn new(blocks: u32, distinct: u32) -> Self {
        let queue = VecDeque::with_capacity(blocks.min(distinct) as usize + 1);
        Self { blocks, queue, resident: vec![false; distinct as usize] }
    }

    #[inline]
    fn hit(&mut self, block: u32) -> bool {
        self.resident[block as usize]
    }

    #[inline]
    fn store(&mut self, block: u32) -> Option<u32> {
        let victim = if self.queue.len() < self.blocks as usize { None } else { self.queue.pop_front() };
        if let Some(victim) = victim {
            self.resident[victim as usize] = false;
        }
        self.resident[block as usize] = true;
        self.queue.push_back(block);
        victim
    }
}
