//! The results of the tunnel benchmark and their goals, as JSON and as a table.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Result;
use serde::Serialize;

use crate::{
    goals::{self, Row, row, without_goal},
    numbers::{median, percentile, rounded},
    report,
};

/// The goals hold for a link of this rate and round trip, and for this many agents.
const GOAL_MEGABITS: u32 = 200;
const GOAL_ROUND_TRIP_MS: f64 = 50.0;
const GOAL_AGENTS: u32 = 1_000;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    pub megabits_per_second: u32,
    pub round_trip_ms: f64,
    /// The algorithm with which TCP reacts to losses, on both sides of the link.
    pub congestion_control: String,
    /// The number of parallel connections to the target.
    pub connections: u32,
    pub download: Comparison,
    pub upload: Comparison,
    /// One connection alone, whose rate the window of one stream limits.
    pub single_download: Comparison,
    pub latency: Latency,
    pub lossy_link: LossyLink,
    /// From a reset of all connections of the agent until a request passes.
    pub reconnect_after_reset_s: f64,
    /// From the moment at which the network loses all data of these connections until a request passes.
    pub reconnect_after_black_hole_s: f64,
    pub agents: u32,
    /// The connections of each of these agents.
    pub connections_per_agent: u32,
    /// From the end of the hub until agents are connected to its successor.
    pub agents_back_median_s: f64,
    pub agents_back_p99_s: f64,
    pub agents_back_last_s: f64,
    /// The resident memory of the hub without agents, and with all of them idle.
    pub hub_empty_mib: f64,
    pub hub_full_mib: f64,
    pub hub_kib_per_agent: f64,
    pub agent: AgentSize,
}

/// Rates in megabits per second: the median of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    pub direct: f64,
    pub tunnel: f64,
    /// How much lower the rate through the tunnel is, in percent. Zero if it is not lower.
    pub loss_percent: f64,
}

impl Comparison {
    /// Compares the rates of all rounds.
    pub fn of(direct: &[f64], tunnel: &[f64]) -> Self {
        let (direct, tunnel) = (median(direct), median(tunnel));
        let loss = (1.0 - tunnel / direct.max(0.001)) * 100.0;
        Self { direct: rounded(direct), tunnel: rounded(tunnel), loss_percent: rounded(loss.max(0.0)) }
    }
}

/// Round trips of small messages in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    pub messages: usize,
    pub direct_median_ms: f64,
    pub tunnel_median_ms: f64,
    /// What the tunnel adds at the median. Zero if it adds nothing.
    pub added_median_ms: f64,
    pub direct_p99_ms: f64,
    pub tunnel_p99_ms: f64,
}

impl Latency {
    pub fn of(direct: &[Duration], tunnel: &[Duration]) -> Self {
        let milliseconds =
            |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>();
        let (direct, tunnel) = (milliseconds(direct), milliseconds(tunnel));
        Self {
            messages: tunnel.len(),
            direct_median_ms: rounded(median(&direct)),
            tunnel_median_ms: rounded(median(&tunnel)),
            added_median_ms: rounded((median(&tunnel) - median(&direct)).max(0.0)),
            direct_p99_ms: rounded(percentile(&direct, 99)),
            tunnel_p99_ms: rounded(percentile(&tunnel, 99)),
        }
    }
}

/// A link of the same rate that loses packets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LossyLink {
    pub round_trip_ms: f64,
    /// How many packets are lost in each direction.
    pub loss_percent: f64,
    pub download: Comparison,
    pub single_download: Comparison,
    pub latency: Latency,
}

/// The agent's process after it has carried all traffic, and its binary.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AgentSize {
    pub resident_mib: f64,
    pub peak_mib: f64,
    pub binary_mb: f64,
}

impl Figures {
    /// Sets how long the agents took to come back.
    pub fn set_agents_back(&mut self, times: &[Duration]) {
        let times: Vec<_> = times.iter().map(Duration::as_secs_f64).collect();
        self.agents_back_median_s = rounded(median(&times));
        self.agents_back_p99_s = rounded(percentile(&times, 99));
        self.agents_back_last_s = rounded(percentile(&times, 100));
    }

    pub fn set_hub_memory(&mut self, empty_mib: f64, full_mib: f64) {
        self.hub_empty_mib = rounded(empty_mib);
        self.hub_full_mib = rounded(full_mib);
        let growth = (full_mib - empty_mib).max(0.0) * 1024.0;
        self.hub_kib_per_agent = rounded(growth / f64::from(self.agents.max(1)));
    }
}

/// Writes the results to a file.
pub fn write(path: &Path, figures: &Figures) -> Result<()> {
    report::write(path, &BTreeMap::from([("tunnel", figures)]))
}

fn rows(figures: &Figures) -> Vec<Row> {
    let mut rows = traffic_rows(figures);
    rows.extend(lossy_rows(&figures.lossy_link));
    rows.extend(connection_rows(figures));
    rows
}

fn traffic_rows(figures: &Figures) -> Vec<Row> {
    let Figures { download, upload, single_download, latency, .. } = figures;
    let is_goal_link = figures.megabits_per_second == GOAL_MEGABITS
        && (figures.round_trip_ms - GOAL_ROUND_TRIP_MS).abs() < 0.5;
    vec![
        without_goal("download: direct", download.direct, "Mbit/s"),
        without_goal("download: through the tunnel", download.tunnel, "Mbit/s"),
        row("download: lower than direct", download.loss_percent, 30.0, "%").with_goal_if(is_goal_link),
        without_goal("upload: direct", upload.direct, "Mbit/s"),
        without_goal("upload: through the tunnel", upload.tunnel, "Mbit/s"),
        row("upload: lower than direct", upload.loss_percent, 30.0, "%").with_goal_if(is_goal_link),
        without_goal("download, one connection: direct", single_download.direct, "Mbit/s"),
        without_goal("download, one connection: through the tunnel", single_download.tunnel, "Mbit/s"),
        without_goal("round trip at the median: direct", latency.direct_median_ms, "ms"),
        without_goal("round trip at the median: through the tunnel", latency.tunnel_median_ms, "ms"),
        row("round trip at the median: added", latency.added_median_ms, 1.0, "ms"),
    ]
}

fn lossy_rows(link: &LossyLink) -> Vec<Row> {
    let LossyLink { download, single_download, latency, .. } = link;
    vec![
        without_goal("losses: download, direct", download.direct, "Mbit/s"),
        without_goal("losses: download, through the tunnel", download.tunnel, "Mbit/s"),
        without_goal("losses: one connection, direct", single_download.direct, "Mbit/s"),
        without_goal("losses: one connection, through the tunnel", single_download.tunnel, "Mbit/s"),
        without_goal("losses: p99 of round trips, direct", latency.direct_p99_ms, "ms"),
        without_goal("losses: p99 of round trips, through the tunnel", latency.tunnel_p99_ms, "ms"),
    ]
}

fn connection_rows(figures: &Figures) -> Vec<Row> {
    let agent = &figures.agent;
    let is_large = figures.agents >= GOAL_AGENTS;
    vec![
        row("reconnect after a reset", figures.reconnect_after_reset_s, 3.0, "s"),
        row("reconnect after a black hole", figures.reconnect_after_black_hole_s, 30.0, "s"),
        without_goal("agents back after the hub was killed: median", figures.agents_back_median_s, "s"),
        row("agents back after the hub was killed: p99", figures.agents_back_p99_s, 10.0, "s")
            .with_goal_if(is_large),
        row("hub: memory per idle agent", figures.hub_kib_per_agent, 64.0, "KiB").with_goal_if(is_large),
        row("agent: resident memory", agent.resident_mib, 10.0, "MiB"),
        row("agent: binary", agent.binary_mb, 6.0, "MB"),
    ]
}

/// Returns the results as a table.
pub fn table(figures: &Figures) -> String {
    let Figures { megabits_per_second, round_trip_ms, connections, agents, connections_per_agent, .. } =
        figures;
    let Figures { congestion_control, lossy_link: lossy, .. } = figures;
    let title = format!(
        "link of {megabits_per_second} Mbit/s, round trip {round_trip_ms} ms (with losses: {} ms, {} %); TCP with \
         {congestion_control}; {connections} connections to the target; {agents} agents with {connections_per_agent} connections \
         each",
        lossy.round_trip_ms, lossy.loss_percent
    );
    goals::table(&title, &rows(figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_latencies_are_compared_at_the_median() {
        let rates = Comparison::of(&[100.0, 200.0, 190.0], &[150.0, 1.0, 152.0]);
        assert!((rates.loss_percent - 21.053).abs() < 1e-9, "{rates:?}");
        let faster = Comparison::of(&[100.0], &[101.0]);
        assert!(faster.loss_percent.abs() < 1e-9, "{faster:?}");
        let ms =
            |values: &[u64]| values.iter().map(|value| Duration::from_millis(*value)).collect::<Vec<_>>();
        let latency = Latency::of(&ms(&[50, 51, 90]), &ms(&[51, 53, 52]));
        assert!((latency.added_median_ms - 1.0).abs() < 1e-9, "{latency:?}");
    }

    #[test]
    fn goals_are_those_of_the_documented_link_and_number_of_agents() {
        let rows = [(200, 50.0, 1_000, 9), (100, 50.0, 1_000, 7), (200, 10.0, 1_000, 7), (200, 50.0, 10, 7)];
        for (megabits_per_second, round_trip_ms, agents, expected) in rows {
            let mut figures = Figures { megabits_per_second, round_trip_ms, agents, ..Figures::default() };
            figures.set_hub_memory(10.0, 20.0);
            let table = table(&figures);
            assert_eq!(table.matches('≤').count(), expected, "{table}");
        }
    }
}
