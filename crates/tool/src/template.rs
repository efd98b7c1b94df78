//! The template service: evaluates value templates in a process of its own.

use chandler_core::failure::{Category, Failure};
use tonic::{Response, Status, transport::Channel};

use crate::{
    client::{MESSAGE_LIMIT, local},
    generated::template::{self, template_service_client::TemplateServiceClient},
    supervisor::{CallFailure, CallRequest, Supervisor},
};

/// How often a call is made whose process ends because of another call.
const ATTEMPTS: u32 = 4;
/// How often a call has to end the process before it is believed to be the cause: the process may have been killed.
const CRASHES: u32 = 2;

/// Largest total size of the inputs of one call.
const BATCH_BYTES: usize = 16 << 20;
/// Number of inputs of one call: each output may be as large as [`MAX_OUTPUT`], and all of them are one message.
const BATCH_INPUTS: usize = MESSAGE_LIMIT / MAX_OUTPUT * 3 / 4;
/// Largest output of one input, which is the default of the service.
const MAX_OUTPUT: usize = 1 << 20;

/// The client of the process.
pub(crate) type Client = TemplateServiceClient<Channel>;
/// The key of an input, and its data as JSON.
type Input = (String, Vec<u8>);

/// Why the evaluation of a template failed for one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderFailure {
    pub message: String,
    /// Whether the process has ended, so that a retry may succeed.
    pub crashed: bool,
}

/// The template service. Clones share its process.
#[derive(Clone, Debug)]
pub struct TemplateService {
    supervisor: Supervisor,
}

impl TemplateService {
    pub fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Evaluates a template for many inputs: `(key, data as JSON)`. Returns the results in the order of the inputs. As many
    /// inputs as fit into a message are sent in one call.
    pub async fn render(
        &self,
        template: &str,
        inputs: Vec<Input>,
    ) -> Result<Vec<Result<String, RenderFailure>>, Failure> {
        let mut results = Vec::with_capacity(inputs.len());
        for batch in batches(inputs) {
            let asked = batch.len();
            let request = template::RenderRequest {
                template: template.to_owned(),
                inputs: batch.into_iter().map(|(key, data)| template::Input { key, data }).collect(),
                timeout: None,
                max_output_bytes: 0,
            };
            let send = |mut client: Client| {
                let request = local(request.clone());
                async move { client.render(request).await }
            };
            let answer = self.call(send).await;
            let outputs = match answer {
                Ok(answer) => answer.outputs,
                // Those of other templates are evaluated by another process.
                Err(crash) if crash.category == Category::ToolCrashed => {
                    let failure = RenderFailure { message: crash.message, crashed: true };
                    results.extend(std::iter::repeat_n(Err(failure), asked));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if outputs.len() != asked {
                return Err(incomplete());
            }
            for output in outputs {
                results.push(rendered(output)?);
            }
        }
        Ok(results)
    }

    /// Makes a call. If the process ends, its calls are made again, one at a time, so that only the one that ends it fails.
    pub(crate) async fn call<T, F>(&self, send: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (mut attempt, mut crashes) = (1, 0);
        loop {
            let request = CallRequest { alone: attempt > 1, ..CallRequest::default() };
            let guard = self.supervisor.acquire_for(request).await?;
            let client = Client::new(guard.channel())
                .max_decoding_message_size(MESSAGE_LIMIT)
                .max_encoding_message_size(MESSAGE_LIMIT);
            let failure = match send(client).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => guard.local_failure(&status).await,
            };
            crashes += u32::from(matches!(failure, CallFailure::Crashed(_)));
            let is_final = crashes == CRASHES || matches!(failure, CallFailure::Other(_));
            if attempt == ATTEMPTS || is_final {
                return Err(failure.into());
            }
            attempt += 1;
        }
    }
}

/// Divides inputs into calls that fit into a message, in both directions.
fn batches(inputs: Vec<Input>) -> Vec<Vec<Input>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for input in inputs {
        let size = input.0.len() + input.1.len();
        if !batch.is_empty() && (batch.len() == BATCH_INPUTS || bytes + size > BATCH_BYTES) {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += size;
        batch.push(input);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

fn rendered(output: template::Output) -> Result<Result<String, RenderFailure>, Failure> {
    match output.outcome {
        Some(template::output::Outcome::Text(text)) => Ok(Ok(text)),
        Some(template::output::Outcome::Failure(failure)) => {
            Ok(Err(RenderFailure { message: failure.message, crashed: false }))
        }
        None => Err(incomplete()),
    }
}

fn incomplete() -> Failure {
    Failure::new(Category::Internal, "the template service breaks its contract: an input has no result")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(count: usize, size: usize) -> Vec<Input> {
        (0..count).map(|number| (format!("fleet/c{number}"), vec![b'x'; size])).collect()
    }

    #[test]
    fn the_inputs_of_a_fleet_are_divided_into_messages() {
        let rows = [
            (0, 0, 0),
            (1, 100, 1),
            (BATCH_INPUTS, 100, 1),
            (BATCH_INPUTS + 1, 100, 2),
            (3, BATCH_BYTES / 2 + 1, 3),
        ];
        for (count, size, expected) in rows {
            let all = inputs(count, size);
            let divided = batches(all.clone());
            assert_eq!(divided.len(), expected, "{count} of {size} bytes");
            assert_eq!(divided.concat(), all, "in the same order");
        }
    }

    #[test]
    fn a_large_fleet_with_large_objects_fits_into_messages() {
        let bytes =
            |batch: &Vec<Input>| batch.iter().map(|(key, data)| key.len() + data.len()).sum::<usize>();
        let divided = batches(inputs(1_000, 65 << 10));
        assert!(divided.iter().all(|batch| bytes(batch) <= BATCH_BYTES));
        assert!(divided.iter().all(|batch| batch.len() * MAX_OUTPUT < MESSAGE_LIMIT));
    }
}
