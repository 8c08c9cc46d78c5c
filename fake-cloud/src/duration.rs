//! Time spans as people write them: Go's syntax (`1.5s`, `2m30s`, `0`).

use std::time::Duration;

/// A text that is not a time span.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{text}\" is not a duration: {why}")]
pub struct ParseDurationError {
    text: String,
    why: String,
}

/// Reads a time span that is not negative and not longer than 16 characters.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let error = |why: &str| ParseDurationError { text: text.to_owned(), why: why.to_owned() };
    // kube's parser panics on a sign inside the text and on numbers that don't fit a Duration
    if text.is_empty() || text.len() > 16 {
        return Err(error("it must have 1 to 16 characters"));
    }
    if text.contains(['-', '+']) {
        return Err(error("it must have no sign"));
    }
    text.parse::<kube::core::Duration>().map(Duration::from).map_err(|e| error(&e.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", 0)]
    #[case("0s", 0)]
    #[case("1500ms", 1_500)]
    #[case("1.5s", 1_500)]
    #[case("2m30s", 150_000)]
    #[case("1h", 3_600_000)]
    fn good(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("")]
    #[case("5")]
    #[case("-5s")]
    #[case("5s-3s")]
    #[case("5 s")]
    #[case("Never")]
    #[case("99999999999999999999999h")]
    fn bad(#[case] text: &str) {
        let message = parse(text).unwrap_err().to_string();
        assert!(message.starts_with(&format!("\"{text}\" is not a duration: ")), "{message}");
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9.hmsunµ+ -]{0,20}") {
            let _ = parse(&text);
        }
    }
}
