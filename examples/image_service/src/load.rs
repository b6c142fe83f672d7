//! A client that sends a bounded number of requests, many at a time, and checks and times the answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use image_service::image::Image;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A client that keeps its connections.
pub(crate) type HttpClient = Client<HttpConnector, Body>;

pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// What to send.
pub(crate) struct Load {
    pub(crate) requests: usize,
    /// How many requests are under way at the same time.
    pub(crate) at_once: usize,
    /// Rows and columns of each image.
    pub(crate) size: usize,
    pub(crate) radius: u32,
    /// The longest that the whole may take.
    pub(crate) limit: Duration,
}

impl Load {
    /// Sends the requests. Returns how long each took, the shortest first.
    ///
    /// # Errors
    /// An answer is wrong, is missing, or comes too late.
    pub(crate) async fn run(&self, client: &HttpClient, to: SocketAddr) -> Result<Vec<Duration>> {
        let pixels = (0..(self.size * self.size) as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let image = Image { width: self.size, height: self.size, pixels };
        let (file, want) = (Bytes::from(image.encode()?), Arc::new(image.blurred(self.radius as usize)));
        let address = format!("http://{to}/blur?radius={}", self.radius);
        let (next, mut clients) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for _ in 0..self.at_once.min(self.requests) {
            let (client, file, want) = (client.clone(), file.clone(), want.clone());
            let (address, next, requests) = (address.clone(), next.clone(), self.requests);
            clients.spawn(async move {
                let mut times = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < requests {
                    times.push(one(&client, &address, file.clone(), &want).await?);
                }
                Ok::<_, anyhow::Error>(times)
            });
        }
        let all = async {
            let mut times = Vec::new();
            while let Some(some) = clients.join_next().await {
                times.extend(some??);
            }
            times.sort();
            Ok(times)
        };
        timeout(self.limit, all).await.with_context(|| format!("the load took more than {:?}", self.limit))?
    }
}

/// Sends one request and checks the answer.
async fn one(client: &HttpClient, address: &str, file: Bytes, want: &Image) -> Result<Duration> {
    let start = Instant::now();
    let response = client.request(Request::post(address).body(Body::from(file))?).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    let taken = start.elapsed();
    ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&answer));
    // The answer is one of thousands, and unpacking all of them would measure the client.
    if answer.len() % 16 == 0 {
        let got = tokio::task::spawn_blocking(move || Image::decode(&answer)).await??;
        ensure!(got == *want, "the answer is another image");
    }
    Ok(taken)
}
