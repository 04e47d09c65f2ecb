//! Whole numbers from their digits, eight at a time.

pub(crate) const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number that the leading digits make, up to 16 of them, and how many those are.
#[inline(always)]
pub(crate) fn leading_digits(text: &[u8]) -> (u64, usize) {
    let Some((head, rest)) = text.split_first_chunk::<8>() else { return leading_digits_bytewise(text) };
    let (high, digits) = eight_digits(u64::from_le_bytes(*head));
    if digits < 8 {
        return (high, digits);
    }
    let Some(next) = rest.first_chunk::<8>() else { return leading_digits_bytewise(text) };
    let (low, more) = eight_digits(u64::from_le_bytes(*next));
    (high * POWERS[more] + low, 8 + more)
}

/// The same for numbers of 64 bits; none (0 digits) if it has more.
#[inline(always)]
pub(crate) fn leading_u64(text: &[u8]) -> (u64, usize) {
    let (mut value, mut digits) = leading_digits(text);
    if digits == 16 {
        while let Some(digit) = text.get(digits).filter(|digit| digit.is_ascii_digit()) {
            let more = value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
            let Some(more) = more else { return (0, 0) };
            (value, digits) = (more, digits + 1);
        }
    }
    (value, digits)
}

/// How many digits stand first.
#[inline(always)]
pub(crate) fn digits_of(text: &[u8]) -> usize {
    let mut digits = 0;
    while let Some(head) = text[digits..].first_chunk::<8>() {
        let (_, more) = eight_digits(u64::from_le_bytes(*head));
        digits += more;
        if more < 8 {
            return digits;
        }
    }
    digits + text[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cold]
fn leading_digits_bytewise(text: &[u8]) -> (u64, usize) {
    let mut value = 0;
    let mut digits = 0;
    while digits < 16 && digits < text.len() && text[digits].is_ascii_digit() {
        value = value * 10 + u64::from(text[digits] - b'0');
        digits += 1;
    }
    (value, digits)
}

/// The number that the leading digits among eight bytes make, and how many there are: all at once, in the manner of
/// "SIMD within a register".
#[inline(always)]
pub(crate) fn eight_digits(bytes: u64) -> (u64, usize) {
    let nibbles = bytes ^ 0x3030_3030_3030_3030;
    // The high bit of each byte that is no digit: those over 9, and those that had it already.
    let others = (nibbles.wrapping_add(0x7676_7676_7676_7676) | nibbles) & 0x8080_8080_8080_8080;
    let digits = (others.trailing_zeros() / 8) as usize;
    if digits == 0 {
        return (0, 0);
    }
    // The digits move to the high end, with zeros before them.
    let aligned = nibbles << (64 - 8 * digits);
    let pairs = aligned.wrapping_mul(10).wrapping_add(aligned >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let value = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (value, digits)
}

#[cfg(test)]
mod tests {
    use super::{digits_of, leading_digits, leading_u64};

    #[test]
    fn leading_digits_are_those_that_stand_first() {
        for text in [
            "",
            "x",
            "0",
            "7,",
            "12345678",
            "123456789]",
            "9007199254740993,1",
            "1234567890123456",
            "99999999x",
            "18446744073709551615]",
            "18446744073709551616]",
            "12345678901234567,",
            "100000000000000000000",
        ] {
            for padding in ["", "        ", ", 12345678901234567"] {
                let text = format!("{text}{padding}");
                let digits: String = text.chars().take_while(char::is_ascii_digit).take(16).collect();
                let expected = (digits.parse().unwrap_or(0), digits.len());
                assert_eq!(leading_digits(text.as_bytes()), expected, "{text:?}");
                let all: String = text.chars().take_while(char::is_ascii_digit).collect();
                assert_eq!(digits_of(text.as_bytes()), all.len(), "{text:?}");
                let expected = if all.is_empty() { Some(0) } else { all.parse().ok() };
                let expected = expected.map_or((0, 0), |value: u64| (value, all.len()));
                assert_eq!(leading_u64(text.as_bytes()), expected, "{text:?}");
            }
        }
    }
}
