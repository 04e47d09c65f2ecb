//! Handles, and the first words of the slots that they name.
//!
//! A handle has a slot's place in its low half (with the shard's number in bits 24 to 30) and a generation in its high
//! half, so that a handle that is no longer good names no other request. A slot's first word is the very handle as
//! long as its request is *plain*: it has emitted, and nothing else came since. So one comparison tells the hot path
//! all that it needs to know.

use super::layout::SLOT;
use super::memory::Words;
use crate::bounds::REQUEST_TOKENS;
use crate::request::{Slot, flag};

const PLACE_BITS: u32 = 24;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const GENERATION_SHIFT: u32 = 32;
const LOW_HALF: u64 = u32::MAX as u64;
/// Set in a slot's first word while its request is not plain.
const NOT_PLAIN: u64 = 1 << 31;
/// The low half of a free slot's first word: no handle has it.
const FREE: u64 = NOT_PLAIN - 1;

const TOKEN_BITS: u32 = 40;
const TOKENS: u64 = (1 << TOKEN_BITS) - 1;
const CLASS_SHIFT: u32 = 48;
const _: () = assert!(TOKENS < REQUEST_TOKENS.max as u64);

/// The shard that a handle says it belongs to; -1 says one that no meter has.
pub(super) const fn shard_of(handle: i64) -> usize {
    (handle as u64 >> PLACE_BITS & 0xff) as usize
}

/// The place in its shard's table that a handle says.
#[inline(always)]
pub(super) const fn place_of(handle: i64) -> usize {
    (handle as u64 & PLACE) as usize
}

/// The class in a slot's third word.
#[inline(always)]
pub(super) const fn class_of(word: u64) -> usize {
    (word >> CLASS_SHIFT) as usize
}

/// The tokens in a slot's third word.
#[inline(always)]
pub(super) const fn tokens_of(word: u64) -> u64 {
    word & TOKENS
}

/// Whether a slot's first word says that it is the one that a handle names.
#[inline]
pub(super) const fn names(handle: i64, identity: u64) -> bool {
    identity & !NOT_PLAIN == handle as u64
}

/// Whether a slot's first word says that it is in use.
pub(super) const fn in_use(identity: u64) -> bool {
    identity & LOW_HALF & !NOT_PLAIN != FREE && identity >> GENERATION_SHIFT != 0
}

/// The first word of a slot that is freed.
pub(super) const fn freed(identity: u64) -> u64 {
    identity & !LOW_HALF | FREE
}

/// The handle of the next request in a slot. Generations begin at 1 and stay positive as halves of a signed word.
pub(super) const fn next_handle(identity: u64, shard: usize, place: usize) -> i64 {
    let generation = ((identity >> GENERATION_SHIFT) + 1) & 0x7fff_ffff;
    let generation = if generation == 0 { 1 } else { generation };
    (generation << GENERATION_SHIFT | (shard as u64) << PLACE_BITS | place as u64) as i64
}

/// Whether a request may have so many tokens more.
pub(super) const fn fits(tokens: u64, k: u64) -> bool {
    tokens + k <= TOKENS
}

/// Whether a request has so many tokens that each more must be looked at.
pub(super) const fn nearly_full(tokens: u64) -> bool {
    tokens > TOKENS / 2
}

/// Writes the hot words of a slot, but for the last.
pub(super) fn store_hot(words: Words<'_>, at: usize, handle: i64, class: usize, slot: &Slot) {
    let plain = slot.has(flag::EMITTED) && !slot.has(flag::APART);
    words.set(at, handle as u64 | if plain { 0 } else { NOT_PLAIN });
    words.set(at + 1, slot.last_event as u64);
    words.set(at + 2, (class as u64) << CLASS_SHIFT | u64::from(slot.flags) << TOKEN_BITS | slot.tokens & TOKENS);
}

/// A slot as it lies in the memory, and its class.
pub(super) fn load(words: Words<'_>, hot: usize, cold: usize) -> (Slot, usize) {
    let packed = words.get(hot + 2);
    let slot = Slot {
        flags: (packed >> TOKEN_BITS) as u8,
        last_event: words.get(hot + 1) as i64,
        tokens: packed & TOKENS,
        milestones: std::array::from_fn(|word| words.get(cold + word) as i64),
    };
    (slot, class_of(packed))
}

const _: () = assert!(SLOT == 4);
