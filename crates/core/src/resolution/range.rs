//! Ranges of versions as Helm users write them: the rules of the library that Helm uses, `Masterminds/semver`.
//!
//! A range is alternatives (`||`) of requirements that all hold (a comma or a space). It is asked about one version at a
//! time and not turned into intervals: that a pre-release matches only where an alternative names one has no interval.
//! One exception: `^*` is any version, as that library documents; it answers for 0.0.0 alone.

use std::{cmp::Ordering, fmt, str::FromStr};

use semver::{BuildMetadata, Prerelease, Version};

/// The limits of Helm's library.
const LONGEST: usize = 512;
const MOST_ALTERNATIVES: usize = 32;

/// A range of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// As it was written, for messages.
    text: String,
    alternatives: Vec<Alternative>,
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a range of versions: {problem}; write it like `^1.2`, `>=1.30 <1.35` or `1.x || 3.x`"
)]
pub struct RangeError {
    text: String,
    problem: Problem,
}

/// What is wrong with a text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it is longer than {LONGEST} letters")]
    TooLong,
    #[error("it has more than {MOST_ALTERNATIVES} alternatives")]
    TooManyAlternatives,
    #[error("nothing is written")]
    Empty,
    #[error("a hyphen stands between two versions, without operators")]
    Hyphen,
    #[error("nothing follows the comma")]
    EndsWithComma,
    #[error("a version is missing")]
    NoVersion,
    #[error("`{0}` was not expected")]
    Unexpected(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alternative {
    requirements: Vec<Requirement>,
    /// One requirement names a pre-release, so pre-releases are looked at.
    pre_releases: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    operator: Operator,
    version: Version,
    given: Given,
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

/// How much of a version was written; the rest is missing or `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Given {
    Nothing,
    Major,
    Minor,
    Patch,
}

impl Range {
    /// Every version but pre-releases.
    pub fn any() -> Self {
        let requirement =
            Requirement { operator: Operator::Equal, version: Version::new(0, 0, 0), given: Given::Nothing };
        let alternative = Alternative { requirements: vec![requirement], pre_releases: false };
        Self { text: "*".to_owned(), alternatives: vec![alternative] }
    }

    /// This version and no other.
    pub fn exactly(version: &Version) -> Self {
        let requirement =
            Requirement { operator: Operator::Equal, version: version.clone(), given: Given::Patch };
        let alternative =
            Alternative { requirements: vec![requirement], pre_releases: !version.pre.is_empty() };
        Self { text: format!("={version}"), alternatives: vec![alternative] }
    }

    /// Whether a version is in the range.
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
        let refuse = |problem: Problem| RangeError { text: text.to_owned(), problem };
        if text.len() > LONGEST {
            return Err(refuse(Problem::TooLong));
        }
        let parts: Vec<_> = text.split("||").collect();
        if parts.len() > MOST_ALTERNATIVES {
            return Err(refuse(Problem::TooManyAlternatives));
        }
        let alternatives = parts.into_iter().map(Alternative::parse).collect::<Result<_, _>>();
        Ok(Self { text: text.trim().to_owned(), alternatives: alternatives.map_err(refuse)? })
    }
}

impl Alternative {
    fn parse(text: &str) -> Result<Self, Problem> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (requirement, after) = Requirement::parse(rest)?;
            if let Some(upper) = hyphen(after) {
                let (upper, after) = upper_bound(&requirement, upper)?;
                requirements.push(Requirement { operator: Operator::GreaterOrEqual, ..requirement });
                requirements.push(upper);
                rest = next(after)?;
            } else {
                requirements.push(requirement);
                rest = next(after)?;
            }
        }
        if requirements.is_empty() {
            return Err(Problem::Empty);
        }
        let pre_releases = requirements.iter().any(|requirement| !requirement.version.pre.is_empty());
        Ok(Self { requirements, pre_releases })
    }

    fn contains(&self, version: &Version) -> bool {
        (version.pre.is_empty() || self.pre_releases)
            && self.requirements.iter().all(|requirement| requirement.holds_for(version))
    }
}

/// What follows a hyphen between two versions, which has space on both sides.
fn hyphen(after: &str) -> Option<&str> {
    let upper = after.strip_prefix(char::is_whitespace)?.trim_start().strip_prefix('-')?;
    upper.starts_with(char::is_whitespace).then(|| upper.trim_start())
}

fn upper_bound<'a>(lower: &Requirement, text: &'a str) -> Result<(Requirement, &'a str), Problem> {
    let (upper, after) = Requirement::parse(text)?;
    if (lower.operator, upper.operator) != (Operator::Equal, Operator::Equal) {
        return Err(Problem::Hyphen);
    }
    Ok((Requirement { operator: Operator::LessOrEqual, ..upper }, after))
}

/// What follows the comma or space after a requirement.
fn next(after: &str) -> Result<&str, Problem> {
    let after = after.trim_start();
    match after.strip_prefix(',').map(str::trim_start) {
        Some("") => Err(Problem::EndsWithComma),
        Some(next) => Ok(next),
        None => Ok(after),
    }
}

impl Requirement {
    /// The requirement at the beginning of a text, and what follows it.
    fn parse(text: &str) -> Result<(Self, &str), Problem> {
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
        let written =
            OPERATORS.iter().find_map(|(sign, operator)| Some((text.strip_prefix(sign)?, *operator)));
        let (rest, operator) = written.unwrap_or((text, Operator::Equal));
        let rest = rest.trim_start();
        let end = rest.find(|letter: char| letter.is_whitespace() || letter == ',').unwrap_or(rest.len());
        let (version, after) = rest.split_at(end);
        let (version, given) = pattern(version)?;
        Ok((Self { operator, version, given }, after))
    }

    fn holds_for(&self, version: &Version) -> bool {
        let wanted = &self.version;
        let order = version.cmp_precedence(wanted);
        // 0.0.0 and `*` mean any version to a tilde, and so to nothing before a version.
        let any = self.given != Given::Major && self.given != Given::Minor && is_zero(wanted);
        match self.operator {
            Operator::Equal if self.given == Given::Patch => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => {
                order != Ordering::Less && (any || self.same_line(version, Given::Minor))
            }
            Operator::NotEqual if self.given == Given::Patch => order != Ordering::Equal,
            Operator::NotEqual => !self.same_line(version, Given::Minor),
            Operator::Greater if matches!(self.given, Given::Major | Given::Minor) => {
                order == Ordering::Greater && !self.same_line(version, Given::Minor)
            }
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual if self.given == Given::Patch => order != Ordering::Greater,
            Operator::LessOrEqual => order != Ordering::Greater || self.same_line(version, Given::Minor),
            Operator::Caret => {
                self.given == Given::Nothing
                    || order != Ordering::Less && self.same_line(version, leftmost_set(wanted, self.given))
            }
        }
    }

    /// Whether a version agrees with what was written, down to `depth`.
    fn same_line(&self, version: &Version, depth: Given) -> bool {
        let wanted = &self.version;
        let depth = depth.min(self.given);
        (depth < Given::Major || version.major == wanted.major)
            && (depth < Given::Minor || version.minor == wanted.minor)
            && (depth < Given::Patch || version.patch == wanted.patch)
    }
}

fn is_zero(version: &Version) -> bool {
    (version.major, version.minor, version.patch) == (0, 0, 0)
}

/// The leftmost number that is not zero: a caret lets what is right of it change.
fn leftmost_set(version: &Version, given: Given) -> Given {
    match (version.major, version.minor) {
        (0, 0) => given,
        (0, _) => Given::Minor,
        _ => Given::Major,
    }
}

/// A version of which the end may be missing or `x`.
fn pattern(text: &str) -> Result<(Version, Given), Problem> {
    let refuse = || if text.is_empty() { Problem::NoVersion } else { Problem::Unexpected(text.to_owned()) };
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(rest, pre)| (rest, Some(pre)));
    let numbers: Vec<_> = numbers.strip_prefix('v').unwrap_or(numbers).split('.').collect();
    if numbers.len() > 3 {
        return Err(refuse());
    }
    let mut read = [0_u64; 3];
    let mut given = 0;
    for (place, number) in numbers.iter().enumerate() {
        match *number {
            "x" | "X" | "*" => {}
            digits if given == place => {
                read[place] = digits.parse().map_err(|_| refuse())?;
                given += 1;
            }
            // 1.x.3 means 1.x.
            digits => drop(digits.parse::<u64>().map_err(|_| refuse())?),
        }
    }
    let version = Version {
        major: read[0],
        minor: read[1],
        patch: read[2],
        pre: Prerelease::new(pre.unwrap_or_default()).map_err(|_| refuse())?,
        build: BuildMetadata::new(build.unwrap_or_default()).map_err(|_| refuse())?,
    };
    if pre == Some("") || build == Some("") {
        return Err(refuse());
    }
    Ok((version, [Given::Nothing, Given::Major, Given::Minor, Given::Patch][given]))
}

/// A published version: `1.14.2`, and as Helm takes them also `v1.14.2` and `1.34`.
pub fn parse_version(text: &str) -> Option<Version> {
    let numbers = text.split(['-', '+']).next()?;
    let all_numbers = !numbers.contains(['x', 'X', '*']);
    pattern(text).ok().filter(|_| all_numbers).map(|(version, _)| version)
}

/// A cluster's Kubernetes version without what vendors append to it, which Helm leaves out of account too:
/// `v1.34.2-gke.5` and `v1.34.2+vendor` are 1.34.2.
pub fn parse_kubernetes_version(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let numbers: Vec<u64> = text[..end]
        .trim_end_matches('.')
        .split('.')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    match numbers[..] {
        [major, minor] => Some(Version::new(major, minor, 0)),
        [major, minor, patch, ..] => Some(Version::new(major, minor, patch)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
