//! Messages between processes that bring file descriptors (`SCM_RIGHTS`, see `unix(7)`).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The control part of a message, as the system reads and writes it. There is room for one descriptor more than we send, so
/// that we notice if others send more.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    descriptors: [RawFd; 2],
}

/// The control part's length with one descriptor, and with none.
const WITH_ONE: usize = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
const EMPTY: usize = size_of::<libc::cmsghdr>();

// SAFETY: the functions only compute.
const _: () = unsafe {
    assert!(
        libc::CMSG_LEN(0) as usize == EMPTY && libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize == WITH_ONE
    );
    assert!(libc::CMSG_SPACE(2 * size_of::<RawFd>() as u32) as usize == size_of::<Control>());
};

/// What [`receive`] returns.
#[derive(Debug)]
pub struct Received {
    /// How many bytes came; 0 if the socket's other end is closed.
    pub bytes: usize,
    /// At most two of the descriptors that came with them.
    pub descriptors: Vec<OwnedFd>,
    /// True if there were more descriptors. The system has closed those.
    pub truncated: bool,
}

/// Sends a message with a descriptor, and blocks while the socket is full. Returns how many of the bytes were sent. The
/// descriptor goes with the first.
///
/// # Errors
/// The system's.
pub fn send(socket: &UnixStream, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: a structure of integers.
    let mut control: Control = unsafe { zeroed() };
    control.header.cmsg_len = WITH_ONE as _;
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    control.descriptors[0] = descriptor.as_raw_fd();
    // The system only reads what is sent.
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let header = header(&mut part, &mut control);
    // SAFETY: the header refers to locals and to the message, with their lengths.
    uninterrupted(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })
}

/// Receives bytes and the descriptors that come with them. Blocks until there are any, or until the socket's own timeout.
///
/// # Errors
/// The system's.
#[allow(clippy::unnecessary_cast, reason = "the lengths have another type in another C library")]
pub fn receive(socket: &UnixStream, message: &mut [u8]) -> io::Result<Received> {
    // SAFETY: a structure of integers.
    let mut control: Control = unsafe { zeroed() };
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: message.len() };
    let mut header = header(&mut part, &mut control);
    // SAFETY: the header refers to locals and to the message, with their lengths.
    let bytes = uninterrupted(|| unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC)
    })?;
    let truncated = header.msg_flags & libc::MSG_CTRUNC != 0;
    let written = header.msg_controllen as usize;
    let Control { header: kind, descriptors } = &control;
    let count = match (kind.cmsg_level, kind.cmsg_type) {
        (libc::SOL_SOCKET, libc::SCM_RIGHTS) if written >= EMPTY => {
            (kind.cmsg_len as usize).saturating_sub(EMPTY) / size_of::<RawFd>()
        }
        _ => 0,
    };
    // SAFETY: the system has just opened these for us.
    let descriptors =
        descriptors.iter().take(count).map(|raw| unsafe { OwnedFd::from_raw_fd(*raw) }).collect();
    Ok(Received { bytes, descriptors, truncated })
}

fn header(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a structure of integers and pointers.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut *control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    header
}

/// Makes a system call again if a signal interrupts it.
fn uninterrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
