//! The exact rows of a run, for whoever needs values and not buckets: one a request, with its accepted events alone.
//!
//! Memory follows the number of emissions, so that has a limit.

use std::collections::HashMap;

use super::flight::Arrival;
use super::replay::UntimedTokens;
use crate::request::{Event, Status};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowEnd {
    /// How.
    pub status: Status,
    /// When; a lost request at its last event.
    pub at: i64,
    /// Served by a fallback path.
    pub degraded: bool,
}

/// One request. Its emissions are among those of [`Rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The request's id.
    pub id: String,
    /// When it arrived.
    pub arrive: i64,
    /// The prompt's length.
    pub prompt_tokens: u64,
    /// The first schedule.
    pub schedule: Option<i64>,
    /// The prefill's beginning.
    pub prefill: Option<i64>,
    /// The times of its emissions.
    pub times: Vec<i64>,
    /// Tokens by emission; empty: one each.
    pub counts: Vec<u32>,
    /// In place of emissions.
    pub untimed: Option<UntimedTokens>,
    /// The times of preemptions.
    pub preempts: Vec<i64>,
    /// The times of resumptions.
    pub resumes: Vec<i64>,
    /// None: in flight.
    pub end: Option<RowEnd>,
}

/// A label of all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLabel {
    /// Its name.
    pub name: String,
    /// The place of each row's value; -1: it has none. Rows past the end have none either.
    pub codes: Vec<i32>,
    /// The values, in the order of the first rows that have them.
    pub values: Vec<String>,
    places: HashMap<String, i32>,
}

impl RowLabel {
    fn code(&mut self, value: &str) -> i32 {
        if let Some(&code) = self.places.get(value) {
            return code;
        }
        let code = self.values.len() as i32;
        self.values.push(value.to_owned());
        self.places.insert(value.to_owned(), code);
        code
    }
}

/// The rows of a run, in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    all: Vec<Row>,
    labels: Vec<RowLabel>,
    emissions: u64,
    most: u64,
}

impl Rows {
    /// No row yet. Of more than so many emissions none is kept.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { all: Vec::new(), labels: Vec::new(), emissions: 0, most }
    }

    /// Whether there were more emissions than are kept.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.emissions > self.most
    }

    /// The emissions of all rows.
    #[must_use]
    pub fn emissions(&self) -> u64 {
        self.emissions
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.all
    }

    /// The labels, in the order of the first rows that bear them.
    #[must_use]
    pub fn labels(&self) -> &[RowLabel] {
        &self.labels
    }

    pub(super) fn arrive(&mut self, arrival: &Arrival<'_>) {
        let at = self.all.len();
        for (index, (name, _)) in arrival.labels.iter().enumerate() {
            // Of a label given twice the last counts.
            if arrival.labels[index + 1..].iter().any(|(later, _)| later == name) {
                continue;
            }
            let value = arrival.label(name).unwrap_or_default();
            let code = self.label(name).code(value);
            self.set(name, at, code);
        }
        self.all.push(Row {
            id: arrival.id.to_owned(),
            arrive: arrival.t,
            prompt_tokens: arrival.prompt_tokens,
            schedule: None,
            prefill: None,
            times: Vec::new(),
            counts: Vec::new(),
            untimed: None,
            preempts: Vec::new(),
            resumes: Vec::new(),
            end: None,
        });
    }

    fn label(&mut self, name: &str) -> &mut RowLabel {
        let at = self.labels.iter().position(|label| label.name == name).unwrap_or_else(|| {
            self.labels.push(RowLabel { name: name.to_owned(), ..RowLabel::default() });
            self.labels.len() - 1
        });
        &mut self.labels[at]
    }

    fn set(&mut self, name: &str, row: usize, code: i32) {
        let label = self.label(name);
        label.codes.resize(row, -1);
        label.codes.push(code);
    }

    /// An event of the row was accepted.
    pub(super) fn take(&mut self, row: u64, t: i64, event: Event) {
        let row = &mut self.all[row as usize];
        match event {
            Event::Schedule => row.schedule = Some(t),
            Event::Prefill => row.prefill = Some(t),
            Event::Preempt => row.preempts.push(t),
            Event::Resume => row.resumes.push(t),
            Event::Tokens(k) => {
                self.emissions += 1;
                if self.emissions > self.most {
                    return;
                }
                if k != 1 && row.counts.is_empty() {
                    row.counts.resize(row.times.len(), 1);
                }
                row.times.push(t);
                if k != 1 || !row.counts.is_empty() {
                    row.counts.push(k as u32);
                }
            }
        }
    }

    /// Emissions of one token each were accepted, in a row that has no others.
    pub(super) fn take_emissions(&mut self, row: u64, times: &[i64]) {
        self.emissions += times.len() as u64;
        if self.emissions <= self.most {
            self.all[row as usize].times.extend_from_slice(times);
        }
    }

    /// The row's tokens have no times of their own.
    pub(super) fn set_untimed(&mut self, row: u64, tokens: UntimedTokens) {
        self.all[row as usize].untimed = Some(tokens);
    }

    pub(super) fn end(&mut self, row: u64, end: RowEnd) {
        self.all[row as usize].end = Some(end);
    }

    /// Adds the rows of the next input.
    pub(super) fn merge(&mut self, other: Self) {
        let at = self.all.len();
        self.emissions += other.emissions;
        self.all.extend(other.all);
        for theirs in other.labels {
            let label = self.label(&theirs.name);
            label.codes.resize(at, -1);
            let codes: Vec<i32> = theirs.values.iter().map(|value| label.code(value)).collect();
            label.codes.extend(theirs.codes.iter().map(|&code| usize::try_from(code).map_or(-1, |code| codes[code])));
        }
        if self.is_over() {
            self.all.iter_mut().for_each(|row| row.times = Vec::new());
        }
    }
}
