//! Requests in flight, by id: sized by how many there are at once.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tokenpulse_core::tally::Flight;

use crate::part::Id;

/// An entry of the table: a hash and the place of its flight, from 1; 0: empty.
type Entry = (u64, u32);

/// What is known of a request in flight, its id included.
pub(crate) trait HasId {
    fn id(&self) -> &str;
}

impl HasId for Flight {
    fn id(&self) -> &str {
        Self::id(self)
    }
}

/// Requests in flight, by id. A look-up compares whole hashes before it looks at an id, which lies elsewhere.
#[derive(Debug)]
pub(crate) struct Flights<F = Flight> {
    /// Open addressing, one after the other; at most half full.
    table: Vec<Entry>,
    slots: Vec<Option<F>>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
}

impl<F> Default for Flights<F> {
    fn default() -> Self {
        Self { table: Vec::new(), slots: Vec::new(), free: Vec::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<F: HasId> Flights<F> {
    /// What ids are hashed by.
    pub(crate) fn hasher(&self) -> &DefaultHashBuilder {
        &self.hasher
    }

    /// An id with its hash.
    pub(crate) fn id<'a>(&self, id: &'a str) -> Id<'a> {
        Id { hash: self.hasher.hash_one(id.as_bytes()), bytes: id.as_bytes() }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The place in the table where an id is, or where it would come.
    #[inline]
    fn place(&self, hash: u64, id: &[u8]) -> usize {
        let mask = self.table.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let (there, number) = self.table[place];
            if number == 0 || (there == hash && self.has_id(number, id)) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    #[inline]
    fn has_id(&self, number: u32, id: &[u8]) -> bool {
        self.slots[number as usize - 1].as_ref().is_some_and(|flight| is_equal(flight.id().as_bytes(), id))
    }

    /// The request in flight with an id.
    #[inline]
    pub(crate) fn find(&mut self, hash: u64, id: &[u8]) -> Option<&mut F> {
        if self.table.is_empty() {
            return None;
        }
        let (_, number) = self.table[self.place(hash, id)];
        self.slots.get_mut((number as usize).wrapping_sub(1))?.as_mut()
    }

    /// Adds a request, in place of one with its id.
    pub(crate) fn insert(&mut self, hash: u64, flight: F) {
        if self.table.len() < 2 * (self.len() + 1) {
            self.grow();
        }
        let place = self.place(hash, flight.id().as_bytes());
        let (_, number) = self.table[place];
        if number > 0 {
            self.slots[number as usize - 1] = Some(flight);
            return;
        }
        let number = if let Some(number) = self.free.pop() {
            self.slots[number as usize - 1] = Some(flight);
            number
        } else {
            self.slots.push(Some(flight));
            self.slots.len() as u32
        };
        self.table[place] = (hash, number);
    }

    fn grow(&mut self) {
        let size = (2 * self.table.len()).max(64);
        let entries = std::mem::replace(&mut self.table, vec![(0, 0); size]);
        for entry in entries.into_iter().filter(|&(_, number)| number > 0) {
            let mut place = entry.0 as usize & (size - 1);
            while self.table[place].1 > 0 {
                place = (place + 1) & (size - 1);
            }
            self.table[place] = entry;
        }
    }

    /// Takes the request with an id out.
    pub(crate) fn remove(&mut self, hash: u64, id: &[u8]) -> Option<F> {
        if self.table.is_empty() {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut hole = self.place(hash, id);
        let (_, number) = self.table[hole];
        if number == 0 {
            return None;
        }
        // Whoever comes behind, and could not be found any more across the hole, moves into it.
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let (there, other) = self.table[place];
            if other == 0 {
                break;
            }
            let from_home = place.wrapping_sub(there as usize) & mask;
            if from_home >= place.wrapping_sub(hole) & mask {
                self.table[hole] = (there, other);
                hole = place;
            }
        }
        self.table[hole] = (0, 0);
        self.free.push(number);
        self.slots[number as usize - 1].take()
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &F> {
        self.slots.iter().flatten()
    }
}

impl Flights {
    /// All of them, in the order of arrival.
    pub(crate) fn sorted(&mut self) -> Vec<&mut Flight> {
        let mut flights: Vec<&mut Flight> = self.slots.iter_mut().flatten().collect();
        flights.sort_by_key(|flight| flight.order());
        flights
    }

    /// The same, when no more will come.
    pub(crate) fn into_sorted(self) -> Vec<Flight> {
        let mut flights: Vec<Flight> = self.slots.into_iter().flatten().collect();
        flights.sort_by_key(Flight::order);
        flights
    }
}

/// Whether two ids are the same. Most are short: then two words that may overlap are compared faster than by a call.
#[inline]
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    fn ends<const N: usize>(id: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        Some((id.first_chunk()?, id.last_chunk()?))
    }
    match one.len() {
        len if len != other.len() => false,
        4..8 => ends::<4>(one) == ends::<4>(other),
        8..=16 => ends::<8>(one) == ends::<8>(other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokenpulse_core::tally::{Arrival, Run, Settings};

    use super::Flights;

    #[test]
    fn flights_are_found_as_in_a_set_even_where_hashes_collide() {
        let mut run = Run::new(Settings::default()).unwrap();
        let mut state = 1_u64;
        // Few hashes: long runs, of equal ones too.
        for hashes in [3, 64, u64::MAX] {
            let mut flights: Flights = Flights::default();
            let mut there = HashSet::new();
            for _ in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = (state >> 33) % 200;
                let (hash, name) = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) % hashes, id.to_string());
                if state >> 63 == 0 {
                    let arrival = Arrival { id: &name, t: 1, prompt_tokens: 0, labels: &[] };
                    flights.insert(hash, run.arrive(&arrival));
                    there.insert(id);
                } else {
                    let removed = flights.remove(hash, name.as_bytes());
                    assert_eq!(removed.is_some(), there.remove(&id));
                    assert!(removed.is_none_or(|flight| flight.id() == name));
                }
                let found = flights.find(hash, name.as_bytes()).map(|flight| flight.id().to_owned());
                assert_eq!(found, there.contains(&id).then_some(name));
                assert_eq!(flights.len(), there.len());
            }
            assert!(flights.table.len() <= 512);
            let ids: HashSet<u64> = flights.into_sorted().iter().map(|flight| flight.id().parse().unwrap()).collect();
            assert_eq!(ids, there);
        }
    }
}
