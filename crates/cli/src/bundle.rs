//! `chandler bundle`: bundles of plain manifests, and how the objects of a ClusterResourceSet become one.

mod manifests;
mod plan;
mod resource_set;
mod take_over;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};

use self::plan::{Plan, PlanOptions};
use crate::{connection::Connection, output::StructuredFormat};

#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Make the objects of a ClusterResourceSet a bundle, without restarting them
    ///
    /// Without --write and --apply it changes nothing and prints what it would do. A migration has three steps: --write writes
    /// the manifests to a work tree of the repository of a Source; you commit and push them; --apply creates an
    /// ExtensionInstance that takes the objects over on all clusters, waits until it is ready, and deletes the
    /// ClusterResourceSet. Its ConfigMaps and Secrets are left in place. If a step fails, run it again.
    #[command(name = "migrate-clusterresourceset")]
    MigrateClusterResourceSet(MigrateArgs),
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the ClusterResourceSet [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Name of the ClusterResourceSet
    name: String,
    /// The Source in the same namespace whose repository contains the bundle
    #[arg(long)]
    source: String,
    /// Folder of the bundle in the repository [default: bundles/NAME]
    #[arg(long)]
    path: Option<String>,
    /// Name of the ExtensionInstance and of its releases [default: the name of the ClusterResourceSet]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Namespace of the releases on the clusters, for their records; objects keep their own namespaces
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    release_namespace: String,
    /// Leave Secrets out of the bundle: they stay on the clusters, and Chandler does not manage them
    #[arg(long)]
    leave_secrets: bool,
    /// Apply resources that have changed since the ClusterResourceSet was applied, which changes objects on clusters
    #[arg(long)]
    allow_changes: bool,
    /// Write the bundle to its folder in this work tree of the repository
    #[arg(long, value_name = "WORK_TREE")]
    write: Option<PathBuf>,
    /// Take the objects over, and delete the ClusterResourceSet
    #[arg(long, conflicts_with = "write")]
    apply: bool,
    /// With --apply, how long to wait until all clusters are ready
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_seconds: u64,
    /// Output format of what would be done [default: text]
    #[arg(short, long, value_enum, conflicts_with_all = ["write", "apply"])]
    output: Option<StructuredFormat>,
}

pub async fn run(command: BundleCommand) -> Result<()> {
    match command {
        BundleCommand::MigrateClusterResourceSet(arguments) => migrate(arguments).await,
    }
}

async fn migrate(arguments: MigrateArgs) -> Result<()> {
    let MigrateArgs {
        connection,
        namespace,
        name,
        source,
        path,
        instance,
        release_namespace,
        leave_secrets,
        allow_changes,
        write,
        apply,
        timeout_seconds,
        output,
    } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let set = resource_set::read(&client, &namespace, &name).await?;
    let options = PlanOptions {
        source,
        path: path.unwrap_or_else(|| format!("bundles/{name}")),
        instance: instance.unwrap_or_else(|| name.clone()),
        release_namespace,
        leave_secrets,
    };
    let plan = plan::plan(&set, &options).map_err(|problems| {
        anyhow::anyhow!(
            "ClusterResourceSet {namespace}/{name} cannot be migrated:\n- {}",
            problems.join("\n- ")
        )
    })?;
    if let Some(work_tree) = write {
        write_bundle(&plan, &work_tree)?;
        print!("{}", text::written(&plan, &work_tree));
        return Ok(());
    }
    if apply {
        if !plan.changes.is_empty() && !allow_changes {
            bail!("{}", text::refused_changes(&plan));
        }
        return take_over::run(&client, &set, &plan, Duration::from_secs(timeout_seconds)).await;
    }
    match output {
        Some(format) => print!("{}", format.text(&plan)?),
        None => print!("{}", text::dry_run(&plan)),
    }
    Ok(())
}

/// Writes the files of the bundle. Fails before the first one if its folder contains anything else.
fn write_bundle(plan: &Plan, work_tree: &Path) -> Result<()> {
    let folder = work_tree.join(&plan.path);
    if !work_tree.is_dir() {
        bail!("{} is no folder: clone the repository of Source {} first", work_tree.display(), plan.source);
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let name = entry.with_context(|| format!("reading {}", folder.display()))?.file_name();
        if !plan.files.iter().any(|file| *file.name == *name) {
            bail!(
                "{} contains {}, which would become part of the bundle: choose another folder with --path",
                folder.display(),
                name.display()
            );
        }
    }
    for file in &plan.files {
        let path = folder.join(&file.name);
        fs::write(&path, &file.content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_written_only_to_a_folder_of_its_own() {
        let plan = plan::tests::example();
        let folder = std::env::temp_dir().join(format!("chandler-bundle-{}", std::process::id()));
        assert!(write_bundle(&plan, &folder).is_err(), "there is no work tree");
        fs::create_dir_all(&folder).unwrap();
        for _ in 0..2 {
            write_bundle(&plan, &folder).unwrap();
        }
        let file = folder.join("bundles/cni").join(&plan.files[0].name);
        assert_eq!(fs::read_to_string(file).unwrap(), plan.files[0].content);
        fs::write(folder.join("bundles/cni/other.yaml"), "").unwrap();
        let error = write_bundle(&plan, &folder).unwrap_err();
        assert!(error.to_string().contains("other.yaml"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
