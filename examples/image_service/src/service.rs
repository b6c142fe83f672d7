//! The HTTP side: what a request means, and what becomes of errors.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{BoxError, Router};
use gpustream::ErrorKind;
use image_service::blur::Blur;
use image_service::image::Image;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task;
use tokio::time::timeout;

/// The longest body that we read.
const MOST_BYTES: usize = 64 << 20;
/// A request that waits longer than this for memory is refused.
const PATIENCE: Duration = Duration::from_secs(30);

struct Service {
    blur: Arc<Blur>,
    /// Told when the device has failed: then this process cannot serve any more.
    lost: Notify,
}

#[derive(Deserialize)]
struct Wanted {
    radius: Option<u32>,
}

/// Serves until `stop` resolves. Requests that are under way by then are finished.
///
/// # Errors
/// The device failed: a supervisor should start the process again.
pub(crate) async fn serve(
    listener: TcpListener,
    blur: Arc<Blur>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let service = Arc::new(Service { blur: blur.clone(), lost: Notify::new() });
    let router = Router::new()
        .route("/blur", post(blur_image))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(service.clone());
    let either = async move {
        tokio::select! {
            () = stop => {}
            () = service.lost.notified() => {}
        }
    };
    axum::serve(listener, router).with_graceful_shutdown(either).await?;
    // What clients gave up on may still run.
    blur.drain().await?;
    Ok(())
}

/// `POST /blur?radius=3` with a PNG file answers with a PNG file.
async fn blur_image(State(service): State<Arc<Service>>, wanted: Query<Wanted>, file: Bytes) -> Response {
    match blurred(&service, wanted.radius.unwrap_or(3).min(100), file).await {
        Ok(file) => ([(header::CONTENT_TYPE, "image/png")], file).into_response(),
        Err((status, text)) => (status, text).into_response(),
    }
}

async fn blurred(service: &Service, radius: u32, file: Bytes) -> Result<Vec<u8>, (StatusCode, String)> {
    let refuse = |status| move |error: BoxError| (status, format!("{error}\n"));
    // The header says how large the image is, and nothing is decoded before there is memory for it.
    let most = service.blur.most_pixels();
    let pixels = Image::pixels_of(&file).map_err(|error| refuse(StatusCode::BAD_REQUEST)(error.into()))?;
    if pixels > most {
        let text = format!("the image has {pixels} pixels, and this service takes at most {most}\n");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let memory = timeout(PATIENCE, service.blur.reserve(pixels)).await;
    let Ok(Ok(_memory)) = memory else {
        return Err((
            StatusCode::SERVICE_UNAVAILABLE,
            "too many images are under way; try again later\n".into(),
        ));
    };
    // Packing and unpacking take a processor's time, so they must not run on the executor's threads.
    let image = on_processor(move || Image::decode(&file)).await.map_err(refuse(StatusCode::BAD_REQUEST))?;
    let image = service.blur.run(image, radius).await.map_err(|error| {
        if error.kind() == ErrorKind::DeviceLost {
            service.lost.notify_one();
        }
        refuse(StatusCode::SERVICE_UNAVAILABLE)(error.into())
    })?;
    on_processor(move || image.encode()).await.map_err(refuse(StatusCode::INTERNAL_SERVER_ERROR))
}

async fn on_processor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, BoxError> {
    Ok(task::spawn_blocking(work).await??)
}

/// `GET /metrics` answers in the text form that Prometheus reads.
async fn metrics(State(service): State<Arc<Service>>) -> (StatusCode, String) {
    let metrics = service.blur.device().metrics();
    let mut text = String::new();
    for (name, value) in [
        ("gpu_operations_total", metrics.submitted),
        ("gpu_operations_pending", metrics.pending),
        ("gpu_longest_queue", metrics.longest_queue),
        ("gpu_memory_used_bytes", metrics.device_memory.used),
        ("gpu_memory_reserved_bytes", metrics.device_memory.reserved),
        ("gpu_pinned_used_bytes", metrics.pinned_memory.used),
        ("gpu_lost", u64::from(metrics.fault.is_some())),
    ] {
        let _ = writeln!(text, "{name} {value}");
    }
    let status = if metrics.fault.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, text)
}
