//! The kubeconfig Secret of a Cluster. It is read and patched, and never created: type, labels and owners stay as they are.

use chandler_api::{FIELD_MANAGER, tunnel::ClusterTunnel};
use chandler_core::{
    identity::ClusterKey,
    tunnel::{
        KubeconfigEdit, KubeconfigProxy, KubeconfigRefusal, KubeconfigState, client_certificate_pem,
        direct_kubeconfig, predicted_rotation, proxy_kubeconfig,
    },
};
use chandler_tunnel::{CertificateFacts, TunnelKeys, proxy_credentials::ProxyScope};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{TunnelContext, cluster_key, tunnel_id};
use crate::{ManagementError, ReconcileError};

/// Key of the Secret.
const VALUE: &str = "value";
/// How often a kubeconfig is read again that was changed while it was edited.
const ATTEMPTS: usize = 3;

/// What was done about a kubeconfig.
pub struct Proxied {
    pub state: KubeconfigState,
    /// Whether it was written.
    pub written: bool,
}

/// Lets the kubeconfig of a tunnel's Cluster use the hub as its proxy.
pub async fn proxy(
    context: &TunnelContext,
    tunnel: &ClusterTunnel,
    keys: &TunnelKeys,
) -> Result<Proxied, ReconcileError> {
    let key = cluster_key(tunnel);
    let Some(endpoint) = &tunnel.spec.endpoint else {
        return Ok(Proxied { state: KubeconfigState::NoEndpoint, written: false });
    };
    let (id, epoch) = (tunnel_id(tunnel)?, tunnel.spec.epoch);
    let scope = ProxyScope { namespace: &key.namespace, cluster: &key.name, tunnel: id, epoch };
    let url = scope.proxy_url(&keys.signing, &context.options.proxy_service);
    let Some(management_ca) = context.management_ca.get().await? else {
        return Ok(Proxied { state: KubeconfigState::NoManagementCa, written: false });
    };
    let edit = |text: &str| {
        let proxy = KubeconfigProxy {
            cluster: &key,
            endpoint,
            url: url.expose_secret(),
            management_ca: &management_ca,
        };
        proxy_kubeconfig(text, &proxy)
    };
    Ok(match edit_secret(&context.client, &key, edit).await? {
        Edited::Missing => Proxied { state: KubeconfigState::Waiting, written: false },
        Edited::Refused(refusal) => Proxied { state: KubeconfigState::Refused(refusal), written: false },
        Edited::Unchanged(text) => Proxied { state: proxied(&text), written: false },
        Edited::Written(text) => Proxied { state: proxied(&text), written: true },
    })
}

/// Removes the hub as the proxy of a Cluster's kubeconfig. Returns whether the Secret was written.
pub async fn connect_directly(client: &Client, cluster: &ClusterKey) -> Result<bool, ReconcileError> {
    let edited = edit_secret(client, cluster, |text| direct_kubeconfig(text, cluster)).await?;
    Ok(matches!(edited, Edited::Written(_)))
}

fn proxied(text: &str) -> KubeconfigState {
    KubeconfigState::Proxied { rotation: rotation(text) }
}

/// Returns when Cluster API will replace a kubeconfig. `None` if it has no client certificate.
fn rotation(text: &str) -> Option<Timestamp> {
    let pem = String::from_utf8(client_certificate_pem(text)?).ok()?;
    let facts = CertificateFacts::from_pem(&pem).ok()?;
    Some(predicted_rotation(facts.not_after))
}

/// The result of an edit, with the kubeconfig as it is now.
enum Edited {
    Missing,
    Refused(KubeconfigRefusal),
    Unchanged(String),
    Written(String),
}

/// Reads the Secret, and writes it if `edit` changes it. Cluster API writes it too, so a write fails if the Secret has
/// changed since it was read, and is tried again.
async fn edit_secret(
    client: &Client,
    cluster: &ClusterKey,
    edit: impl Fn(&str) -> KubeconfigEdit,
) -> Result<Edited, ManagementError> {
    let name = format!("{}-kubeconfig", cluster.name);
    let api: Api<Secret> = Api::namespaced(client.clone(), &cluster.namespace);
    let mut attempt = 1;
    loop {
        let what = format!("Secret {}/{name}", cluster.namespace);
        let read = api.get_opt(&name).await.map_err(|source| ManagementError::Read { what, source })?;
        let Some(secret) = read else { return Ok(Edited::Missing) };
        let Some(text) = text_of(&secret) else { return Ok(Edited::Refused(KubeconfigRefusal::Unreadable)) };
        let changed = match edit(&text) {
            KubeconfigEdit::NoChange => return Ok(Edited::Unchanged(text)),
            KubeconfigEdit::Refused(refusal) => return Ok(Edited::Refused(refusal)),
            KubeconfigEdit::Change(changed) => changed,
        };
        match write(&api, &name, &secret, &changed).await {
            Ok(_) => return Ok(Edited::Written(changed)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Edited::Missing),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => attempt += 1,
            Err(source) => return Err(ManagementError::Write { kind: "Secret", name, source }),
        }
    }
}

fn text_of(secret: &Secret) -> Option<String> {
    let value = secret.data.as_ref()?.get(VALUE)?;
    String::from_utf8(value.0.clone()).ok()
}

async fn write(api: &Api<Secret>, name: &str, read: &Secret, text: &str) -> Result<Secret, kube::Error> {
    let value = ByteString(text.as_bytes().to_vec());
    // A merge patch cannot create the Secret, and with the resource version it fails if the Secret has changed.
    let patch = json!({"metadata": {"resourceVersion": read.resource_version()}, "data": {VALUE: value}});
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await
}
