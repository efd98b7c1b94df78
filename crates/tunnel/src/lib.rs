//! The tunnel between the hub in the management cluster and the agents of clusters behind NAT: identities, certificates,
//! tokens, TLS, the HTTP/2 connections and the pumps that carry bytes.
//!
//! The agent dials the hub. Inside TLS the roles of HTTP/2 are reversed: the hub is the HTTP/2 client, and the agent is the
//! server. Each connection to the API server behind the agent is one `CONNECT` stream. This crate knows nothing of Kubernetes.

pub mod agent_config;
pub mod authority;
pub mod budget;
pub mod connect_request;
mod http_head;
pub mod identity;
pub mod join_message;
pub mod keys;
pub mod proxy_credentials;
pub mod pump;
mod random;
pub mod signing;
pub mod stream;
pub mod tls;
pub mod token;
pub mod wire;

pub use crate::{
    agent_config::{AgentConfig, HubEndpoint},
    authority::{CertificateAuthority, CertificateFacts},
    budget::Budget,
    identity::{CertificateIdentity, Installation, TunnelId, TunnelIdentity, TunnelKey, TunnelOwner},
    keys::{HubNames, TunnelKeys},
    pump::{Pump, PumpError, Traffic},
    random::RandomError,
    signing::SigningKey,
    stream::TunnelStream,
    token::JoinToken,
    wire::{
        agent::{AgentHandler, serve_agent},
        client::{CloseReason, OpenError},
        hub::AgentConnection,
        peer::{PeerConnection, PeerHandler, serve_peer},
        settings::Settings,
    },
};
