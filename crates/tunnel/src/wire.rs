//! The HTTP/2 connections: between hub and agent, and between two hubs.
//!
//! | request | answer |
//! |---|---|
//! | hub → agent: `CONNECT apiserver` | 200 after the agent has dialed its target, 502 with a text if it cannot |
//! | hub → agent: `GET /about`, header `chandler-hub` with the id of the replica | [`crate::join_message::About`] |
//! | hub → agent: `PUT /config` with [`crate::join_message::HubList`] | 204, or 408 or 500 with a text |
//! | hub → agent: `POST /drain` | 204, then GOAWAY: the agent connects again, and the open streams end on their own |
//! | hub → hub: `CONNECT <tunnel id>.<owner>.<epoch>`, header `chandler-hop: 1` | 200, or the status of the hub with a text |
//! | hub → hub: `GET /about` | the id of the replica |
//!
//! Everything else is answered with 404.

pub mod agent;
pub mod client;
pub mod hub;
mod keep_alive;
mod message;
pub mod peer;
mod server;
pub mod settings;

/// The authority of a `CONNECT` to the API server behind an agent. The hub cannot name another target.
pub const TARGET_AUTHORITY: &str = "apiserver";
/// The header with the id of the hub's replica.
pub const HUB_HEADER: &str = "chandler-hub";
/// The header of a request that a hub has forwarded. It is never forwarded again.
pub const HOP_HEADER: &str = "chandler-hop";

const ABOUT_PATH: &str = "/about";
const CONFIG_PATH: &str = "/config";
const DRAIN_PATH: &str = "/drain";
