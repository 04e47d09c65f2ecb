//! Requests and events that are in memory as columns, to one run: each row is what a line of a log is elsewhere.
//!
//! Columns are read where they are; a row allocates nothing. A row with a number out of its range is passed over and
//! counted, as a line would be.

mod given;

use tokenpulse_core::bounds::{self, Range};
use tokenpulse_core::prefetch::prefetch_all;
use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::sketch::none_negative;
use tokenpulse_core::tally::{Arrival, Finished, Run, Settings, UntimedTokens};
use tokenpulse_core::{Error, Result};

pub use given::{ABSENT, Emissions, EventColumns, IN_FLIGHT, Ids, Labels, Lists, RequestColumns, Whole};

use crate::part::{Part, together};
use crate::record::{Checked, Refused, Skip, bad_value, missing};
use crate::reduce::{Reduction, wanted_labels};

/// Rows between the one that is read and the one whose emissions are brought near.
const AHEAD: usize = 2;
/// A row's number in a column, if it is there.
#[inline]
fn given(name: &str, column: Option<&[i64]>, row: usize, range: &Range) -> Checked<Option<i64>> {
    match column.map(|column| column[row]) {
        None | Some(ABSENT) => Ok(None),
        Some(value) if range.contains(value) => Ok(Some(value)),
        Some(value) => Err(bad_value(name, range, value)),
    }
}

#[inline]
fn time(name: &str, column: &[i64], row: usize) -> Checked<i64> {
    given(name, Some(column), row, &bounds::TIME_NS)?.ok_or_else(|| missing(name))
}

/// Times that must all be legal.
#[inline]
fn all_times<'a>(name: &str, times: &'a [i64]) -> Checked<&'a [i64]> {
    if none_negative(times) {
        return Ok(times);
    }
    let bad = times.iter().copied().find(|&t| t < 0).unwrap_or_default();
    Err(bad_value(name, &bounds::TIME_NS, bad))
}

#[cold]
fn no_status(highest: u8, got: u8) -> Refused {
    Refused::new(Skip::BadValue, format!("expected status between 0 and {highest}, got {got}"))
}

/// What is kept from row to row to be filled again.
#[derive(Default)]
struct Room {
    number: String,
    labels: Vec<(String, String)>,
    times: Vec<i64>,
    counts: Vec<i64>,
}

impl Room {
    /// The labels of a row, of those that are wanted.
    fn take_labels(&mut self, wanted: &[&Labels<'_>], row: usize) {
        let mut filled = 0;
        for label in wanted {
            let Some(value) = label.of(row) else { continue };
            if filled == self.labels.len() {
                self.labels.push((String::new(), String::new()));
            }
            let (there_name, there_value) = &mut self.labels[filled];
            there_name.clone_from(&label.name);
            value.clone_into(there_value);
            filled += 1;
        }
        self.labels.truncate(filled);
    }
}

/// Writes a number in place of what was there.
fn write_number(number: u64, text: &mut String) {
    let mut digits = [0; 20];
    let mut rest = number;
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.clear();
    text.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// The id of a row.
#[inline]
fn id_of<'a>(ids: &Ids<'a>, row: usize, number: u64, room: &'a mut String) -> &'a str {
    match ids {
        Ids::Numbers => {
            write_number(number, room);
            room
        }
        Ids::Texts(texts) => texts[row],
        // Checked when the batch came.
        Ids::Packed(bytes, offsets) => {
            let id = &bytes[offsets.get(row) as usize..offsets.get(row + 1) as usize];
            std::str::from_utf8(id).unwrap_or_default()
        }
    }
}

/// All inputs, of which each comes in batches.
pub struct ColumnRun {
    settings: Settings,
    wants: Vec<String>,
    parts: Vec<Part>,
    room: Room,
}

impl ColumnRun {
    /// No input yet.
    ///
    /// # Errors
    ///
    /// Wrong settings.
    pub fn new(settings: Settings) -> Result<Self> {
        Run::new(settings.clone())?;
        Ok(Self { wants: wanted_labels(&settings), settings, parts: Vec::new(), room: Room::default() })
    }

    /// The input of a name.
    fn part(&mut self, name: &str, format: &str) -> Result<usize> {
        if let Some(at) = self.parts.iter().position(|part| part.input.path == name) {
            let there = self.parts[at].input.format();
            if there == format {
                return Ok(at);
            }
            return Err(Error::value(&format!("format of {name}"), format_args!("{there} as before"), format));
        }
        let mut part = Part::new(name, &self.settings)?;
        part.input.given_format = Some(format.to_owned());
        self.parts.push(part);
        Ok(self.parts.len() - 1)
    }

    /// Takes a batch of requests of an input, whose rows go on where its last batch ended.
    ///
    /// # Errors
    ///
    /// Columns that do not fit together, or another format than the input's.
    pub fn requests(&mut self, name: &str, format: &str, columns: &RequestColumns<'_>) -> Result<()> {
        columns.check()?;
        let part = self.part(name, format)?;
        let part = &mut self.parts[part];
        let wanted: Vec<&Labels<'_>> = columns.labels.iter().filter(|label| self.wants.contains(&label.name)).collect();
        for row in 0..columns.arrive_ns.len() {
            if let Some(emissions) = columns.emissions.filter(|_| row + AHEAD < columns.arrive_ns.len()) {
                prefetch_all(emissions.times.row(row + AHEAD));
            }
            part.input.lines += 1;
            self.room.take_labels(&wanted, row);
            if let Err(refused) = part.request_row(columns, row, &mut self.room) {
                part.input.skip(part.input.lines, refused);
            }
            part.note();
        }
        Ok(())
    }

    /// Takes a batch of events of an input, whose rows go on where its last batch ended.
    ///
    /// # Errors
    ///
    /// Columns that do not fit together, or another format than the input's.
    pub fn events(&mut self, name: &str, format: &str, columns: &EventColumns<'_>) -> Result<()> {
        columns.check()?;
        let part = self.part(name, format)?;
        let part = &mut self.parts[part];
        let wanted: Vec<&Labels<'_>> = columns.labels.iter().filter(|label| self.wants.contains(&label.name)).collect();
        for row in 0..columns.t_ns.len() {
            part.input.lines += 1;
            if columns.ev[row] == 0 {
                self.room.take_labels(&wanted, row);
            }
            if let Err(refused) = part.event_row(columns, row, &mut self.room) {
                part.input.skip(part.input.lines, refused);
            }
            part.note();
        }
        Ok(())
    }

    /// What all inputs come to.
    ///
    /// # Errors
    ///
    /// Wrong settings; they were looked at before.
    pub fn finish(mut self) -> Result<Reduction> {
        self.parts.iter_mut().for_each(Part::settle);
        together(self.parts, || Run::new(self.settings))
    }
}

/// A row of requests: its arrival, prompt tokens and events, and how it ended, if it has.
pub(crate) struct RequestOf<'a> {
    pub arrive: i64,
    pub prompt_tokens: u64,
    pub events: Finished<'a>,
    pub ended: Option<Status>,
}

impl<'a> RequestOf<'a> {
    /// Reads a row of columns that fit together; numbers are kept in the room where they must be made.
    #[inline]
    pub(crate) fn read(
        columns: &RequestColumns<'a>,
        row: usize,
        room_times: &'a mut Vec<i64>,
        room_counts: &'a mut Vec<i64>,
    ) -> Checked<Self> {
        let arrive = time("arrive_ns", columns.arrive_ns, row)?;
        let schedule = given("schedule_ns", columns.schedule_ns, row, &bounds::TIME_NS)?;
        let prefill = given("prefill_ns", columns.prefill_ns, row, &bounds::TIME_NS)?;
        let (mut times, mut counts): (&[i64], &[i64]) = (&[], &[]);
        if let Some(emissions) = &columns.emissions {
            times = emissions.times.row(row);
            if emissions.relative {
                room_times.clear();
                for &offset in times {
                    let Some(t) = arrive.checked_add(offset).filter(|&t| t >= 0) else {
                        return Err(bad_value("dt_ns", &bounds::TIME_NS, offset));
                    };
                    room_times.push(t);
                }
                times = room_times;
            } else {
                all_times("token_ns", times)?;
            }
            if let Some(all) = emissions.counts {
                let from = emissions.times.offsets.get(row) as usize;
                room_counts.clear();
                room_counts.extend((from..from + times.len()).map(|at| all.get(at)));
                let singles = room_counts.iter().fold(0, |other, &k| other | (k ^ 1)) == 0;
                if !singles {
                    if let Some(&k) = room_counts.iter().find(|&&k| !bounds::EMISSION_TOKENS.contains(k)) {
                        return Err(bad_value("n", &bounds::EMISSION_TOKENS, k));
                    }
                    counts = room_counts;
                }
            }
        }
        let output_tokens = given("output_tokens", columns.output_tokens, row, &bounds::REQUEST_TOKENS)?;
        let mut untimed = None;
        if times.is_empty() {
            let first = given("first_token_ns", columns.first_token_ns, row, &bounds::TIME_NS)?;
            let last = given("last_token_ns", columns.last_token_ns, row, &bounds::TIME_NS)?;
            untimed = output_tokens.filter(|&n| n > 0).map(|n| UntimedTokens { n: n as u64, first, last });
        }
        let preempts = columns.preempt_ns.map_or(&[][..], |lists| lists.row(row));
        let resumes = columns.resume_ns.map_or(&[][..], |lists| lists.row(row));
        let status = columns.status.map_or(0, |status| status[row]);
        let ended = Status::ALL.get(usize::from(status));
        if ended.is_none() && status != IN_FLIGHT {
            return Err(no_status(7, status));
        }
        let events = Finished {
            schedule,
            prefill,
            emissions: times,
            counts,
            output_tokens: output_tokens.map(|n| n as u64),
            untimed,
            preempts: all_times("preempt_ns", preempts)?,
            resumes: all_times("resume_ns", resumes)?,
            end: given("end_ns", columns.end_ns, row, &bounds::TIME_NS)?,
            status: ended.copied().unwrap_or_default(),
            degraded: columns.degraded.is_some_and(|degraded| degraded[row] != 0),
        };
        let prompt_tokens = given("prompt_tokens", columns.prompt_tokens, row, &bounds::REQUEST_TOKENS)?;
        Ok(Self { arrive, prompt_tokens: prompt_tokens.unwrap_or(0) as u64, events, ended: ended.copied() })
    }
}

impl Part {
    /// Takes a row of requests.
    fn request_row(&mut self, columns: &RequestColumns<'_>, row: usize, room: &mut Room) -> Checked<()> {
        let number = self.input.lines;
        let RequestOf { arrive, prompt_tokens, events, ended } =
            RequestOf::read(columns, row, &mut room.times, &mut room.counts)?;
        if !self.run.admit(arrive, number) {
            return Ok(());
        }
        let arrival = Arrival {
            id: id_of(&columns.ids, row, number - 1, &mut room.number),
            t: arrive,
            prompt_tokens,
            labels: &room.labels,
        };
        // Where nothing is in flight no id needs a hash.
        if !self.flights.is_empty() && !self.is_free(self.flights.id(arrival.id), arrive, number) {
            return Ok(());
        }
        if ended.is_some() {
            self.run.request(&arrival, &events, number);
        } else {
            let flight = self.run.request_in_flight(&arrival, &events, number);
            self.flights.insert(self.flights.id(arrival.id).hash, flight);
        }
        self.input.requests += 1;
        Ok(())
    }

    /// Takes a row of events.
    fn event_row(&mut self, columns: &EventColumns<'_>, row: usize, room: &mut Room) -> Checked<()> {
        let number = self.input.lines;
        let code = columns.ev[row];
        if code > 7 {
            return Err(bad_value("ev", &Range { name: "ev", min: 0, max: 7 }, i64::from(code)));
        }
        let t = time("t_ns", columns.t_ns, row)?;
        let event = match code {
            1 => Event::Schedule,
            2 => Event::Prefill,
            3 => {
                let k = columns.k.map_or(1, |k| k.get(row));
                let k = if k == ABSENT { 1 } else { k };
                if !bounds::EMISSION_TOKENS.contains(k) {
                    return Err(bad_value("k", &bounds::EMISSION_TOKENS, k));
                }
                Event::Tokens(k as u64)
            }
            4 => Event::Preempt,
            5 => Event::Resume,
            0 => {
                let tokens = given("prompt_tokens", columns.prompt_tokens, row, &bounds::REQUEST_TOKENS)?;
                if self.run.admit(t, number) {
                    let id = id_of(&columns.ids, row, number - 1, &mut room.number);
                    let prompt_tokens = tokens.unwrap_or(0) as u64;
                    let arrival = Arrival { id, t, prompt_tokens, labels: &room.labels };
                    self.arrive(self.flights.id(id), &arrival, number);
                }
                return Ok(());
            }
            6 => {
                let status = columns.status.map_or(0, |status| status[row]);
                let Some(ended) = Status::ALL[..7].get(usize::from(status)) else { return Err(no_status(6, status)) };
                let degraded = columns.degraded.is_some_and(|degraded| degraded[row] != 0);
                if self.run.admit(t, number) {
                    let id = id_of(&columns.ids, row, number - 1, &mut room.number);
                    self.end(self.flights.id(id), t, *ended, degraded, number);
                }
                return Ok(());
            }
            _ => {
                if self.run.admit(t, number) {
                    self.run.pass(t);
                }
                return Ok(());
            }
        };
        if self.run.admit(t, number) {
            let id = id_of(&columns.ids, row, number - 1, &mut room.number);
            self.event(self.flights.id(id), t, event, number);
        }
        Ok(())
    }
}
