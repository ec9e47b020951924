//! The router as a connection sees it.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Extensions, HeaderValue, Request, header};
use axum::response::Response;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tower::ServiceExt;

/// Bytes of an unread body that are read for the sake of the connection.
const DISCARDED_BYTES_MAX: usize = 64 << 10;
/// How often in a row the library may have nothing of a body before the rest counts as not received.
const EMPTY_LOOKS_MAX: usize = 2;

/// Passes requests to the router, and sees to it that a connection outlives an answer to an unread body.
pub(super) struct Requests {
    router: Router,
    client: ClientAddress,
    side: Side,
}

/// The address that the connection of a request comes from, in the extensions of the request. An IPv6 network of 64 bits is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) IpAddr);

impl ClientAddress {
    /// Of a request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> IpAddr {
        let known = extensions.get::<Self>();
        known.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |known| known.0)
    }
}

/// Where the connection of a request comes from, in the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This machine.
    Own,
    Other,
}

impl Side {
    /// Of a connection from this address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical().is_loopback() {
            true => Self::Own,
            false => Self::Other,
        }
    }
}

impl Requests {
    pub(super) fn new(router: Router, client: ClientAddress, side: Side) -> Self {
        Self {
            router,
            client,
            side,
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.client);
        request.extensions_mut().insert(self.side);
        let router = self.router.clone();
        Box::pin(async move {
            // Reading on would tell the client to send what nobody wants.
            let is_discardable = !request.headers().contains_key(header::EXPECT);
            let returned = Arc::default();
            let request = request.map(|body| {
                Body::new(LentBody {
                    body: Some(body),
                    returned: Arc::clone(&returned),
                })
            });
            let mut response = router.oneshot(request).await?;
            let returned =
                std::mem::take(&mut *returned.lock().unwrap_or_else(PoisonError::into_inner));
            let goes_on = match returned {
                Returned::Finished => true,
                Returned::Unread(body) => is_discardable && discard(body).await,
                Returned::Broken => false,
            };
            if !goes_on {
                // Where the next request begins is not known, or not worth reading up to.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok(response)
        })
    }
}

/// What is left of a body when the router is done with it.
#[derive(Default)]
enum Returned {
    /// Nothing: it was read, or there was none.
    #[default]
    Finished,
    Unread(Incoming),
    /// Its end was not found.
    Broken,
}

/// A body that comes back when it was not read to its end.
struct LentBody {
    body: Option<Incoming>,
    returned: Arc<Mutex<Returned>>,
}

impl LentBody {
    fn give_back(&self, returned: Returned) {
        *self.returned.lock().unwrap_or_else(PoisonError::into_inner) = returned;
    }
}

impl hyper::body::Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        if let Some(Err(_)) = &frame {
            self.give_back(Returned::Broken);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.give_back(Returned::Unread(body));
        }
    }
}

/// Reads what has been received of a body and drops it; true when that was all. Never waits for the client.
async fn discard(mut body: Incoming) -> bool {
    let (mut bytes, mut empty_looks) = (0, 0);
    while bytes <= DISCARDED_BYTES_MAX && empty_looks <= EMPTY_LOOKS_MAX {
        let frame = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await;
        match frame {
            Poll::Ready(None) => return true,
            Poll::Ready(Some(Err(_))) => return false,
            Poll::Ready(Some(Ok(frame))) => {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                empty_looks = 0;
            }
            // The library reads from the socket only when it is asked, and after us.
            Poll::Pending => {
                empty_looks += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    false
}
