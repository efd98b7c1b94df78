//! Which charts and versions of a repository belong to a catalog.

use chandler_api::extensions::CatalogFilter;

use crate::{
    digest::Digest,
    failure::{Category, Failure},
    resolution::{Range, parse_version},
};

/// The filter of a catalog, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    filter: CatalogFilter,
    versions: Range,
}

impl Selection {
    /// Parses `spec.filter`. `None` means everything except pre-releases.
    pub fn new(filter: Option<&CatalogFilter>) -> Result<Self, Failure> {
        let filter = filter.cloned().unwrap_or_default();
        let versions = filter.versions.as_deref().map_or(Ok(Range::any()), str::parse);
        let versions = versions.map_err(|error| {
            Failure::new(Category::InvalidSpec, format!("spec.filter.versions is invalid: {error}"))
        })?;
        Ok(Self { filter, versions })
    }

    pub fn includes_chart(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.filter.include.is_empty() || any(&self.filter.include)) && !any(&self.filter.exclude)
    }

    pub fn includes_version(&self, version: &str) -> bool {
        parse_version(version).is_some_and(|version| self.versions.contains(&version))
    }

    /// Returns whether the filter can match charts that it does not name, so that the source has to be listed.
    pub fn needs_listing(&self) -> bool {
        self.filter.include.is_empty() || self.filter.include.iter().any(|name| name.contains('*'))
    }

    /// Returns the charts that the filter includes by their exact name.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let names = self.filter.include.iter().map(String::as_str);
        names.filter(|name| !name.contains('*') && self.includes_chart(name))
    }

    /// Returns a digest that is equal for equal selections.
    pub fn digest(&self) -> Digest {
        let CatalogFilter { include, exclude, versions } = &self.filter;
        Digest::of(serde_json::json!([include, exclude, versions]).to_string())
    }
}

/// Returns whether a name matches the pattern, in which `*` matches any characters.
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
    fn exclude_takes_precedence_over_include() {
        let some = selection(&["web*", "db"], &["*-old"], None);
        let included = ["web", "web-old", "db", "cache"].map(|name| some.includes_chart(name));
        assert_eq!(included, [true, false, true, false]);
        assert_eq!(some.named().collect::<Vec<_>>(), ["db"]);
        assert!(some.needs_listing() && !selection(&["db"], &["d*"], None).needs_listing());
        let rest = selection(&[], &["db"], None);
        assert!(rest.needs_listing());
        assert_eq!(["web", "db"].map(|name| rest.includes_chart(name)), [true, false]);
    }

    #[test]
    fn only_versions_in_the_range_are_included() {
        let all = Selection::new(None).unwrap();
        let versions = ["1.0.0", "v2.1", "2.0.0-rc.1", "nightly"];
        assert_eq!(versions.map(|version| all.includes_version(version)), [true, true, false, false]);
        let some = selection(&[], &[], Some(">=2.0.0-0"));
        assert_eq!(versions.map(|version| some.includes_version(version)), [false, true, true, false]);
        let bad = CatalogFilter { versions: Some("a b".to_owned()), ..CatalogFilter::default() };
        assert!(Selection::new(Some(&bad)).unwrap_err().message.contains("spec.filter.versions"));
    }

    #[test]
    fn different_selections_have_different_digests() {
        let one = selection(&["a"], &[], None);
        assert_eq!(one.digest(), selection(&["a"], &[], None).digest());
        assert_ne!(one.digest(), selection(&[], &["a"], None).digest());
        assert_ne!(one.digest(), selection(&["a"], &[], Some("1.x")).digest());
    }
}
