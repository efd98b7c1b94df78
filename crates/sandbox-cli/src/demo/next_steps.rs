//! The commands that the demo prints at its end. They need only programs that the demo has built.

use std::{env, path::Path};

use anyhow::{Context as _, Result};
use chandler_sandbox::Sandbox;

use crate::programs::ProgramPaths;

const COMMANDS: &str = r#"
  chandler get
  chandler describe hello
  chandler-sandbox kubectl get clusters,hcp,hrp
  chandler-sandbox kubectl describe hrp
  chandler-sandbox kubectl patch hcp hello --type merge -p '{"spec":{"valuesTemplate":"greeting: Ahoy"}}'
  chandler-sandbox kubectl get hrp -w
  chandler-sandbox kubectl --cluster alpha -n hello get deployment,configmap hello
  chandler-sandbox kubectl label cluster bravo environment-     # removes the add-on from cluster bravo
  chandler-sandbox kubectl delete hcp hello                     # removes it everywhere
  chandler-sandbox kubectl get ext,exti,ar                      # the extensions of cluster harbour
  chandler-sandbox kubectl describe cluster harbour
  chandler describe --cluster harbour
  chandler-sandbox kubectl get src,ar                           # which commit is where
  chandler-sandbox kubectl --cluster alpha get configmap greeting --output yaml

Ctrl-C ends the demo and removes everything."#;

/// Returns the commands to type in another terminal.
pub fn text(sandbox: &Sandbox, programs: &ProgramPaths) -> Result<String> {
    let executable = env::current_exe().context("finding the path of this program")?;
    let mut folders: Vec<_> = [&executable, &programs.chandler].map(|program| folder(program)).to_vec();
    folders.dedup();
    Ok(format!(
        "Try, in another terminal:\n  \
         export PATH=\"{path}:$PATH\"\n  \
         export KUBECONFIG=\"{config}\"\n  \
         export CHANDLER_SANDBOX_DIR=\"{dir}\"{COMMANDS}",
        path = folders.join(":"),
        config = sandbox.management().kubeconfig_path().display(),
        dir = sandbox.folder().root().display(),
    ))
}

fn folder(program: &Path) -> String {
    program.parent().unwrap_or(Path::new(".")).to_string_lossy().into_owned()
}
