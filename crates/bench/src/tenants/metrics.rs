//! Reads the metrics of the manager.

use std::time::Duration;

use anyhow::{Context as _, Result};
use chandler_sandbox::process::Child;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Ends of processes of package tools and of the template service that were not expected.
const CRASHES: &str = "chandler_tool_crashes_total";
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns how many processes of the manager have died so far.
pub async fn deaths(manager: &Child) -> Result<f64> {
    let log = tokio::fs::read_to_string(manager.log()).await.context("reading the log of the manager")?;
    let address = address(&log).context("the log of the manager does not name the address of its metrics")?;
    let metrics =
        tokio::time::timeout(TIMEOUT, get(&address)).await.context("the metrics are not served")??;
    value(&metrics, CRASHES).with_context(|| format!("there is no metric {CRASHES}"))
}

/// Returns the address at which the metrics are served, from the log.
fn address(log: &str) -> Option<String> {
    let line = log.lines().rfind(|line| line.contains("serving /metrics"))?;
    Some(serde_json::from_str::<Value>(line).ok()?["address"].as_str()?.to_owned())
}

fn value(metrics: &str, name: &str) -> Option<f64> {
    let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(metric, _)| *metric == name)?.1.parse().ok()
}

async fn get(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("connecting to the metrics")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_last_start() {
        let line =
            |port: u16| format!("{{\"message\":\"serving /metrics\",\"address\":\"127.0.0.1:{port}\"}}\n");
        let log = [line(1), "{}\n".to_owned(), line(2)].concat();
        assert_eq!(address(&log).as_deref(), Some("127.0.0.1:2"));
        assert_eq!(address("{}\n"), None);
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let metrics = "# HELP a_total x\na_total_more 1\na_total 3\n";
        assert_eq!(value(metrics, "a_total"), Some(3.0));
        assert_eq!(value(metrics, "b_total"), None);
    }
}
