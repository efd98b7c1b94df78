//! Which packages belong to a catalog.

use chandler_api::extensions::CatalogFilter;

use crate::{
    digest::Digest,
    failure::{Category, Failure},
    resolution::{Range, parse_version},
};

/// The charts and versions that a catalog takes of what a repository offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    filter: CatalogFilter,
    versions: Range,
}

impl Selection {
    /// Without a filter: everything but pre-releases.
    pub fn new(filter: Option<&CatalogFilter>) -> Result<Self, Failure> {
        let filter = filter.cloned().unwrap_or_default();
        let versions = filter.versions.as_deref().map_or(Ok(Range::any()), str::parse);
        let versions = versions.map_err(|error| {
            Failure::new(Category::InvalidSpec, format!("spec.filter.versions cannot be used: {error}"))
        })?;
        Ok(Self { filter, versions })
    }

    pub fn takes_chart(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.filter.include.is_empty() || any(&self.filter.include)) && !any(&self.filter.exclude)
    }

    pub fn takes_version(&self, version: &str) -> bool {
        parse_version(version).is_some_and(|version| self.versions.contains(&version))
    }

    /// Whether charts may belong to it that it does not name: to know them, the source has to list what it has.
    pub fn needs_list(&self) -> bool {
        self.filter.include.is_empty() || self.filter.include.iter().any(|name| name.contains('*'))
    }

    /// The charts it names one by one.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let names = self.filter.include.iter().map(String::as_str);
        names.filter(|name| !name.contains('*') && self.takes_chart(name))
    }

    /// Equal selections have equal digests.
    pub fn digest(&self) -> Digest {
        let CatalogFilter { include, exclude, versions } = &self.filter;
        Digest::of(serde_json::json!([include, exclude, versions]).to_string())
    }
}

/// Whether a name is what the pattern says, in which `*` stands for any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str], versions: Option<&str>) -> Selection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filter = CatalogFilter {
            include: owned(include),
            exclude: owned(exclude),
            versions: versions.map(str::to_owned),
        };
        Selection::new(Some(&filter)).unwrap()
    }

    #[test]
    fn patterns() {
        let rows = [
            ("web", "web", true),
            ("web", "webs", false),
            ("*", "", true),
            ("*", "anything", true),
            ("web-*", "web-", true),
            ("web-*", "my-web-x", false),
            ("*-operator", "db-operator", true),
            ("*-operator", "operator", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("aa*aa", "aaa", false),
            ("**", "x", true),
            ("*é*", "café au lait", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_left_out_wins() {
        let some = selection(&["web*", "db"], &["*-old"], None);
        let taken = ["web", "web-old", "db", "cache"].map(|name| some.takes_chart(name));
        assert_eq!(taken, [true, false, true, false]);
        assert_eq!(some.named().collect::<Vec<_>>(), ["db"]);
        assert!(some.needs_list() && !selection(&["db"], &["d*"], None).needs_list());
        let rest = selection(&[], &["db"], None);
        assert!(rest.needs_list());
        assert_eq!(["web", "db"].map(|name| rest.takes_chart(name)), [true, false]);
    }

    #[test]
    fn versions_are_those_of_the_range_and_no_others() {
        let all = Selection::new(None).unwrap();
        let versions = ["1.0.0", "v2.1", "2.0.0-rc.1", "nightly"];
        assert_eq!(versions.map(|version| all.takes_version(version)), [true, true, false, false]);
        let some = selection(&[], &[], Some(">=2.0.0-0"));
        assert_eq!(versions.map(|version| some.takes_version(version)), [false, true, true, false]);
        let bad = CatalogFilter { versions: Some("a b".to_owned()), ..CatalogFilter::default() };
        assert!(Selection::new(Some(&bad)).unwrap_err().message.contains("spec.filter.versions"));
    }

    #[test]
    fn digests_tell_selections_apart() {
        let one = selection(&["a"], &[], None);
        assert_eq!(one.digest(), selection(&["a"], &[], None).digest());
        assert_ne!(one.digest(), selection(&[], &["a"], None).digest());
        assert_ne!(one.digest(), selection(&["a"], &[], Some("1.x")).digest());
    }
}
