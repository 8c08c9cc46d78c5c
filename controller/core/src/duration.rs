//! Time spans as NodePools write them: Go durations, or `Never`.

use buffer_api::duration;
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
    let span = duration::parse(text).map_err(|_| error())?;
    SignedDuration::try_from(span).map(Span::After).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations_and_never() {
        assert_eq!(parse("1h30m"), Ok(Span::After(SignedDuration::from_mins(90))));
        assert_eq!(parse("Never"), Ok(Span::Never));
        assert_eq!(parse("never"), Err(ParseSpanError("never".to_owned())));
    }
}
