//! The add-on that is changed on all clusters: its chart in a Git repository, and its `ExtensionInstance`.

use anyhow::{Result, ensure};
use chandler_sandbox::{
    apply::apply,
    git_server::{GitServer, WorkTree},
    webhook,
};
use serde_json::{Value, json};

use super::sources::{self, SourceGroup};
use crate::{
    chart,
    environment::{DesiredAddon, Environment, NAMESPACE, TARGET_NAMESPACE},
    releases::{DesiredReleases, Key},
};

/// The name of the add-on, of its Source, of its repository, and of the folder with its chart.
pub const NAME: &str = "addon";
const VALUES_FILE: &str = "addon/values.yaml";
/// The Secret of the webhooks, and its value.
const WEBHOOK_SECRET: &str = "webhook";
const WEBHOOK_TOKEN: &str = "bench";
/// Webhooks cause the polls.
const INTERVAL: &str = "24h";

/// The add-on and its desired state.
pub struct Addon<'a> {
    environment: &'a Environment,
    tree: WorkTree,
    url: String,
    /// The address at which the manager receives webhooks.
    receiver: &'a str,
    commit: String,
    parameter: String,
    revision: u64,
}

impl<'a> Addon<'a> {
    /// Creates the repository with the chart.
    pub async fn create(environment: &'a Environment, server: &GitServer, receiver: &'a str) -> Result<Self> {
        let tree = server.create(NAME).await?;
        chart::write(&tree.path().join(NAME))?;
        let commit = tree.commit("Add the chart", &[]).await?;
        let parameter = parameter(0);
        let url = server.url(NAME);
        Ok(Self { environment, tree, url, receiver, commit, parameter, revision: 0 })
    }

    /// Creates the Source and the `ExtensionInstance`.
    pub async fn install(&mut self) -> Result<()> {
        self.revision += 1;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOK_SECRET, "namespace": NAMESPACE},
            "stringData": {"token": WEBHOOK_TOKEN},
        });
        let group = SourceGroup { name: NAME, url: &self.url, interval: INTERVAL };
        let mut source = sources::object(NAME, group);
        source["spec"]["receiver"] = json!({"secret": {"name": WEBHOOK_SECRET, "key": "token"}});
        for object in [&secret, &source, &self.instance()] {
            apply(self.environment.client(), object).await?;
        }
        Ok(())
    }

    /// Changes the chart by a push.
    pub async fn push(&mut self, round: u32) -> Result<()> {
        let values = chart::values(&format!("push-{round}"));
        self.commit = self.tree.commit("Change the greeting", &[(VALUES_FILE, &values)]).await?;
        self.revision += 1;
        Ok(())
    }

    /// Sends the webhook that a Git host would send after a push.
    pub async fn send_webhook(&self) -> Result<()> {
        let path = format!("/hooks/{NAMESPACE}/{NAME}");
        let header = format!("X-Gitlab-Token: {WEBHOOK_TOKEN}");
        let answer = webhook::post(self.receiver, &path, &header, "{}").await?;
        ensure!(answer.contains(" 202 "), "the manager refused a webhook: {answer}");
        Ok(())
    }

    /// Changes the parameters of the `ExtensionInstance`, as `kubectl apply` does.
    pub async fn apply(&mut self, round: u32) -> Result<()> {
        self.parameter = parameter(round);
        self.revision += 1;
        apply(self.environment.client(), &self.instance()).await?;
        Ok(())
    }

    /// Returns the state that the releases of the add-on have to reach.
    pub fn desired<'k>(&'k self, keys: &'k [Key]) -> DesiredReleases<'k> {
        let addon = DesiredAddon { version: &self.commit, greeting: &self.parameter };
        DesiredReleases { keys, addon, revision: self.revision }
    }

    /// A push changes `greeting` in the chart, and the parameter sets `cluster`. Both change the same object of a release.
    fn instance(&self) -> Value {
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "source": {"sourceRef": {"name": NAME}, "path": NAME},
                "clusters": {"selector": {"matchLabels": {"fleet": "bench"}}},
                "release": {"name": NAME, "namespace": TARGET_NAMESPACE},
                "parameters": {"cluster": self.parameter},
                "options": {"wait": false},
            },
        })
    }
}

fn parameter(round: u32) -> String {
    format!("apply-{round}")
}
