//! Exact resource quantities.
//!
//! The grammar is that of `resource.Quantity` in the Kubernetes API: a signed decimal number and a suffix, which is
//! binary (`Ki` … `Ei`), decimal (`n` … `E`) or a decimal exponent (`e3`, `E3`).

use std::{collections::BTreeMap, fmt, str::FromStr};

/// An exact amount of a resource, kept in nano-units (10⁻⁹ of the resource's unit).
///
/// Amounts finer than a nano-unit are rounded away from zero, as Kubernetes does: who asks for a little gets a little.
/// Texts and arithmetic saturate at ±(2⁶³−1) units. Two amounts are equal whatever suffix they were written with.
///
/// The text form is canonical: no fraction and the largest suffix, of the binary or of the decimal family, whichever is
/// shorter.
///
/// ```
/// use buffer_api::Quantity;
///
/// let memory: Quantity = "1.5Gi".parse()?;
/// assert_eq!(memory, Quantity::units(1536 << 20));
/// assert_eq!(memory.times(2).to_string(), "3Gi");
/// # Ok::<(), buffer_api::quantity::ParseQuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Quantity(i128);

/// A text that is not a quantity; holds its first characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a quantity")]
pub struct ParseQuantityError(pub String);

/// Nano-units in a unit, and its power of ten.
const NANOS: i128 = 1_000_000_000;
const NANO_DIGITS: i64 = 9;
/// The greatest amount, in nano-units; it has 28 digits.
const MAX: i128 = (i64::MAX as i128) * NANOS;
/// Characters of a bad text that an error repeats.
const ERROR_CHARS: usize = 64;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A number of whole units; −2⁶³ is cut to the least amount, −(2⁶³−1).
    #[must_use]
    pub const fn units(units: i64) -> Self {
        let nanos = units as i128 * NANOS;
        Self(if nanos < -MAX { -MAX } else { nanos })
    }

    /// A number of thousandths of a unit.
    #[must_use]
    pub const fn milli(milli: i64) -> Self {
        Self(milli as i128 * (NANOS / 1000))
    }

    /// The amount in nano-units.
    #[must_use]
    pub const fn as_nanos(self) -> i128 {
        self.0
    }

    /// Sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).clamp(-MAX, MAX))
    }

    /// Difference, saturating.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self((self.0 - other.0).clamp(-MAX, MAX))
    }

    /// Product with a count, saturating.
    #[must_use]
    pub fn times(self, count: i64) -> Self {
        Self(self.0.saturating_mul(i128::from(count)).clamp(-MAX, MAX))
    }

    /// How often `part` fits into this amount: ⌊self / part⌋, never negative; `None` where `part` is not positive.
    #[must_use]
    pub fn fits(self, part: Self) -> Option<u64> {
        (part.0 > 0).then(|| u64::try_from(self.0.max(0) / part.0).unwrap_or(u64::MAX))
    }

    /// Whether the amount is greater than zero.
    #[must_use]
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }
}

/// Exact amounts of what the API writes as text.
pub fn parse_amounts(
    amounts: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) -> Result<BTreeMap<String, Quantity>, ParseQuantityError> {
    amounts.iter().map(|(name, amount)| Ok((name.clone(), Quantity::try_from(amount)?))).collect()
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseQuantityError(text.chars().take(ERROR_CHARS).collect()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (shift, exponent) = interpret(suffix)?;
    let nanos = nanos(whole, fraction, shift, exponent);
    Some(Quantity(if negative { -nanos } else { nanos }))
}

/// A suffix as (power of two, power of ten).
fn interpret(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, exponent(suffix.strip_prefix(['e', 'E'])?)?),
    })
}

/// A signed number; one that is beyond all bounds is cut to ±2³¹, which is beyond all use as well.
fn exponent(text: &str) -> Option<i64> {
    const BOUND: i64 = 1 << 31;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse().unwrap_or(BOUND).min(BOUND);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// `whole.fraction × 2^shift × 10^exponent` in nano-units, rounded up, at most [`MAX`].
fn nanos(whole: &str, fraction: &str, shift: u32, exponent: i64) -> i128 {
    let digits: Vec<u8> =
        whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').skip_while(|&digit| digit == 0).collect();
    if digits.is_empty() {
        return 0;
    }
    // how many of the digits, the first of which is not 0, stand before the point once the unit is 10⁻⁹
    let point = length(digits.len()) - length(fraction.len()) + exponent + NANO_DIGITS;
    if point > 28 {
        return MAX;
    }
    if point < -18 {
        return 1; // less than 10⁻¹⁹ × 2⁶⁰ nano-units, so less than one
    }
    let split = usize::try_from(point).unwrap_or(0);
    let padded = digits.iter().copied().chain(std::iter::repeat(0)).take(split);
    let integer = padded.fold(0_i128, |value, digit| value * 10 + i128::from(digit));
    // long multiplication of the part behind the point, from its end: exact however long it is
    let leading_zeros = usize::try_from(-point).unwrap_or(0);
    let behind = digits.iter().skip(split).rev().copied().chain(std::iter::repeat_n(0, leading_zeros));
    let (carry, inexact) = behind.fold((0_i128, false), |(carry, inexact), digit| {
        let value = (i128::from(digit) << shift) + carry;
        (value / 10, inexact || value % 10 != 0)
    });
    integer.saturating_mul(1 << shift).saturating_add(carry + i128::from(inexact)).min(MAX)
}

fn length(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.0 == 0 {
            return f.write_str("0");
        }
        let decimal = shortest(self.0, 1000, &DECIMAL);
        if self.0 % NANOS != 0 {
            return f.write_str(&decimal);
        }
        let binary = shortest(self.0 / NANOS, 1024, &BINARY);
        f.write_str(if binary.len() < decimal.len() { &binary } else { &decimal })
    }
}

/// `value` with the largest suffix that leaves no fraction; each suffix is `step` times the one before.
fn shortest(mut value: i128, step: i128, suffixes: &[&str]) -> String {
    let mut suffixes = suffixes.iter().copied();
    let mut suffix = suffixes.next().unwrap_or_default();
    while value % step == 0
        && let Some(next) = suffixes.next()
    {
        value /= step;
        suffix = next;
    }
    format!("{value}{suffix}")
}

impl From<Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl TryFrom<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(
        quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    ) -> Result<Self, Self::Error> {
        quantity.0.parse()
    }
}

#[cfg(test)]
mod tests;
