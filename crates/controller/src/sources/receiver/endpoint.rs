//! The endpoint of the Service that routes webhooks to the leader.

use std::{net::IpAddr, time::Duration};

use chandler_api::FIELD_MANAGER;
use k8s_openapi::{
    api::{
        core::v1::Service,
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams},
};

/// The name of the port of the Service.
const PORT_NAME: &str = "receiver";
/// The address is written again at this interval, in case somebody has changed the EndpointSlice.
const REPEAT: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(5);

/// The Service that routes to the leader, which has no selector.
#[derive(Clone, Debug)]
pub struct ReceiverService {
    pub namespace: String,
    pub name: String,
    /// The address of the Pod of this manager.
    pub pod_ip: IpAddr,
}

/// Writes the address of this manager to the EndpointSlice of the Service, until the future is dropped. The next leader
/// replaces it.
pub async fn publish(client: Client, service: ReceiverService, port: u16) {
    let mut reported = false;
    loop {
        match apply(&client, &service, port).await {
            Ok(()) => {
                reported = false;
                tokio::time::sleep(REPEAT).await;
            }
            Err(error) => {
                if !reported {
                    let ReceiverService { namespace, name, .. } = &service;
                    tracing::warn!(namespace, name, %error, "cannot write the endpoint of the Service of the receiver");
                }
                reported = true;
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn apply(client: &Client, service: &ReceiverService, port: u16) -> Result<(), kube::Error> {
    let owner = Api::<Service>::namespaced(client.clone(), &service.namespace).get(&service.name).await?;
    let slice = endpoint_slice(service, owner.uid().unwrap_or_default(), port);
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), &service.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    slices.patch(&slice.name_any(), &parameters, &Patch::Apply(&slice)).await?;
    Ok(())
}

/// Returns the EndpointSlice with the leader as the only endpoint. It is deleted with the Service.
fn endpoint_slice(service: &ReceiverService, uid: String, port: u16) -> EndpointSlice {
    let ReceiverService { namespace, name, pod_ip } = service;
    let family = if pod_ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let labels = [
        ("kubernetes.io/service-name", name.as_str()),
        ("endpointslice.kubernetes.io/managed-by", FIELD_MANAGER),
    ];
    EndpointSlice {
        metadata: ObjectMeta {
            // The type of its addresses cannot be changed.
            name: Some(format!("{name}-{}", family.to_lowercase())),
            namespace: Some(namespace.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name: name.clone(),
                uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: vec![Endpoint {
            addresses: vec![pod_ip.to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
            ..Endpoint::default()
        }],
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: Some(i32::from(port)),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_the_only_endpoint() {
        for (ip, name, family) in [("10.0.0.7", "hooks-ipv4", "IPv4"), ("fd00::7", "hooks-ipv6", "IPv6")] {
            let pod_ip = ip.parse().unwrap();
            let service =
                ReceiverService { namespace: "system".to_owned(), name: "hooks".to_owned(), pod_ip };
            let slice = endpoint_slice(&service, "uid".to_owned(), 9292);
            assert_eq!((slice.name_any().as_str(), &*slice.address_type), (name, family));
            assert_eq!(slice.labels()["kubernetes.io/service-name"], "hooks");
            assert_eq!(slice.endpoints[0].addresses, [ip]);
            assert_eq!(slice.ports.unwrap()[0].port, Some(9292));
        }
    }
}
