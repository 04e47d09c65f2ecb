//! Queues of numbered blocks, each of which stands in at most one of them: doubly linked lists in one array.

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// The neighbours of every block in the queue in which it stands.
#[derive(Clone, Debug)]
pub(super) struct Links(Vec<[u32; 2]>);

impl Links {
    pub(super) fn new(distinct: u32) -> Self {
        Self(vec![[NONE; 2]; distinct as usize])
    }

    #[inline(always)]
    fn front_of(&mut self, block: u32) -> &mut u32 {
        &mut self.0[block as usize][0]
    }

    #[inline(always)]
    fn back_of(&mut self, block: u32) -> &mut u32 {
        &mut self.0[block as usize][1]
    }
}

/// A queue: blocks join at the back and leave at the front, or from anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    front: u32,
    back: u32,
    len: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { front: NONE, back: NONE, len: 0 };

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// A block that stands in no queue joins.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, block: u32) {
        links.0[block as usize] = [self.back, NONE];
        match self.back {
            NONE => self.front = block,
            back => *links.back_of(back) = block,
        }
        self.back = block;
        self.len += 1;
    }

    /// A block that stands in this queue leaves it.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, block: u32) {
        let [toward_front, toward_back] = links.0[block as usize];
        match toward_front {
            NONE => self.front = toward_back,
            other => *links.back_of(other) = toward_back,
        }
        match toward_back {
            NONE => self.back = toward_front,
            other => *links.front_of(other) = toward_front,
        }
        self.len -= 1;
    }

    /// The block that has stood longest leaves.
    #[inline]
    pub(super) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let block = self.front;
        if block == NONE {
            return None;
        }
        self.remove(links, block);
        Some(block)
    }
}
