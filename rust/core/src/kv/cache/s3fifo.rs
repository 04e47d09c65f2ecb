//! S3-FIFO: most blocks are not used again soon, and leave by a short queue before they cost others their place.
//!
//! Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023, Algorithm 1. Of
//! `C` blocks a queue `small` may have `s = max(1, C / 10)` and a queue `main` the `m = C - s` others; a queue `ghost`
//! remembers up to `m` blocks that left. A block has a count of uses up to 3, 0 when it is stored; a hit adds 1 and
//! moves nothing. To store a block in a full cache, one leaves:
//!
//! - If `small` has at least `s` blocks, its front ones are looked at in turn. One with a count above 1 goes to the back
//!   of `main` with a count of 0; if `main` then has more than `m`, one leaves `main`, and that is all. The first with
//!   a count of at most 1 leaves, and is remembered in `ghost`, whose front is dropped where it has more than `m`.
//! - Else, or if `small` runs empty, one leaves `main`: front blocks with a count above 0 lose 1 and go to its back; the
//!   first with a count of 0 leaves. It is not remembered.
//!
//! Then the new block goes to the back of `main` if `ghost` has it, which drops it, and else to that of `small`. The
//! paper's algorithm may let a second block leave where `main` overflows; here exactly one does.

use super::Cache;
use super::queue::{Links, Queue};

/// The most that is counted of a block's uses.
const MOST: u8 = 3;

/// Where a block stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
    Ghost,
}

/// See the [module](self).
pub(in crate::kv) struct S3Fifo {
    blocks: u32,
    /// `s` and `m`.
    small_room: u32,
    main_room: u32,
    links: Links,
    small: Queue,
    main: Queue,
    ghost: Queue,
    state: Vec<(Place, u8)>,
}

impl S3Fifo {
    fn push_main(&mut self, block: u32) {
        self.state[block as usize] = (Place::Main, 0);
        self.main.push(&mut self.links, block);
    }

    fn evict(&mut self) -> Option<u32> {
        if self.small.len() >= self.small_room
            && let Some(victim) = self.evict_small()
        {
            return Some(victim);
        }
        self.evict_main()
    }

    /// The victim, unless all that `small` had went to `main`, and found room there.
    fn evict_small(&mut self) -> Option<u32> {
        while let Some(block) = self.small.pop(&mut self.links) {
            if self.state[block as usize].1 <= 1 {
                self.remember(block);
                return Some(block);
            }
            self.push_main(block);
            if self.main.len() > self.main_room {
                return self.evict_main();
            }
        }
        None
    }

    fn evict_main(&mut self) -> Option<u32> {
        while let Some(block) = self.main.pop(&mut self.links) {
            let (place, count) = &mut self.state[block as usize];
            if *count == 0 {
                *place = Place::Nowhere;
                return Some(block);
            }
            *count -= 1;
            self.main.push(&mut self.links, block);
        }
        None
    }

    fn remember(&mut self, block: u32) {
        self.state[block as usize].0 = Place::Ghost;
        self.ghost.push(&mut self.links, block);
        if self.ghost.len() > self.main_room
            && let Some(dropped) = self.ghost.pop(&mut self.links)
        {
            self.state[dropped as usize].0 = Place::Nowhere;
        }
    }
}

impl Cache for S3Fifo {
    fn new(blocks: u32, distinct: u32) -> Self {
        let small_room = (blocks / 10).max(1);
        Self {
            blocks,
            small_room,
            main_room: blocks - small_room,
            links: Links::new(distinct),
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            ghost: Queue::EMPTY,
            state: vec![(Place::Nowhere, 0); distinct as usize],
        }
    }

    #[inline]
    fn hit(&mut self, block: u32) -> bool {
        let (place, count) = &mut self.state[block as usize];
        let there = matches!(place, Place::Small | Place::Main);
        if there {
            *count = (*count + 1).min(MOST);
        }
        there
    }

    #[inline]
    fn store(&mut self, block: u32) -> Option<u32> {
        let full = self.small.len() + self.main.len() >= self.blocks;
        let victim = if full { self.evict() } else { None };
        if self.state[block as usize].0 == Place::Ghost {
            self.ghost.remove(&mut self.links, block);
            self.push_main(block);
        } else {
            self.state[block as usize] = (Place::Small, 0);
            self.small.push(&mut self.links, block);
        }
        victim
    }
}
