//! The head of an HTTP/1.1 message, read with a bounded size.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The largest head, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 8 * 1024;

const END: &[u8] = b"\r\n\r\n";

/// A head that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("the connection was closed before the end of the head")]
    Closed,
    #[error("the head has more than {MAX_HEAD_BYTES} bytes")]
    TooLarge,
    #[error("the head is not HTTP/1.1")]
    Malformed,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The start line and the headers of a message.
pub(crate) struct Head {
    text: String,
}

impl Head {
    /// Reads a head. Also returns the bytes after it that were read with it.
    pub async fn read<R: AsyncRead + Unpin>(io: &mut R) -> Result<(Self, Bytes), HeadError> {
        let mut buffer = BytesMut::with_capacity(1024);
        loop {
            let seen = buffer.len();
            if io.read_buf(&mut buffer).await? == 0 {
                return Err(HeadError::Closed);
            }
            // The end may have begun in what was seen before.
            let from = seen.saturating_sub(END.len() - 1);
            if let Some(at) = buffer[from..].windows(END.len()).position(|window| window == END) {
                if from + at > MAX_HEAD_BYTES {
                    return Err(HeadError::TooLarge);
                }
                let head = buffer.split_to(from + at + END.len());
                let text =
                    str::from_utf8(&head[..head.len() - END.len()]).map_err(|_| HeadError::Malformed)?;
                return Ok((Self::parse(text)?, buffer.freeze()));
            }
            if buffer.len() > MAX_HEAD_BYTES {
                return Err(HeadError::TooLarge);
            }
        }
    }

    fn parse(text: &str) -> Result<Self, HeadError> {
        let has_bare_control =
            text.replace("\r\n", "").contains(|char: char| char.is_control() && char != '\t');
        let headers_have_colons = text.split("\r\n").skip(1).all(|line| {
            line.split_once(':').is_some_and(|(name, _)| !name.is_empty() && !name.contains([' ', '\t']))
        });
        if has_bare_control || !headers_have_colons {
            return Err(HeadError::Malformed);
        }
        Ok(Self { text: text.to_owned() })
    }

    pub fn start_line(&self) -> &str {
        self.text.split("\r\n").next().unwrap_or_default()
    }

    /// Returns all values of a header.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let headers = self.text.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        headers.filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read(text: &[u8]) -> Result<(Head, Bytes), HeadError> {
        Head::read(&mut &text[..]).await
    }

    #[tokio::test]
    async fn head_and_the_bytes_after_it_are_separated() {
        let (head, rest) =
            read(b"GET / HTTP/1.1\r\nHost: a\r\nx-y:  b \r\nX-Y: c\r\n\r\nrest\r\n\r\n").await.unwrap();
        assert_eq!(head.start_line(), "GET / HTTP/1.1");
        assert_eq!(head.values("X-y").collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(head.values("y").count(), 0);
        assert_eq!(&rest[..], b"rest\r\n\r\n");
    }

    #[tokio::test]
    async fn heads_that_are_not_http_are_refused() {
        for text in [
            &b"GET / HTTP/1.1\r\nno colon\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
            b"GET / HTTP/1.1\r\nfolded: a\r\n b: c\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
        ] {
            let error = read(text).await.map(|_| ()).unwrap_err();
            assert!(matches!(error, HeadError::Malformed), "{text:?}: {error}");
        }
        assert!(matches!(read(b"GET / HTTP/1.1\r\n").await, Err(HeadError::Closed)));
        let endless = [b"GET / HTTP/1.1\r\nx: ", vec![b'y'; 2 * MAX_HEAD_BYTES].as_slice()].concat();
        assert!(matches!(read(&endless).await, Err(HeadError::TooLarge)));
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(cuts in proptest::collection::vec(1..9_usize, 0..40)) {
            let text = b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nX: y\r\n\r\n\r\nmore";
            let mut mock = Chunks { text, cuts, at: 0 };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (head, rest) = runtime.block_on(Head::read(&mut mock)).unwrap();
            prop_assert_eq!(head.start_line(), "CONNECT a:1 HTTP/1.1");
            prop_assert_eq!(head.values("x").collect::<Vec<_>>(), ["y"]);
            prop_assert!(b"\r\nmore".starts_with(&rest));
        }
    }

    /// A reader that delivers a text in chunks.
    struct Chunks {
        text: &'static [u8],
        cuts: Vec<usize>,
        at: usize,
    }

    impl AsyncRead for Chunks {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let size = self.cuts.pop().unwrap_or(5).min(self.text.len() - self.at).min(buffer.remaining());
            let text = self.text;
            buffer.put_slice(&text[self.at..self.at + size]);
            self.at += size;
            std::task::Poll::Ready(Ok(()))
        }
    }
}
