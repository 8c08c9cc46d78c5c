//! Exact resource quantities.

use std::{fmt, str::FromStr};

/// An exact amount of a resource, kept in nano-units (10⁻⁹ of the resource's unit).
///
/// Reads every form of the Kubernetes quantity grammar (decimal exponent, binary and decimal SI suffixes,
/// sign); amounts finer than a nano-unit are rounded away from zero, as Kubernetes does. Arithmetic saturates at
/// ±(2⁶³−1) units.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Quantity(i128);

/// A text that is not a quantity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a quantity")]
pub struct ParseQuantityError(pub String);

const NANOS: i128 = 1_000_000_000;
const MAX: i128 = (i64::MAX as i128) * NANOS;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A number of whole units.
    #[must_use]
    pub const fn units(units: i64) -> Self {
        Self(units as i128 * NANOS)
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

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseQuantityError(text.to_owned());
        let digits_end =
            text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (binary, decimal_exponent) = match suffix {
            "" => (1, 0),
            "n" => (1, -9),
            "u" => (1, -6),
            "m" => (1, -3),
            "k" => (1, 3),
            "M" => (1, 6),
            "G" => (1, 9),
            "T" => (1, 12),
            "P" => (1, 15),
            "E" => (1, 18),
            "Ki" => (1_i128 << 10, 0),
            "Mi" => (1 << 20, 0),
            "Gi" => (1 << 30, 0),
            "Ti" => (1 << 40, 0),
            "Pi" => (1 << 50, 0),
            "Ei" => (1 << 60, 0),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(error)?;
                (1, exponent.parse::<i32>().map_err(|_| error())?)
            }
        };
        let (sign, magnitude) = match number.as_bytes().first() {
            Some(b'-') => (-1, &number[1..]),
            Some(b'+') => (1, &number[1..]),
            _ => (1, number),
        };
        let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(error());
        }
        Ok(Self(sign * nanos(whole, fraction, binary, decimal_exponent)))
    }
}

/// `whole.fraction × binary × 10^exponent` in nano-units, rounded up, at most [`MAX`].
fn nanos(whole: &str, fraction: &str, binary: i128, exponent: i32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // value = digits × binary × 10^shift, in nano-units
    let shift = i64::from(exponent) + 9 - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let magnitude = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(shift);
    if magnitude > 29 {
        return MAX;
    }
    if magnitude < -19 {
        return 1;
    }
    // 38 digits fit an i128; digits beyond that only decide about rounding
    let kept = &digits[..digits.len().min(19)];
    let dropped = digits.len() - kept.len();
    let shift = shift + i64::try_from(dropped).unwrap_or(i64::MAX);
    let mut inexact = digits[kept.len()..].bytes().any(|b| b != b'0');
    let value = kept.parse::<i128>().unwrap_or(i128::MAX).saturating_mul(binary);
    let power = 10_i128.checked_pow(u32::try_from(shift.unsigned_abs()).unwrap_or(u32::MAX));
    let nanos = match (shift >= 0, power) {
        (true, Some(power)) => value.saturating_mul(power),
        (true, None) => i128::MAX,
        (false, Some(power)) => {
            inexact |= value % power != 0;
            value / power
        }
        (false, None) => {
            inexact = true;
            0
        }
    };
    nanos.saturating_add(i128::from(inexact)).min(MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, suffix) in [(NANOS, ""), (NANOS / 1000, "m"), (1000, "u"), (1, "n")] {
            if self.0 % unit == 0 {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        Ok(())
    }
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
