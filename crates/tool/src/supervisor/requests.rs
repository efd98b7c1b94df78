//! The requests that package tools have made to clusters.

use std::{collections::BTreeMap, time::Duration};

use chandler_telemetry::{RequestCount, RequestCounter};
use tonic::Request;

use super::control::Control;
use crate::generated::tool::{DescribeRequest, package_tool_client::PackageToolClient};

/// How long a process may take to return its counts.
const LIMIT: Duration = Duration::from_secs(2);

/// Sums of requests.
#[derive(Clone, Debug, Default)]
pub struct RequestSums(BTreeMap<(&'static str, &'static str), u64>);

impl RequestSums {
    pub fn add(&mut self, counts: &[RequestCount]) {
        for RequestCount { verb, result, count } in counts {
            *self.0.entry((verb, result)).or_default() += count;
        }
    }

    pub fn counts(self) -> Vec<RequestCount> {
        let counts = self.0.into_iter();
        counts.map(|((verb, result), count)| RequestCount { verb, result, count }).collect()
    }
}

/// Reads the counts of a process. Keeps the known ones if it does not answer.
pub async fn read(control: &Control) {
    let Some(channel) = control.channel() else { return };
    let mut request = Request::new(DescribeRequest {});
    request.set_timeout(LIMIT);
    let mut client = PackageToolClient::new(channel);
    let Ok(Ok(answer)) = tokio::time::timeout(LIMIT, client.describe(request)).await else { return };
    let counts = answer.into_inner().requests.into_iter().filter_map(|one| {
        let (verb, result) = RequestCounter::labels(&one.verb, &one.result)?;
        Some(RequestCount { verb, result, count: one.count })
    });
    control.set_requests(counts.collect());
}
