//! The Secret from which the nodes of a Cluster get the files of the agent.

use std::collections::BTreeMap;

use chandler_api::{
    FIELD_MANAGER,
    capi::CLUSTER_NAME_LABEL,
    extensions::GROUP,
    tunnel::{AGENT_CONFIG_KEY, AGENT_POD_KEY, ClusterTunnel, TUNNEL_SECRET_SUFFIX},
};
use chandler_core::{
    naming::label_value,
    tunnel::{AGENT_STATE_DIR, SecretOwner, TunnelProblem, agent_pod, secret_owner},
};
use chandler_tunnel::{AgentConfig, HubEndpoint, JoinToken, TunnelKey, TunnelKeys, token::TOKEN_LIFETIME};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{TunnelContext, tunnel_key};
use crate::{ManagementError, ReconcileError, status};

/// The files of the agent, by key of the Secret.
type Files = BTreeMap<String, ByteString>;

/// What was done about the Secret.
#[derive(Debug)]
pub enum Bootstrap {
    /// It is up to date.
    Ready,
    /// Kubernetes deletes it together with an earlier ClusterTunnel.
    BeingDeleted,
    Conflict(TunnelProblem),
}

/// Creates the Secret, or updates it if a file has changed or its join token is old.
pub async fn write(
    context: &TunnelContext,
    tunnel: &ClusterTunnel,
    keys: &TunnelKeys,
) -> Result<Bootstrap, ReconcileError> {
    let name = format!("{}{TUNNEL_SECRET_SUFFIX}", tunnel.spec.cluster_name);
    let namespace = tunnel.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let what = format!("Secret {namespace}/{name}");
    let existing = api.get_opt(&name).await.map_err(|source| ManagementError::Read { what, source })?;
    let image = &context.options.agent_image;
    let Some(existing) = existing else {
        let files = files(tunnel, keys, image, None, Timestamp::now())?;
        create(&api, tunnel, &name, files).await?;
        return Ok(Bootstrap::Ready);
    };
    match secret_owner(tunnel, existing.owner_references()) {
        SecretOwner::Own => {}
        SecretOwner::Former => return Ok(Bootstrap::BeingDeleted),
        SecretOwner::Other => {
            return Ok(Bootstrap::Conflict(TunnelProblem::SecretConflict(format!("{namespace}/{name}"))));
        }
    }
    let files = files(tunnel, keys, image, existing.data.as_ref(), Timestamp::now())?;
    let is_current = |(key, file): (&String, &ByteString)| {
        existing.data.as_ref().and_then(|data| data.get(key)) == Some(file)
    };
    if !files.iter().all(is_current) {
        let patch = json!({"metadata": {"resourceVersion": existing.resource_version()}, "data": files});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let written = api.patch(&name, &parameters, &Patch::Merge(patch)).await;
        written.map_err(|source| ManagementError::Write { kind: "Secret", name, source })?;
    }
    Ok(Bootstrap::Ready)
}

async fn create(
    api: &Api<Secret>,
    tunnel: &ClusterTunnel,
    name: &str,
    files: Files,
) -> Result<(), ManagementError> {
    let owner = OwnerReference {
        api_version: format!("{GROUP}/v1alpha1"),
        kind: status::kind::<ClusterTunnel>().to_owned(),
        name: tunnel.name_any(),
        uid: tunnel.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let cluster = label_value(&tunnel.spec.cluster_name);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(CLUSTER_NAME_LABEL.to_owned(), cluster)].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(files),
        ..Secret::default()
    };
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let created = api.create(&parameters, &secret).await;
    created.map(drop).map_err(|source| ManagementError::Write {
        kind: "Secret",
        name: name.to_owned(),
        source,
    })
}

/// Returns the files of the agent. A join token in `existing` is kept as long as it is valid for long enough, so that an
/// unchanged tunnel has unchanged files.
fn files(
    tunnel: &ClusterTunnel,
    keys: &TunnelKeys,
    image: &str,
    existing: Option<&Files>,
    now: Timestamp,
) -> Result<Files, ReconcileError> {
    let key = tunnel_key(tunnel)?;
    let token = existing.and_then(|files| kept_token(tunnel, key, keys, files, now)).unwrap_or_else(|| {
        let expires = now.checked_add(TOKEN_LIFETIME).unwrap_or(now);
        let TunnelKey { id, owner } = key;
        JoinToken { tunnel: id, owner, epoch: tunnel.spec.epoch, expires }.sign(&keys.signing)
    });
    let config = agent_config(tunnel, key, keys, &token);
    let config = config.to_yaml().map_err(|error| ReconcileError::InvalidTunnel(error.to_string()))?;
    let config = ByteString(config.expose_secret().as_bytes().to_vec());
    let pod = ByteString(agent_pod(image).into_bytes());
    Ok([(AGENT_CONFIG_KEY.to_owned(), config), (AGENT_POD_KEY.to_owned(), pod)].into())
}

fn kept_token(
    tunnel: &ClusterTunnel,
    key: TunnelKey,
    keys: &TunnelKeys,
    files: &Files,
    now: Timestamp,
) -> Option<SecretString> {
    let text = String::from_utf8(files.get(AGENT_CONFIG_KEY)?.0.clone()).ok()?;
    let config = AgentConfig::from_yaml(&text).ok()?;
    config.hubs.into_iter().map(|hub| hub.token).find(|token| {
        // A token of another installation is not signed by these keys.
        let verified = JoinToken::verify(token.expose_secret(), &keys.signing, now);
        verified.is_ok_and(|verified| {
            verified.key() == key && verified.epoch == tunnel.spec.epoch && verified.is_fresh(now)
        })
    })
}

/// Returns the configuration of the agent: the own hubs with this token, and the hubs of other installations that have one.
fn agent_config(
    tunnel: &ClusterTunnel,
    key: TunnelKey,
    keys: &TunnelKeys,
    token: &SecretString,
) -> AgentConfig {
    let own = keys.ca_bundle().trim();
    let hubs = tunnel.spec.hubs.iter().filter_map(|hub| {
        let token =
            if hub.ca_bundle.trim() == own { token.clone() } else { SecretString::from(hub.token.clone()?) };
        Some(HubEndpoint { address: hub.address.clone(), ca_bundle: hub.ca_bundle.clone(), token })
    });
    AgentConfig {
        installation: keys.installation,
        tunnel: key.id,
        hubs: hubs.collect(),
        target: tunnel.spec.target.clone(),
        proxy: tunnel.spec.proxy.clone().map(SecretString::from),
        state_dir: AGENT_STATE_DIR.into(),
        connections: tunnel.spec.connections,
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::{
        identity::{ClusterKey, cluster_owner},
        tunnel::{OwnHubs, new_tunnel},
    };
    use chandler_tunnel::{HubNames, TunnelOwner, token::TOKEN_REFRESH};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn keys() -> TunnelKeys {
        TunnelKeys::generate(&HubNames::new(&["hub.example:443".to_owned()], "system"), now()).unwrap()
    }

    fn tunnel(keys: &TunnelKeys) -> ClusterTunnel {
        let addresses = ["hub.example:443".to_owned()];
        let own = OwnHubs { addresses: &addresses, ca_bundle: keys.ca_bundle() };
        new_tunnel(&ClusterKey::new("fleet", "blue"), cluster_owner("blue", "1"), "0".repeat(32), None, &own)
    }

    fn config(files: &Files) -> AgentConfig {
        AgentConfig::from_yaml(std::str::from_utf8(&files[AGENT_CONFIG_KEY].0).unwrap()).unwrap()
    }

    #[test]
    fn files_change_only_if_the_token_is_old_or_an_input_differs() {
        let keys = keys();
        let tunnel = tunnel(&keys);
        let first = files(&tunnel, &keys, "agent:1", None, now()).unwrap();
        let again = |tunnel: &ClusterTunnel, keys: &TunnelKeys, image: &str, later| {
            files(tunnel, keys, image, Some(&first), now() + later).unwrap()
        };
        let (hour, fresh) =
            (std::time::Duration::from_hours(1), TOKEN_LIFETIME.saturating_sub(TOKEN_REFRESH));
        assert_eq!(again(&tunnel, &keys, "agent:1", fresh), first);
        assert_ne!(again(&tunnel, &keys, "agent:1", fresh + hour), first);
        let other_image = again(&tunnel, &keys, "agent:2", hour);
        assert_eq!(other_image[AGENT_CONFIG_KEY], first[AGENT_CONFIG_KEY]);
        assert_ne!(other_image[AGENT_POD_KEY], first[AGENT_POD_KEY]);
        let mut revoked = tunnel.clone();
        revoked.spec.epoch = 2;
        let token = config(&again(&revoked, &keys, "agent:1", hour)).hubs[0].token.clone();
        let token = JoinToken::verify(token.expose_secret(), &keys.signing, now()).unwrap();
        assert_eq!(token.epoch, 2);
        let mut renamed = tunnel.clone();
        renamed.metadata.namespace = Some("other".to_owned());
        let token = config(&again(&renamed, &keys, "agent:1", hour)).hubs[0].token.clone();
        let token = JoinToken::verify(token.expose_secret(), &keys.signing, now()).unwrap();
        assert_eq!(token.owner, TunnelOwner::of("other", "blue"), "a token is for one Cluster");
        let mut proxied = tunnel.clone();
        proxied.spec.proxy = Some("http://proxy:3128".to_owned());
        let changed = config(&again(&proxied, &keys, "agent:1", hour));
        assert!(changed.proxy.is_some());
        assert_eq!(changed.hubs[0].token.expose_secret(), config(&first).hubs[0].token.expose_secret());
    }

    #[test]
    fn a_hub_of_another_installation_is_named_if_its_token_is_known() {
        let (keys, other) = (keys(), keys());
        let mut tunnel = tunnel(&keys);
        let mut foreign = tunnel.spec.hubs[0].clone();
        foreign.ca_bundle = other.ca_bundle().to_owned();
        foreign.address = "without.example:443".to_owned();
        tunnel.spec.hubs.push(foreign.clone());
        foreign.address = "with.example:443".to_owned();
        foreign.token = Some("token".to_owned());
        tunnel.spec.hubs.push(foreign);
        let config = config(&files(&tunnel, &keys, "agent:1", None, now()).unwrap());
        let addresses: Vec<_> = config.hubs.iter().map(|hub| hub.address.as_str()).collect();
        assert_eq!(addresses, ["hub.example:443", "with.example:443"]);
        assert_eq!(config.hubs[1].token.expose_secret(), "token");
    }
}
