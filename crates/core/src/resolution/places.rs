//! Sets of places in a list of versions.
//!
//! The solver's own ranges think of versions as dense: between two of them there could always be another one, which it
//! would ask for and explain. A list has no such gaps.

use std::fmt;

use pubgrub::VersionSet;

/// Place of a version among those of its extension.
pub(super) type Place = u32;

/// Some places, or all but some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// One bit per place. The last word is not zero, so that equal sets look the same.
    words: Vec<u64>,
    all_but: bool,
}

impl Places {
    fn new(words: impl Iterator<Item = u64>, all_but: bool) -> Self {
        let mut words: Vec<_> = words.collect();
        let end = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words.truncate(end);
        Self { words, all_but }
    }

    /// Word by word, as long as either set has words.
    fn combine(&self, other: &Self, with: impl Fn(u64, u64) -> u64, all_but: bool) -> Self {
        let word = |words: &[u64], index: usize| words.get(index).copied().unwrap_or_default();
        let length = self.words.len().max(other.words.len());
        Self::new((0..length).map(|index| with(word(&self.words, index), word(&other.words, index))), all_but)
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut words = Vec::new();
        for place in places {
            let (index, bit) = address(place);
            if words.len() <= index {
                words.resize(index + 1, 0);
            }
            words[index] |= bit;
        }
        Self { words, all_but: false }
    }
}

impl VersionSet for Places {
    type V = Place;

    fn empty() -> Self {
        Self { words: Vec::new(), all_but: false }
    }

    fn singleton(place: Place) -> Self {
        [place].into_iter().collect()
    }

    fn complement(&self) -> Self {
        Self { words: self.words.clone(), all_but: !self.all_but }
    }

    fn intersection(&self, other: &Self) -> Self {
        match (self.all_but, other.all_but) {
            (false, false) => self.combine(other, |one, other| one & other, false),
            (false, true) => self.combine(other, |one, other| one & !other, false),
            (true, false) => self.combine(other, |one, other| !one & other, false),
            (true, true) => self.combine(other, |one, other| one | other, true),
        }
    }

    fn contains(&self, place: &Place) -> bool {
        let (index, bit) = address(*place);
        self.words.get(index).is_some_and(|word| word & bit != 0) != self.all_but
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn address(place: Place) -> (usize, u64) {
    (usize::try_from(place / u64::BITS).unwrap_or(usize::MAX), 1 << (place % u64::BITS))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn places() -> impl Strategy<Value = Places> {
        (btree_set(0_u32..150, 0..8), any::<bool>()).prop_map(|(members, all_but)| {
            let set: Places = members.into_iter().collect();
            if all_but { set.complement() } else { set }
        })
    }

    proptest! {
        #[test]
        fn operations_are_those_of_sets(one in places(), other in places(), place in 0_u32..200) {
            let both = one.intersection(&other);
            prop_assert_eq!(both.contains(&place), one.contains(&place) && other.contains(&place));
            let either = one.union(&other);
            prop_assert_eq!(either.contains(&place), one.contains(&place) || other.contains(&place));
            prop_assert_eq!(one.complement().contains(&place), !one.contains(&place));
        }

        #[test]
        fn equal_sets_look_the_same(one in places(), other in places()) {
            prop_assert_eq!(one.union(&other), other.union(&one));
            prop_assert_eq!(one.intersection(&one.complement()), Places::empty());
            prop_assert_eq!(one.union(&one.complement()), Places::full());
            prop_assert_eq!(one.complement().complement(), one);
        }
    }
}
