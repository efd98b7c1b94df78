//! Runs the kubectl and helm CLIs against the clusters of a test.

use std::process::Command;

use chandler_sandbox::{assets::Binary, plane::Plane};
use serde_json::Value;

use crate::world::World;

impl World {
    /// Runs the helm CLI and returns its JSON output.
    pub fn helm(&self, plane: &Plane, arguments: &[&str]) -> Value {
        let output = self.helm_command(plane, arguments).arg("--output").arg("json").output().unwrap();
        assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    pub fn helm_command(&self, plane: &Plane, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.sandbox.assets().path(Binary::Helm));
        command.args(arguments).arg("--kubeconfig").arg(plane.kubeconfig_path());
        command.env("HELM_CACHE_HOME", self.dir.join("helm")).env("HELM_CONFIG_HOME", self.dir.join("helm"));
        command
    }

    /// Runs kubectl on the management cluster as an administrator and returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.kubectl_command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.sandbox.assets().path(Binary::Kubectl));
        command.args(arguments).arg("--kubeconfig").arg(self.sandbox.management().kubeconfig_path());
        command
    }
}
