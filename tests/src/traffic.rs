//! Servers that answer with their name, and clients that count who answered.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
    sockopt,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket as AsyncUdpSocket},
    sync::oneshot,
};

use crate::netns::Namespace;

/// How long a client waits for anything. Only a failure takes so long.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// What clients send.
const QUESTION: &[u8] = b"who?";

/// A server on a host. Stops when dropped.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `port`, TCP and UDP, on every address of both families, and serves both.
    ///
    /// # Errors
    /// Where the port is taken.
    pub fn start<T: Future<Output = ()>, U: Future<Output = ()>>(
        host: &Namespace,
        port: u16,
        serve_tcp: impl FnOnce(TcpListener) -> T + Send + 'static,
        serve_udp: impl FnOnce(AsyncUdpSocket) -> U + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (started, start) = std::sync::mpsc::channel();
        let thread = host.spawn(move || async move {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let bound =
                async { io::Result::Ok((TcpListener::bind(any).await?, AsyncUdpSocket::bind(any).await?)) };
            match bound.await {
                Ok((listener, socket)) => {
                    let _ = started.send(Ok(()));
                    tokio::select! {
                        () = serve_tcp(listener) => {}
                        () = serve_udp(socket) => {}
                        _ = stopped => {}
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        });
        start.recv()?.with_context(|| format!("{}: port {port}", host.role()))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Its panic is reported by its own thread; a second one in a destructor would abort the test run.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A server that answers to every TCP segment and every datagram with the host's role.
#[derive(Debug)]
pub struct NameServer {
    _server: Server,
}

impl NameServer {
    /// Listens on `port`, TCP and UDP, on every address of both families.
    ///
    /// # Errors
    /// Where the port is taken.
    pub fn start(host: &Namespace, port: u16) -> Result<Self> {
        let name = host.role().to_owned();
        Self::start_telling(host, port, move |_| name.clone())
    }

    /// The same, and each answer also names the address that the question came from: `NAME ADDRESS`.
    ///
    /// # Errors
    /// Where the port is taken.
    pub fn start_naming_clients(host: &Namespace, port: u16) -> Result<Self> {
        let name = host.role().to_owned();
        Self::start_telling(host, port, move |client| format!("{name} {}", client.ip().to_canonical()))
    }

    fn start_telling(
        host: &Namespace,
        port: u16,
        answer: impl Fn(SocketAddr) -> String + Clone + Send + 'static,
    ) -> Result<Self> {
        let same = answer.clone();
        let server = Server::start(
            host,
            port,
            async move |listener| serve_tcp(listener, &answer).await,
            async move |socket| serve_udp(socket, &same).await,
        )?;
        Ok(Self { _server: server })
    }
}

async fn serve_tcp(listener: TcpListener, answer: &impl Fn(SocketAddr) -> String) {
    while let Ok((mut stream, client)) = listener.accept().await {
        let name = answer(client);
        tokio::spawn(async move {
            let mut question = [0; 256];
            while matches!(stream.read(&mut question).await, Ok(1..)) {
                if stream.write_all(name.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

async fn serve_udp(socket: AsyncUdpSocket, answer: &impl Fn(SocketAddr) -> String) {
    let mut question = [0; 2048];
    // An ICMP error for an earlier answer arrives as an error of the next call.
    loop {
        if let Ok((_, client)) = socket.recv_from(&mut question).await {
            let _ = socket.send_to(answer(client).as_bytes(), client).await;
        }
    }
}

/// Who answered how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Answers by name.
    pub by_name: BTreeMap<String, usize>,
    /// What went wrong, each time that something did.
    pub failures: Vec<String>,
}

impl Answers {
    fn ask(times: usize, mut once: impl FnMut() -> io::Result<String>) -> Self {
        let mut answers = Self::default();
        for _ in 0..times {
            match once() {
                Ok(name) => *answers.by_name.entry(name).or_default() += 1,
                Err(error) => answers.failures.push(error.to_string()),
            }
        }
        answers
    }
}

impl Answers {
    fn add(&mut self, other: Self) {
        for (name, count) in other.by_name {
            *self.by_name.entry(name).or_default() += count;
        }
        self.failures.extend(other.failures);
    }
}

/// A TCP connection that stays open.
#[derive(Debug)]
pub struct Connection(TcpStream);

impl Connection {
    /// Connects from a host.
    ///
    /// # Errors
    /// What the kernel says, after [`TIMEOUT`] at the latest.
    pub fn open(from: &Namespace, to: SocketAddr) -> io::Result<Self> {
        from.run(|| {
            let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(Self(stream))
        })
    }

    /// Opens connections until one is with the wanted server.
    ///
    /// # Errors
    /// What the kernel says, or that none of 100 is.
    pub fn open_with(from: &Namespace, to: SocketAddr, name: &str) -> Result<Self> {
        for _ in 0..100 {
            let mut connection = Self::open(from, to)?;
            if connection.ask()? == name {
                return Ok(connection);
            }
        }
        bail!("none of 100 connections to {to} is with {name}")
    }

    /// Asks for the server's name.
    ///
    /// # Errors
    /// What the kernel says, after [`TIMEOUT`] at the latest.
    pub fn ask(&mut self) -> io::Result<String> {
        self.0.write_all(QUESTION)?;
        let mut name = [0; 256];
        match self.0.read(&mut name)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            length => Ok(text(&name[..length])),
        }
    }
}

/// Opens `times` TCP connections, one after the other, and asks each for the server's name.
pub fn ask_tcp(from: &Namespace, to: SocketAddr, times: usize) -> Answers {
    from.run(|| {
        Answers::ask(times, || {
            let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Connection(stream).ask()
        })
    })
}

/// Opens `times` TCP connections from one port, one after the other, and asks each for the server's name. Each is closed by
/// RST, so that the port is free for the next.
pub fn ask_tcp_from(from: &Namespace, source: SocketAddr, to: SocketAddr, times: usize) -> Answers {
    from.run(|| {
        Answers::ask(times, || {
            let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
            let flags = SockFlag::SOCK_CLOEXEC;
            let stream = TcpStream::from(socket(family, SockType::Stream, flags, None)?);
            setsockopt(&stream, sockopt::ReuseAddr, &true)?;
            setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
            // connect(2) gives up after the time to send.
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            bind(stream.as_raw_fd(), &SockaddrStorage::from(source))?;
            // A process that is being started just then holds the descriptor of the connection before for a moment.
            let deadline = Instant::now() + TIMEOUT;
            while let Err(error) = connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
                if error != Errno::EADDRNOTAVAIL || Instant::now() > deadline {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Connection(stream).ask()
        })
    })
}

/// Opens TCP connections, one after the other, until `stop`, and asks each for the server's name. Each is closed by RST, or
/// TIME_WAIT would soon have every port of the client.
pub fn storm_tcp(from: &Namespace, to: SocketAddr, stop: &AtomicBool) -> Answers {
    from.run(|| {
        let mut answers = Answers::default();
        while !stop.load(Ordering::Relaxed) {
            answers.add(Answers::ask(1, || {
                let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
                Connection(stream).ask()
            }));
        }
        answers
    })
}

/// Sends `times` datagrams, each from a port of its own, and waits for the answer to each.
pub fn ask_udp(from: &Namespace, to: SocketAddr, times: usize) -> Answers {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    from.run(|| {
        Answers::ask(times, || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            // A connected socket takes answers from that address only: one from the backend's own would time out.
            socket.connect(to)?;
            socket.send(QUESTION)?;
            let mut name = [0; 256];
            let length = socket.recv(&mut name)?;
            Ok(text(&name[..length]))
        })
    })
}

/// Sends one echo request and waits for its reply.
///
/// # Errors
/// What the kernel says, after [`TIMEOUT`] at the latest.
pub fn ping(from: &Namespace, to: IpAddr) -> Result<()> {
    // Who may open such a socket: everybody.
    from.sysctl("net.ipv4.ping_group_range", "0 2147483647")?;
    from.run(|| {
        let (family, protocol, request, reply) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8, 0),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128, 129),
        };
        let socket = UdpSocket::from(socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?);
        socket.set_read_timeout(Some(TIMEOUT))?;
        // As ping(8) does, or an error that may be over in a moment is not told.
        match to {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
        }
        socket.connect((to, 0))?;
        // The kernel fills in the checksum and the identifier.
        socket.send(&[request, 0, 0, 0, 0, 0, 0, 1, b'?'])?;
        let mut answer = [0; 256];
        let length = socket.recv(&mut answer)?;
        ensure!(
            answer[..length].first() == Some(&reply) && answer[8..length] == *b"?",
            "{to} answered {:?}",
            &answer[..length]
        );
        Ok(())
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
