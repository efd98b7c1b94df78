//! How clients of a chart repository or Git server authenticate.

use axum::http::{HeaderMap, header::AUTHORIZATION};
use base64::{Engine as _, prelude::BASE64_STANDARD};

/// The authentication that a chart repository or Git server requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    Anonymous,
    Basic {
        user: String,
        password: String,
    },
    Bearer(String),
    /// A client certificate of the authority that signed the certificate of the repository.
    ClientCertificate,
}

impl Authentication {
    pub(crate) fn allows(&self, headers: &HeaderMap) -> bool {
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let expected = match self {
            // TLS has verified the client certificate.
            Self::Anonymous | Self::ClientCertificate => return true,
            Self::Basic { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        authorization == Some(expected.as_str())
    }
}
