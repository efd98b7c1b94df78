//! Traces of the manager and its package tool.

use anyhow::{Context as _, Result};
use chandler_telemetry::trace::{TraceOptions, Tracing};
use clap::Args;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Variables that configure the connection to the OTLP endpoint. The package tool inherits them, but not those that
/// identify the process.
const PREFIX: &str = "OTEL_EXPORTER_OTLP_";

/// The manager's flags for traces.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Send traces to this OTLP/gRPC endpoint, such as `http://collector:4317` [default: tracing is disabled]
    #[arg(long, env = ENDPOINT, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Fraction of traces to sample, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    trace_sample_ratio: f64,
}

impl TraceArgs {
    /// Starts the export of traces. Returns `None` if no endpoint is set.
    pub fn start(&self) -> Result<Option<Tracing>> {
        let Some(endpoint) = self.otlp_endpoint.clone() else { return Ok(None) };
        let options = TraceOptions { endpoint, ratio: self.trace_sample_ratio };
        Ok(Some(Tracing::start("chandler", &options)?))
    }

    /// Returns the environment variables with which the package tool exports its spans.
    pub fn tool_environment(&self) -> Vec<(String, String)> {
        let Some(endpoint) = &self.otlp_endpoint else { return Vec::new() };
        let inherited = std::env::vars().filter(|(key, _)| key.starts_with(PREFIX) && key != ENDPOINT);
        inherited.chain([(ENDPOINT.to_owned(), endpoint.clone())]).collect()
    }
}

/// Exports the remaining spans. Does not wait long if the endpoint is unavailable.
pub async fn shutdown(tracing: Option<Tracing>) {
    let Some(tracing) = tracing else { return };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || tracing.end()).await {
        tracing::warn!(%error, "cannot export the last spans");
    }
}

fn ratio(text: &str) -> Result<f64> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.context("not a number from 0 to 1")
}
