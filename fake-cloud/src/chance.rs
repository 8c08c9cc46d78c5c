//! Chance that can be repeated: numbers that depend on a seed and on names, and on nothing else.

use std::time::Duration;

/// A number that is evenly spread over all of `u64` and depends on the arguments alone (FNV-1a, then a finalizer
/// that mixes all bits).
#[must_use]
pub fn hash(seed: u64, parts: &[&str]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(PRIME);
    for part in parts {
        // 0xff never occurs in UTF-8, so that ["ab", "c"] and ["a", "bc"] differ
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Whether something that happens in `percent` of the cases happens in this one.
#[must_use]
pub fn happens(percent: u32, seed: u64, parts: &[&str]) -> bool {
    hash(seed, parts) % 100 < u64::from(percent)
}

/// A time between `min` and `max` (or `min`, if that is the greater one), to the microsecond.
#[must_use]
pub fn between(min: Duration, max: Duration, parts: &[&str]) -> Duration {
    let width = u64::try_from(max.saturating_sub(min).as_micros()).unwrap_or(u64::MAX - 1);
    min + Duration::from_micros(hash(0, parts) % (width.saturating_add(1)))
}

/// `base` made up to 4 % longer or shorter, so that what started together does not stay together.
#[must_use]
pub fn jitter(base: Duration, parts: &[&str]) -> Duration {
    between(base * 24 / 25, base * 26 / 25, parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_kept_apart() {
        assert_ne!(hash(0, &["ab", "c"]), hash(0, &["a", "bc"]));
        assert_ne!(hash(1, &["a"]), hash(2, &["a"]));
    }

    #[test]
    fn never_and_always() {
        assert!((0..1000).all(|i| !happens(0, 7, &[&i.to_string()])));
        assert!((0..1000).all(|i| happens(100, 7, &[&i.to_string()])));
    }

    #[test]
    fn thirty_percent_is_about_thirty_percent() {
        let hits = (0..10_000).filter(|i: &u32| happens(30, 42, &["claim", &i.to_string()])).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
    }

    proptest! {
        #[test]
        fn between_stays_between(min in 0_u64..1_000_000, width in 0_u64..1_000_000, name in ".*") {
            let (min, max) = (Duration::from_micros(min), Duration::from_micros(min + width));
            let chosen = between(min, max, &[&name]);
            prop_assert!(min <= chosen && chosen <= max);
            prop_assert_eq!(between(max, min, &[&name]).max(max), max, "an inverted span is its minimum");
        }
    }
}
