//! Who may send what, and for how long.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use http::{Method, Request, Response};
use tower::{BoxError, Service, util::service_fn};

/// A request's end before its answer.
type End = Pin<Box<dyn Future<Output = BoxError> + Send>>;

/// Gives what ends a request of a method.
type Ask = dyn Fn(&Method) -> Option<End> + Send + Sync;

/// Asked right before each request is sent, repetitions too.
#[derive(Clone)]
pub struct Gate(Arc<Ask>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    /// `end` gives what ends a request of this method with an error; `None`: nothing. One that has ended already is not sent.
    pub fn new(end: impl Fn(&Method) -> Option<End> + Send + Sync + 'static) -> Self {
        Self(Arc::new(end))
    }
}

/// A service behind a gate, if there is one. `inner` is always ready.
pub(crate) fn gated<S, B, R>(
    gate: Option<Gate>,
    inner: S,
) -> impl Service<
    Request<B>,
    Response = Response<R>,
    Error = BoxError,
    Future = impl Future<Output = Result<Response<R>, BoxError>> + Send,
> + Clone
+ Send
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: 'static,
{
    service_fn(move |request: Request<B>| {
        let end = gate.as_ref().and_then(|gate| (gate.0)(request.method()));
        let mut inner = inner.clone();
        async move {
            let send = async { inner.call(request).await.map_err(Into::into) };
            let Some(end) = end else { return send.await };
            tokio::select! {
                biased;
                error = end => Err(error),
                answer = send => answer,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Ends {
        Never,
        Before,
        Meanwhile,
    }

    async fn send(ends: Ends, method: Method) -> (bool, usize) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = service_fn(move |_: Request<()>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                if ends == Ends::Meanwhile {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let gate = Gate::new(move |method| {
            let end = async move {
                match ends {
                    Ends::Never => std::future::pending().await,
                    Ends::Before => {}
                    Ends::Meanwhile => tokio::task::yield_now().await,
                }
                BoxError::from("closed")
            };
            (*method != Method::GET).then(|| Box::pin(end) as End)
        });
        let request = Request::builder().method(method).body(()).unwrap();
        let answer = gated(Some(gate), server).call(request).await;
        (answer.is_ok(), sent.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_closed_gate_lets_nothing_out() {
        assert_eq!(send(Ends::Never, Method::POST).await, (true, 1));
        assert_eq!(send(Ends::Before, Method::POST).await, (false, 0));
        assert_eq!(send(Ends::Meanwhile, Method::POST).await, (false, 1), "nobody waits for the answer");
        assert_eq!(send(Ends::Before, Method::GET).await, (true, 1));
    }
}
