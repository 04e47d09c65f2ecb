//! The blocks that requests asked for, in the order in which they came.
//!
//! Blocks are numbered in the order of their first appearance, so that whoever goes through a trace looks nothing up.
//! Memory: 4 bytes a reference, 24 a request, 12 a block (and about 20 more while the trace is made).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::splitmix64;
use crate::bounds::{KV_BLOCKS, Range, TIME_NS};
use crate::error::{Error, Result};

/// Tokens that a block of a trace stands for.
pub const BLOCK_TOKENS: Range = Range { name: "block_tokens", min: 1, max: 1 << 30 };
/// Different blocks of a trace: a tracker has room for all of them, and one more.
pub const TRACE_BLOCKS: Range = Range { name: "distinct blocks of a trace", min: 0, max: KV_BLOCKS.max - 1 };
/// References of a trace.
pub const TRACE_REFERENCES: Range = Range { name: "block references of a trace", min: 0, max: u32::MAX as i64 };

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// When it came.
    pub t_ns: i64,
    /// The blocks of its prompt, in order, by number.
    pub blocks: &'a [u32],
    /// The length of its prompt, if it is known.
    pub input_tokens: Option<u64>,
}

impl Request<'_> {
    /// What each block of the prompt stands for, and what the last one does.
    ///
    /// The last one has what is left of the prompt, if its length is known and leaves as much as a block may have.
    #[must_use]
    pub fn tokens(&self, block_tokens: u64) -> (u64, u64) {
        let before = (self.blocks.len() as u64).saturating_sub(1).saturating_mul(block_tokens);
        let left = self.input_tokens.and_then(|tokens| tokens.checked_sub(before));
        (block_tokens, left.filter(|left| (1..=block_tokens).contains(left)).unwrap_or(block_tokens))
    }
}

#[derive(Clone, Copy, Debug)]
struct Row {
    t_ns: i64,
    /// Where its blocks end.
    end: usize,
    input_tokens: Option<u64>,
}

/// The blocks that requests asked for, in the order in which they came; made by a [`TraceBuilder`].
#[derive(Clone, Debug, Default)]
pub struct Trace {
    rows: Vec<Row>,
    blocks: Vec<u32>,
    hashes: Vec<u64>,
}

impl Trace {
    /// The requests, in order.
    #[must_use]
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let blocks = &self.blocks[start..row.end];
            start = row.end;
            Request { t_ns: row.t_ns, blocks, input_tokens: row.input_tokens }
        })
    }

    /// The blocks of all requests, one after another.
    #[must_use]
    pub fn references(&self) -> &[u32] {
        &self.blocks
    }

    /// How many different blocks there are: their numbers are the ones below.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.hashes.len() as u32
    }

    /// The hash of each block, by number.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The earliest time.
    #[must_use]
    pub fn first_ns(&self) -> Option<i64> {
        self.rows.iter().map(|row| row.t_ns).min()
    }

    /// The latest time.
    #[must_use]
    pub fn last_ns(&self) -> Option<i64> {
        self.rows.iter().map(|row| row.t_ns).max()
    }
}

/// Mixes 64 bits; nothing else is hashed with it.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = splitmix64(self.0 ^ hash);
    }
}

/// Makes a trace, request by request.
#[derive(Debug, Default)]
pub struct TraceBuilder {
    trace: Trace,
    numbers: HashMap<u64, u32, BuildHasherDefault<Mix>>,
}

impl TraceBuilder {
    /// Adds a request; times may go back.
    ///
    /// # Errors
    ///
    /// A time out of range, or a trace that would leave [`TRACE_BLOCKS`] or [`TRACE_REFERENCES`]. Then nothing of the
    /// request is added.
    pub fn push(&mut self, t_ns: i64, hashes: &[u64], input_tokens: Option<u64>) -> Result<()> {
        TIME_NS.check(t_ns)?;
        let trace = &mut self.trace;
        TRACE_REFERENCES.check((trace.blocks.len() + hashes.len()) as i64)?;
        let (distinct, references) = (trace.hashes.len(), trace.blocks.len());
        for &hash in hashes {
            let next = trace.hashes.len() as u32;
            let number = match self.numbers.entry(hash) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(place) => {
                    place.insert(next);
                    trace.hashes.push(hash);
                    next
                }
            };
            trace.blocks.push(number);
        }
        if let Err(error) = TRACE_BLOCKS.check(trace.hashes.len() as i64) {
            self.take_back(distinct, references);
            return Err(error);
        }
        trace.rows.push(Row { t_ns, end: trace.blocks.len(), input_tokens });
        Ok(())
    }

    #[cold]
    fn take_back(&mut self, distinct: usize, references: usize) {
        self.trace.blocks.truncate(references);
        for hash in self.trace.hashes.drain(distinct..) {
            self.numbers.remove(&hash);
        }
    }

    /// The trace.
    #[must_use]
    pub fn finish(self) -> Trace {
        self.trace
    }
}

/// The least and the greatest size of a cache that is asked for.
pub(super) fn check_blocks(blocks: u64) -> Result<u64> {
    if blocks == 0 { Err(Error::value("blocks", "at least 1", blocks)) } else { Ok(blocks) }
}
