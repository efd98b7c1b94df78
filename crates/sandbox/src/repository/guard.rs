//! Whom a chart repository lets in.

use axum::http::{HeaderMap, header::AUTHORIZATION};
use base64::{Engine as _, prelude::BASE64_STANDARD};

/// Whom a chart repository lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    Open,
    Basic {
        user: String,
        password: String,
    },
    Bearer(String),
    /// Whoever has a certificate of the authority that signed the repository's own.
    Certificate,
}

impl Guard {
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let wanted = match self {
            // Without a certificate, no request arrives.
            Self::Open | Self::Certificate => return true,
            Self::Basic { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        given == Some(wanted.as_str())
    }
}
