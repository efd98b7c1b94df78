//! The kubeconfig of a cluster that is reached through the hub, for use outside of the management cluster.

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

/// Reads the kubeconfig Secret of a Cluster.
pub async fn read(client: &Client, namespace: &str, cluster: &str) -> Result<SecretString> {
    let name = secret_name(cluster);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret =
        secrets.get_opt(&name).await.with_context(|| format!("reading Secret {namespace}/{name}"))?;
    let Some(secret) = secret else {
        bail!(
            "there is no Secret {namespace}/{name}: Cluster API has not created the kubeconfig yet, or there is no such Cluster"
        );
    };
    let value = secret.data.unwrap_or_default().remove("value");
    let value = value.with_context(|| format!("Secret {namespace}/{name} has no key `value`"))?;
    let text = String::from_utf8(value.0).map_err(|_| anyhow!("Secret {namespace}/{name} is not text"))?;
    Ok(text.into())
}

/// Returns the name of the Secret in which Cluster API stores the kubeconfig of a Cluster.
pub fn secret_name(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// Returns the kubeconfig with another address of the hub, HOST:PORT. User and password of the proxy are kept. Errors contain
/// nothing of the kubeconfig.
pub fn through(kubeconfig: &SecretString, hub: &str) -> Result<SecretString> {
    let mut config: Value = serde_saphyr::from_str(kubeconfig.expose_secret())
        .map_err(|_| anyhow!("the kubeconfig of the cluster is not valid YAML"))?;
    let cluster = current_cluster(&mut config).context(
        "the kubeconfig of the cluster has no current context, or it names a cluster that is not in it",
    )?;
    let Some(proxy) = cluster["proxy-url"].as_str() else {
        bail!(
            "the kubeconfig of the cluster has no proxy-url: its tunnel is not ready; `chandler tunnel describe` says why"
        );
    };
    cluster["proxy-url"] = replace_address(proxy, hub)
        .context("the proxy-url of the kubeconfig is not that of a hub: it has no user and password")?
        .into();
    let text =
        serde_saphyr::to_string(&config).map_err(|_| anyhow!("the kubeconfig cannot be written as YAML"))?;
    Ok(text.into())
}

/// Returns the cluster of the current context.
fn current_cluster(config: &mut Value) -> Option<&mut Value> {
    let context = config["current-context"].as_str()?.to_owned();
    let contexts = config["contexts"].as_array()?;
    let context = contexts.iter().find(|one| one["name"] == context.as_str())?;
    let name = context["context"]["cluster"].as_str()?.to_owned();
    let clusters = config["clusters"].as_array_mut()?;
    let cluster = clusters.iter_mut().find(|one| one["name"] == name.as_str())?;
    cluster.get_mut("cluster").filter(|cluster| cluster.is_object())
}

/// Replaces host and port of a URL with credentials.
fn replace_address(url: &str, address: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, _) = rest.rsplit_once('@')?;
    Some(format!("{scheme}://{credentials}@{address}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubeconfig(proxy: &str) -> SecretString {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "admin@blue",
            "contexts": [
                {"name": "other", "context": {"cluster": "other", "user": "admin"}},
                {"name": "admin@blue", "context": {"cluster": "blue", "user": "admin"}},
            ],
            "clusters": [
                {"name": "other", "cluster": {"server": "https://other:6443"}},
                {"name": "blue", "cluster": {"server": "https://10.0.0.10:6443", "proxy-url": proxy, "extra": 1}},
            ],
            "users": [{"name": "admin", "user": {"token": "canary"}}],
        })
        .to_string()
        .into()
    }

    #[test]
    fn only_the_address_of_the_proxy_changes() {
        let before = kubeconfig("http://fleet.blue:canary@chandler-hub.chandler-system.svc:8132");
        let after = through(&before, "127.0.0.1:40000").unwrap();
        let [mut before, after]: [Value; 2] =
            [&before, &after].map(|text| serde_saphyr::from_str(text.expose_secret()).unwrap());
        assert_eq!(after["clusters"][1]["cluster"]["proxy-url"], "http://fleet.blue:canary@127.0.0.1:40000");
        before["clusters"][1]["cluster"]["proxy-url"] = after["clusters"][1]["cluster"]["proxy-url"].clone();
        assert_eq!(before, after);
    }

    #[test]
    fn errors_contain_no_credentials() {
        let direct = kubeconfig("http://proxy.example:3128");
        let broken: SecretString = "clusters: [canary".to_owned().into();
        let mut none: Value = serde_saphyr::from_str(kubeconfig("").expose_secret()).unwrap();
        none["current-context"] = "nowhere".into();
        let none: SecretString = none.to_string().into();
        for kubeconfig in [&direct, &broken, &none] {
            let error = format!("{:#}", through(kubeconfig, "127.0.0.1:1").unwrap_err());
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
