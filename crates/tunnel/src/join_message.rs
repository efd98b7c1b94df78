//! The messages between hub and agent: joining, and the requests inside a tunnel.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::agent_config::{HubEndpoint, optional_secret};

/// The path of the join endpoint.
pub const JOIN_PATH: &str = "/join";
/// The largest join request or answer, in bytes.
pub const MAX_JOIN_BYTES: usize = 16 * 1024;
/// The largest answer to `GET /about`, in bytes.
pub const MAX_ABOUT_BYTES: usize = 4 * 1024;
/// The largest list of hubs, in bytes.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// `POST /join`: with a token, or with a client certificate that is to be renewed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_secret")]
    pub token: Option<SecretString>,
    /// The certificate signing request, in PEM. The hub uses nothing of it but the public key.
    pub csr: String,
}

/// The answer of the join endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinResponse {
    /// The certificate chain, in PEM.
    pub certificate: String,
}

/// An answer of the join endpoint that is not a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRefusal {
    pub message: String,
}

/// What an agent says about itself: shown to users, never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    #[serde(default)]
    pub node: String,
    #[serde(default)]
    pub version: String,
}

/// `PUT /config`: a new list of hubs for the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HubList {
    pub hubs: Vec<HubEndpoint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_fields() {
        let request = JoinRequest { token: Some("v1.secret".into()), csr: "PEM".to_owned() };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"token":"v1.secret","csr":"PEM"}"#);
        assert!(!format!("{request:?}").contains("v1.secret"));
        let renewal: JoinRequest = serde_json::from_str(r#"{"csr":"PEM"}"#).unwrap();
        assert!(renewal.token.is_none());
        assert_eq!(serde_json::to_string(&renewal).unwrap(), r#"{"csr":"PEM"}"#);

        let text = r#"{"hubs":[{"address":"hub:443","caBundle":"CA","token":"v1.secret"}]}"#;
        let list: HubList = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), text);
        assert!(!format!("{list:?}").contains("v1.secret"));
    }
}
