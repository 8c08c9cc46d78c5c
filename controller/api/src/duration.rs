//! Time spans as Go writes them: `0`, `30s`, `1h30m`, `1.5s`.
//!
//! kube has such a type too; its parser panics on a sign inside the text and on numbers that don't fit, so it is not for
//! texts that users write.

use std::time::Duration;

/// A text that is not a time span; holds its first characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a duration like 30s or 1h30m")]
pub struct ParseDurationError(pub String);

/// Characters of a bad text that an error repeats.
const ERROR_CHARS: usize = 64;

/// Reads a time span that is not negative. As in Go it is below 2⁶³ nanoseconds (292 years).
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    nanos(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| ParseDurationError(text.chars().take(ERROR_CHARS).collect()))
}

fn nanos(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, nanos)?)?;
        rest = tail;
    }
    i64::try_from(total).ok().and_then(|nanos| u64::try_from(nanos).ok())
}

/// `number × nanos`, where the number may have a fraction.
fn scaled(number: &str, nanos: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 19 || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(15)];
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some(whole * nanos + part * nanos / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", 0)]
    #[case("0s", 0)]
    #[case("30s", 30_000)]
    #[case("1h", 3_600_000)]
    #[case("1h30m", 5_400_000)]
    #[case("2m30s", 150_000)]
    #[case("1.5s", 1_500)]
    #[case("250ms", 250)]
    #[case("1500ms", 1_500)]
    #[case("720h", 2_592_000_000)]
    fn reads_go_durations(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("")]
    #[case("s")]
    #[case("5")]
    #[case("-5s")]
    #[case("5s-3s")]
    #[case("5 s")]
    #[case("1..5s")]
    #[case("Never")]
    #[case("99999999999999999999999h")]
    #[case("9999999999999h")]
    fn refuses_other_texts(#[case] text: &str) {
        assert_eq!(parse(text), Err(ParseDurationError(text.to_owned())));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9.hmsunµ+ -]{0,20}") {
            let _ = parse(&text);
        }
    }
}
