//! Columns as they are given, and whether they fit together.

use tokenpulse_core::{Error, Result};

/// What stands in a column where there is nothing.
pub const ABSENT: i64 = i64::MIN;
/// The status of a request that has not ended.
pub const IN_FLIGHT: u8 = 255;

/// Whole numbers of one of the widths that columns have.
#[derive(Clone, Copy, Debug)]
pub enum Whole<'a> {
    /// Signed, of 64 bits.
    I64(&'a [i64]),
    /// Signed, of 32 bits.
    I32(&'a [i32]),
    /// Without sign, of 32 bits.
    U32(&'a [u32]),
}

impl Whole<'_> {
    fn len(&self) -> usize {
        match self {
            Self::I64(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::U32(values) => values.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> i64 {
        match self {
            Self::I64(values) => values[at],
            Self::I32(values) => i64::from(values[at]),
            Self::U32(values) => i64::from(values[at]),
        }
    }
}

/// Lists of different length, one a row: all values, and where each list begins and the last one ends.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// The values of all lists.
    pub values: &'a [i64],
    /// One more than there are rows.
    pub offsets: Whole<'a>,
}

impl<'a> Lists<'a> {
    #[inline]
    pub(super) fn row(&self, row: usize) -> &'a [i64] {
        &self.values[self.offsets.get(row) as usize..self.offsets.get(row + 1) as usize]
    }
}

/// The emissions of requests.
#[derive(Clone, Copy, Debug)]
pub struct Emissions<'a> {
    /// When.
    pub times: Lists<'a>,
    /// Whether the times are offsets from the arrival.
    pub relative: bool,
    /// How many tokens; none: one each.
    pub counts: Option<Whole<'a>>,
}

/// The ids of rows.
#[derive(Clone, Debug, Default)]
pub enum Ids<'a> {
    /// The row's number in its input, from 0.
    #[default]
    Numbers,
    /// A text for each row.
    Texts(Vec<&'a str>),
    /// One text after the other, and where each begins and the last one ends.
    Packed(&'a [u8], Whole<'a>),
}

/// A label of rows.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    /// Its name.
    pub name: String,
    /// The place of a row's value among the values; -1: the row has none.
    pub codes: &'a [i32],
    /// The values.
    pub values: Vec<String>,
}

impl Labels<'_> {
    /// The value of a row, if it has one.
    pub(crate) fn of(&self, row: usize) -> Option<&str> {
        usize::try_from(self.codes[row]).ok().map(|code| self.values[code].as_str())
    }
}

/// Requests as columns. A column that is there has a value for each row; [`ABSENT`] stands for none.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "as the fields of a request line")]
pub struct RequestColumns<'a> {
    pub arrive_ns: &'a [i64],
    pub emissions: Option<Emissions<'a>>,
    pub schedule_ns: Option<&'a [i64]>,
    pub prefill_ns: Option<&'a [i64]>,
    pub end_ns: Option<&'a [i64]>,
    pub first_token_ns: Option<&'a [i64]>,
    pub last_token_ns: Option<&'a [i64]>,
    pub output_tokens: Option<&'a [i64]>,
    pub prompt_tokens: Option<&'a [i64]>,
    pub preempt_ns: Option<Lists<'a>>,
    pub resume_ns: Option<Lists<'a>>,
    /// The place among [`Status::ALL`], or [`IN_FLIGHT`].
    pub status: Option<&'a [u8]>,
    /// Other than 0: yes.
    pub degraded: Option<&'a [u8]>,
    pub ids: Ids<'a>,
    pub labels: Vec<Labels<'a>>,
}

/// Events as columns; see [`RequestColumns`].
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "as the fields of an event line")]
pub struct EventColumns<'a> {
    pub t_ns: &'a [i64],
    /// 0 to 7: arrive, schedule, prefill, tokens, preempt, resume, end, any other.
    pub ev: &'a [u8],
    pub k: Option<Whole<'a>>,
    pub status: Option<&'a [u8]>,
    /// Other than 0: yes.
    pub degraded: Option<&'a [u8]>,
    pub prompt_tokens: Option<&'a [i64]>,
    pub ids: Ids<'a>,
    pub labels: Vec<Labels<'a>>,
}

fn check_len(name: &str, rows: usize, len: Option<usize>) -> Result<()> {
    match len {
        Some(len) if len != rows => Err(Error::value(name, format_args!("of length {rows}"), len)),
        _ => Ok(()),
    }
}

fn check_offsets(name: &str, offsets: Whole<'_>, rows: usize, values: usize) -> Result<()> {
    check_len(name, rows + 1, Some(offsets.len()))?;
    let mut before = 0;
    for at in 0..=rows {
        let offset = offsets.get(at);
        if offset < before || offset > values as i64 {
            return Err(Error::value(name, format_args!("ascending and at most {values}"), offset));
        }
        before = offset;
    }
    Ok(())
}

fn check_lists(name: &str, lists: Option<&Lists<'_>>, rows: usize) -> Result<()> {
    lists.map_or(Ok(()), |lists| check_offsets(name, lists.offsets, rows, lists.values.len()))
}

fn check_names(rows: usize, ids: &Ids<'_>, labels: &[Labels<'_>]) -> Result<()> {
    match ids {
        Ids::Numbers => {}
        Ids::Texts(texts) => check_len("ids", rows, Some(texts.len()))?,
        Ids::Packed(bytes, offsets) => {
            check_offsets("ids", *offsets, rows, bytes.len())?;
            let (from, to) = (offsets.get(0) as usize, offsets.get(rows) as usize);
            let text = std::str::from_utf8(&bytes[from..to]).ok();
            let whole = text.is_some_and(|text| {
                text.is_ascii() || (0..=rows).all(|at| text.is_char_boundary(offsets.get(at) as usize - from))
            });
            if !whole {
                return Err(Error::value("ids", "UTF-8", "other bytes"));
            }
        }
    }
    for label in labels {
        check_len(&label.name, rows, Some(label.codes.len()))?;
        let codes = -1..label.values.len() as i32;
        if let Some(code) = label.codes.iter().find(|code| !codes.contains(code)) {
            let expected = format_args!("between -1 and {}", label.values.len() as i64 - 1);
            return Err(Error::value(&format!("codes of label {}", label.name), expected, code));
        }
    }
    Ok(())
}

impl RequestColumns<'_> {
    pub(crate) fn check(&self) -> Result<()> {
        let rows = self.arrive_ns.len();
        for (name, column) in [
            ("schedule_ns", self.schedule_ns),
            ("prefill_ns", self.prefill_ns),
            ("end_ns", self.end_ns),
            ("first_token_ns", self.first_token_ns),
            ("last_token_ns", self.last_token_ns),
            ("output_tokens", self.output_tokens),
            ("prompt_tokens", self.prompt_tokens),
        ] {
            check_len(name, rows, column.map(<[i64]>::len))?;
        }
        check_len("status", rows, self.status.map(<[u8]>::len))?;
        check_len("degraded", rows, self.degraded.map(<[u8]>::len))?;
        if let Some(emissions) = &self.emissions {
            check_lists("token_offsets", Some(&emissions.times), rows)?;
            check_len("n", emissions.times.values.len(), emissions.counts.map(|counts| counts.len()))?;
        }
        check_lists("preempt_offsets", self.preempt_ns.as_ref(), rows)?;
        check_lists("resume_offsets", self.resume_ns.as_ref(), rows)?;
        check_names(rows, &self.ids, &self.labels)
    }
}

impl EventColumns<'_> {
    pub(super) fn check(&self) -> Result<()> {
        let rows = self.t_ns.len();
        check_len("ev", rows, Some(self.ev.len()))?;
        check_len("k", rows, self.k.map(|k| k.len()))?;
        check_len("status", rows, self.status.map(<[u8]>::len))?;
        check_len("degraded", rows, self.degraded.map(<[u8]>::len))?;
        check_len("prompt_tokens", rows, self.prompt_tokens.map(<[i64]>::len))?;
        check_names(rows, &self.ids, &self.labels)
    }
}
