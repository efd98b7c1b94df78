//! Version ranges with the semantics of `Masterminds/semver`, the library that Helm uses.
//!
//! A range consists of alternatives (`||`) of comparators that must all match (separated by commas or spaces). Ranges
//! are not converted to intervals, because the rule that a pre-release matches only if an alternative names one cannot
//! be expressed by intervals. The only difference: `^*` matches any version, as the library documents, while the
//! library itself matches 0.0.0 only.

use std::{cmp::Ordering, fmt, str::FromStr};

use semver::{BuildMetadata, Prerelease, Version};

// The limits of Helm's library.
const MAX_LENGTH: usize = 512;
const MAX_ALTERNATIVES: usize = 32;

/// A version range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The original text, for messages.
    text: String,
    alternatives: Vec<Alternative>,
}

/// An invalid range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version range: {problem}; write it like `^1.2`, `>=1.30 <1.35` or `1.x || 3.x`")]
pub struct RangeError {
    text: String,
    problem: RangeProblem,
}

/// Why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum RangeProblem {
    #[error("it is longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("it has more than {MAX_ALTERNATIVES} alternatives")]
    TooManyAlternatives,
    #[error("it is empty")]
    Empty,
    #[error("a hyphen must be between two versions without operators")]
    Hyphen,
    #[error("it ends with a comma")]
    EndsWithComma,
    #[error("a version is missing")]
    NoVersion,
    #[error("unexpected `{0}`")]
    Unexpected(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alternative {
    comparators: Vec<Comparator>,
    /// Whether a comparator names a pre-release, so that pre-releases can match.
    pre_releases: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparator {
    operator: Operator,
    version: Version,
    precision: Precision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Tilde,
    Caret,
}

/// The number of components of a version that are specified. The rest is missing or `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    None,
    Major,
    Minor,
    Patch,
}

impl Range {
    /// Returns the range of all versions except pre-releases.
    pub fn any() -> Self {
        let comparator = Comparator {
            operator: Operator::Equal,
            version: Version::new(0, 0, 0),
            precision: Precision::None,
        };
        let alternative = Alternative { comparators: vec![comparator], pre_releases: false };
        Self { text: "*".to_owned(), alternatives: vec![alternative] }
    }

    /// Returns the range that contains only this version.
    pub fn exactly(version: &Version) -> Self {
        let comparator =
            Comparator { operator: Operator::Equal, version: version.clone(), precision: Precision::Patch };
        let alternative =
            Alternative { comparators: vec![comparator], pre_releases: !version.pre.is_empty() };
        Self { text: format!("={version}"), alternatives: vec![alternative] }
    }

    /// Returns whether a version is in the range.
    pub fn contains(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|alternative| alternative.contains(version))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let shown = || text.chars().take(MAX_LENGTH).collect();
        let error = |problem: RangeProblem| RangeError { text: shown(), problem };
        if text.len() > MAX_LENGTH {
            return Err(error(RangeProblem::TooLong));
        }
        let parts: Vec<_> = text.split("||").collect();
        if parts.len() > MAX_ALTERNATIVES {
            return Err(error(RangeProblem::TooManyAlternatives));
        }
        let alternatives = parts.into_iter().map(Alternative::parse).collect::<Result<_, _>>();
        Ok(Self { text: text.trim().to_owned(), alternatives: alternatives.map_err(error)? })
    }
}

impl Alternative {
    fn parse(text: &str) -> Result<Self, RangeProblem> {
        let mut comparators = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (comparator, after) = Comparator::parse(rest)?;
            if let Some(upper) = hyphen(after) {
                let (upper, after) = upper_bound(&comparator, upper)?;
                comparators.push(Comparator { operator: Operator::GreaterOrEqual, ..comparator });
                comparators.push(upper);
                rest = next(after)?;
            } else {
                comparators.push(comparator);
                rest = next(after)?;
            }
        }
        if comparators.is_empty() {
            return Err(RangeProblem::Empty);
        }
        let pre_releases = comparators.iter().any(|comparator| !comparator.version.pre.is_empty());
        Ok(Self { comparators, pre_releases })
    }

    fn contains(&self, version: &Version) -> bool {
        (version.pre.is_empty() || self.pre_releases)
            && self.comparators.iter().all(|comparator| comparator.matches(version))
    }
}

/// Returns the text after a hyphen with whitespace on both sides.
fn hyphen(after: &str) -> Option<&str> {
    let upper = after.strip_prefix(char::is_whitespace)?.trim_start().strip_prefix('-')?;
    upper.starts_with(char::is_whitespace).then(|| upper.trim_start())
}

fn upper_bound<'a>(lower: &Comparator, text: &'a str) -> Result<(Comparator, &'a str), RangeProblem> {
    let (upper, after) = Comparator::parse(text)?;
    if (lower.operator, upper.operator) != (Operator::Equal, Operator::Equal) {
        return Err(RangeProblem::Hyphen);
    }
    Ok((Comparator { operator: Operator::LessOrEqual, ..upper }, after))
}

/// Returns the text after the comma or whitespace that follows a comparator.
fn next(after: &str) -> Result<&str, RangeProblem> {
    let after = after.trim_start();
    match after.strip_prefix(',').map(str::trim_start) {
        Some("") => Err(RangeProblem::EndsWithComma),
        Some(next) => Ok(next),
        None => Ok(after),
    }
}

impl Comparator {
    /// Parses the comparator at the beginning of a text. Returns it with the rest of the text.
    fn parse(text: &str) -> Result<(Self, &str), RangeProblem> {
        const OPERATORS: [(&str, Operator); 11] = [
            ("!=", Operator::NotEqual),
            (">=", Operator::GreaterOrEqual),
            ("=>", Operator::GreaterOrEqual),
            ("<=", Operator::LessOrEqual),
            ("=<", Operator::LessOrEqual),
            ("~>", Operator::Tilde),
            ("=", Operator::Equal),
            (">", Operator::Greater),
            ("<", Operator::Less),
            ("~", Operator::Tilde),
            ("^", Operator::Caret),
        ];
        let found = OPERATORS.iter().find_map(|(sign, operator)| Some((text.strip_prefix(sign)?, *operator)));
        let (rest, operator) = found.unwrap_or((text, Operator::Equal));
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
        let (version, after) = rest.split_at(end);
        let (version, precision) = pattern(version)?;
        Ok((Self { operator, version, precision }, after))
    }

    fn matches(&self, version: &Version) -> bool {
        let bound = &self.version;
        let order = version.cmp_precedence(bound);
        // With a tilde or without an operator, 0.0.0 and `*` match any version.
        let any = self.precision != Precision::Major && self.precision != Precision::Minor && is_zero(bound);
        match self.operator {
            Operator::Equal if self.precision == Precision::Patch => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => {
                order != Ordering::Less && (any || self.agrees_to(version, Precision::Minor))
            }
            Operator::NotEqual if self.precision == Precision::Patch => order != Ordering::Equal,
            Operator::NotEqual => !self.agrees_to(version, Precision::Minor),
            Operator::Greater if matches!(self.precision, Precision::Major | Precision::Minor) => {
                order == Ordering::Greater && !self.agrees_to(version, Precision::Minor)
            }
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual if self.precision == Precision::Patch => order != Ordering::Greater,
            Operator::LessOrEqual => order != Ordering::Greater || self.agrees_to(version, Precision::Minor),
            Operator::Caret => {
                self.precision == Precision::None
                    || order != Ordering::Less && self.agrees_to(version, leftmost_set(bound, self.precision))
            }
        }
    }

    /// Returns whether a version equals the specified components, down to `depth`.
    fn agrees_to(&self, version: &Version, depth: Precision) -> bool {
        let bound = &self.version;
        let depth = depth.min(self.precision);
        (depth < Precision::Major || version.major == bound.major)
            && (depth < Precision::Minor || version.minor == bound.minor)
            && (depth < Precision::Patch || version.patch == bound.patch)
    }
}

fn is_zero(version: &Version) -> bool {
    (version.major, version.minor, version.patch) == (0, 0, 0)
}

/// Returns the leftmost component that is not zero. A caret allows the components to the right of it to change.
fn leftmost_set(version: &Version, precision: Precision) -> Precision {
    match (version.major, version.minor) {
        (0, 0) => precision,
        (0, _) => Precision::Minor,
        _ => Precision::Major,
    }
}

/// Parses a version whose last components may be missing or `x`.
fn pattern(text: &str) -> Result<(Version, Precision), RangeProblem> {
    let error =
        || if text.is_empty() { RangeProblem::NoVersion } else { RangeProblem::Unexpected(text.to_owned()) };
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(rest, pre)| (rest, Some(pre)));
    let numbers: Vec<_> = numbers.strip_prefix('v').unwrap_or(numbers).split('.').collect();
    if numbers.len() > 3 {
        return Err(error());
    }
    let mut read = [0_u64; 3];
    let mut precision = 0;
    for (position, number) in numbers.iter().enumerate() {
        match *number {
            "x" | "X" | "*" => {}
            digits if precision == position => {
                read[position] = digits.parse().map_err(|_| error())?;
                precision += 1;
            }
            // 1.x.3 means 1.x.
            digits => drop(digits.parse::<u64>().map_err(|_| error())?),
        }
    }
    let version = Version {
        major: read[0],
        minor: read[1],
        patch: read[2],
        pre: Prerelease::new(pre.unwrap_or_default()).map_err(|_| error())?,
        build: BuildMetadata::new(build.unwrap_or_default()).map_err(|_| error())?,
    };
    if pre == Some("") || build == Some("") {
        return Err(error());
    }
    Ok((version, [Precision::None, Precision::Major, Precision::Minor, Precision::Patch][precision]))
}

/// Parses a published version: `1.14.2` and, as in Helm, `v1.14.2` and `1.34`.
pub fn parse_version(text: &str) -> Option<Version> {
    let numbers = text.split(['-', '+']).next()?;
    let all_numbers = !numbers.contains(['x', 'X', '*']);
    pattern(text).ok().filter(|_| all_numbers).map(|(version, _)| version)
}

/// Parses the Kubernetes version of a cluster without vendor suffixes, which Helm ignores too: `v1.34.2-gke.5` and
/// `v1.34.2+vendor` are 1.34.2. Major and minor versions have at most 32 bits, so that the next one
/// can always be computed.
pub fn parse_kubernetes_version(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let numbers: Vec<u64> = text[..end]
        .trim_end_matches('.')
        .split('.')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let (major, minor, patch) = match numbers[..] {
        [major, minor] => (major, minor, 0),
        [major, minor, patch, ..] => (major, minor, patch),
        _ => return None,
    };
    let is_countable = [major, minor].into_iter().all(|number| u32::try_from(number).is_ok());
    is_countable.then(|| Version::new(major, minor, patch))
}

#[cfg(test)]
mod tests;
