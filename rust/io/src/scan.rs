//! Numbers and strings many bytes at a time: by the processor's own instructions where it has them, else eight bytes
//! at once in a register.
//!
//! Every way gives the same answer; which one is used is decided when the program runs. The text is padded, so that
//! looking beyond its end does no harm.

use crate::digits::{POWERS, digits_of, eight_digits, leading_digits};

/// How text is scanned.
pub(crate) trait Scan {
    /// The number that the digits from `at` on make, and how many they are: 1 to 19 without a zero before them. Else
    /// 0 digits: none, a zero before others, or more than 64 bits with a sign hold.
    fn number(text: &[u8], at: usize) -> (i64, usize);

    /// Where the string ends that begins at `at`, after its quote; none if it has escapes, or what no string has.
    fn string_end(text: &[u8], at: usize) -> Option<usize>;

    /// A bit for each of 32 bytes that is another than in the block.
    fn differs(text: &[u8], at: usize, block: &[u8; 32]) -> u32;

    /// Appends the numbers of an array that begins at `at`, after its bracket, with at most one space after a comma;
    /// and says where it ends, its other bracket included. None if anything else stands there.
    #[inline(always)]
    fn numbers(text: &[u8], mut at: usize, numbers: &mut Vec<i64>) -> Option<usize> {
        loop {
            let (number, digits) = Self::number(text, at);
            if digits == 0 {
                return None;
            }
            numbers.push(number);
            at += digits;
            match text[at] {
                b',' => at += 1 + usize::from(text[at + 1] == b' '),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }
}

/// The number of digits that make a plain number; see [`Scan::number`]. There are `digits` of them so far, of at most
/// 16, which make `value`.
#[inline(always)]
fn plain(text: &[u8], at: usize, value: u64, digits: usize) -> (i64, usize) {
    if digits == 16 {
        return long(text, at, value);
    }
    if digits > 1 && text[at] == b'0' { (0, 0) } else { (value as i64, digits) }
}

/// The same for numbers of 16 digits or more: nanoseconds of today have 19.
#[inline(always)]
fn long(text: &[u8], at: usize, value: u64) -> (i64, usize) {
    let Some(next) = text.get(at + 16..).and_then(<[u8]>::first_chunk::<8>) else { return (0, 0) };
    let (low, more) = eight_digits(u64::from_le_bytes(*next));
    if more > 3 || text[at] == b'0' {
        return (0, 0);
    }
    // 19 digits fit 64 bits without a sign.
    let value = value * POWERS[more] + low;
    if value > i64::MAX as u64 { (0, 0) } else { (value as i64, 16 + more) }
}

/// In registers of any processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Scan for Portable {
    #[inline(always)]
    fn number(text: &[u8], at: usize) -> (i64, usize) {
        let (value, digits) = leading_digits(&text[at..]);
        plain(text, at, value, digits)
    }

    #[inline(always)]
    fn string_end(text: &[u8], at: usize) -> Option<usize> {
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let end = at + text[at..].iter().position(ends)?;
        (text[end] == b'"').then_some(end)
    }

    #[inline(always)]
    fn differs(text: &[u8], at: usize, block: &[u8; 32]) -> u32 {
        let Some(there) = text.get(at..).and_then(<[u8]>::first_chunk::<32>) else { return u32::MAX };
        let bits = there.iter().zip(block).enumerate();
        bits.fold(0, |set, (i, (theirs, ours))| set | u32::from(theirs != ours) << i)
    }
}

/// Whether a JSON number stands at `at`, and where it ends: for values that are passed over.
#[inline]
pub(crate) fn number_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at + usize::from(text[at] == b'-');
    let whole = digits_of(&text[end..]);
    if whole == 0 || (whole > 1 && text[end] == b'0') {
        return None;
    }
    end += whole;
    if text[end] == b'.' {
        let fraction = digits_of(&text[end + 1..]);
        if fraction == 0 {
            return None;
        }
        end += 1 + fraction;
    }
    if matches!(text[end], b'e' | b'E') {
        end += 1 + usize::from(matches!(text[end + 1], b'+' | b'-'));
        let exponent = digits_of(&text[end..]);
        if exponent == 0 {
            return None;
        }
        end += exponent;
    }
    Some(end)
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Wide;

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! 16 bytes at once.
    #![allow(unsafe_code, reason = "the processor's own instructions, and loads from arrays of the right length")]

    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_madd_epi16, _mm_maddubs_epi16,
        _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_packus_epi32, _mm_set1_epi8, _mm_set1_epi32, _mm_setr_epi8,
        _mm_shuffle_epi8, _mm_sub_epi8, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_set1_epi8, _mm256_sub_epi8,
    };

    use super::{Scan, plain};

    /// With AVX2 and what came before it.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Wide;

    impl Wide {
        /// Whether this processor has what it takes.
        pub(crate) fn is_there() -> bool {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
        }
    }

    impl Scan for Wide {
        #[inline(always)]
        fn number(text: &[u8], at: usize) -> (i64, usize) {
            let Some(head) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) else { return (0, 0) };
            // SAFETY: used where `is_there` said so.
            let (value, digits) = unsafe { sixteen_digits(head) };
            plain(text, at, value, digits)
        }

        #[inline(always)]
        fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
            loop {
                let head = text.get(at..).and_then(<[u8]>::first_chunk::<16>)?;
                // SAFETY: used where `is_there` said so.
                let ends = unsafe { ends_of_string(head) };
                if ends != 0 {
                    let end = at + ends.trailing_zeros() as usize;
                    return (text[end] == b'"').then_some(end);
                }
                at += 16;
            }
        }

        #[inline(always)]
        fn differs(text: &[u8], at: usize, block: &[u8; 32]) -> u32 {
            let Some(there) = text.get(at..).and_then(<[u8]>::first_chunk::<32>) else { return u32::MAX };
            // SAFETY: used where `is_there` said so.
            unsafe { differing_bytes(there, block) }
        }

        #[inline(always)]
        fn numbers(text: &[u8], at: usize, numbers: &mut Vec<i64>) -> Option<usize> {
            // SAFETY: used where `is_there` said so.
            unsafe { numbers_by_their_ends(text, at, numbers) }
        }
    }

    /// Looks for all that is no digit in 64 bytes at once: so where a number ends does not wait for the number before.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn numbers_by_their_ends(text: &[u8], at: usize, numbers: &mut Vec<i64>) -> Option<usize> {
        let mut start = at;
        let mut base = at;
        loop {
            let block = text.get(base..).and_then(<[u8]>::first_chunk::<64>)?;
            let mut ends = others_than_digits(block);
            numbers.reserve(32);
            while ends != 0 {
                let end = base + ends.trailing_zeros() as usize;
                ends &= ends - 1;
                let last = match text[end] {
                    b',' => false,
                    b']' => true,
                    b' ' if start == end && end > at && text[end - 1] == b',' => {
                        start = end + 1;
                        continue;
                    }
                    _ => return None,
                };
                numbers.push(digits_between(text, start, end)?);
                start = end + 1;
                if last {
                    return Some(start);
                }
            }
            base += 64;
        }
    }

    /// A bit for each byte that is no digit.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn others_than_digits(block: &[u8; 64]) -> u64 {
        let half = |from: usize| {
            // SAFETY: of 64 bytes, 32 are there, at any alignment.
            let bytes = unsafe { _mm256_loadu_si256(block.as_ptr().add(from).cast()) };
            let digits = _mm256_sub_epi8(bytes, _mm256_set1_epi8(b'0'.cast_signed()));
            let are = _mm256_cmpeq_epi8(_mm256_min_epu8(digits, _mm256_set1_epi8(9)), digits);
            u64::from(_mm256_movemask_epi8(are).cast_unsigned())
        };
        !(half(0) | half(32) << 32)
    }

    /// The number that the digits from `start` to `end` make, if it is plain; see [`Scan::number`].
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn digits_between(text: &[u8], start: usize, end: usize) -> Option<i64> {
        let n = end - start;
        if n > 1 && text[start] == b'0' {
            return None;
        }
        let Some(tail) = text[..end].last_chunk::<16>() else {
            let (number, digits) = Wide::number(text, start);
            return (digits == n && n > 0).then_some(number);
        };
        if n.wrapping_sub(1) < 16 {
            // Digits before the number do not count.
            let counts = KEEP.get(n..).and_then(<[u8]>::first_chunk::<16>)?;
            let digits = _mm_and_si128(_mm_sub_epi8(load(tail), _mm_set1_epi8(b'0'.cast_signed())), load(counts));
            return Some(of_digits(digits).cast_signed());
        }
        if !(17..=19).contains(&n) {
            return None;
        }
        let low = of_digits(_mm_sub_epi8(load(tail), _mm_set1_epi8(b'0'.cast_signed())));
        let high = text[start..end - 16].iter().fold(0, |high, digit| 10 * high + u64::from(digit - b'0'));
        i64::try_from(high * 10_000_000_000_000_000 + low).ok()
    }

    /// From the `n`th on: which of 16 bytes are the last `n`.
    const KEEP: [u8; 32] = {
        let mut keep = [0; 32];
        let mut i = 16;
        while i < 32 {
            keep[i] = 0xff;
            i += 1;
        }
        keep
    };

    /// A bit for each byte in which they differ.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn differing_bytes(one: &[u8; 32], other: &[u8; 32]) -> u32 {
        // SAFETY: 32 bytes are there, at any alignment.
        let [one, other] = [one, other].map(|bytes| unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) });
        !_mm256_movemask_epi8(_mm256_cmpeq_epi8(one, other)).cast_unsigned()
    }

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there, at any alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// From the `n`th on: where each of 16 digits comes from if there are `n`, with zeros before them.
    const ALIGN: [u8; 32] = {
        let mut places = [0x80; 32];
        let mut i = 16;
        while i < 32 {
            places[i] = i as u8 - 16;
            i += 1;
        }
        places
    };

    /// The number that the leading digits make, and how many they are.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn sixteen_digits(head: &[u8; 16]) -> (u64, usize) {
        let digits = _mm_sub_epi8(load(head), _mm_set1_epi8(b'0'.cast_signed()));
        let are = _mm_cmpeq_epi8(_mm_min_epu8(digits, _mm_set1_epi8(9)), digits);
        let n = (!_mm_movemask_epi8(are)).trailing_zeros() as usize;
        let Some(align) = ALIGN.get(n..).and_then(<[u8]>::first_chunk::<16>) else { return (0, 0) };
        (of_digits(_mm_shuffle_epi8(digits, load(align))), n)
    }

    /// What two neighbours are multiplied by, in one lane.
    const fn weights(first: i32, second: i32) -> i32 {
        first + (second << 16)
    }

    /// The number that 16 digits make.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn of_digits(digits: __m128i) -> u64 {
        let tens = _mm_setr_epi8(10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1);
        let pairs = _mm_maddubs_epi16(digits, tens);
        let fours = _mm_madd_epi16(pairs, _mm_set1_epi32(weights(100, 1)));
        let packed = _mm_packus_epi32(fours, fours);
        let eights = _mm_madd_epi16(packed, _mm_set1_epi32(weights(10_000, 1)));
        let both = _mm_cvtsi128_si64(eights).cast_unsigned();
        (both & 0xffff_ffff) * 100_000_000 + (both >> 32)
    }

    /// A bit for each byte that ends a string or cannot stand in it: quotes, backslashes, control characters.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn ends_of_string(head: &[u8; 16]) -> u32 {
        let bytes = load(head);
        let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
        let backslashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
        let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, backslashes), controls)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Portable, Scan, number_end};

    fn both(text: &str, check: impl Fn(&dyn Fn(&[u8], usize) -> (i64, usize), &dyn Fn(&[u8], usize) -> Option<usize>)) {
        let _ = text;
        check(&Portable::number, &Portable::string_end);
        #[cfg(target_arch = "x86_64")]
        if super::Wide::is_there() {
            check(&super::Wide::number, &super::Wide::string_end);
        }
    }

    fn padded(text: &str) -> Vec<u8> {
        [text.as_bytes(), &[0; 64]].concat()
    }

    #[test]
    fn numbers_are_plain_or_none() {
        for digits in 0..24 {
            for first in ["1", "9", "0", ""] {
                for end in [",", "]", "}", " ", ".5", "/", ":", "e1"] {
                    let number = if first.is_empty() { String::new() } else { first.to_owned() + &"7".repeat(digits) };
                    let text = padded(&format!("xx{number}{end}"));
                    let fits = !number.is_empty() && (number.len() == 1 || !number.starts_with('0'));
                    let value: Option<i64> = number.parse().ok().filter(|_| fits);
                    let expected = value.map_or((0, 0), |value| (value, number.len()));
                    both(&number, |find, _| assert_eq!(find(&text, 2), expected, "{number}{end}"));
                }
            }
        }
        for number in [i64::MAX.to_string(), "9223372036854775808".to_owned(), "1764380000123456789".to_owned()] {
            let expected = number.parse().map_or((0, 0), |value: i64| (value, number.len()));
            both(&number, |find, _| assert_eq!(find(&padded(&number), 0), expected));
        }
    }

    #[test]
    fn arrays_of_plain_numbers_are_read_whole_or_not_at_all() {
        let numbers: Vec<String> =
            (0..200_u64).map(|i| (i * i * i * 0x9e37_79b9).to_string()[..=i as usize % 7].to_owned()).collect();
        let mut arrays: Vec<(String, bool)> = vec![
            ("1]".into(), true),
            ("0,0,10]".into(), true),
            ("1764380000123456789, 1764380000123456790,9223372036854775807]".into(), true),
            ("9223372036854775808]".into(), false),
            ("12345678901234567890]".into(), false),
            ("1,,2]".into(), false),
            ("1,]".into(), false),
            (",1]".into(), false),
            ("1,  2]".into(), false),
            (" 1]".into(), false),
            ("1 ,2]".into(), false),
            ("1, ]".into(), false),
            ("1,01]".into(), false),
            ("1,-1]".into(), false),
            ("1.0]".into(), false),
            ("1,2}".into(), false),
            ("]".into(), false),
        ];
        for n in 1..numbers.len() {
            let plain = numbers[..n].iter().all(|number| number == "0" || !number.starts_with('0'));
            arrays.push((numbers[..n].join(",") + "]", plain));
            arrays.push((numbers[..n].join(", ") + "]", plain));
        }
        for (array, plain) in arrays {
            for before in ["[", "{\"token_ns\":["] {
                let text = padded(&format!("{before}{array},7]"));
                let values = array.trim_end_matches(']').split(',').map(|number| number.trim().parse::<i64>());
                let expected =
                    plain.then(|| (values.map(Result::unwrap).collect::<Vec<_>>(), before.len() + array.len()));
                for scan in [Portable::numbers, WIDE] {
                    let mut found = Vec::new();
                    let end = scan(&text, before.len(), &mut found);
                    assert_eq!(end.map(|end| (found, end)), expected, "{array}");
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    const WIDE: fn(&[u8], usize, &mut Vec<i64>) -> Option<usize> = |text, at, numbers| {
        if super::Wide::is_there() {
            super::Wide::numbers(text, at, numbers)
        } else {
            Portable::numbers(text, at, numbers)
        }
    };
    #[cfg(not(target_arch = "x86_64"))]
    const WIDE: fn(&[u8], usize, &mut Vec<i64>) -> Option<usize> = Portable::numbers;

    #[test]
    fn strings_end_at_the_first_quote_unless_something_odd_comes_before() {
        for length in 0..40 {
            for (odd, plain) in [("", true), ("\\n", false), ("\u{1f}", false), ("\u{7f}é", true), ("\0", false)] {
                let text = padded(&format!("\"{}{odd}\",\"x\"", "a".repeat(length)));
                let expected = plain.then_some(1 + length + odd.len());
                both(odd, |_, end| assert_eq!(end(&text, 1), expected, "{length} {odd:?}"));
            }
            both("", |_, end| assert_eq!(end(&padded(&"a".repeat(length)), 0), None));
        }
    }

    #[test]
    fn numbers_that_are_passed_over_keep_the_grammar() {
        for (text, length) in [
            ("0", Some(1)),
            ("-0", Some(2)),
            ("12.5e-3", Some(7)),
            ("1E+10", Some(5)),
            ("1e5", Some(3)),
            ("0.25", Some(4)),
            ("01", None),
            ("-", None),
            ("1.", None),
            ("1e", None),
            ("1e+", None),
            (".5", None),
            ("NaN", None),
            ("", None),
        ] {
            for end in [",", "}", " "] {
                assert_eq!(number_end(&padded(&format!("{text}{end}")), 0), length, "{text}");
            }
        }
    }
}
