//! Operations cut off at moments that nobody chose.

use std::time::Duration;

use chandler_tool::generated::tool::{ApplyRequest, Package, ReleaseStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;

use super::packages::about;
use crate::{
    Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    order::recovering,
    tool::{Running, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "anywhere/killed",
        None,
        killed,
        "A process killed at any moment leaves a state from which the next recovers."
    ),
    case!("anywhere/cancelled", None, cancelled, "So does an operation cancelled at any moment."),
];

const OBJECTS: usize = 30;
/// Spread over an operation of this size, from before its first request to after its last.
const MOMENTS: [u64; 6] = [0, 20, 50, 90, 140, 220];

#[derive(Clone, Copy, Debug)]
enum Cut {
    Kill,
    Cancel,
}

impl Cut {
    async fn after(self, moment: u64, tool: &Tool, running: Running, id: &str) -> Result<(), CaseError> {
        tokio::time::sleep(Duration::from_millis(moment)).await;
        match self {
            Self::Kill => tool.supervisor().kill().await,
            Self::Cancel => drop(tool.cancel(id).await?),
        }
        drop(running);
        Ok(())
    }
}

fn many(version: &'static str) -> Chart {
    let object =
        |index: usize| CONFIG.replace("{{ .Release.Name }}", &format!("{{{{ .Release.Name }}}}-{index}"));
    (0..OBJECTS).fold(Chart::new("many").version(version), |chart, index| {
        chart.template(&format!("{index}.yaml"), object(index))
    })
}

async fn killed(context: &Context) -> Result<(), CaseError> {
    cut(context, Cut::Kill).await
}

async fn cancelled(context: &Context) -> Result<(), CaseError> {
    cut(context, Cut::Cancel).await
}

async fn cut(context: &Context, cut: Cut) -> Result<(), CaseError> {
    let (old, new) = (context.pack(&many("1.0.0"))?, context.pack(&many("2.0.0"))?);
    for moment in MOMENTS {
        let life = async {
            let tool = context.own_tool();
            let request = context.install("web", &old, "");
            let id = request.operation_id.clone();
            cut.after(moment, &tool, tool.begin_apply(request).await?, &id).await?;
            made_good(context, &old).await?;

            let tool = context.own_tool();
            let request = context.upgrade("web", &new, "");
            let id = request.operation_id.clone();
            cut.after(moment, &tool, tool.begin_apply(request).await?, &id).await?;
            made_good(context, &new).await?;

            let tool = context.own_tool();
            let request = context.removal("web");
            let id = request.operation_id.clone();
            cut.after(moment, &tool, tool.begin_remove(request).await?, &id).await?;
            context.tool.remove(context.removal("web")).await?.absent()?;
            ensure!(objects(context).await? == 0, "{} objects are left", objects(context).await?);
            context.agree_absent("web").await
        };
        life.await.map_err(|error: CaseError| about(&format!("{cut:?} after {moment} ms"), &error))?;
    }
    Ok(())
}

/// What a controller does about whatever it finds.
async fn made_good(context: &Context, package: &Package) -> Result<(), CaseError> {
    let request: ApplyRequest = match context.observe("web").await? {
        None => context.install("web", package, "size: 9"),
        Some(state) if state.status() == ReleaseStatus::Uninstalled => {
            context.install("web", package, "size: 9")
        }
        Some(_) => recovering(context.upgrade("web", package, "size: 9")),
    };
    let state = context.tool.apply(request).await?.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "recovering left {}", state.status().as_str_name());
    context.agree(&state).await?;
    let found = objects(context).await?;
    ensure!(found == OBJECTS, "{found} of {OBJECTS} objects are there after recovering");
    Ok(())
}

async fn objects(context: &Context) -> Result<usize, CaseError> {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=Helm");
    Ok(context.api::<ConfigMap>().list(&ours).await?.items.len())
}
