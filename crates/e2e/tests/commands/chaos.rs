//! `chandler-sandbox chaos`: a sequence without faults passes, and the summary contains its seed.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, text},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(5);

#[tokio::test]
async fn a_sequence_is_replayed_from_its_seed() {
    let shell = Shell::new("chaos").await;
    let tool = programs::package_tool();
    // The first two steps create placements.
    let line = format!("chandler-sandbox chaos --sequences 1 --seed 1 --steps 0,1 --no-shrink --tool {tool}");
    let output = shell.run(&line, &[], LIMIT).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let summary: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&summary["passed"], &summary["failed"]), (&1.into(), &0.into()), "{summary}");
    assert!(summary["generator"].is_u64(), "{summary}");
    assert_eq!(summary["sequences"][0]["seed"], 1);
    assert_eq!(summary["sequences"][0]["steps"], 2);
}
