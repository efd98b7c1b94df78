//! Shares of a limited resource, such as disk space or memory, that namespaces use.

use std::collections::BTreeMap;

/// Limits of a resource in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Limit of all namespaces together.
    pub total: u64,
    pub per_namespace: u64,
}

/// A part of the resource that a namespace uses.
#[derive(Clone, Debug)]
pub struct Held<'a, T> {
    pub namespace: &'a str,
    pub bytes: u64,
    /// When it was used last. `None` if it cannot be removed now.
    pub removable: Option<T>,
}

/// Which quota would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// That of the namespace. What the namespace uses and cannot be removed.
    Namespace { used: u64 },
    /// That of all namespaces together.
    Total,
}

/// The part of the total that namespaces with no more than their equal share may use in addition, while what others use cannot be
/// removed.
const RESERVE: u64 = 8;

/// Chooses what is removed so that a namespace can use `added` bytes more, as positions in `held`: first the least recently used
/// of the same namespace, if it would exceed its quota; then, while the total would be exceeded, the least recently used of the
/// namespace that uses most. Only a namespace that uses more than its equal share, and at least as much as the one that needs room,
/// loses something to another one. If there is none, a namespace with no more than its equal share can use a reserve. Nothing is
/// removed without need: if the quotas would be exceeded anyway, this fails.
pub fn make_room<T: Ord + Copy>(
    held: &[Held<'_, T>],
    quotas: Quotas,
    namespace: &str,
    added: u64,
) -> Result<Vec<usize>, Exceeded> {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let mut removable: BTreeMap<&str, Vec<(T, usize)>> = BTreeMap::new();
    for (at, one) in held.iter().enumerate() {
        *used.entry(one.namespace).or_default() += one.bytes;
        if let Some(last_use) = one.removable {
            removable.entry(one.namespace).or_default().push((last_use, at));
        }
    }
    // The least recently used is the last one.
    for all in removable.values_mut() {
        all.sort_unstable_by(|one, other| other.cmp(one));
    }
    let mut removed = Vec::new();
    let mut own = used.get(namespace).copied().unwrap_or_default();
    while own.saturating_add(added) > quotas.per_namespace {
        let next = removable.get_mut(namespace).and_then(Vec::pop);
        let (_, at) = next.ok_or(Exceeded::Namespace { used: own })?;
        own -= held[at].bytes;
        removed.push(at);
    }
    // From here on with what is added.
    used.insert(namespace, own.saturating_add(added));
    let share = quotas.total / used.len() as u64;
    let reserve = quotas.total / RESERVE;
    loop {
        let total = used.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        if total <= quotas.total {
            return Ok(removed);
        }
        let own = used.get(namespace).copied().unwrap_or_default();
        let largest = largest(&used, &removable, share.saturating_add(1).max(own));
        if largest.is_none() && own <= share && total <= quotas.total.saturating_add(reserve) {
            return Ok(removed);
        }
        let next = removable.get_mut(largest.unwrap_or(namespace)).and_then(Vec::pop);
        let (_, at) = next.ok_or(Exceeded::Total)?;
        *used.entry(held[at].namespace).or_default() -= held[at].bytes;
        removed.push(at);
    }
}

/// Returns the namespace that uses most, of those with at least `minimum` of which something can be removed.
fn largest<'a, T>(
    used: &BTreeMap<&'a str, u64>,
    removable: &BTreeMap<&'a str, Vec<(T, usize)>>,
    minimum: u64,
) -> Option<&'a str> {
    let candidates = removable.iter().filter(|(_, all)| !all.is_empty()).map(|(namespace, _)| *namespace);
    let used = |namespace: &str| used.get(namespace).copied().unwrap_or_default();
    candidates.filter(|namespace| used(namespace) >= minimum).max_by_key(|namespace| used(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTAS: Quotas = Quotas { total: 100, per_namespace: 50 };

    fn held(rows: &[(&'static str, u64, Option<u32>)]) -> Vec<Held<'static, u32>> {
        rows.iter()
            .map(|(namespace, bytes, removable)| Held { namespace, bytes: *bytes, removable: *removable })
            .collect()
    }

    #[test]
    fn a_namespace_makes_room_for_itself_and_the_largest_for_all() {
        type Row = (&'static str, Vec<(&'static str, u64, Option<u32>)>, u64, Result<Vec<usize>, Exceeded>);
        let rows: Vec<Row> = vec![
            ("nothing is held", vec![], 50, Ok(vec![])),
            ("more than the quota", vec![], 51, Err(Exceeded::Namespace { used: 0 })),
            (
                "more than the quota, removes nothing",
                vec![("a", 10, Some(1))],
                51,
                Err(Exceeded::Namespace { used: 0 }),
            ),
            ("it fits", vec![("a", 40, Some(1)), ("b", 50, Some(2))], 10, Ok(vec![])),
            (
                "its own, oldest first",
                vec![("a", 20, Some(9)), ("a", 20, Some(3)), ("b", 20, Some(1))],
                20,
                Ok(vec![1]),
            ),
            (
                "its own, several",
                vec![("a", 20, Some(9)), ("a", 20, Some(3)), ("b", 20, Some(1))],
                40,
                Ok(vec![1, 0]),
            ),
            (
                "its own are in use",
                vec![("a", 40, None), ("b", 10, Some(1))],
                20,
                Err(Exceeded::Namespace { used: 40 }),
            ),
            (
                "others have filled it",
                vec![("b", 45, Some(1)), ("c", 30, Some(0)), ("c", 20, Some(5))],
                20,
                Ok(vec![1]),
            ),
            ("the largest in turn", vec![("b", 45, Some(7)), ("c", 50, Some(8))], 20, Ok(vec![1])),
            (
                "others are in use: a part of the reserve",
                vec![("b", 50, None), ("c", 50, None)],
                10,
                Ok(vec![]),
            ),
            (
                "the reserve is used up",
                vec![("b", 50, None), ("c", 50, None), ("d", 10, None)],
                10,
                Err(Exceeded::Total),
            ),
            (
                "the reserve is used up: its own",
                vec![("b", 50, None), ("c", 50, None), ("a", 10, Some(1))],
                10,
                Ok(vec![2]),
            ),
            (
                "the reserve is not for more than the equal share",
                vec![("b", 40, None), ("c", 35, None), ("a", 25, None)],
                10,
                Err(Exceeded::Total),
            ),
            (
                "a small one loses nothing to a large one",
                vec![("b", 50, None), ("c", 15, Some(1)), ("a", 30, None)],
                10,
                Err(Exceeded::Total),
            ),
            (
                "a small one loses nothing to a smaller one",
                vec![("b", 50, None), ("c", 25, None), ("d", 25, Some(1))],
                10,
                Ok(vec![]),
            ),
            (
                "a small one beside those in use",
                vec![("b", 50, None), ("c", 30, None), ("c", 20, Some(1))],
                20,
                Ok(vec![2]),
            ),
        ];
        for (what, all, added, expected) in rows {
            assert_eq!(make_room(&held(&all), QUOTAS, "a", added), expected, "{what}");
        }
    }

    #[test]
    fn sizes_do_not_overflow() {
        let unlimited = Quotas { total: u64::MAX, per_namespace: u64::MAX };
        assert_eq!(make_room(&held(&[("a", 10, None)]), unlimited, "a", u64::MAX), Ok(vec![]));
    }
}
