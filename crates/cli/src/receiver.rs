//! The manager's flags for webhooks of Git hosts and registries.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use chandler_controller::{ReceiverOptions, ReceiverService};
use clap::Args;

/// The manager's flags for webhooks.
#[derive(Debug, Args)]
pub struct ReceiverArgs {
    /// Receive webhooks that request polls of Sources at this listen address, such as 0.0.0.0:9292 [default: none]
    #[arg(long = "receiver-address", id = "receiver_address", value_name = "ADDRESS")]
    address: Option<SocketAddr>,
    /// Service without a selector, in the manager's namespace, whose only endpoint is the leader; its port is named
    /// `receiver`
    #[arg(
        long = "receiver-service",
        id = "receiver_service",
        value_name = "NAME",
        requires = "receiver_address"
    )]
    service: Option<String>,
    /// IP address of the Pod, for `--receiver-service`
    #[arg(long = "receiver-pod-ip", id = "receiver_pod_ip", value_name = "IP", env = "POD_IP")]
    pod_ip: Option<IpAddr>,
}

impl ReceiverArgs {
    /// Returns the options of the receiver. Returns `None` if it is disabled. `namespace` is the manager's own.
    pub fn options(self, namespace: &str) -> Result<Option<ReceiverOptions>> {
        let Self { address, service, pod_ip } = self;
        let Some(address) = address else { return Ok(None) };
        let service = match service {
            Some(name) => {
                let pod_ip = pod_ip.context(
                    "--receiver-service needs the IP address of the Pod: set the environment variable POD_IP from the field \
                     status.podIP, or --receiver-pod-ip",
                )?;
                Some(ReceiverService { namespace: namespace.to_owned(), name, pod_ip })
            }
            None => None,
        };
        Ok(Some(ReceiverOptions { address, service }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_needs_the_address_of_the_pod() {
        let options = |address: Option<&str>, service: Option<&str>, ip: Option<&str>| {
            let arguments = ReceiverArgs {
                address: address.map(|address| address.parse().unwrap()),
                service: service.map(str::to_owned),
                pod_ip: ip.map(|ip| ip.parse().unwrap()),
            };
            arguments.options("system")
        };
        assert!(options(None, None, Some("10.0.0.7")).unwrap().is_none());
        assert!(options(Some("0.0.0.0:9292"), None, None).unwrap().unwrap().service.is_none());
        let error = options(Some("0.0.0.0:9292"), Some("hooks"), None).unwrap_err();
        assert!(error.to_string().contains("POD_IP"), "{error}");
        let service =
            options(Some("0.0.0.0:9292"), Some("hooks"), Some("10.0.0.7")).unwrap().unwrap().service;
        assert_eq!(service.unwrap().namespace, "system");
    }
}
