//! Which block leaves a full cache: one file a policy.
//!
//! A cache holds a fixed number of blocks. A block that is not there is stored, and if the cache was full one of those
//! that were there leaves: never the new one, and never more than one. The policy chooses as if the victim left before
//! the new block came.
//!
//! Blocks are numbered without gaps, so that whatever is known of them lies in arrays: a hit, a store and an eviction
//! take constant time each, on average over a run for S3-FIFO and LFU. Memory: at most 16 bytes for each block that
//! ever comes, whatever the size of the cache.

mod fifo;
mod lfu;
mod lru;
mod queue;
mod s3fifo;

pub(super) use fifo::Fifo;
pub(super) use lfu::Lfu;
pub(super) use lru::Lru;
pub(super) use s3fifo::S3Fifo;

names! {
    /// Which block leaves a full cache.
    Policy, 4,
    /// The one that was used least recently.
    Lru = "lru",
    /// The one that was stored first.
    Fifo = "fifo",
    /// Three queues: those that are not used again soon leave first.
    S3Fifo = "s3fifo",
    /// The one that was used least often since it was stored.
    Lfu = "lfu",
}

/// A cache of a fixed number of blocks, at least 1.
pub(super) trait Cache {
    /// A cache of so many blocks, for blocks numbered below `distinct`.
    fn new(blocks: u32, distinct: u32) -> Self;

    /// Whether the block is there; then it was used.
    fn hit(&mut self, block: u32) -> bool;

    /// Stores a block that is not there. Returns the one that leaves for it.
    fn store(&mut self, block: u32) -> Option<u32>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Victims in order; a hit is `None`.
    fn run<C: Cache>(blocks: u32, references: &[u32]) -> Vec<Option<u32>> {
        let mut cache = C::new(blocks, 10);
        references.iter().map(|&block| if cache.hit(block) { None } else { cache.store(block) }).collect()
    }

    #[test]
    fn each_policy_has_its_victim() {
        let references = [0, 1, 2, 0, 0, 1, 3, 4];
        let victims = |run: fn(u32, &[u32]) -> Vec<Option<u32>>| run(3, &references)[6..].to_vec();
        assert_eq!(victims(run::<Lru>), [Some(2), Some(0)]);
        assert_eq!(victims(run::<Fifo>), [Some(0), Some(1)]);
        assert_eq!(victims(run::<Lfu>), [Some(2), Some(3)]);
        // Of 3 blocks small has 1 and main 2: block 0, used twice, goes to main, and 1 leaves.
        assert_eq!(victims(run::<S3Fifo>), [Some(1), Some(2)]);
    }
}
