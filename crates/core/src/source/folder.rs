//! The folder of a package, as the template in a path results in it.

use crate::failure::{Category, Failure};

/// What a template writes for a field that does not exist.
const NO_VALUE: &str = "<no value>";

/// Checks the path that a template results in for a cluster. A part of it that is empty, because a label does not exist, for
/// example, would name a folder above: the package would contain what is for other clusters.
pub fn evaluated_path(template: &str, text: &str) -> Result<String, Failure> {
    let (template, mut path) = (template.trim(), text.trim());
    if template.starts_with('/') {
        path = path.strip_prefix('/').unwrap_or(path);
    }
    if template.ends_with('/') {
        path = path.strip_suffix('/').unwrap_or(path);
    }
    let is_wrong = |part: &str| part.trim().is_empty() || part == ".." || part.contains(NO_VALUE);
    if path.split('/').any(is_wrong) {
        let message = format!(
            "the template in the path of the package results in {path:?} for this cluster, but each of its parts must name a \
             folder; check that what the template refers to exists"
        );
        return Err(Failure::new(Category::InvalidSpec, message));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_path_names_a_folder() {
        for good in ["clusters", "clusters/eu/blue", " clusters/eu\n", "./clusters"] {
            assert_eq!(evaluated_path("{{ . }}", good).unwrap(), good.trim());
        }
        assert_eq!(evaluated_path("/clusters/{{ . }}/", "/clusters/eu/").unwrap(), "clusters/eu");
        assert!(evaluated_path("/clusters/{{ . }}/", "/clusters//").is_err());
        let missing = ["", " \n", "clusters/", "/clusters", "clusters//blue", "clusters/ /blue"];
        let others = ["clusters/<no value>", "clusters/../other", ".."];
        for bad in missing.into_iter().chain(others) {
            let refused = evaluated_path("{{ . }}", bad).unwrap_err();
            assert_eq!(refused.category, Category::InvalidSpec);
            assert!(refused.message.contains("each of its parts must name a folder"), "{refused}");
        }
    }
}
