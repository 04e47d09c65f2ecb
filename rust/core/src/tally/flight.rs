//! A request in flight, with what its class, its SLO sets and ties of time need beside its state.

use crate::request::{Event, Request};
use crate::slo::{Fluidity, Slo};

/// What is known of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The request's id.
    pub id: &'a str,
    /// When.
    pub t: i64,
    /// The prompt's length.
    pub prompt_tokens: u64,
    /// The labels that it bears.
    pub labels: &'a [(String, String)],
}

impl<'a> Arrival<'a> {
    /// The value of a label; of a label given twice the last counts.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The class of a request, as far as it is known.
#[derive(Clone, Debug)]
pub(super) enum Class {
    /// No classes are asked for.
    None,
    /// This one; none is `other`.
    Known(Option<usize>),
    /// The request is outside the cut: nothing of it is counted.
    Outside,
    /// It hangs on the output's length: the labels are kept until the end.
    Later(Vec<(String, String)>),
}

/// Events that wait: all bear the same time, and are taken in order of rank once a later one comes.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub t: i64,
    /// (event, line); the first is apart so that one event at a time needs no allocation.
    pub first: Option<(Event, u64)>,
    pub others: Vec<(Event, u64)>,
}

/// The SLO sets that judge a request, by their place, and how it does.
pub(super) type Deadlines = Vec<(usize, Fluidity)>;

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Flight {
    pub(super) id: String,
    pub(super) request: Request,
    pub(super) prompt_tokens: u64,
    pub(super) class: Class,
    /// The largest inter-token latency observed.
    pub(super) max_itl: Option<i64>,
    pub(super) deadlines: Deadlines,
    pub(super) waiting: Waiting,
    /// The place in the order of arrivals.
    pub(super) order: u64,
}

impl Flight {
    /// A request that arrives; `room` was another's.
    pub(super) fn new(
        arrival: &Arrival<'_>,
        class: Class,
        slos: &[Slo],
        order: u64,
        (mut id, mut deadlines): (String, Deadlines),
    ) -> Self {
        let judges = |slo: &Slo| slo.labels.iter().all(|(key, value)| arrival.label(key) == Some(value));
        let inside = !matches!(class, Class::Outside);
        let sets = slos.iter().enumerate().filter(|(_, slo)| inside && judges(slo));
        arrival.id.clone_into(&mut id);
        deadlines.clear();
        deadlines.extend(sets.map(|(index, _)| (index, Fluidity::default())));
        Self {
            id,
            request: Request::arrive(arrival.t),
            prompt_tokens: arrival.prompt_tokens,
            class,
            max_itl: None,
            deadlines,
            waiting: Waiting::default(),
            order,
        }
    }

    /// Whether it is outside the cut.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.class, Class::Outside)
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its place in the order of arrivals.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.order
    }
}
