//! Lists and watches the records of one cluster without a connection that is kept, to measure what its API server can cause.

use std::sync::Arc;

use chandler_core::{
    addresses::AddressPolicy,
    failure::{Category, Failure},
    inventory::{PendingRecords, ReleaseRecords},
    target::Target,
};
use chandler_telemetry::RequestCounter;
use tokio::sync::{Notify, Semaphore};

use crate::{
    answers::Answers,
    budget::ResponseBudgets,
    deadline::WATCH_SILENCE,
    inventory::{InventoryWatch, WatchEnd},
    reach::{self, ClientOptions, TargetClient},
};

/// Lists and watches the records of a package tool on a cluster, as a connection does, but does not try again. Returns why it
/// has ended: it does not end by itself.
pub async fn follow_once(
    target: &Target,
    records: Arc<ReleaseRecords>,
    addresses: AddressPolicy,
) -> Result<(), Failure> {
    let options = ClientOptions {
        requests: RequestCounter::default(),
        watch_silence: WATCH_SILENCE,
        addresses: Arc::new(addresses),
        budgets: ResponseBudgets::default(),
    };
    reach::check_addresses(target, &options.addresses)?;
    let TargetClient { client, probe, .. } = reach::client(target, &options)?;
    let watch =
        InventoryWatch::open(client, probe, records, PendingRecords::default(), Answers::default()).await?;
    match watch.run(&Notify::new(), &Semaphore::new(1), |_, _| {}).await {
        WatchEnd::Broken { failure, .. } => Err(failure),
        WatchEnd::Expired => {
            Err(Failure::new(Category::Unreachable, "the API server ends the watch before it has begun"))
        }
        WatchEnd::ListAgain => Ok(()),
    }
}
