//! Texts that say what a migration does, and what to do next.

use std::{fmt::Write as _, path::Path};

use super::plan::Plan;

/// Returns what would be done.
pub fn dry_run(plan: &Plan) -> String {
    let mut text = format!(
        "ClusterResourceSet {}/{} becomes ExtensionInstance {}, whose bundle is {} in the repository of Source {}.\n",
        plan.namespace,
        plan.cluster_resource_set,
        plan.instance_name(),
        plan.path,
        plan.source
    );
    for file in &plan.files {
        let _ = write!(text, "\n{}/{} (from {})\n", plan.path, file.name, file.resource);
        for object in &file.objects {
            let _ = writeln!(text, "  {object}");
        }
    }
    if !plan.left.is_empty() {
        text.push_str("\nLeft on the clusters, not part of the bundle:\n");
        for object in &plan.left {
            let _ = writeln!(text, "  {object}");
        }
    }
    if !plan.changes.is_empty() {
        let _ = write!(text, "\n{}", changes(plan));
    }
    text.push_str(
        "\nNothing was changed. Write the bundle with --write, commit and push it, then use --apply.\n",
    );
    text
}

/// Returns what was written.
pub fn written(plan: &Plan, work_tree: &Path) -> String {
    let mut text = format!("Wrote to {}:\n", work_tree.join(&plan.path).display());
    for file in &plan.files {
        let _ = writeln!(text, "  {}", file.name);
        if file.resource.kind == "Secret" {
            let _ = writeln!(text, "    from {}: check that it may be committed", file.resource);
        }
    }
    text.push_str("Commit and push the folder, then run the command with --apply instead of --write.\n");
    text
}

/// Returns why changes are not applied.
pub fn refused_changes(plan: &Plan) -> String {
    format!(
        "{}Taking the objects over would apply the change. Restore what was applied, or accept the change with --allow-changes",
        changes(plan)
    )
}

fn changes(plan: &Plan) -> String {
    let mut text = "Changed since the ClusterResourceSet was applied:\n".to_owned();
    for change in &plan.changes {
        let _ = writeln!(text, "  {} (cluster {})", change.resource, change.cluster);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::plan::tests::example;

    #[test]
    fn the_dry_run_names_files_objects_and_changes() {
        let text = dry_run(&example());
        let expected = "ClusterResourceSet fleet/cni becomes ExtensionInstance cni, whose bundle is bundles/cni in the \
                        repository of Source git.\n\nbundles/cni/01-cni-cni.yaml (from ConfigMap cni)\n  ConfigMap x/a\n\n\
                        Changed since the ClusterResourceSet was applied:\n  ConfigMap cni (cluster alpha)\n\n\
                        Nothing was changed.";
        assert!(text.starts_with(expected), "{text}");
        assert!(refused_changes(&example()).contains("--allow-changes"));
    }

    #[test]
    fn the_next_step_is_printed() {
        let text = written(&example(), Path::new("work"));
        assert!(text.starts_with("Wrote to work/bundles/cni:\n  01-cni-cni.yaml\n"), "{text}");
        assert!(text.contains("--apply"));
    }
}
