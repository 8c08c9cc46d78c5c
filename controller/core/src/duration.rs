//! Go durations, as NodePools write them.

use jiff::SignedDuration;

/// A time span of a NodePool, or `Never`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Span {
    /// It ends after so long.
    After(SignedDuration),
    /// It does not end.
    Never,
}

/// A text that is neither a Go duration nor `Never`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a duration like 30s, 1h30m or Never")]
pub struct ParseSpanError(pub String);

/// Reads a duration that is not negative, such as `0s`, `1h30m` or `1.5s`, or `Never`.
pub fn parse(text: &str) -> Result<Span, ParseSpanError> {
    if text == "Never" {
        return Ok(Span::Never);
    }
    let error = || ParseSpanError(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Span::After(SignedDuration::ZERO));
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
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
            _ => return Err(error()),
        };
        total = total.checked_add(scaled(number, nanos).ok_or_else(error)?).ok_or_else(error)?;
        rest = tail;
    }
    // Go keeps durations in 64 bits of nanoseconds.
    i64::try_from(total).map(|nanos| Span::After(SignedDuration::from_nanos(nanos))).map_err(|_| error())
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
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0s", 0)]
    #[case("0", 0)]
    #[case("30s", 30_000)]
    #[case("1h30m", 5_400_000)]
    #[case("1.5s", 1_500)]
    #[case("250ms", 250)]
    #[case("720h", 2_592_000_000)]
    fn reads_go_durations(#[case] text: &str, #[case] millis: i64) {
        assert_eq!(parse(text), Ok(Span::After(SignedDuration::from_millis(millis))));
    }

    #[rstest]
    #[case("")]
    #[case("s")]
    #[case("5")]
    #[case("-5s")]
    #[case("5 s")]
    #[case("1..5s")]
    #[case("never")]
    #[case("99999999999999999999h")]
    #[case("9999999999999h")]
    fn refuses_other_texts(#[case] text: &str) {
        assert_eq!(parse(text), Err(ParseSpanError(text.to_owned())));
    }

    #[test]
    fn reads_never() {
        assert_eq!(parse("Never"), Ok(Span::Never));
    }
}
