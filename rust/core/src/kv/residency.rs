//! Which blocks are resident, in which tiers, and with how many copies.

use super::Tier;
use super::pool::{Block, Entry, GROUP_BITS, Pool};
use crate::bounds::KV_COPIES;

/// Bits of the number of copies in a tier.
const COPY_BITS: u32 = (KV_COPIES + 1).ilog2();

/// A resident block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    hash: u64,
    /// When it became resident, and when it was last used, which is never before.
    pub stored: i64,
    pub used: i64,
    /// From the lowest bits: the copies in each tier, the group.
    packed: u64,
}

const _: () = assert!(COPY_BITS * Tier::ALL.len() as u32 + GROUP_BITS <= 64);

impl Entry for Resident {
    #[inline(always)]
    fn key(&self) -> (u32, u64) {
        ((self.packed >> (COPY_BITS * Tier::ALL.len() as u32)) as u32, self.hash)
    }
}

impl Resident {
    const fn one(tier: Tier) -> u64 {
        1 << (COPY_BITS * tier as u32)
    }

    const fn all(tier: Tier) -> u64 {
        KV_COPIES << (COPY_BITS * tier as u32)
    }

    #[inline(always)]
    pub(super) fn copies(&self, tier: Tier) -> u64 {
        self.packed >> (COPY_BITS * tier as u32) & KV_COPIES
    }

    /// Whether any tier has it.
    #[inline(always)]
    pub(super) fn is_anywhere(&self) -> bool {
        self.packed & (Self::one(Tier::Remote) * (KV_COPIES + 1) - 1) != 0
    }

    /// Whether a tier further down has it.
    #[inline(always)]
    pub(super) fn is_below(&self, tier: Tier) -> bool {
        let upper = Self::one(tier) * (KV_COPIES + 1) - 1;
        self.packed & (Self::one(Tier::Remote) * (KV_COPIES + 1) - 1) & !upper != 0
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Residency {
    pool: Pool<Resident>,
    /// Blocks with a copy in each tier.
    tiers: [u64; Tier::ALL.len()],
}

impl Residency {
    pub(super) fn new(limit: u32, reserved: bool) -> Self {
        Self { pool: Pool::new(limit, reserved), tiers: [0; Tier::ALL.len()] }
    }

    pub(super) fn pool(&self) -> &Pool<Resident> {
        &self.pool
    }

    pub(super) fn tiers(&self) -> [u64; Tier::ALL.len()] {
        self.tiers
    }

    /// A block that no tier had is in this one now: its number; none where there is no room for it.
    #[inline]
    pub(super) fn insert(&mut self, block: Block, tier: Tier, t: i64) -> Option<u32> {
        let packed = u64::from(block.group) << (COPY_BITS * Tier::ALL.len() as u32) | Resident::one(tier);
        let number = self.pool.insert(Resident { hash: block.hash, stored: t, used: t, packed })?;
        self.tiers[tier as usize] += 1;
        Some(number)
    }

    /// A resident block has one copy more; false where it has as many as can be counted.
    #[inline]
    pub(super) fn add_copy(&mut self, number: u32, tier: Tier) -> bool {
        let resident = self.pool.entry_mut(number);
        let copies = resident.copies(tier);
        if copies == KV_COPIES {
            return false;
        }
        resident.packed += Resident::one(tier);
        self.tiers[tier as usize] += u64::from(copies == 0);
        true
    }

    /// A resident block was used.
    #[inline]
    pub(super) fn touch(&mut self, number: u32, t: i64) {
        let resident = self.pool.entry_mut(number);
        resident.used = resident.used.max(t);
    }

    /// A block that a tier has loses a copy there, or all of them.
    #[inline]
    pub(super) fn take_copy(&mut self, number: u32, tier: Tier, all: bool) -> Resident {
        let resident = self.pool.entry_mut(number);
        resident.packed -= if all { resident.packed & Resident::all(tier) } else { Resident::one(tier) };
        self.tiers[tier as usize] -= u64::from(resident.copies(tier) == 0);
        *resident
    }

    /// A block that no tier has any more is no longer resident.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        self.pool.remove(number);
    }

    pub(super) fn clear(&mut self) {
        self.pool.clear();
        self.tiers = [0; Tier::ALL.len()];
    }
}
