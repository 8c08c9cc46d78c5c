//! The nearest right word to a wrong one.

/// The candidate that was most likely meant, if any is near enough to be worth saying.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    // a third of the letters may be wrong
    let tolerance = word.chars().count().div_ceil(3);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The question to put behind a message, or nothing.
pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|word| format!(", did you mean `{word}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("aplly", Some("apply"))]
    #[case("Apply", Some("apply"))]
    #[case("headrom", Some("headroom"))]
    #[case("apyl", Some("apply"))]
    #[case("frobnicate", None)]
    #[case("", None)]
    fn near_words(#[case] word: &str, #[case] expected: Option<&str>) {
        assert_eq!(nearest(word, ["assert", "apply", "headroom"]), expected);
    }
}
