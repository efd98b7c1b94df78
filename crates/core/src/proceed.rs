//! A person's word that a step of a Cluster's life goes on although add-ons would hold it.

/// Annotation of a Cluster: the hooks that no longer hold it, separated by commas; `*` for all of them.
pub const PROCEED_ANNOTATION: &str = "chandler.dev/proceed";

/// Whether the annotation lets a hook go on. Names are those of the hooks, spelled as Cluster API spells them.
pub fn proceeds(annotation: Option<&str>, hook: &str) -> bool {
    let mut named = annotation.unwrap_or_default().split(',').map(str::trim);
    named.any(|name| name == "*" || name == hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_goes_on() {
        let rows = [
            (None, false),
            (Some(""), false),
            (Some("BeforeClusterUpgrade"), true),
            (Some("*"), true),
            (Some("AfterClusterUpgrade, BeforeClusterUpgrade"), true),
            (Some("AfterClusterUpgrade,*"), true),
            (Some("AfterClusterUpgrade"), false),
            // Nobody is taken at half a word.
            (Some("Before"), false),
            (Some("BeforeClusterUpgradeToo"), false),
            (Some("beforeclusterupgrade"), false),
            (Some("true"), false),
        ];
        for (annotation, expected) in rows {
            assert_eq!(proceeds(annotation, "BeforeClusterUpgrade"), expected, "{annotation:?}");
        }
    }
}
