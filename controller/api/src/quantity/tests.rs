use proptest::prelude::*;
use rstest::rstest;

use super::*;

const NANOS_OF_MAX: i128 = 9_223_372_036_854_775_807_000_000_000;

fn parsed(text: &str) -> i128 {
    text.parse::<Quantity>().unwrap().as_nanos()
}

#[rstest]
// numbers and signs
#[case("0", 0)]
#[case("-0", 0)]
#[case("0.0Ki", 0)]
#[case("0e99", 0)]
#[case("00012", 12 * NANOS)]
#[case("+1", NANOS)]
#[case("-1", -NANOS)]
#[case("5.", 5 * NANOS)]
#[case(".5", NANOS / 2)]
#[case("-.5", -NANOS / 2)]
#[case("1.50", NANOS * 3 / 2)]
// decimal suffixes
#[case("1n", 1)]
#[case("1u", 1_000)]
#[case("1m", 1_000_000)]
#[case("1k", 1_000 * NANOS)]
#[case("1M", 1_000_000 * NANOS)]
#[case("1G", 1_000_000_000 * NANOS)]
#[case("1T", 1_000_000_000_000 * NANOS)]
#[case("1P", 1_000_000_000_000_000 * NANOS)]
#[case("1E", 1_000_000_000_000_000_000 * NANOS)]
#[case("0.5E", 500_000_000_000_000_000 * NANOS)]
#[case("-100m", -100_000_000)]
// binary suffixes, with fractions
#[case("1Ki", 1024 * NANOS)]
#[case("1Mi", (1 << 20) * NANOS)]
#[case("1Gi", (1 << 30) * NANOS)]
#[case("1Ti", (1 << 40) * NANOS)]
#[case("1Pi", (1 << 50) * NANOS)]
#[case("1Ei", (1 << 60) * NANOS)]
#[case("1.5Gi", (1536 << 20) * NANOS)]
#[case("0.1Ki", 102_400_000_000)]
#[case(".25Ei", (1 << 58) * NANOS)]
#[case("-1.5Ki", -1536 * NANOS)]
// exponents; a bare E is exa
#[case("1e3", 1_000 * NANOS)]
#[case("1E3", 1_000 * NANOS)]
#[case("1e+3", 1_000 * NANOS)]
#[case("12e-1", 1_200_000_000)]
#[case("1E0", NANOS)]
#[case("12E", 12 * 1_000_000_000_000_000_000 * NANOS)]
#[case("1e-9", 1)]
// finer than nano: away from zero
#[case("0.5n", 1)]
#[case("-0.5n", -1)]
#[case("1.1n", 2)]
#[case("1e-10", 1)]
#[case("1e-99", 1)]
#[case("-1e-2147483649", -1)]
#[case("0.0000000010000001", 2)]
#[case("0.00000000000000000000000001Ei", 12)] // 11.53 nano-units
#[case("0.0000000000000000000000000001Ei", 1)] // 0.1153 nano-units
#[case("0.0000000000000000000000000009Ei", 2)] // 1.04 nano-units
#[case("0.0000000000000000000000000000000001Ei", 1)]
#[case("0.0000000001Ki", 103)] // 102.4 nano-units
// exact beyond 19 digits
#[case("12345678901234567890123n", 12_345_678_901_234_567_890_123)]
#[case("123456789012.123456789", 123_456_789_012_123_456_789)]
#[case("9223372036854775806.999999999", NANOS_OF_MAX - 1)]
#[case("9223372036854775806.9999999991", NANOS_OF_MAX)]
// saturation
#[case("9223372036854775807", NANOS_OF_MAX)]
#[case("9223372036854775808", NANOS_OF_MAX)]
#[case("7Ei", (7 << 60) * NANOS)]
#[case("8Ei", NANOS_OF_MAX)]
#[case("-8Ei", -NANOS_OF_MAX)]
#[case("10E", NANOS_OF_MAX)]
#[case("1e30", NANOS_OF_MAX)]
#[case("-1e99999999999999999999", -NANOS_OF_MAX)]
#[case("99999999999999999999999999999999999999Ei", NANOS_OF_MAX)]
fn reads(#[case] text: &str, #[case] nanos: i128) {
    assert_eq!(parsed(text), nanos.clamp(-NANOS_OF_MAX, NANOS_OF_MAX));
}

#[rstest]
fn refuses(
    #[values(
        "", " ", ".", "-", "+", "+.", "--1", "+-1", "1-", "1+1", "1..2", "1.2.3", "1 ", " 1", "1 Gi", "abc",
        "k", "Ei", "e3", "1K", "1ki", "1KI", "1Zi", "1Yi", "1mi", "1ni", "1kk", "1Gii", "1GiB", "1e", "1e+",
        "1e1.5", "1e3k", "1E3i", "1E+-3", "1_000", "1,5", "0x10", "1\u{b5}", "\u{661}", "\u{ff11}", "NaN",
        "inf", "1\0"
    )]
    text: &str,
) {
    assert_eq!(text.parse::<Quantity>(), Err(ParseQuantityError(text.to_owned())));
}

#[test]
fn hostile_lengths_are_read_and_their_errors_are_short() {
    let zeros = "0".repeat(1_000_000);
    assert_eq!(parsed(&format!("{zeros}1.{zeros}")), NANOS);
    assert_eq!(parsed(&format!("0.{zeros}1Ei")), 1);
    assert_eq!(parsed(&format!("1.{zeros}1")), NANOS + 1);
    assert_eq!(parsed(&format!("1{zeros}")), NANOS_OF_MAX);
    assert_eq!(parsed(&format!("1{zeros}e-1000000")), NANOS);
    assert_eq!(parsed(&format!("0.{zeros}1e1000001")), NANOS);
    assert_eq!(parsed(&format!("1e{zeros}3")), 1000 * NANOS);
    let error = "é".repeat(1_000_000).parse::<Quantity>().unwrap_err();
    assert_eq!(error.to_string(), format!("\"{}\" is not a quantity", "é".repeat(64)));
}

#[rstest]
#[case("0", "0")]
#[case("1000", "1k")]
#[case("1500m", "1500m")]
#[case("0.5", "500m")]
#[case("2000m", "2")]
#[case("0.0001", "100u")]
#[case("1.5n", "2n")]
#[case("1024", "1Ki")]
#[case("1.5Gi", "1536Mi")]
#[case("4096Mi", "4Gi")]
#[case("1048576k", "1000Mi")]
#[case("64000", "64k")]
#[case("1024000", "1024k")] // as long as 1000Ki: decimal
#[case("110", "110")]
#[case("-2048Ki", "-2Mi")]
#[case("12E", "9223372036854775807")]
#[case("9E", "9E")]
#[case("3850Mi", "3850Mi")]
fn is_written_in_canonical_form(#[case] text: &str, #[case] canonical: &str) {
    assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical);
}

#[rstest]
#[case("10", "3", Some(3))]
#[case("1", "250m", Some(4))]
#[case("1", "2", Some(0))]
#[case("40Gi", "4Gi", Some(10))]
#[case("0", "1", Some(0))]
#[case("-5", "1", Some(0))]
#[case("5", "0", None)]
#[case("5", "-1", None)]
#[case("9E", "1n", Some(u64::MAX))]
fn fits(#[case] all: Quantity, #[case] part: Quantity, #[case] times: Option<u64>) {
    assert_eq!(all.fits(part), times);
}

#[test]
fn arithmetic_saturates() {
    let max = Quantity::units(i64::MAX);
    assert_eq!(max.plus(Quantity::milli(1)), max);
    assert_eq!(max.times(i64::MAX), max);
    assert_eq!(max.times(i64::MIN), Quantity::units(i64::MIN));
    assert_eq!(Quantity::units(i64::MIN), Quantity::ZERO.minus(max));
    assert_eq!(Quantity::units(i64::MIN).minus(max), Quantity::units(i64::MIN));
}

#[test]
fn goes_through_the_api_type() {
    let text = k8s_openapi::apimachinery::pkg::api::resource::Quantity::from(Quantity::units(3 << 30));
    assert_eq!(text.0, "3Gi");
    assert_eq!(Quantity::try_from(&text), Ok(Quantity::units(3 << 30)));
}

/// Any amount within the bounds.
fn any_quantity() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        -NANOS_OF_MAX..=NANOS_OF_MAX,
        -10_000_i128..10_000,
        (-10_000_i128..10_000).prop_map(|n| n * NANOS)
    ]
    .prop_map(Quantity)
}

/// An amount small enough that sums and small products stay within the bounds.
fn moderate() -> impl Strategy<Value = Quantity> {
    prop_oneof![-1_000_000_000_000_000_000_i128..1_000_000_000_000_000_000, -10_000_i128..10_000]
        .prop_map(Quantity)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(quantity in any_quantity()) {
        prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
    }

    /// The exact value, computed in one go where it fits 128 bits.
    #[test]
    fn reads_exactly(
        digits in 0_i128..10_000_000_000,
        places in 0_u32..19,
        (suffix, factor) in prop::sample::select(vec![
            ("", 1_i128), ("k", 1000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50),
            ("Ei", 1 << 60), ("E", 1_000_000_000_000_000_000), ("e5", 100_000), ("E+7", 10_000_000),
        ]),
    ) {
        let power = 10_i128.pow(places);
        let point = places as usize;
        let text = format!("{}.{:0point$}{suffix}", digits / power, digits % power);
        let exact = digits * factor * NANOS;
        let expected = exact / power + i128::from(exact % power != 0);
        prop_assert_eq!(parsed(&text), expected.min(NANOS_OF_MAX), "{}", text);
    }

    #[test]
    fn never_fails_on_texts_of_the_grammar_and_stays_within_the_bounds(
        text in r"[+-]?([0-9]{1,40}\.?|[0-9]{0,40}\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,12})?",
    ) {
        let nanos = parsed(&text);
        prop_assert!((-NANOS_OF_MAX..=NANOS_OF_MAX).contains(&nanos));
        let mirrored = match text.strip_prefix('-') {
            Some(positive) => positive.to_owned(),
            None => format!("-{}", text.trim_start_matches('+')),
        };
        prop_assert_eq!(parsed(&mirrored), -nanos);
    }

    #[test]
    fn any_other_text_is_an_error_and_not_a_panic(text in "\\PC{0,20}|[0-9.eEiKn+-]{0,12}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
        }
    }

    #[test]
    fn more_digits_never_make_less(whole in 0_u64.., fraction in "[0-9]{0,30}", more in "[0-9]{0,30}") {
        let less = format!("{whole}.{fraction}");
        let longer = format!("{less}{more}");
        prop_assert!(parsed(&less) <= parsed(&longer));
    }

    #[test]
    fn sums(a in moderate(), b in moderate(), c in moderate()) {
        prop_assert_eq!(a.plus(b), b.plus(a));
        prop_assert_eq!(a.plus(b).plus(c), a.plus(b.plus(c)));
        prop_assert_eq!(a.plus(b).minus(b), a);
        prop_assert_eq!(a.times(3), a.plus(a).plus(a));
        prop_assert_eq!(a < b, a.plus(c) < b.plus(c));
    }

    #[test]
    fn stays_within_the_bounds(a in any_quantity(), b in any_quantity(), count in any::<i64>()) {
        for result in [a.plus(b), a.minus(b), a.times(count)] {
            prop_assert!((-NANOS_OF_MAX..=NANOS_OF_MAX).contains(&result.as_nanos()));
        }
    }

    #[test]
    fn as_many_fit_as_fit(all in moderate(), part in moderate()) {
        match all.fits(part) {
            None => prop_assert!(!part.is_positive()),
            Some(0) => prop_assert!(all < part),
            Some(times) => {
                let times = i64::try_from(times).unwrap();
                prop_assert!(part.times(times) <= all && all < part.times(times + 1));
            }
        }
    }
}
