//! The annotation with which users let a lifecycle step of a Cluster proceed although add-ons block it.

/// Annotation of a Cluster: the hooks that must not block it, separated by commas; `*` means all.
pub const PROCEED_ANNOTATION: &str = "chandler.dev/proceed";

/// Returns whether the annotation names a hook. Names are those of the Cluster API runtime hooks, case-sensitive.
pub fn proceeds(annotation: Option<&str>, hook: &str) -> bool {
    let mut named = annotation.unwrap_or_default().split(',').map(str::trim);
    named.any(|name| name == "*" || name == hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_hooks_proceed() {
        let rows = [
            (None, false),
            (Some(""), false),
            (Some("BeforeClusterUpgrade"), true),
            (Some("*"), true),
            (Some("AfterClusterUpgrade, BeforeClusterUpgrade"), true),
            (Some("AfterClusterUpgrade,*"), true),
            (Some("AfterClusterUpgrade"), false),
            // Names have to match exactly.
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
