//! A sketch as an OpenTelemetry `ExponentialHistogramDataPoint`, and back.
//!
//! Guarantee: any OTLP reader takes the bytes as they stand; what OTLP has no field for (the exact sum, min and max in
//! nanoseconds, the ITL rule, the rejections, the version) travels as attributes, so that decoding gives the same
//! sketch, bit for bit. Decoding looks at no more than 128 KiB and allocates no more than a sketch of the finest scale.
//! The layout is that of `opentelemetry/proto/metrics/v1/metrics.proto`.

use prost::Message;

use crate::bounds;
use crate::error::{Error, Result};
use crate::sketch::{ItlRule, Mapping, Rejection, Sketch, Store, seconds};

const VERSION: i64 = 1;
/// 2^-20: at or below it, seconds go to the zero bucket.
const ZERO_THRESHOLD: f64 = 1.0 / 1_048_576.0;

#[derive(Clone, PartialEq, Message)]
struct DataPoint {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    scale: i32,
    #[prost(fixed64, tag = "7")]
    zero_count: u64,
    #[prost(message, optional, tag = "8")]
    positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    negative: Option<Buckets>,
    #[prost(double, optional, tag = "12")]
    min: Option<f64>,
    #[prost(double, optional, tag = "13")]
    max: Option<f64>,
    #[prost(double, tag = "14")]
    zero_threshold: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Buckets {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(int64, tag = "3")]
    Int(i64),
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: format!("tokenpulse.{name}"), value: Some(AnyValue { value: Some(value) }) }
}

fn rejection_key(reason: Rejection) -> String {
    format!("rejected.{}", reason.name())
}

impl<S: Store> Sketch<S> {
    /// The sketch as the bytes of an OTLP `ExponentialHistogramDataPoint`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut attributes = vec![
            attribute("version", Value::Int(VERSION)),
            attribute("sum_ns", Value::String(self.sum_ns().to_string())),
        ];
        for (name, ns) in [("min_ns", self.min_ns()), ("max_ns", self.max_ns())] {
            attributes.extend(ns.map(|ns| attribute(name, Value::Int(ns))));
        }
        attributes.extend(self.itl_rule().map(|rule| attribute("itl_rule", Value::String(rule.name().to_owned()))));
        for (reason, n) in Rejection::ALL.into_iter().zip(self.rejected()) {
            if n > 0 {
                let n = i64::try_from(n).unwrap_or(i64::MAX);
                attributes.push(attribute(&rejection_key(reason), Value::Int(n)));
            }
        }
        let mut buckets = self.buckets();
        if self.overflow_count() > 0 {
            buckets.push((overflow_index(self.scale()), self.overflow_count()));
        }
        let positive = buckets.first().map(|&(offset, _)| {
            let mut bucket_counts = vec![0; (buckets[buckets.len() - 1].0 - offset) as usize + 1];
            for &(index, n) in &buckets {
                bucket_counts[(index - offset) as usize] = n;
            }
            Buckets { offset, bucket_counts }
        });
        DataPoint {
            attributes,
            count: self.count(),
            sum: Some(seconds(self.sum_ns())),
            scale: i32::from(self.scale()),
            zero_count: self.zero_count(),
            positive,
            negative: None,
            min: self.min_ns().map(|ns| seconds(ns as u128)),
            max: self.max_ns().map(|ns| seconds(ns as u128)),
            zero_threshold: ZERO_THRESHOLD,
        }
        .encode_to_vec()
    }

    /// The sketch that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// A decode error for bytes that are no such sketch: nothing in them is trusted.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > bounds::ENCODED_BYTES {
            return Err(Error::decode(
                format_args!("at most {} bytes", bounds::ENCODED_BYTES),
                format_args!("{} bytes", bytes.len()),
            ));
        }
        let point = DataPoint::decode(bytes).map_err(|error| Error::decode("a protobuf data point", error))?;
        let attributes = Attributes(&point.attributes);
        match attributes.int("version")? {
            Some(VERSION) => {}
            Some(other) => return Err(Error::decode(format_args!("version {VERSION}"), other)),
            None => return Err(Error::decode(format_args!("version {VERSION}"), "none")),
        }
        if !bounds::SCALE.contains(i64::from(point.scale)) {
            let expected = format_args!("a scale between {} and {}", bounds::SCALE.min, bounds::SCALE.max);
            return Err(Error::decode(expected, point.scale));
        }
        let scale = point.scale as u8;
        if point.zero_threshold != ZERO_THRESHOLD {
            return Err(Error::decode("the zero threshold 2^-20", point.zero_threshold));
        }
        if point.negative.as_ref().is_some_and(|negative| negative.bucket_counts.iter().any(|&n| n > 0)) {
            return Err(Error::decode("no negative buckets", "some"));
        }
        let rule = attributes.string("itl_rule")?.map(ItlRule::from_name).transpose();
        let rule = rule.map_err(|error| Error::decode("a legal ITL rule", error))?;
        let mut rejected = [0; 4];
        for reason in Rejection::ALL {
            let n = attributes.int(&rejection_key(reason))?.unwrap_or(0);
            rejected[reason as usize] = u64::try_from(n).map_err(|_| Error::decode("rejections of 0 or more", n))?;
        }
        let sum_ns = attributes.string("sum_ns")?.ok_or_else(|| Error::decode("an exact sum", "none"))?;
        let sum_ns: u128 = sum_ns.parse().map_err(|_| Error::decode("an exact sum", format_args!("{sum_ns:?}")))?;
        let mut sketch = Self::empty(scale, rule);
        for (reason, n) in Rejection::ALL.into_iter().zip(rejected) {
            sketch.reject(reason, n);
        }
        let ends = (attributes.int("min_ns")?, attributes.int("max_ns")?);
        sketch.fill(point.count, &slots(&point, scale)?, sum_ns, ends)?;
        Ok(sketch)
    }
}

/// The index under which the overflow count travels: the bucket after the last.
fn overflow_index(scale: u8) -> i32 {
    Mapping::first_index(scale) + Mapping::buckets(scale) as i32
}

/// The non-empty slots of a data point, ascending.
fn slots(point: &DataPoint, scale: u8) -> Result<Vec<(usize, u64)>> {
    let mut slots = Vec::new();
    if point.zero_count > 0 {
        slots.push((0, point.zero_count));
    }
    let Some(positive) = &point.positive else { return Ok(slots) };
    let first = i64::from(Mapping::first_index(scale));
    for (at, &n) in positive.bucket_counts.iter().enumerate() {
        if n == 0 {
            continue;
        }
        let index = i64::from(positive.offset) + at as i64;
        if index < first || index > i64::from(overflow_index(scale)) {
            let expected = format_args!("buckets between {first} and {}", overflow_index(scale));
            return Err(Error::decode(expected, format_args!("bucket {index}")));
        }
        slots.push(((index - first + 1) as usize, n));
    }
    Ok(slots)
}

/// The attributes of a data point, by the name after `tokenpulse.`; of a name given twice the last counts.
struct Attributes<'a>(&'a [KeyValue]);

impl Attributes<'_> {
    /// The value of an attribute; one that is there must have a value of a kind that is ours.
    fn get(&self, name: &str) -> Result<Option<&Value>> {
        let found = self.0.iter().rev().find(|pair| pair.key.strip_prefix("tokenpulse.") == Some(name));
        let Some(pair) = found else { return Ok(None) };
        let value = pair.value.as_ref().and_then(|any| any.value.as_ref());
        value.map(Some).ok_or_else(|| Error::decode(format_args!("a value of {name}"), "none"))
    }

    fn int(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name)? {
            None => Ok(None),
            Some(Value::Int(n)) => Ok(Some(*n)),
            Some(Value::String(text)) => Err(Error::decode(format_args!("an integer {name}"), text)),
        }
    }

    fn string(&self, name: &str) -> Result<Option<&str>> {
        match self.get(name)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Int(n)) => Err(Error::decode(format_args!("a text {name}"), n)),
        }
    }
}
