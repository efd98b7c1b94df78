//! Traces of the manager and its package tool.

use anyhow::{Context as _, Result};
use chandler_telemetry::trace::{TraceOptions, Tracing};
use clap::Args;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// How the receiver is reached and what it wants to be told is the same for both processes; who they are is not.
const PREFIX: &str = "OTEL_EXPORTER_OTLP_";

/// Where traces go.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Send traces over gRPC to this OTLP receiver, such as `http://collector:4317` [default: none are made]
    #[arg(long, env = ENDPOINT, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Part of the traces that is kept, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    trace_sample_ratio: f64,
}

impl TraceArgs {
    pub fn start(&self) -> Result<Option<Tracing>> {
        let Some(endpoint) = self.otlp_endpoint.clone() else { return Ok(None) };
        let options = TraceOptions { endpoint, ratio: self.trace_sample_ratio };
        Ok(Some(Tracing::start("chandler", &options)?))
    }

    /// What the package tool needs to send its part.
    pub fn tool_environment(&self) -> Vec<(String, String)> {
        let Some(endpoint) = &self.otlp_endpoint else { return Vec::new() };
        let inherited = std::env::vars().filter(|(key, _)| key.starts_with(PREFIX) && key != ENDPOINT);
        inherited.chain([(ENDPOINT.to_owned(), endpoint.clone())]).collect()
    }
}

/// Sends what is left. A receiver that is gone holds nobody up for long.
pub async fn end(tracing: Option<Tracing>) {
    let Some(tracing) = tracing else { return };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || tracing.end()).await {
        tracing::warn!(%error, "the last traces are lost");
    }
}

fn ratio(text: &str) -> Result<f64> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.context("it is not a number from 0 to 1")
}
