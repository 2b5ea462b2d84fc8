//! Much at a time: servers that take in and give out as many bytes as they are asked to, and large datagrams.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream as AsyncTcpStream, UdpSocket as AsyncUdpSocket},
};

use crate::{
    netns::Namespace,
    traffic::{Server, TIMEOUT},
};

/// How much of a transfer is under way at once.
const CHUNK: usize = 65_536;

/// Starts a server for [`exchange`] and [`echo`].
///
/// # Errors
/// Where the port is taken.
pub fn serve(host: &Namespace, port: u16) -> Result<Server> {
    Server::start(host, port, serve_tcp, serve_udp)
}

async fn serve_tcp(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(transfer(stream));
    }
}

/// The client says how many bytes it will send, and wants as many.
async fn transfer(mut stream: AsyncTcpStream) -> io::Result<()> {
    let len = stream.read_u64().await?;
    let taken = tokio::io::copy(&mut (&mut stream).take(len), &mut tokio::io::sink()).await?;
    if taken < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    tokio::io::copy(&mut tokio::io::repeat(0x5a).take(len), &mut stream).await?;
    // The client's last word is that it has got everything.
    stream.read_u8().await.map(drop)
}

async fn serve_udp(socket: AsyncUdpSocket) {
    let mut datagram = vec![0; CHUNK];
    loop {
        if let Ok((length, client)) = socket.recv_from(&mut datagram).await {
            let _ = socket.send_to(&datagram[..length], client).await;
        }
    }
}

/// Sends so many bytes to a server, and then gets as many from it, in one connection.
///
/// # Errors
/// What the kernel says; after [`TIMEOUT`] without progress at the latest.
pub fn exchange(from: &Namespace, to: SocketAddr, len: usize) -> Result<()> {
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).context("not connected")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(&(len as u64).to_be_bytes())?;
        let mut chunk = vec![0x5a; CHUNK];
        for start in (0..len).step_by(CHUNK) {
            stream
                .write_all(&chunk[..CHUNK.min(len - start)])
                .with_context(|| format!("{start} bytes sent"))?;
        }
        let mut got = 0;
        while got < len {
            match stream.read(&mut chunk).with_context(|| format!("{got} of {len} bytes received"))? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                length => got += length,
            }
        }
        stream.write_all(&[1])?;
        // It closes the connection, so it has got what was sent.
        ensure!(stream.read(&mut chunk).context("not closed")? == 0, "more than was asked for");
        Ok(())
    })
}

/// Sends a datagram to a server and waits until the same one comes back.
///
/// # Errors
/// What the kernel says, after [`TIMEOUT`] at the latest.
pub fn echo(from: &Namespace, to: SocketAddr, len: usize) -> Result<()> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let datagram: Vec<u8> = (0..len).map(|at| at.to_le_bytes()[0]).collect();
    from.run(|| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.connect(to)?;
        socket.send(&datagram)?;
        let mut answer = vec![0; CHUNK];
        let length = socket.recv(&mut answer).with_context(|| format!("no answer to {len} bytes"))?;
        ensure!(answer[..length] == datagram, "another datagram came back, of {length} bytes");
        Ok(())
    })
}
