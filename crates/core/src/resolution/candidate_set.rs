//! Sets of candidates, identified by their index in the list of versions of an extension.
//!
//! PubGrub's own ranges treat versions as dense: they assume that there may be versions between any two, which would
//! then appear in explanations. The list of published versions is finite.

use std::fmt;

use pubgrub::VersionSet;

use super::budget::count;

/// Index of a version in the list of its extension.
pub(super) type CandidateIndex = u32;

/// A set of candidates or its complement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CandidateSet {
    /// One bit per index, without trailing zero words, so that equal sets are equal vectors.
    words: Vec<u64>,
    /// Whether the set contains all candidates except those in `words`.
    negated: bool,
}

impl CandidateSet {
    fn new(words: impl Iterator<Item = u64>, negated: bool) -> Self {
        let mut words: Vec<_> = words.collect();
        let end = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words.truncate(end);
        Self { words, negated }
    }

    /// Combines both sets word by word.
    fn combine(&self, other: &Self, with: impl Fn(u64, u64) -> u64, negated: bool) -> Self {
        count(1);
        let word = |words: &[u64], index: usize| words.get(index).copied().unwrap_or_default();
        let length = self.words.len().max(other.words.len());
        Self::new((0..length).map(|index| with(word(&self.words, index), word(&other.words, index))), negated)
    }
}

impl FromIterator<CandidateIndex> for CandidateSet {
    fn from_iter<I: IntoIterator<Item = CandidateIndex>>(indices: I) -> Self {
        let mut words = Vec::new();
        for index in indices {
            let (word, bit) = address(index);
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= bit;
        }
        Self { words, negated: false }
    }
}

impl VersionSet for CandidateSet {
    type V = CandidateIndex;

    fn empty() -> Self {
        Self { words: Vec::new(), negated: false }
    }

    fn singleton(index: CandidateIndex) -> Self {
        [index].into_iter().collect()
    }

    fn complement(&self) -> Self {
        Self { words: self.words.clone(), negated: !self.negated }
    }

    fn intersection(&self, other: &Self) -> Self {
        match (self.negated, other.negated) {
            (false, false) => self.combine(other, |one, other| one & other, false),
            (false, true) => self.combine(other, |one, other| one & !other, false),
            (true, false) => self.combine(other, |one, other| !one & other, false),
            (true, true) => self.combine(other, |one, other| one | other, true),
        }
    }

    fn contains(&self, index: &CandidateIndex) -> bool {
        let (word, bit) = address(*index);
        self.words.get(word).is_some_and(|word| word & bit != 0) != self.negated
    }
}

impl fmt::Display for CandidateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Returns the word and the bit of an index.
fn address(index: CandidateIndex) -> (usize, u64) {
    (usize::try_from(index / u64::BITS).unwrap_or(usize::MAX), 1 << (index % u64::BITS))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn sets() -> impl Strategy<Value = CandidateSet> {
        (btree_set(0_u32..150, 0..8), any::<bool>()).prop_map(|(members, negated)| {
            let set: CandidateSet = members.into_iter().collect();
            if negated { set.complement() } else { set }
        })
    }

    proptest! {
        #[test]
        fn operations_are_those_of_sets(one in sets(), other in sets(), index in 0_u32..200) {
            let both = one.intersection(&other);
            prop_assert_eq!(both.contains(&index), one.contains(&index) && other.contains(&index));
            let either = one.union(&other);
            prop_assert_eq!(either.contains(&index), one.contains(&index) || other.contains(&index));
            prop_assert_eq!(one.complement().contains(&index), !one.contains(&index));
        }

        #[test]
        fn equal_sets_compare_equal(one in sets(), other in sets()) {
            prop_assert_eq!(one.union(&other), other.union(&one));
            prop_assert_eq!(one.intersection(&one.complement()), CandidateSet::empty());
            prop_assert_eq!(one.union(&one.complement()), CandidateSet::full());
            prop_assert_eq!(one.complement().complement(), one);
        }
    }
}
