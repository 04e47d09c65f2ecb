//! Which class a request belongs to: its labels and length bins, interned to a small number.
//!
//! Bounded: past the limit, new combinations share the class `other`, and how many did is counted.

use std::collections::HashMap;

use crate::bounds::MAX_LABEL_KEYS;
use crate::error::{Error, Result};

/// Lower edges of the length bins, in tokens.
pub const LENGTH_EDGES: [u64; 7] = [0, 128, 512, 2048, 8192, 32768, 131_072];

/// The bin `[lo, hi)` of a length, as text.
#[must_use]
pub fn length_bin(tokens: u64) -> String {
    let bin = LENGTH_EDGES.partition_point(|&edge| edge <= tokens) - 1;
    match LENGTH_EDGES.get(bin + 1) {
        Some(next) => format!("{}-{next}", LENGTH_EDGES[bin]),
        None => format!("{}+", LENGTH_EDGES[bin]),
    }
}

/// What a request is classified by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The bin of its prompt's length.
    PromptLength,
    /// The bin of its output's length, known at the end.
    OutputLength,
    /// A label.
    Label(String),
}

impl Key {
    /// The key of that name: any other than the two lengths is a label.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "prompt_length" => Self::PromptLength,
            "output_length" => Self::OutputLength,
            label => Self::Label(label.to_owned()),
        }
    }
}

/// One value a key; none where the request lacks the label.
pub type Combination = Vec<Option<String>>;

/// The combinations seen so far.
#[derive(Clone, Debug)]
pub struct Strata {
    keys: Vec<Key>,
    classes: HashMap<Combination, usize>,
    combinations: Vec<Combination>,
    max_classes: usize,
    over: u64,
}

impl Strata {
    /// Classes by these keys, at most so many, `other` included.
    ///
    /// # Errors
    ///
    /// More label keys than [`MAX_LABEL_KEYS`].
    pub fn new(keys: Vec<Key>, max_classes: usize) -> Result<Self> {
        let labels = keys.iter().filter(|key| matches!(key, Key::Label(_))).count();
        if labels > MAX_LABEL_KEYS {
            return Err(Error::value("number of label keys", format_args!("at most {MAX_LABEL_KEYS}"), labels));
        }
        Ok(Self { keys, classes: HashMap::new(), combinations: Vec::new(), max_classes, over: 0 })
    }

    /// The keys, in the order given.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Whether a class is known at the end only.
    #[must_use]
    pub fn needs_output_length(&self) -> bool {
        self.keys.contains(&Key::OutputLength)
    }

    /// The class of a request; none is `other`.
    pub fn class<'a>(
        &mut self,
        prompt_tokens: u64,
        output_tokens: u64,
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<usize> {
        let value = |key: &Key| match key {
            Key::PromptLength => Some(length_bin(prompt_tokens)),
            Key::OutputLength => Some(length_bin(output_tokens)),
            Key::Label(name) => label(name).map(str::to_owned),
        };
        let combination = self.keys.iter().map(value).collect();
        let class = self.intern(combination);
        self.over += u64::from(class.is_none());
        class
    }

    /// The number of a combination; none where there is no room for a new one.
    pub fn intern(&mut self, combination: Combination) -> Option<usize> {
        if let Some(&class) = self.classes.get(&combination) {
            return Some(class);
        }
        // One class is kept for `other`.
        let class = self.combinations.len();
        (class + 1 < self.max_classes).then(|| {
            self.combinations.push(combination.clone());
            self.classes.insert(combination, class);
            class
        })
    }

    /// The combinations, by class.
    #[must_use]
    pub fn combinations(&self) -> &[Combination] {
        &self.combinations
    }

    /// How many requests went to `other`.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Counts requests that went to `other` elsewhere.
    pub fn add_over(&mut self, requests: u64) {
        self.over += requests;
    }
}
